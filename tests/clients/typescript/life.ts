// The whole life of a customer, an employee and a piece of hardware through openapi-fetch, with the types that
// openapi-typescript makes of the served document; then the key, versions, a batch and the journal. The compiler checks
// every access; running it checks the service. typescript_client.py makes the types, compiles this and runs it.

import createClient from "openapi-fetch";
import type { components, paths } from "./generated/schema.js";

declare const process: { env: Record<string, string | undefined> };
const { TENANTDESK_URL: url = "", TENANTDESK_KEY: key = "" } = process.env;

function check(holds: unknown, what: string): asserts holds {
  if (!holds) throw new Error(what);
}

type Customer = components["schemas"]["Customer"];
type Hardware = components["schemas"]["Hardware"];

const api = createClient<paths>({
  baseUrl: `${url}/v1`,
  headers: { Authorization: `Bearer ${key}` },
  querySerializer: { object: { style: "form", explode: true } },
});

function isPage<Page extends { data: unknown }>(answer: { id: number } | Page): answer is Page {
  return "data" in answer;
}

const idempotencyKey = crypto.randomUUID();
const body = { name: "Müller & Söhne", country: "DE", customer_since: "2019-04-01" };
const made = await api.POST("/customers.php", { params: { header: { "Idempotency-Key": idempotencyKey } }, body });
check(made.data, "a customer is made");
const customer: Customer = made.data;
check(customer.status === "active" && customer.email === null, "defaults and null");
check(made.response.headers.get("Location") === `/v1/customers.php?id=${customer.id}`, "Location");
const again = await api.POST("/customers.php", { params: { header: { "Idempotency-Key": idempotencyKey } }, body });
check(again.data?.id === customer.id && again.response.headers.get("Idempotent-Replayed") === "true", "a repeat");

const one = await api.GET("/customers.php", { params: { query: { id: customer.id } } });
check(one.data && !isPage(one.data) && one.data.name === customer.name, "read by id");
const byId = { params: { query: { id: customer.id } } };
const changed = await api.PUT("/customers.php", { ...byId, body: { status: "inactive" } });
check(changed.data?.status === "inactive" && changed.data.name === customer.name, "only what is named changes");

const employee = await api.POST("/employees.php", { body: { customer_id: customer.id, email: "eva@mueller.example" } });
check(employee.data?.is_active === true, "an employee is made");
const device = await api.POST("/hardware.php", { body: { name: "Laptop", employee_id: employee.data.id, type: "laptop" } });
check(device.data?.status === "in_stock", "a piece of hardware is made");

for (let number = 0; number < 5; number += 1) await api.POST("/hardware.php", { body: { name: `Monitor ${number}` } });
const listed: Hardware[] = [];
for (let cursor: string | null | undefined; cursor !== null; ) {
  const query = { limit: 2, sort: "-name" as const, total: true, ...(cursor ? { cursor } : {}) };
  const page = await api.GET("/hardware.php", { params: { query } });
  check(page.data && isPage(page.data) && page.data.total === 6, "a page");
  listed.push(...page.data.data);
  cursor = page.data.next_cursor;
}
check(listed.length === 6 && listed[5]?.name === "Laptop", "every record once, in order");

const wrong = await api.POST("/customers.php", { body: { name: "x" } });
check(wrong.error && "errors" in wrong.error, "a typed error");
check(wrong.error.error.code === "validation_failed" && wrong.error.errors?.name?.code === "too_short", "its codes");
check(wrong.error.fields?.[0] === "name", "its fields");
const kept = await api.DELETE("/customers.php", byId);
check(kept.error?.error.code === "has_dependents" && "details" in kept.error, "what others refer to stays");

const freed = await api.PUT("/hardware.php", { params: { query: { id: device.data.id } }, body: { employee_id: null } });
check(freed.data?.employee_id === null, "null empties a field");
const ends = [
  await api.DELETE("/hardware.php", { params: { query: { id: device.data.id } } }),
  await api.DELETE("/employees.php", { params: { query: { id: employee.data.id } } }),
  await api.DELETE("/customers.php", byId),
];
check(ends.every(({ response }) => response.status === 204), "all are deleted");
const gone = await api.GET("/customers.php", byId);
check(gone.error?.error.code === "not_found", "and gone");

const me = await api.GET("/whoami.php");
check(me.data?.tenant === "acme" && key.startsWith(me.data.key.prefix) && me.data.key.expires_at === null, "the key");
check(me.data.key.scopes.includes("hardware:write") && me.data.rate_limit > 0, "its scopes and its limit");

const versioned = await api.POST("/customers.php", { body: { name: "Version GmbH", city: "Berlin" } });
check(versioned.data, "another customer");
const query = { id: versioned.data.id };
const tag = versioned.data.etag ?? "";
const unchanged = await api.GET("/customers.php", { params: { query, header: { "If-None-Match": tag } } });
check(unchanged.response.status === 304 && unchanged.response.headers.get("ETag") === tag, "not modified");
const late = await api.PUT("/customers.php", { params: { query, header: { "If-Match": '"1"' } }, body: { city: "Bonn" } });
check(late.error?.error.code === "precondition_failed", "a change of an old version");

const now = await api.GET("/changes.php", { params: { query: { cursor: "now" } } });
check(now.data?.data.length === 0 && !now.data.more, "the end of the journal");
const batch = await api.POST("/batch.php", {
  params: { header: { "Idempotency-Key": crypto.randomUUID() } },
  body: {
    operations: [
      { method: "POST", path: "/employees.php", body: { customer_id: query.id, email: "eva@batch.example" } },
      { method: "POST", path: "/hardware.php", body: { name: "Laptop", employee_id: { result: 0 } } },
      { method: "PUT", path: `/customers.php?id=${query.id}`, body: { city: "Bremen" }, if_match: tag },
    ],
  },
});
check(batch.data?.results.map(({ status }) => status).join() === "201,201,200", "a batch");
const [person, laptop, town] = batch.data.results;
check(person?.body && laptop?.body && "employee_id" in laptop.body, "records as results");
check(laptop.body.employee_id === person.body.id && laptop.location?.endsWith(`?id=${laptop.body.id}`), "a result reference");
const failed = await api.POST("/batch.php", {
  body: {
    operations: [
      { method: "PUT", path: `/customers.php?id=${query.id}`, body: { city: "Bonn" } },
      { method: "DELETE", path: `/hardware.php?id=${laptop.body.id}`, if_match: tag },
    ],
  },
});
check(failed.error && "operation" in failed.error && failed.error.operation === 1, "the operation that failed");
check(failed.error.error.code === "precondition_failed", "its code");
const owned = await api.GET("/hardware.php", { params: { query: { customer_id: query.id } } });
check(owned.data && isPage(owned.data) && owned.data.data.length === 1, "hardware of a customer");
check(owned.data.data[0]?.id === laptop.body.id, "that of the batch");

const since = await api.GET("/changes.php", { params: { query: { cursor: now.data.next_cursor } } });
check(since.data?.data.map(({ action }) => action).join() === "created,created,updated", "the entries of the batch");
const entry: components["schemas"]["Change"] | undefined = since.data.data[2];
check(entry?.resource === "customers" && entry.fields.join() === "city" && entry.before?.["city"] === "Berlin", "an entry");
check(entry.by.kind === "key" && entry.by.name === "clients" && `"${entry.seq}"` === town?.etag, "its author and its version");
check(entry.record && "city" in entry.record && entry.record.city === "Bremen", "the record as it is");

const printer = { name: "Printer", serial_number: "PR-1", custom: { room: "2.14" } };
const byNumber = { params: { query: { update_by: "serial_number" as const } }, body: printer };
const sent = [await api.POST("/hardware.php", byNumber), await api.POST("/hardware.php", byNumber)];
check(sent.map(({ response }) => response.status).join() === "201,200", "created, then found");
const inRoom = await api.GET("/hardware.php", { params: { query: { custom: { "custom.room": "2.14" } } } });
check(inRoom.data && isPage(inRoom.data) && inRoom.data.data.length === 1, "a filter by a custom field");
console.log("openapi-fetch: ok");
