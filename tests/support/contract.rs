//! Section 2 of the contract, written down a second time, so that the tests do not compare the
//! service's declarations with themselves.

use serde_json::{Value, json};

/// The statuses of `malformed_request` (contract section 6). hyper answers some of them alone.
pub(crate) const MALFORMED_STATUSES: [u16; 7] = [400, 408, 414, 417, 431, 501, 505];

/// The scopes of contract section 5.
pub(crate) fn scopes() -> Vec<String> {
    RESOURCES
        .iter()
        .flat_map(|resource| {
            ["read", "write"].map(|access| format!("{}:{access}", resource.plural))
        })
        .collect()
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Shortest and longest length, in characters.
    Text(usize, usize),
    Email,
    Integer,
    Boolean,
    Date,
    Choice(&'static [&'static str]),
}

/// One row of contract section 2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// As JSON.
    pub default: &'static str,
}

impl Field {
    pub(crate) fn default_value(&self) -> Value {
        serde_json::from_str(self.default).unwrap()
    }

    /// A valid value, which differs with `n`.
    pub(crate) fn sample(&self, n: usize) -> Value {
        match self.kind {
            Kind::Text(_, 2) => json!(["DE", "AT", "CH"][n % 3]),
            Kind::Text(..) => json!(format!("{} {n}", self.name)),
            Kind::Email => json!(format!("person{n}@shop.example")),
            Kind::Integer => json!(n + 1),
            Kind::Boolean => json!(n.is_multiple_of(2)),
            Kind::Date => json!(format!("20{:02}-{:02}-{:02}", n % 100, n % 12 + 1, n % 28 + 1)),
            Kind::Choice(names) => json!(names[n % names.len()]),
        }
    }
}

/// One resource of contract section 2.
#[derive(Debug)]
pub(crate) struct Resource {
    pub singular: &'static str,
    pub plural: &'static str,
    pub path: &'static str,
    pub fields: &'static [Field],
    /// The field that refers to another resource, that resource's path, and the code of a reference
    /// to a missing record.
    pub reference: Option<(&'static str, &'static str, &'static str)>,
}

impl Resource {
    /// The members of a record in a response, `id` first, without `etag`.
    pub(crate) fn members(&self) -> Vec<&'static str> {
        let own = self.fields.iter().map(|field| field.name);
        std::iter::once("id").chain(own).chain(["custom", "created_at", "updated_at"]).collect()
    }

    /// The field that refers to records of `other`.
    pub(crate) fn reference_to(&self, other: &Resource) -> Option<&'static str> {
        self.reference.filter(|(_, path, _)| *path == other.path).map(|(field, ..)| field)
    }

    /// The names that `include` can have (section 4), in the order of the members.
    pub(crate) fn inclusions(&self) -> &'static [&'static str] {
        match self.singular {
            "hardware" => &["employee", "customer"],
            "employee" => &["customer"],
            _ => &[],
        }
    }

    /// The address of one record.
    pub(crate) fn at(&self, id: i64) -> String {
        format!("{}?id={id}", self.path)
    }
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: false, default: "null" }
}

const fn required(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: true, default: "null" }
}

const fn with_default(name: &'static str, kind: Kind, default: &'static str) -> Field {
    Field { name, kind, required: false, default }
}

const fn up_to(max: usize) -> Kind {
    Kind::Text(0, max)
}

pub(crate) static CUSTOMERS: Resource = Resource {
    singular: "customer",
    plural: "customers",
    path: "/customers.php",
    fields: &[
        required("name", Kind::Text(2, 200)),
        field("customer_number", up_to(50)),
        field("email", Kind::Email),
        field("phone", up_to(50)),
        field("street", up_to(200)),
        field("postal_code", up_to(20)),
        field("city", up_to(100)),
        field("country", Kind::Text(2, 2)),
        with_default("status", Kind::Choice(&["prospect", "active", "inactive"]), "\"active\""),
        field("customer_since", Kind::Date),
        field("notes", up_to(5000)),
    ],
    reference: None,
};

pub(crate) static EMPLOYEES: Resource = Resource {
    singular: "employee",
    plural: "employees",
    path: "/employees.php",
    fields: &[
        required("customer_id", Kind::Integer),
        field("employee_number", up_to(50)),
        required("email", Kind::Email),
        field("first_name", up_to(100)),
        field("last_name", up_to(100)),
        field("phone", up_to(50)),
        field("department", up_to(50)),
        field("job_title", up_to(100)),
        with_default("is_active", Kind::Boolean, "true"),
        field("start_date", Kind::Date),
        field("end_date", Kind::Date),
        field("notes", up_to(5000)),
    ],
    reference: Some(("customer_id", "/customers.php", "customer_not_found")),
};

const TYPES: &[&str] = &[
    "laptop",
    "desktop",
    "server",
    "monitor",
    "phone",
    "tablet",
    "printer",
    "network",
    "peripheral",
    "other",
];

pub(crate) static HARDWARE: Resource = Resource {
    singular: "hardware",
    plural: "hardware",
    path: "/hardware.php",
    fields: &[
        required("name", Kind::Text(2, 200)),
        field("employee_id", Kind::Integer),
        with_default("type", Kind::Choice(TYPES), "\"other\""),
        field("manufacturer", up_to(100)),
        field("model", up_to(100)),
        field("serial_number", up_to(100)),
        field("asset_tag", up_to(50)),
        with_default(
            "status",
            Kind::Choice(&["in_use", "in_stock", "in_repair", "retired", "lost"]),
            "\"in_stock\"",
        ),
        field("purchase_date", Kind::Date),
        field("warranty_until", Kind::Date),
        field("purchase_cost_cents", Kind::Integer),
        with_default("is_leased", Kind::Boolean, "false"),
        field("notes", up_to(5000)),
    ],
    reference: Some(("employee_id", "/employees.php", "employee_not_found")),
};

/// Every resource; one refers only to those before it.
pub(crate) static RESOURCES: &[&Resource] = &[&CUSTOMERS, &EMPLOYEES, &HARDWARE];

/// The resource that `path` (with or without `/v1`) names.
pub(crate) fn resource_at(path: &str) -> Option<&'static Resource> {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    RESOURCES.iter().copied().find(|resource| resource.path == path)
}

/// The path of the journal.
pub(crate) const CHANGES: &str = "/changes.php";

/// The path of the caller's key.
pub(crate) const WHOAMI: &str = "/whoami.php";

/// The path of batches.
pub(crate) const BATCH: &str = "/batch.php";

/// Whether `path` (with or without `/v1`) is that of batches.
pub(crate) fn is_batch(path: &str) -> bool {
    path.strip_prefix("/v1").unwrap_or(path) == BATCH
}

/// Whether a key is needed at `path` (with or without `/v1`).
pub(crate) fn needs_key(path: &str) -> bool {
    let bare = path.strip_prefix("/v1").unwrap_or(path);
    resource_at(path).is_some() || [CHANGES, WHOAMI, BATCH].contains(&bare)
}

/// Whether `text` is 8-4-4-4-12 hexadecimal digits.
pub(crate) fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Whether `text` is a strong entity tag, which is a number.
pub(crate) fn is_etag(text: &str) -> bool {
    let number = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let number: Option<i64> = number.and_then(|number| number.parse().ok());
    number.is_some_and(|number| (0..1 << 53).contains(&number))
}

/// Whether `text` has the shape of `2026-11-20T19:30:00Z`.
pub(crate) fn is_timestamp(text: &str) -> bool {
    text.len() == 20
        && text
            .bytes()
            .zip(b"0000-00-00T00:00:00Z")
            .all(|(a, b)| a == *b || (*b == b'0' && a.is_ascii_digit()))
}

/// Checks a record and the records that it includes. Behind its fields it has a record or null for
/// each name.
#[track_caller]
pub(crate) fn check_including(resource: &Resource, include: &[&str], record: &Value) {
    let mut own = record.clone();
    let mut expected = resource.members();
    for name in resource.inclusions().iter().filter(|name| include.contains(name)) {
        expected.push(name);
        let included = own.as_object_mut().unwrap().shift_remove(*name).unwrap();
        let of_name = RESOURCES.iter().find(|resource| resource.singular == *name).unwrap();
        if !included.is_null() {
            check_record(of_name, &included);
        }
    }
    expected.push("etag");
    let names: Vec<&String> = record.as_object().unwrap().keys().collect();
    assert_eq!(names, expected, "{record}");
    check_record(resource, &own);
}

/// Checks that `record` has every field of `resource` in its order, `id` first. `schema.rs` checks
/// the values.
#[track_caller]
pub(crate) fn check_record(resource: &Resource, record: &Value) {
    let object = record.as_object().unwrap_or_else(|| panic!("no record: {record}"));
    let names: Vec<&str> = object.keys().map(String::as_str).collect();
    let members = [resource.members(), vec!["etag"]].concat();
    assert_eq!(names, members, "every field of a {}, in its order", resource.singular);
    assert!(record["etag"].as_str().is_some_and(is_etag), "{record}");
}
