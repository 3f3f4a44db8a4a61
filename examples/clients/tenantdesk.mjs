// A client for TenantDesk in one file, for Node.js 18 and newer. It needs nothing else. Copy it.
//
//     import { Desk } from "./tenantdesk.mjs";
//
//     const desk = new Desk("https://desk.example", "tdk_…");
//     const shop = await desk.create("customers", { name: "Shop", city: "Berlin" });
//     await desk.update("customers", shop.id, { status: "inactive" });
//     for await (const customer of desk.all("customers", { status: "inactive", sort: "-created_at" })) {
//       console.log(customer.name);
//     }
//
// For servers and scripts, not for a page in a browser: whoever sees the page would have the key.

import { randomUUID } from "node:crypto";

/** An answer that is an error. `fields` says what is wrong with which field, where that is the error. */
export class DeskError extends Error {
  constructor(status, code, message, fields = {}, requestId = null) {
    super(`${status} ${code}: ${message} (request ${requestId})`);
    Object.assign(this, { name: "DeskError", status, code, fields, requestId });
  }
}

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

/** One tenant's records. `tries` bounds how often a request is sent; a change takes effect once all the same. */
export class Desk {
  constructor(url, key, { tries = 5, timeout = 70_000 } = {}) {
    Object.assign(this, { url: url.replace(/\/+$/, ""), key, tries, timeout });
  }

  create(resource, fields) {
    return this.#call("POST", resource, {}, fields);
  }

  get(resource, id) {
    return this.#call("GET", resource, { id });
  }

  update(resource, id, fields) {
    return this.#call("PUT", resource, { id }, fields);
  }

  delete(resource, id) {
    return this.#call("DELETE", resource, { id });
  }

  /** One page: `{ data: […], next_cursor: … }`. */
  page(resource, parameters = {}) {
    return this.#call("GET", resource, parameters);
  }

  /** Every record that matches, page by page, each once. */
  async *all(resource, parameters = {}) {
    let cursor = null;
    do {
      const page = await this.page(resource, { limit: 200, ...parameters, ...(cursor && { cursor }) });
      yield* page.data;
      cursor = page.next_cursor;
    } while (cursor !== null);
  }

  async #call(method, resource, parameters = {}, body = undefined) {
    const query = new URLSearchParams(parameters).toString();
    const address = `${this.url}/${resource}.php${query && `?${query}`}`;
    const headers = { Authorization: `Bearer ${this.key}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    // The same in every try: whether or not the first one arrived, it takes effect once.
    if (method !== "GET") headers["Idempotency-Key"] = randomUUID();
    for (let triesLeft = this.tries - 1; ; triesLeft--) {
      let answer, text;
      try {
        const signal = AbortSignal.timeout(this.timeout);
        answer = await fetch(address, { method, headers, body: JSON.stringify(body), signal });
        text = await answer.text();
      } catch (error) {
        if (triesLeft <= 0) throw error;
        await sleep(1);
        continue;
      }
      if (answer.ok) return text ? JSON.parse(text) : null;
      if (![429, 502, 503, 504].includes(answer.status) || triesLeft <= 0) throw failure(answer, text);
      await sleep(Number(answer.headers.get("Retry-After") ?? 1));
    }
  }
}

function failure(answer, text) {
  const requestId = answer.headers.get("X-Request-Id");
  try {
    const { error, errors } = JSON.parse(text);
    return new DeskError(answer.status, error.code, error.message, errors, requestId);
  } catch {
    // Of a proxy in between, for instance.
    return new DeskError(answer.status, "unknown", answer.statusText, {}, requestId);
  }
}
