//! The parts that schemas are built from.

use serde_json::{Map, Value, json};
use tenantdesk::model::{ALL, Resource};

/// Entity tags with commas between, or `*`. The service also takes tags beyond ASCII and empty
/// elements (RFC 9110 section 5.6.1).
pub(crate) const ENTITY_TAGS: &str = r#"^(\*|(W/)?"[!#-~]*"(, ?(W/)?"[!#-~]*")*)$"#;

pub(crate) const EXAMPLE_ETAG: &str = "\"8412350017\"";
pub(crate) const EXAMPLE_UUID: &str = "6f1c1d5e-0f4b-4c0e-9a52-3b9d6a1f2c7d";
const EXAMPLE_TIME: &str = "2026-11-20T19:30:00Z";

/// A reference to a component.
pub(crate) fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

pub(crate) fn schema_ref(name: &str) -> Value {
    reference("schemas", name)
}

/// An object that always has all of these members.
pub(crate) fn object(about: &str, properties: Value) -> Value {
    let names: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({ "type": "object", "description": about, "required": names, "properties": properties })
}

/// An object that has no other members.
pub(crate) fn closed(required: &[&str], about: &str, properties: Value) -> Value {
    json!({ "type": "object", "description": about, "required": required,
        "additionalProperties": false, "properties": properties })
}

pub(crate) fn text(about: &str, example: &str) -> Value {
    json!({ "type": "string", "description": about, "example": example })
}

/// A number from 1 on.
pub(crate) fn number(about: &str, example: u64) -> Value {
    json!({ "type": "integer", "format": "int64", "minimum": 1, "description": about,
        "example": example })
}

pub(crate) fn time(about: &str) -> Value {
    json!({ "type": "string", "format": "date-time", "description": about,
        "example": EXAMPLE_TIME })
}

pub(crate) fn one_of(values: &[&str], about: &str) -> Value {
    json!({ "type": "string", "enum": values, "description": about })
}

pub(crate) fn list(items: Value, about: &str) -> Value {
    json!({ "type": "array", "items": items, "description": about })
}

/// A record of any resource, or null.
pub(crate) fn any_record(about: &str) -> Value {
    let mut alternatives = ALL.map(|resource| schema_ref(&title(resource))).to_vec();
    alternatives.push(json!({ "type": "null" }));
    json!({ "anyOf": alternatives, "description": about })
}

/// `schema` or null.
pub(crate) fn nullable(mut schema: Value) -> Value {
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind.take(), "null"]);
        return schema;
    }
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// The name of a schema of the resource's records, such as `Customer`.
pub(crate) fn title(resource: &Resource) -> String {
    capitalize(resource.name)
}

/// `is_active` becomes `IsActive`, and `customer` becomes `Customer`.
pub(crate) fn capitalize(name: &str) -> String {
    let words = name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
    words.collect()
}
