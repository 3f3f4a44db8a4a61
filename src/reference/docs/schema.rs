//! What the page reads from the schemas of the document.

use serde_json::{Map, Value};

use crate::reference::openapi::DOCUMENT;

/// The target of a reference, or the value itself.
pub(super) fn resolve(value: &'static Value) -> &'static Value {
    let target = value["$ref"].as_str().and_then(|target| DOCUMENT.pointer(target.get(1..)?));
    target.unwrap_or(value)
}

pub(super) fn text(value: &'static Value) -> &'static str {
    value.as_str().unwrap_or_default()
}

pub(super) fn items(value: &'static Value) -> impl Iterator<Item = &'static Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn members(
    value: &'static Value,
) -> impl Iterator<Item = (&'static str, &'static Value)> {
    value.as_object().into_iter().flatten().map(|(name, member)| (name.as_str(), member))
}

/// The JSON body of a request or response: its schema and its examples.
pub(super) fn body(value: &'static Value) -> &'static Value {
    &value["content"]["application/json"]
}

/// The schema, or the first alternative.
fn first(schema: &'static Value) -> &'static Value {
    let schema = resolve(schema);
    items(&schema["anyOf"]).chain(items(&schema["oneOf"])).next().map_or(schema, resolve)
}

/// The values in a few words.
pub(super) fn words(schema: &'static Value) -> String {
    let schema = first(schema);
    let kind = items(&schema["type"]).next().unwrap_or(&schema["type"]);
    let choices: Vec<&str> = items(&schema["enum"]).map(text).collect();
    let (min, max) = (schema["minLength"].as_u64(), schema["maxLength"].as_u64());
    match (text(kind), text(&schema["format"]), min, max) {
        // More than these are those of `sort`.
        ("string", ..) if (1..15).contains(&choices.len()) => choices.join(" · "),
        (_, "email", ..) => "e-mail address".to_owned(),
        (_, "date", ..) => "date".to_owned(),
        (_, "date-time", ..) => "timestamp".to_owned(),
        ("string", _, Some(min), Some(max)) if min == max => format!("text, exactly {max}"),
        ("string", _, Some(min), Some(max)) => format!("text, {min} to {max}"),
        ("string", _, None, Some(max)) => format!("text, at most {max}"),
        ("string", ..) => "text".to_owned(),
        ("boolean", ..) => "true or false".to_owned(),
        ("array", ..) => words(&schema["items"]),
        (kind, ..) => kind.to_owned(),
    }
}

/// An example of the values: its own, or one made of those of its parts.
pub(super) fn example(schema: &'static Value) -> Value {
    let target = resolve(schema);
    let own = [&schema["example"], &target["example"], &target["const"], &target["enum"][0]];
    if let Some(own) = own.into_iter().find(|own| !own.is_null()) {
        return own.clone();
    }
    let schema = first(target);
    if schema["items"].is_object() {
        return Value::Array(vec![example(&schema["items"])]);
    }
    if schema["properties"].is_object() {
        let is_always_there = |name| items(&schema["required"]).any(|required| required == name);
        let properties = members(&schema["properties"]).filter(|(name, _)| is_always_there(*name));
        let examples: Map<_, _> =
            properties.map(|(name, schema)| (name.to_owned(), example(schema))).collect();
        return Value::Object(examples);
    }
    schema["example"].clone()
}
