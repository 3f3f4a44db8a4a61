// A client for TenantDesk in one file, for Node.js 18 and newer. It needs nothing else. Copy it.
//
//     import { Desk } from "./tenantdesk.mjs";
//
//     const desk = new Desk("https://desk.example", "tdk_…");
//     const shop = await desk.create("customers", { name: "Shop", city: "Berlin" });
//     await desk.update("customers", shop.id, { status: "inactive" });
//     await desk.createOrUpdate("hardware", "serial_number", { serial_number: "PF-3X9Q7", name: "Eva's laptop" });
//     for await (const customer of desk.all("customers", { status: "inactive", sort: "-created_at" })) {
//       console.log(customer.name);
//     }
//     await desk.change("customers", shop.id, (record) => ({ notes: (record.notes ?? "") + "Called." }));
//     for await (const { entries, cursor } of desk.follow()) console.log(entries);
//
// For servers and scripts. A page in a browser would disclose the key.

import { randomUUID } from "node:crypto";

/**
 * An answer that is an error. With `validation_failed`, `fields` has the error of each field. If an operation of a batch
 * failed, `operation` is its number.
 */
export class DeskError extends Error {
  constructor(status, code, message, fields = {}, requestId = null, operation = null) {
    super(`${status} ${code}: ${message} (request ${requestId})`);
    Object.assign(this, { name: "DeskError", status, code, fields, requestId, operation });
  }
}

// What JSON cannot say would be left out of a record, or erase a field as null.
function check(name, value) {
  const isUnsaid = value === undefined || typeof value === "function" || (typeof value === "number" && !Number.isFinite(value))
    || (value instanceof Date && Number.isNaN(value.getTime()));
  if (isUnsaid) throw new TypeError(`${name} is ${value}. Send null, or leave ${name} out.`);
}

function toJson(body) {
  return JSON.stringify(body, function (name, value) {
    // `value` of an invalid date is null already.
    check(name, this[name]);
    return value;
  });
}

function toQuery(parameters) {
  const texts = Object.entries(parameters).map(([name, value]) => {
    check(name, value);
    return [name, value instanceof Date ? value.toISOString() : value];
  });
  return texts.length ? `?${new URLSearchParams(texts)}` : "";
}

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

/** One tenant's records. A request is sent at most `tries` times; a change takes effect once. */
export class Desk {
  constructor(url, key, { tries = 5, timeout = 70_000 } = {}) {
    Object.assign(this, { url: url.replace(/\/+$/, ""), key, tries, timeout });
  }

  create(resource, fields) {
    return this.#call("POST", resource, {}, fields);
  }

  /** Creates a record, or changes the record with the same value in the field `by`. Sends one request. */
  createOrUpdate(resource, by, fields) {
    return this.#call("POST", resource, { update_by: by }, fields);
  }

  /** The record. Its member `etag` is its version. */
  get(resource, id) {
    return this.#call("GET", resource, { id });
  }

  /** With a record's `etag` as `ifMatch`: 412 `precondition_failed` if the record was changed since. */
  update(resource, id, fields, { ifMatch } = {}) {
    return this.#call("PUT", resource, { id }, fields, ifMatch);
  }

  delete(resource, id, { ifMatch } = {}) {
    return this.#call("DELETE", resource, { id }, undefined, ifMatch);
  }

  /** Updates the fields that `edit(record)` returns; reads and edits again if the record was changed meanwhile. */
  async change(resource, id, edit, { tries = 20 } = {}) {
    for (let triesLeft = tries - 1; ; triesLeft--) {
      const record = await this.get(resource, id);
      try {
        return await this.update(resource, id, await edit(record), { ifMatch: record.etag });
      } catch (error) {
        if (error.status !== 412 || triesLeft <= 0) throw error;
      }
    }
  }

  /** Up to 100 operations, of which all take effect or none: `{ method, path, body, if_match }` each. Returns their results. */
  async batch(operations) {
    return (await this.#call("POST", "batch", {}, { operations })).results;
  }

  /** One page: `{ data: […], next_cursor: … }`. `{ city: null }` finds the records without a city. */
  page(resource, parameters = {}) {
    return this.#call("GET", resource, parameters);
  }

  /** Yields every matching record once, page by page. */
  async *all(resource, parameters = {}) {
    let cursor = null;
    do {
      const page = await this.page(resource, { limit: 200, ...parameters, ...(cursor && { cursor }) });
      yield* page.data;
      cursor = page.next_cursor;
    } while (cursor !== null);
  }

  /**
   * Yields `{ entries, cursor }` of the change log without an end; `entries` may be empty. Handle the entries, store the cursor,
   * and pass it to the next call. On the first call, store the first cursor and then read the lists. Do the same after an error
   * 410 `changes_gone`. `wait` is in seconds.
   */
  async *follow(cursor = "now", { wait = 5, ...parameters } = {}) {
    for (;;) {
      const page = await this.page("changes", { limit: 200, ...parameters, cursor });
      cursor = page.next_cursor;
      yield { entries: page.data, cursor };
      if (!page.more) await sleep(wait);
    }
  }

  async #call(method, resource, parameters = {}, body = undefined, ifMatch = undefined) {
    const address = `${this.url}/${resource}.php${toQuery(parameters)}`;
    const content = body && toJson(body);
    const headers = { Authorization: `Bearer ${this.key}` };
    // A misspelt field is an error.
    if (body !== undefined) Object.assign(headers, { "Content-Type": "application/json", Prefer: "handling=strict" });
    // The same for every try, so that the change takes effect once.
    if (method !== "GET") headers["Idempotency-Key"] = randomUUID();
    if (ifMatch !== undefined) headers["If-Match"] = ifMatch;
    for (let triesLeft = this.tries - 1; ; triesLeft--) {
      let answer, text;
      try {
        const signal = AbortSignal.timeout(this.timeout);
        // A redirect would turn POST into GET, or lose the key.
        answer = await fetch(address, { method, headers, body: content, signal, redirect: "manual" });
        text = await answer.text();
      } catch (error) {
        if (triesLeft <= 0) throw error;
        await sleep(1);
        continue;
      }
      if (answer.ok) return text ? JSON.parse(text) : null;
      if (![429, 502, 503, 504].includes(answer.status) || triesLeft <= 0) throw failure(answer, text);
      // A proxy may send a date, which is no number.
      await sleep(Number(answer.headers.get("Retry-After")) || 1);
    }
  }
}

function failure(answer, text) {
  const requestId = answer.headers.get("X-Request-Id");
  if (answer.status < 400) {
    const message = `The server redirects to ${answer.headers.get("Location")}. Use this address.`;
    return new DeskError(answer.status, "redirected", message, {}, requestId);
  }
  try {
    const { error, errors, operation } = JSON.parse(text);
    return new DeskError(answer.status, error.code, error.message, errors, requestId, operation);
  } catch {
    // The response of a proxy, for example, has no envelope.
    return new DeskError(answer.status, "unknown", answer.statusText, {}, requestId);
  }
}
