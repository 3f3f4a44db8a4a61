// The client that @hey-api/openapi-ts generates: create, create or update, walk a list, follow the changes, and a
// batch.

import { createClient } from "./generated/hey/client/index.js";
import * as desk from "./generated/hey/index.js";
import { check, key, url } from "./support.js";

const client = createClient({ baseUrl: url, auth: key });
const now = await desk.listChanges({ client, query: { cursor: "now" } });
check(now.data, "the end of the change log");

const headers = { "Idempotency-Key": crypto.randomUUID() };
const customer = await desk.createCustomer({ client, headers, body: { name: "Nordlicht Energie eG" } });
check(customer.data?.status === "active", "a customer is created");
const body = { name: "Printer", serial_number: "PR-1", custom: { room: "2.14" } };
for (const status of [201, 200]) {
  const device = await desk.createHardware({ client, query: { update_by: "serial_number" }, body });
  check(device.response?.status === status, "created, then found");
}
const made = await desk.runBatch({
  client,
  body: {
    operations: [
      { method: "POST", path: "/employees.php", body: { customer_id: customer.data.id, email: "eva@nordlicht.example" } },
      { method: "POST", path: "/hardware.php", body: { name: "Laptop", employee_id: { result: 0 } } },
    ],
  },
});
check(made.data?.results.map(({ status }) => status).join() === "201,201", "a batch");

const names: string[] = [];
for (let cursor: string | null = ""; cursor !== null; ) {
  const { data: page }: Awaited<ReturnType<typeof desk.getHardware>> = await desk.getHardware({ client, query: { limit: 1, sort: "name", cursor } });
  check(page && "data" in page, "a page");
  names.push(...page.data.map(({ name }) => name));
  cursor = page.next_cursor;
}
check(names.join() === "Laptop,Printer", "every record once, in order");
const inRoom = await desk.getHardware({ client, query: { custom: { "custom.room": "2.14" } } });
check(inRoom.data && "data" in inRoom.data && inRoom.data.data.length === 1, "a filter by a custom field");

const since = await desk.listChanges({ client, query: { cursor: now.data.next_cursor } });
check(since.data?.data.map(({ resource }) => resource).join() === "customers,hardware,employees,hardware", "the changes");
const wrong = await desk.createCustomer({ client, body: { name: "x" } });
check(wrong.error?.error.code === "validation_failed", "a typed error");
console.log("@hey-api/openapi-ts: ok");
