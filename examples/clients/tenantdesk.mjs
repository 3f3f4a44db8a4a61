// A client for TenantDesk in one file, for Node.js 18 and newer. It needs nothing else. Copy it, and tenantdesk.d.mts for TypeScript.
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
//     await desk.bulk([7, 8, 9].map((id) => ({ method: "DELETE", path: `/hardware.php?id=${id}` })));
//     const copy = await desk.mirror("desk.json");
//     console.log(Object.keys(copy.hardware).length, "devices");
//
// For servers and scripts. A page in a browser would disclose the key.

import { createHash, randomUUID } from "node:crypto";
import { open, readFile, rename } from "node:fs/promises";

/**
 * An answer that is no success, or no answer: then `status` is 0 and `code` is `no_answer`. `fields` has the error of each invalid
 * field. If operations of a batch failed, `operation` is the number of the first one, and `operations` has all that are known. The
 * message has them, too. If a record should be new and is not, `id` is its id.
 */
export class DeskError extends Error {
  constructor(status, code, reason, requestId = null, document = {}) {
    const { errors: fields = {}, operation = null, operations = [], error: { id = null } = {} } = document;
    const failed = operations.length ? operations : [{ operation, errors: fields }];
    const faults = failed.flatMap(({ operation, error, errors = {} }) => {
      const place = operation === null ? "" : `operation ${operation}: `;
      const lines = Object.entries(errors).map(([field, { message }]) => `${place}${field}: ${message}`);
      return lines.length || !error ? lines : [`${place}${error.message}`];
    });
    // The reason has the first fault.
    const more = faults.length > 1 ? faults.map((fault) => `\n  ${fault}`).join("") : "";
    super(`${status} ${code}: ${reason} (request ${requestId})${more}`);
    Object.assign(this, { name: "DeskError", status, code, reason, fields, requestId, operation, operations, id });
  }
}

// What JSON cannot say would be left out of a record, or erase a field as null.
function check(name, value) {
  const isUnsaid = value === undefined || typeof value === "function" || (typeof value === "number" && !Number.isFinite(value))
    || (value instanceof Date && Number.isNaN(value.getTime()));
  if (isUnsaid) throw new TypeError(`${name} is ${value}. Send null, or leave ${name} out.`);
}

function toJson(body) {
  // `value` of an invalid date is null, so `this` has what was sent.
  return JSON.stringify(body, function (name, value) {
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
const between = (least, most) => least + Math.random() * (most - least);

// A UUID that follows from a text.
function toUuid(text) {
  const hex = createHash("sha256").update(text).digest("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-5${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

function* cut(operations) {
  let batch = [];
  let size = 0;
  for (const operation of operations) {
    const length = Buffer.byteLength(toJson(operation));
    if (batch.length && (batch.length === 100 || size + length > 900_000)) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(operation);
    size += length;
  }
  if (batch.length) yield batch;
}

// An error of a batch whose first operation has the number `start`.
function moved(error, start) {
  if (!(error instanceof DeskError)) return error;
  const { status, code, requestId, fields, operation, operations } = error;
  const reason = start ? `In the batch that begins with operation ${start}: ${error.reason}` : error.reason;
  return new DeskError(status, code, reason, requestId, {
    errors: fields,
    operation: operation === null ? null : start + operation,
    operations: operations.map((failed) => ({ ...failed, operation: start + failed.operation })),
  });
}

/**
 * One tenant's records. A request without an answer, or with 429, 502, 503 or 504, is repeated for `patience` seconds in all, with
 * doubled pauses. One try takes `timeout` milliseconds at most. A change takes effect once: each has an idempotency key. Pass your own
 * `idempotencyKey` if your program may be killed and repeats the same change within 24 hours. A `Date` is sent as a moment, so write
 * the date of a field as a text.
 */
export class Desk {
  constructor(url, key, { patience = 120, timeout = 70_000 } = {}) {
    if (!/^https?:\/\//.test(url)) throw new TypeError(`The address must begin with https:// or http://, but it is "${url}".`);
    Object.assign(this, { url: url.replace(/\/+$/, ""), key, patience, timeout });
  }

  create(resource, fields, options = {}) {
    return this.#call("POST", resource, {}, fields, options);
  }

  /** Creates a record, or changes the record with the same value in the field `by`. Sends one request. */
  createOrUpdate(resource, by, fields, options = {}) {
    return this.#call("POST", resource, { update_by: by }, fields, options);
  }

  /** Creates a record, unless one has the same value in the field `by`. Returns its id, and whether it is new. */
  async createIfAbsent(resource, by, fields, options = {}) {
    try {
      const { id } = await this.#call("POST", resource, { update_by: by }, fields, { ...options, ifNoneMatch: "*" });
      return { id, isNew: true };
    } catch (error) {
      if (typeof error.id !== "number") throw error;
      return { id: error.id, isNew: false };
    }
  }

  /** The record. Its member `etag` is its version. `{ include: "employee,customer" }` adds the records to which it belongs. */
  get(resource, id, parameters = {}) {
    return this.#call("GET", resource, { id, ...parameters });
  }

  /** With a record's `etag` as `ifMatch`: 412 `precondition_failed` if the record was changed since. */
  update(resource, id, fields, options = {}) {
    return this.#call("PUT", resource, { id }, fields, options);
  }

  delete(resource, id, options = {}) {
    return this.#call("DELETE", resource, { id }, undefined, options);
  }

  /** Updates the fields that `edit(record)` returns. If the record was changed meanwhile, reads it and edits again. */
  async change(resource, id, edit) {
    for (let pause = 0.01; ; pause = Math.min(2 * pause, 1)) {
      const record = await this.get(resource, id);
      const fields = await edit(record);
      try {
        return await this.update(resource, id, fields, { ifMatch: record.etag });
      } catch (error) {
        if (error.status !== 412) throw error;
      }
      // Random, so that many writers do not meet again.
      await sleep(between(0, pause));
    }
  }

  /** Up to 100 operations `{ method, path, body, if_match, if_none_match }`. All take effect or none. Returns their results. */
  async batch(operations, options = {}) {
    return (await this.#call("POST", "batch", {}, { operations }, options)).results;
  }

  /**
   * Any number of operations, in batches of at most 100 and 900 kB. If one fails, its batch and the later ones have no effect, and the
   * error's `operation` counts from the first operation of all. An operation may not refer to a result of another batch.
   */
  async bulk(operations, { idempotencyKey = randomUUID() } = {}) {
    const results = [];
    for (const batch of cut(operations)) {
      const start = results.length;
      try {
        results.push(...(await this.batch(batch, { idempotencyKey: toUuid(`${idempotencyKey} ${start}`) })));
      } catch (error) {
        throw moved(error, start);
      }
    }
    return results;
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

  /**
   * Brings the copy of all records in the JSON file `path` up to date, and returns it: `copy.hardware[12]` is a device. The first call
   * reads everything, later ones only what changed. The key needs the read scopes of `resources`.
   */
  async mirror(path, resources = ["customers", "employees", "hardware"]) {
    // The change log leaves out what the key may not read, and its cursor never comes back to it.
    const { scopes } = (await this.page("whoami")).key;
    const missing = resources.map((resource) => `${resource}:read`).filter((scope) => !scopes.includes(scope));
    if (missing.length) {
      throw new DeskError(403, "insufficient_scope", `The copy would lack changes. Use a key with ${missing.join(", ")}.`);
    }
    let { cursor, copy } = await stored(path, resources);
    for (let more = true; more; ) {
      if (cursor === null) {
        // The cursor comes first, so that a change during the reads is an entry after it.
        cursor = (await this.page("changes", { cursor: "now" })).next_cursor;
        copy = {};
        for (const resource of resources) {
          copy[resource] = {};
          for await (const record of this.all(resource)) copy[resource][record.id] = record;
        }
      }
      try {
        const page = await this.page("changes", { cursor, limit: 200 });
        for (const { resource, id, record } of page.data) {
          if (!resources.includes(resource)) continue;
          if (record === null) delete copy[resource][id];
          else copy[resource][id] = record;
        }
        ({ next_cursor: cursor, more } = page);
      } catch (error) {
        if (error.code !== "changes_gone") throw error;
        cursor = null;
      }
    }
    const file = await open(`${path}.new`, "w");
    try {
      await file.writeFile(JSON.stringify({ cursor, copy }));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(`${path}.new`, path);
    return copy;
  }

  async #call(method, resource, parameters = {}, body = undefined, options = {}) {
    // Without a version, the change would overwrite any.
    if ("ifMatch" in options && !options.ifMatch) throw new TypeError(`ifMatch is ${options.ifMatch}. Send an etag, or leave ifMatch out.`);
    const { ifMatch, ifNoneMatch, idempotencyKey = randomUUID() } = options;
    const address = new URL(`${this.url}/${resource}.php${toQuery(parameters)}`);
    const content = body && toJson(body);
    const headers = { Authorization: `Bearer ${this.key}` };
    // A misspelt field is an error.
    if (body !== undefined) Object.assign(headers, { "Content-Type": "application/json", Prefer: "handling=strict" });
    // The same for every try, so that the change takes effect once.
    if (method !== "GET") headers["Idempotency-Key"] = idempotencyKey;
    if (ifMatch !== undefined) headers["If-Match"] = ifMatch;
    if (ifNoneMatch !== undefined) headers["If-None-Match"] = ifNoneMatch;
    const end = Date.now() + this.patience * 1000;
    for (let pause = 1; ; pause = Math.min(2 * pause, 30)) {
      let wait = between(pause / 2, pause);
      const isOver = () => Date.now() + wait * 1000 > end;
      try {
        const signal = AbortSignal.timeout(Math.min(this.timeout, Math.max(end - Date.now(), 1000)));
        // A redirect would turn POST into GET, or lose the key.
        const answer = await fetch(address, { method, headers, body: content, signal, redirect: "manual" });
        const text = await answer.text();
        wait = Math.max(wait, asked(answer));
        if (![429, 502, 503, 504].includes(answer.status) || isOver()) return result(answer, text);
      } catch (error) {
        if (error instanceof DeskError) throw error;
        const reason = `There is no answer from ${this.url}: ${error.cause?.message || error.message}`;
        if (lasts(error) || isOver()) throw Object.assign(new DeskError(0, "no_answer", reason), { cause: error });
      }
      await sleep(wait);
    }
  }
}

// The seconds after which the server wants the repeat.
function asked({ status, headers }) {
  // A proxy may send a date, which is no number.
  const [after, reset] = ["Retry-After", "X-RateLimit-Reset"].map((name) => Number(headers.get(name)) || 0);
  return status === 429 && reset ? Math.min(after, reset - Date.now() / 1000) : after;
}

// Whether a repeat meets the same fault: a certificate that is not valid, a port without TLS, or a key that no header can have.
function lasts(error) {
  const { code } = error.cause ?? {};
  return error.name !== "TimeoutError" && (!code || /CERT|SIGNATURE|^ERR_(SSL|TLS)_/.test(code));
}

function result(answer, text) {
  const requestId = answer.headers.get("X-Request-Id");
  const { status } = answer;
  if (answer.ok) {
    try {
      return text ? JSON.parse(text) : null;
    } catch {
      // A page of a proxy or of a sign-in, for example.
      throw new DeskError(status, "unknown", "The answer is not JSON. Check the address.", requestId);
    }
  }
  if (status < 400) {
    throw new DeskError(status, "redirected", `The server redirects to ${answer.headers.get("Location")}. Use this address.`, requestId);
  }
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    document = null;
  }
  // The response of a proxy, for example, has no envelope.
  if (!document?.error?.code) throw new DeskError(status, "unknown", answer.statusText || "no answer in JSON", requestId);
  throw new DeskError(status, document.error.code, document.error.message, requestId, document);
}

// The cursor and the copy of a file of `mirror`. No cursor if there is no file, or if it lacks a resource.
async function stored(path, resources) {
  let text;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
    return { cursor: null, copy: {} };
  }
  let cursor, copy;
  try {
    ({ cursor, copy } = JSON.parse(text));
    Object.keys(copy);
  } catch {
    // It may be another file of the user, so it stays.
    throw new Error(`${path} is damaged or no copy. Remove it, and the next call reads everything.`);
  }
  const isSame = Object.keys(copy).sort().join() === [...resources].sort().join();
  return isSame ? { cursor, copy } : { cursor: null, copy: {} };
}
