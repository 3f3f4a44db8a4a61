//! What contract section 16 promises, as a comparison of two versions of the OpenAPI document: the
//! new one takes nothing away.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The promises that `new` breaks: the place in the document, and what happened there.
pub(crate) fn broken_promises(old: &Value, new: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    let (old, new) = (resolved(old, old), resolved(new, new));
    for (path, old_item) in members(&old["paths"]) {
        for (method, old) in members(old_item).filter(|(_, old)| old["responses"].is_object()) {
            let new_item = &new["paths"][path];
            let place = format!("{} {path}", method.to_uppercase());
            if new_item[method].is_null() {
                broken.push(format!("{place}: gone"));
                continue;
            }
            operation(&place, [(old_item, old), (new_item, &new_item[method])], &mut broken);
        }
    }
    broken
}

/// Who sends the values of a schema. A client need not send more than before; the service sends
/// no less.
#[derive(Clone, Copy, PartialEq)]
enum Sender {
    Client,
    Service,
}

/// Compares an operation with its new version, each with its path item.
fn operation(place: &str, versions: [(&Value, &Value); 2], broken: &mut Vec<String>) {
    let [old, new] = versions.map(|(_, operation)| operation);
    let (old_scopes, new_scopes) = (set(&old["security"]), set(&new["security"]));
    // Any one of them suffices, but none at all is needed where there are none.
    if !old_scopes.is_subset(&new_scopes) || old_scopes.is_empty() != new_scopes.is_empty() {
        broken.push(format!("{place}: the scopes were {}", old["security"]));
    }
    let [old_parameters, new_parameters] = versions.map(|(item, operation)| {
        let parameters = items(&item["parameters"]).chain(items(&operation["parameters"]));
        parameters.map(|one| (format!("{} {}", one["in"], one["name"]), one)).collect::<Vec<_>>()
    });
    for (name, old) in &old_parameters {
        match new_parameters.iter().find(|(other, _)| other == name) {
            Some((_, new)) => {
                let place = format!("{place}: {name}");
                schema(&place, &old["schema"], &new["schema"], Sender::Client, broken);
            }
            None => broken.push(format!("{place}: {name} is gone")),
        }
    }
    for (name, new) in &new_parameters {
        let was_required = old_parameters.iter().any(|(other, old)| other == name && required(old));
        if required(new) && !was_required {
            broken.push(format!("{place}: {name} is required"));
        }
    }
    let (old_body, new_body) = (&old["requestBody"], &new["requestBody"]);
    if old_body.is_null() && required(new_body) {
        broken.push(format!("{place}: a body is required"));
    }
    let body = |response: &'_ Value| response["content"]["application/json"]["schema"].clone();
    schema(&format!("{place}: body"), &body(old_body), &body(new_body), Sender::Client, broken);
    let (old, new) = (&old["responses"], &new["responses"]);
    for (status, old) in members(old).filter(|(status, _)| status.starts_with(['2', '3'])) {
        let place = format!("{place}: {status}");
        match new.get(status) {
            Some(new) => schema(&place, &body(old), &body(new), Sender::Service, broken),
            None => broken.push(format!("{place} is gone")),
        }
    }
    let (old, new) = (errors(old), errors(new));
    let any_status =
        |error: &str| format!("default {}", error.split(' ').nth(1).unwrap_or_default());
    for error in old.difference(&new).filter(|error| !new.contains(&any_status(error))) {
        broken.push(format!("{place}: the error {error} is gone"));
    }
}

/// Compares a schema with its new version.
fn schema(place: &str, old: &Value, new: &Value, sender: Sender, broken: &mut Vec<String>) {
    if old.is_null() || old == new {
        return;
    }
    let (old, new) = (&merged(old), &merged(new));
    for exact in ["type", "format", "default"] {
        let is_gained = sender == Sender::Service && old[exact].is_null();
        if !is_gained && set(&old[exact]) != set(&new[exact]) {
            broken.push(format!("{place}: {exact} was {} and is {}", old[exact], new[exact]));
        }
    }
    for (limit, sign) in LIMITS {
        let (old, new) = (old[limit].as_f64(), new[limit].as_f64());
        let is_tighter = match (old, new) {
            (Some(old), Some(new)) => new * sign < old * sign,
            // The service may promise more.
            (old, new) => sender == Sender::Client && old.is_none() && new.is_some(),
        };
        if is_tighter {
            broken.push(format!("{place}: {limit} was {old:?} and is {new:?}"));
        }
    }
    if !set(&old["enum"]).is_subset(&set(&new["enum"])) || old["const"] != new["const"] {
        broken.push(format!("{place}: a value of {}{} is gone", old["enum"], old["const"]));
    }
    let (old_required, new_required) = (set(&old["required"]), set(&new["required"]));
    let (kept, given) = match sender {
        Sender::Client => (&old_required, &new_required),
        Sender::Service => (&new_required, &old_required),
    };
    for name in given.difference(kept) {
        broken.push(format!("{place}: whether {name} is required has changed"));
    }
    for (name, old) in members(&old["properties"]) {
        let place = format!("{place}.{name}");
        match new["properties"].get(name) {
            Some(new) => schema(&place, old, new, sender, broken),
            None => broken.push(format!("{place} is gone")),
        }
    }
    for nested in ["items", "additionalProperties"] {
        schema(&format!("{place}[]"), &old[nested], &new[nested], sender, broken);
    }
    for alternatives in ["oneOf", "anyOf"] {
        for (at, old) in items(&old[alternatives]).enumerate() {
            let is_kept = items(&new[alternatives]).any(|new| {
                let mut broken = Vec::new();
                schema(place, old, new, sender, &mut broken);
                broken.is_empty()
            });
            if !is_kept {
                broken.push(format!("{place}: the alternative {at} is gone"));
            }
        }
    }
}

/// Limits with the sign that makes a smaller one tighter.
const LIMITS: [(&str, f64); 6] = [
    ("maxLength", 1.0),
    ("maximum", 1.0),
    ("maxItems", 1.0),
    ("minLength", -1.0),
    ("minimum", -1.0),
    ("minItems", -1.0),
];

/// `value` with the targets in place of the references to them.
fn resolved(document: &Value, value: &Value) -> Value {
    match value {
        Value::Object(all) => {
            let target = all.get("$ref").and_then(Value::as_str);
            let target = target.map(|target| document.pointer(&target[1..]).expect(target));
            let mut whole = target.map_or(json!({}), |target| resolved(document, target));
            for (name, member) in all.iter().filter(|(name, _)| *name != "$ref") {
                whole[name] = resolved(document, member);
            }
            whole
        }
        Value::Array(all) => all.iter().map(|item| resolved(document, item)).collect(),
        value => value.clone(),
    }
}

/// A schema with the members of its `allOf` as its own, and likewise those of the one alternative
/// to null.
fn merged(schema: &Value) -> Value {
    let mut whole = schema.clone();
    for part in items(&schema["allOf"]) {
        add(&mut whole, &merged(part));
    }
    if let [one, null] = items(&schema["anyOf"]).collect::<Vec<_>>()[..]
        && null["type"] == "null"
    {
        whole["anyOf"] = Value::Null;
        add(&mut whole, &merged(one));
        whole["type"] = json!([whole["type"], "null"]);
    }
    whole
}

fn add(whole: &mut Value, part: &Value) {
    for (name, member) in members(part) {
        match &mut whole[name] {
            Value::Object(known) => {
                let mut known = Value::Object(std::mem::take(known));
                add(&mut known, member);
                whole[name] = known;
            }
            Value::Array(known) => known.extend(items(member).cloned()),
            known if known.is_null() => *known = member.clone(),
            _ => {}
        }
    }
}

/// The errors of an operation, such as `404 not_found`. Those of `default` have any status.
fn errors(responses: &Value) -> BTreeSet<String> {
    let body = |response: &'_ Value| response["content"]["application/json"]["examples"].clone();
    let of = |status: &str, examples: &Value| {
        let codes = members(examples).map(|(_, example)| &example["value"]["error"]["code"]);
        codes.filter_map(Value::as_str).map(|code| format!("{status} {code}")).collect::<Vec<_>>()
    };
    members(responses).flat_map(|(status, response)| of(status, &body(response))).collect()
}

fn required(value: &Value) -> bool {
    value["required"] == true
}

/// The items of an array, or the value alone.
fn set(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Null => BTreeSet::new(),
        Value::Array(items) => items.iter().map(Value::to_string).collect(),
        value => BTreeSet::from([value.to_string()]),
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
