//! What the tests know of the contract. Resources and fields come from the program's declarations.

use std::sync::LazyLock;

use serde_json::{Value, json};
use tenantdesk::model;

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
    declared: &'static model::Field,
}

impl Field {
    /// `None` for the custom fields.
    fn new(declared: &'static model::Field) -> Option<Field> {
        let kind = match declared.kind {
            model::Kind::Text { min, max } => Kind::Text(min, max),
            model::Kind::Email => Kind::Email,
            model::Kind::Integer => Kind::Integer,
            model::Kind::Boolean => Kind::Boolean,
            model::Kind::Date => Kind::Date,
            model::Kind::Choice(names) => Kind::Choice(names),
            model::Kind::Custom | model::Kind::Timestamp => return None,
        };
        Some(Field { name: declared.name, kind, required: declared.required, declared })
    }

    pub(crate) fn default_value(&self) -> Value {
        json!(self.declared.default_value())
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
    /// Each field that refers to another resource, that resource's path, and the code of a reference
    /// to a missing record.
    pub references: Vec<(&'static str, &'static str, &'static str)>,
}

impl Resource {
    fn new(declared: &'static model::Resource) -> &'static Resource {
        let fields: Vec<Field> = declared.fields.iter().filter_map(Field::new).collect();
        let references = declared.fields.iter().filter_map(|field| {
            let target = field.references?;
            let code: &str = format!("{}_not_found", target.name).leak();
            Some((field.name, target.path, code))
        });
        Box::leak(Box::new(Resource {
            singular: declared.name,
            plural: declared.plural,
            path: declared.path,
            fields: fields.leak(),
            references: references.collect(),
        }))
    }

    /// The members of a record in a response, `id` first, without `etag`.
    pub(crate) fn members(&self) -> Vec<&'static str> {
        let own = self.fields.iter().map(|field| field.name);
        std::iter::once("id").chain(own).chain(["custom", "created_at", "updated_at"]).collect()
    }

    /// Whether the field refers to another resource.
    pub(crate) fn refers_by(&self, name: &str) -> bool {
        self.references.iter().any(|(field, ..)| *field == name)
    }

    /// The address of one record.
    pub(crate) fn at(&self, id: i64) -> String {
        format!("{}?id={id}", self.path)
    }
}

/// Every resource; one refers only to those before it.
pub(crate) static RESOURCES: LazyLock<Vec<&'static Resource>> =
    LazyLock::new(|| model::ALL.iter().map(|declared| Resource::new(declared)).collect());

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
