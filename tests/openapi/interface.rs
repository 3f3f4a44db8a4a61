//! The interface as a set of lines. Each operation, parameter, response, error, member and value is
//! one line.
//!
//! An interface keeps its promises if each line of the last release is still there. So a line says
//! only what must not change. Examples:
//!
//! ```text
//! GET /customers.php query limit: integer, maximum 200, minimum 1
//! GET /customers.php query sort = -name
//! POST /customers.php requires: body
//! PUT /customers.php 404 not_found
//! Customer.city: string or null, maxLength 100, always
//! CustomerCreate requires: name
//! each operation with a key 429 rate_limited
//! ```

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Keywords of a schema that are prose, or that have lines of their own.
const LEFT_OUT: [&str; 12] = [
    "$ref",
    "anyOf",
    "description",
    "enum",
    "example",
    "format",
    "items",
    "oneOf",
    "properties",
    "readOnly",
    "required",
    "type",
];

/// The lines of an OpenAPI document.
pub(crate) fn lines(document: &Value) -> BTreeSet<String> {
    let mut interface = Interface { document, lines: BTreeSet::new() };
    for (path, item) in members(&document["paths"]) {
        for (method, operation) in members(item).filter(|(_, one)| one["responses"].is_object()) {
            let place = format!("{} {path}", method.to_uppercase());
            match method.as_str() {
                // The document has the description of GET for HEAD too.
                "head" => _ = interface.lines.insert(place),
                _ => interface.operation(&place, item, operation),
            }
        }
    }
    for (name, header) in members(&document["components"]["headers"]) {
        let always = if header["required"] == true { ", always" } else { "" };
        interface.schema(&format!("header {name}"), &header["schema"], always);
    }
    let sent_by_clients = sent_by_clients(document);
    for (name, schema) in members(&document["components"]["schemas"]) {
        interface.component(name, schema, sent_by_clients.contains(name));
    }
    let with_a_key = operations_with_a_key(document);
    share("each operation with a key", &with_a_key, &mut interface.lines);
    interface.lines
}

/// Such as `GET /customers.php`.
fn operations_with_a_key(document: &Value) -> Vec<String> {
    let operations = members(&document["paths"])
        .flat_map(|(path, item)| members(item).map(move |(method, one)| (path, method, one)));
    let with_a_key = operations
        .filter(|(_, method, one)| *method != "head" && items(&one["security"]).next().is_some());
    with_a_key.map(|(path, method, _)| format!("{} {path}", method.to_uppercase())).collect()
}

/// Replaces the lines that all these operations have by one line with the name of all.
fn share(name: &str, operations: &[String], lines: &mut BTreeSet<String>) {
    let Some((first, others)) = operations.split_first() else { return };
    let ends: Vec<String> =
        lines.iter().filter_map(|line| line.strip_prefix(first)).map(str::to_owned).collect();
    for end in ends {
        if others.iter().all(|operation| lines.contains(&format!("{operation}{end}"))) {
            operations.iter().for_each(|operation| _ = lines.remove(&format!("{operation}{end}")));
            lines.insert(format!("{name}{end}"));
        }
    }
}

struct Interface<'a> {
    document: &'a Value,
    lines: BTreeSet<String>,
}

impl<'a> Interface<'a> {
    fn operation(&mut self, place: &str, item: &'a Value, operation: &'a Value) {
        let mut required = Vec::new();
        for parameter in items(&item["parameters"]).chain(items(&operation["parameters"])) {
            let parameter = self.resolved(parameter);
            let name = format!("{} {}", text(&parameter["in"]), text(&parameter["name"]));
            if parameter["required"] == true {
                required.push(name.clone());
            }
            self.schema(&format!("{place} {name}"), &parameter["schema"], "");
        }
        let body = &operation["requestBody"];
        if body["required"] == true {
            required.push("body".to_owned());
        }
        self.content(&format!("{place} body"), body);
        self.lines.insert(format!("{place} requires: {}", required.join(", ")));
        self.lines.insert(format!("{place} needs a scope of: {}", operation["security"]));
        for (status, response) in members(&operation["responses"]) {
            self.response(&format!("{place} {status}"), self.resolved(response));
        }
    }

    /// A success has headers and a body. An error has codes, and all errors have one schema.
    fn response(&mut self, place: &str, response: &'a Value) {
        let codes = &response["content"]["application/json"]["examples"];
        let is_error = |name: &str| self.document["components"]["examples"].get(name).is_some();
        let errors = members(codes).map(|(name, _)| name).filter(|name| is_error(name));
        let errors: Vec<String> = errors.map(|code| format!("{place} {code}")).collect();
        if errors.is_empty() {
            self.lines.insert(place.to_owned());
            let headers = members(&response["headers"]);
            self.lines.extend(headers.map(|(name, _)| format!("{place} header {name}")));
            self.content(place, response);
        }
        self.lines.extend(errors);
    }

    fn content(&mut self, place: &str, message: &Value) {
        for (media, content) in members(&message["content"]) {
            self.schema(&format!("{place} {media}"), &content["schema"], "");
        }
    }

    /// A schema with a name. If clients send it, they must not be asked for another member: so its
    /// required members are one line. If the service sends it, more members may become required.
    fn component(&mut self, name: &str, schema: &Value, is_sent_by_clients: bool) {
        if is_sent_by_clients {
            self.lines.insert(format!("{name} requires: {}", schema["required"]));
        }
        let required: Vec<&Value> = items(&schema["required"]).collect();
        self.schema(name, schema, "");
        for (member, schema) in members(&schema["properties"]) {
            let is_required = required.contains(&&Value::from(member.as_str()));
            let always = if is_required && !is_sent_by_clients { ", always" } else { "" };
            self.schema(&format!("{name}.{member}"), schema, always);
        }
    }

    /// Adds a line for each alternative and each value of `schema`, and for the items of an array.
    fn schema(&mut self, place: &str, schema: &Value, suffix: &str) {
        let alternatives: Vec<&Value> =
            items(&schema["anyOf"]).chain(items(&schema["oneOf"])).collect();
        for alternative in &alternatives {
            self.schema(place, alternative, suffix);
        }
        if alternatives.is_empty() {
            self.lines.insert(format!("{place}: {}{suffix}", constraints(schema)));
        }
        for value in items(&schema["enum"]) {
            self.lines.insert(format!("{place} = {}", text(value)));
        }
        if schema["items"].is_object() {
            self.schema(&format!("{place}[]"), &schema["items"], "");
        }
    }

    /// The target of a reference, or `value` itself.
    fn resolved(&self, value: &'a Value) -> &'a Value {
        let Some(target) = value["$ref"].as_str() else { return value };
        self.document.pointer(target.trim_start_matches('#')).expect(target)
    }
}

/// Type, format and limits: `string or null, maxLength 100`. The type may be a schema's name.
fn constraints(schema: &Value) -> String {
    let reference = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next());
    let types = match &schema["type"] {
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" or "),
        one => reference.map_or_else(|| text(one), str::to_owned),
    };
    let others = members(schema)
        .filter(|(keyword, _)| !LEFT_OUT.contains(&keyword.as_str()) && !keyword.starts_with("x-"));
    let others: BTreeSet<String> = others.map(|(name, value)| format!("{name} {value}")).collect();
    let format = schema["format"].as_str().map(str::to_owned);
    [types].into_iter().chain(format).chain(others).collect::<Vec<_>>().join(", ")
}

/// The names of the schemas in the bodies of requests, with the schemas inside them.
fn sent_by_clients(document: &Value) -> BTreeSet<String> {
    let operations = members(&document["paths"]).flat_map(|(_, item)| members(item));
    let mut names = BTreeSet::new();
    for (_, operation) in operations {
        add_references(document, &operation["requestBody"], &mut names);
    }
    names
}

fn add_references(document: &Value, value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(all) => {
            let target = all.get("$ref").and_then(Value::as_str);
            if let Some(name) = target.and_then(|one| one.strip_prefix("#/components/schemas/"))
                && names.insert(name.to_owned())
            {
                add_references(document, &document["components"]["schemas"][name], names);
            }
            all.values().for_each(|value| add_references(document, value, names));
        }
        Value::Array(all) => all.iter().for_each(|value| add_references(document, value, names)),
        _ => {}
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
