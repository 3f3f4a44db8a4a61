//! What the tests know of the contract. Resources and fields come from the program's declarations.

use serde_json::{Value, json};
pub(crate) use tenantdesk::model::{ALL as RESOURCES, Field, Kind, Resource};

/// The scopes of contract section 5.
pub(crate) fn scopes() -> Vec<String> {
    let of = |resource: &Resource| {
        ["read", "write"].map(|access| format!("{}:{access}", resource.plural))
    };
    RESOURCES.iter().flat_map(|resource| of(resource)).collect()
}

/// The fields of contract section 2, without the custom fields.
pub(crate) fn fields(resource: &Resource) -> impl DoubleEndedIterator<Item = &'static Field> {
    resource.fields.iter().filter(|field| !matches!(field.kind, Kind::Custom))
}

/// The value of a field that a POST does not name.
pub(crate) fn default_value(field: &Field) -> Value {
    json!(field.default_value())
}

/// A valid value, which differs with `n`.
pub(crate) fn sample(field: &Field, n: usize) -> Value {
    match field.kind {
        Kind::Text { max: 2, .. } => json!(["DE", "AT", "CH"][n % 3]),
        Kind::Text { .. } => json!(format!("{} {n}", field.name)),
        Kind::Email => json!(format!("person{n}@shop.example")),
        Kind::Integer => json!(n + 1),
        Kind::Boolean => json!(n.is_multiple_of(2)),
        Kind::Date => json!(format!("20{:02}-{:02}-{:02}", n % 100, n % 12 + 1, n % 28 + 1)),
        Kind::Choice(names) => json!(names[n % names.len()]),
        Kind::Custom | Kind::Timestamp => panic!("{} has no sample", field.name),
    }
}

/// The members of a record in a response, `id` first, without `etag`.
pub(crate) fn members(resource: &Resource) -> Vec<&'static str> {
    let own = fields(resource).map(|field| field.name);
    std::iter::once("id").chain(own).chain(["custom", "created_at", "updated_at"]).collect()
}

/// The address of one record.
pub(crate) fn at(resource: &Resource, id: i64) -> String {
    format!("{}?id={id}", resource.path)
}

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
