// The types of examples/clients/tenantdesk.d.mts are those of the document, and a misspelt field does not compile.

import type { components } from "./generated/schema.js";
import { Desk, type DeskError, type FailedOperation, type Operation, type Records, type Result } from "./generated/tenantdesk.mjs";

type Schemas = components["schemas"];
type Own<Kind> = Omit<Kind, "customer" | "employee">;
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
export const same: [
  Same<keyof Operation, keyof Schemas["BatchOperation"]>,
  Same<keyof Result, keyof Schemas["BatchResult"]>,
  Same<keyof FailedOperation, keyof Schemas["OperationError"]>,
  Same<Own<Records["customers"]>, Own<Schemas["Customer"]>>,
  Same<Own<Records["employees"]>, Own<Schemas["Employee"]>>,
  Same<Own<Records["hardware"]>, Own<Schemas["Hardware"]>>,
] = [true, true, true, true, true, true];

export async function uses(): Promise<void> {
  const desk = new Desk("https://desk.example", "tdk_key", { patience: 10 });
  const shop = await desk.create("customers", { name: "Shop", customer_since: "2027-01-31", custom: { room: null } });
  await desk.create("employees", { email: "eva@shop.example", customer_number: "K-1" }, { idempotencyKey: crypto.randomUUID() });
  const device = await desk.createOrUpdate("hardware", "serial_number", { name: "PC", serial_number: shop.name });
  await desk.update("hardware", device.id, { status: "retired" }, { ifMatch: device.etag });
  await desk.change("customers", shop.id, (record) => ({ notes: (record.notes ?? "") + "x" }));
  for await (const found of desk.all("employees", { is_active: true, city: null })) found.email?.trim();
  const copy = await desk.mirror("copy.json");
  copy.hardware[device.id]?.serial_number?.trim();
  const part = await desk.mirror("part.json", ["customers"]);
  await desk.page("hardware", { created_at_to: new Date(), warranty_until_to: "2027-01-31" });
  // @ts-expect-error
  await desk.page("hardware", { warranty_until_to: new Date() });
  // @ts-expect-error
  await desk.create("customers", { name: "Shop", customer_since: new Date() });
  // @ts-expect-error
  part.hardware;
  // @ts-expect-error
  await desk.create("customers", { nmae: "x" });
  // @ts-expect-error
  await desk.update("hardware", 1, { status: "gone" });
  // @ts-expect-error
  await desk.get("devices", 1);
}

export const said = (error: DeskError): string => `${error.status} ${error.code} ${error.operations.length} ${error.fields.name?.message}`;
