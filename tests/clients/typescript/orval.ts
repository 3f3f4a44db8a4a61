// The client that orval generates: create, create or update, walk a list, follow the changes, and a batch.

import * as desk from "./generated/orval.js";
import { check, key } from "./support.js";

const options = { headers: { Authorization: `Bearer ${key}` } };
const now = await desk.listChanges({ cursor: "now" }, options);
check(now.status === 200, "the end of the change log");

const headers = { ...options.headers, "Idempotency-Key": crypto.randomUUID() };
const customer = await desk.createCustomer({ name: "Nordlicht Energie eG" }, {}, { headers });
check(customer.status === 201 && customer.data.status === "active", "a customer is created");
const body = { name: "Printer", serial_number: "PR-1" };
for (const status of [201, 200]) {
  const device = await desk.createHardware(body, { update_by: "serial_number" }, options);
  check(device.status === status, "created, then found");
}
const operations = [
  { method: "POST" as const, path: "/employees.php", body: { customer_id: customer.data.id, email: "eva@nordlicht.example" } },
  { method: "POST" as const, path: "/hardware.php", body: { name: "Laptop", employee_id: { result: 0 } } },
];
const made = await desk.runBatch({ operations }, options);
check(made.status === 200 && made.data.results.length === 2, "a batch");

const names: string[] = [];
for (let cursor: string | null = ""; cursor !== null; ) {
  const page: desk.getHardwareResponse = await desk.getHardware({ limit: 1, sort: "name", cursor }, options);
  check(page.status === 200 && "data" in page.data, "a page");
  names.push(...page.data.data.map(({ name }) => name));
  cursor = page.data.next_cursor;
}
check(names.join() === "Laptop,Printer", "every record once, in order");

const since = await desk.listChanges({ cursor: now.data.next_cursor }, options);
check(since.status === 200 && since.data.data.length === 4, "the changes");
const wrong = await desk.createCustomer({ name: "x" }, {}, options);
check(wrong.status === 422 && wrong.data.error.code === "validation_failed", "a typed error");
console.log("orval: ok");
