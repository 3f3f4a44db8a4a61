// The types of tenantdesk.mjs.

export interface Customer {
  id: number;
  name: string;
  customer_number: string | null;
  email: string | null;
  phone: string | null;
  street: string | null;
  postal_code: string | null;
  city: string | null;
  country: string | null;
  status: "prospect" | "active" | "inactive";
  customer_since: string | null;
  notes: string | null;
  custom: Record<string, string>;
  created_at: string;
  /** `updated_at` and `etag` are null for a record of the past (`at`) whose version is not known. */
  updated_at: string | null;
  etag: string | null;
}

export interface Employee {
  id: number;
  customer_id: number;
  employee_number: string | null;
  email: string | null;
  first_name: string | null;
  last_name: string | null;
  phone: string | null;
  department: string | null;
  job_title: string | null;
  is_active: boolean;
  start_date: string | null;
  end_date: string | null;
  notes: string | null;
  custom: Record<string, string>;
  created_at: string;
  updated_at: string | null;
  /** Only with `include`. */
  customer?: Customer | null;
  etag: string | null;
}

export interface Hardware {
  id: number;
  name: string;
  employee_id: number | null;
  customer_id: number | null;
  type: "laptop" | "desktop" | "server" | "monitor" | "phone" | "tablet" | "printer" | "network" | "peripheral" | "other";
  manufacturer: string | null;
  model: string | null;
  serial_number: string | null;
  asset_tag: string | null;
  status: "in_use" | "in_stock" | "in_repair" | "retired" | "lost";
  purchase_date: string | null;
  warranty_until: string | null;
  purchase_cost_cents: number | null;
  is_leased: boolean;
  lease_until: string | null;
  notes: string | null;
  custom: Record<string, string>;
  created_at: string;
  updated_at: string | null;
  /** Only with `include`. */
  employee?: Employee | null;
  /** Only with `include`. */
  customer?: Customer | null;
  etag: string | null;
}

export interface Records {
  customers: Customer;
  employees: Employee;
  hardware: Hardware;
}
export type Resource = keyof Records;

/** The fields that a client sets. A date is a text, such as `2027-01-31`. An empty text removes a member of `custom`. */
export type Fields<Kind extends Resource> = {
  [Field in keyof Omit<Records[Kind], "id" | "created_at" | "updated_at" | "etag" | "customer" | "employee">]?:
    | Records[Kind][Field]
    | (Field extends "custom" ? Record<string, string | null> : never);
} & References[Kind];

/** Own numbers in place of ids. */
interface References {
  customers: {};
  employees: { customer_number?: string; customer_email?: string };
  hardware: { customer_number?: string; customer_email?: string; employee_number?: string; employee_email?: string };
}

type Value = string | number | boolean | null | readonly string[];
/** A `Date` is a moment, such as `created_at_to`. The date of a field is a text. */
export interface Parameters {
  [name: string]: Value | Date;
  [name: `${string}_date${string}` | `${string}_since${string}` | `${string}_until${string}`]: Value;
}

/** Pass a key of your own, a UUID, if your program may be killed and repeats the same change within 24 hours. */
export interface Change {
  idempotencyKey?: string;
}
export interface VersionedChange extends Change {
  /** The `etag` of the record that you have read. Null and undefined are errors. */
  ifMatch?: string | null;
}

export interface Operation {
  method: "POST" | "PUT" | "DELETE";
  path: string;
  body?: object | null;
  if_match?: string | null;
  /** A POST with `update_by` creates the record only if there is none. */
  if_none_match?: "*" | null;
}
/** After a DELETE, all but `status` is null. */
export interface Result {
  status: number;
  location: string | null;
  etag: string | null;
  body: Customer | Employee | Hardware | null;
}

export interface Page<Kind> {
  data: Kind[];
  next_cursor: string | null;
  total?: number;
}

export interface Entry {
  seq: number;
  at: string;
  resource: Resource;
  id: number;
  /** `created`, `updated`, `deleted`; others may come. */
  action: string;
  fields: string[];
  before: Record<string, unknown> | null;
  by: { kind: string; id?: number | null; name: string; prefix?: string };
  request_id: string | null;
  record: Customer | Employee | Hardware | null;
}

export interface Fault {
  code: string;
  message: string;
}
export interface FailedOperation {
  operation: number;
  error: Fault;
  errors?: Record<string, Fault>;
  fields?: string[];
}

export class DeskError extends Error {
  readonly status: number;
  readonly code: string;
  readonly reason: string;
  readonly fields: Record<string, Fault>;
  readonly requestId: string | null;
  readonly operation: number | null;
  readonly operations: FailedOperation[];
  readonly id: number | null;
}

export class Desk {
  /** `patience` is in seconds, `timeout` in milliseconds. */
  constructor(url: string, key: string, options?: { patience?: number; timeout?: number });
  create<Kind extends Resource>(resource: Kind, fields: Fields<Kind>, options?: Change): Promise<Records[Kind]>;
  createOrUpdate<Kind extends Resource>(resource: Kind, by: string, fields: Fields<Kind>, options?: Change): Promise<Records[Kind]>;
  createIfAbsent<Kind extends Resource>(
    resource: Kind,
    by: string,
    fields: Fields<Kind>,
    options?: Change,
  ): Promise<{ id: number; isNew: boolean }>;
  get<Kind extends Resource>(resource: Kind, id: number, parameters?: Parameters): Promise<Records[Kind]>;
  update<Kind extends Resource>(resource: Kind, id: number, fields: Fields<Kind>, options?: VersionedChange): Promise<Records[Kind]>;
  delete(resource: Resource, id: number, options?: VersionedChange): Promise<null>;
  change<Kind extends Resource>(
    resource: Kind,
    id: number,
    edit: (record: Records[Kind]) => Fields<Kind> | Promise<Fields<Kind>>,
  ): Promise<Records[Kind]>;
  batch(operations: Operation[], options?: Change): Promise<Result[]>;
  bulk(operations: Iterable<Operation>, options?: Change): Promise<Result[]>;
  page<Kind extends Resource>(resource: Kind, parameters?: Parameters): Promise<Page<Records[Kind]>>;
  all<Kind extends Resource>(resource: Kind, parameters?: Parameters): AsyncGenerator<Records[Kind], void, void>;
  follow(cursor?: string, options?: { wait?: number } & Parameters): AsyncGenerator<{ entries: Entry[]; cursor: string }, void, void>;
  mirror(path: string): Promise<{ [Kind in Resource]: Record<number, Records[Kind]> }>;
  mirror<Kind extends Resource>(path: string, resources: readonly Kind[]): Promise<{ [Mirrored in Kind]: Record<number, Records[Mirrored]> }>;
}
