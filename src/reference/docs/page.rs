//! What the page shows, read from the OpenAPI document.

use askama::Template;
use askama::filters::Escaper as _;
use serde_json::{Map, Value, json};

use super::{SCRIPT, STYLE};
use crate::html::BASE_STYLE;
use crate::reference::openapi::DOCUMENT;

#[derive(Template)]
#[template(path = "reference/docs/page.html")]
pub(super) struct Page<'a> {
    /// Anchor, heading, paragraph as HTML.
    topics: Vec<(String, &'a str, String)>,
    chapters: Vec<Chapter<'a>>,
    /// Code, status, and what it means and what to do as HTML.
    errors: Vec<(&'a str, &'a Value, String, String)>,
    /// The codes of single fields with their meanings.
    field_codes: Vec<(&'a str, &'a str)>,
}

/// The operations of a path that needs a key.
struct Chapter<'a> {
    id: &'a str,
    about: &'a str,
    /// Those of a record; empty if the path has none.
    fields: Vec<Field<'a>>,
    operations: Vec<Operation<'a>>,
}

struct Operation<'a> {
    id: &'a str,
    name: &'a str,
    method: &'a str,
    /// The path of an example.
    target: String,
    /// What it does and needs, as HTML.
    about: String,
    /// Without the filters, which have the names of the fields.
    parameters: Vec<Field<'a>>,
    /// The example of its body as JSON.
    body: Option<String>,
    status: &'a str,
    /// An example of the body of a success as JSON.
    response: Option<String>,
    /// Its error codes, by status.
    errors: Vec<&'a str>,
}

/// A field or a parameter.
struct Field<'a> {
    name: &'a str,
    values: String,
    about: String,
    required: bool,
}

/// Renders the page.
pub(super) fn render() -> askama::Result<String> {
    Page::new(&inlined(&DOCUMENT)).render()
}

impl Page<'_> {
    fn new(document: &Value) -> Page<'_> {
        let topics = text(&document["info"]["description"]).split("## ");
        let topics = topics.filter_map(|topic| topic.split_once("\n\n")).map(|(title, text)| {
            (title.to_lowercase().replace(' ', "-"), title, paragraph(text.trim()))
        });
        let chapter = |tag| Chapter::new(tag, document);
        let errors = members(&document["components"]["examples"]).map(|(code, example)| {
            let error = &example["value"]["error"];
            let html = |value| paragraph(text(value));
            (code, &error["status"], html(&error["message"]), html(&example["description"]))
        });
        let field_code = &document["components"]["schemas"]["FieldError"]["properties"]["code"];
        let meanings = items(&field_code["x-enum-descriptions"]).map(text);
        Page {
            topics: topics.collect(),
            chapters: items(&document["tags"]).filter_map(chapter).collect(),
            errors: errors.collect(),
            field_codes: items(&field_code["enum"]).map(text).zip(meanings).collect(),
        }
    }
}

impl<'a> Chapter<'a> {
    /// The path with this tag, unless it is about the service itself.
    fn new(tag: &'a Value, document: &'a Value) -> Option<Chapter<'a>> {
        let id = text(&tag["name"]);
        let is_tagged = |item| members(item).any(|(_, operation)| operation["tags"][0] == id);
        let mut paths = members(&document["paths"]);
        let (path, item) = paths.find(|(_, item)| id != "service" && is_tagged(item))?;
        let operations = members(item).filter(|(method, own)| own.is_object() && *method != "head");
        let operation = |(method, own)| Operation::new(path, method, own);
        let record = &body(&item["post"]["responses"]["201"])["schema"];
        Some(Chapter {
            id,
            about: text(&tag["description"]),
            fields: Field::of_record(record, &body(&item["post"]["requestBody"])["schema"]),
            operations: operations.map(operation).collect(),
        })
    }
}

impl<'a> Operation<'a> {
    fn new(path: &str, method: &'a str, operation: &'a Value) -> Operation<'a> {
        let scopes = items(&operation["security"]).flat_map(|key| items(&key["apiKey"]));
        let scopes: Vec<String> = scopes.map(|scope| format!("`{}`", text(scope))).collect();
        let scopes = match scopes.join(" or ") {
            none if none.is_empty() => none,
            scopes => format!(" Needs the scope {scopes}."),
        };
        let head = if method == "get" { " HEAD returns the same without the body." } else { "" };
        let parameters = || items(&operation["parameters"]);
        let needs_id = parameters().any(|one| one["name"] == "id" && one["required"] == true);
        let described = parameters().filter(|one| one["description"].is_string());
        let mut responses = members(&operation["responses"]);
        let (status, success) = responses.next().unwrap_or(("", &Value::Null));
        let failures = responses.filter(|(status, _)| *status != "default");
        let codes = failures.flat_map(|(_, response)| members(&body(response)["examples"]));
        let schema = &body(success)["schema"];
        // Of a record and a page of records, the page: the record is shown already.
        let schema = schema["oneOf"].get(1).unwrap_or(schema);
        let json = |value: &Value| (!value.is_null()).then(|| format!("{value:#}"));
        Operation {
            id: text(&operation["operationId"]),
            name: text(&operation["summary"]),
            method,
            target: format!("{path}{}", if needs_id { "?id=1" } else { "" }),
            about: paragraph(&format!("{}{scopes}{head}", text(&operation["description"]))),
            parameters: described.map(Field::parameter).collect(),
            body: json(&body(&operation["requestBody"])["example"]),
            status,
            response: json(&example(schema)),
            errors: codes.map(|(code, _)| code).collect(),
        }
    }
}

impl<'a> Field<'a> {
    /// The fields of a record. `create` is the schema of the body of a POST.
    fn of_record(record: &'a Value, create: &'a Value) -> Vec<Field<'a>> {
        let field = |name| {
            let (schema, written) = (&record["properties"][name], &create["properties"][name]);
            let more = match &written["default"] {
                _ if schema["readOnly"] == true => ", read-only".to_owned(),
                Value::Null => String::new(),
                default => format!("; default {}", default.to_string().trim_matches('"')),
            };
            Field {
                name,
                values: format!("{}{more}", words(schema)),
                about: paragraph(text(&schema["description"])),
                required: items(&create["required"]).any(|required| required == name),
            }
        };
        items(&record["required"]).map(text).map(field).collect()
    }

    fn parameter(parameter: &'a Value) -> Field<'a> {
        let header = if parameter["in"] == "header" { "header, " } else { "" };
        Field {
            name: text(&parameter["name"]),
            values: format!("{header}{}", words(&parameter["schema"])),
            about: paragraph(text(&parameter["description"])),
            required: parameter["required"] == true,
        }
    }
}

/// `value` with the targets in place of the references to them.
fn inlined(value: &Value) -> Value {
    match value {
        Value::Object(all) => {
            let target = text(&value["$ref"]).get(1..).and_then(|target| DOCUMENT.pointer(target));
            let mut whole = target.map_or(json!({}), inlined);
            for (name, own) in all.iter().filter(|(name, _)| *name != "$ref") {
                whole[name] = inlined(own);
            }
            whole
        }
        Value::Array(all) => all.iter().map(inlined).collect(),
        value => value.clone(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, member)| (name.as_str(), member))
}

/// The JSON body of a request or response: its schema and its examples.
fn body(value: &Value) -> &Value {
    &value["content"]["application/json"]
}

/// The schema, or the first alternative.
fn first(schema: &Value) -> &Value {
    items(&schema["anyOf"]).chain(items(&schema["oneOf"])).next().unwrap_or(schema)
}

/// The values in a few words.
fn words(schema: &Value) -> String {
    let schema = first(schema);
    let kind = items(&schema["type"]).next().unwrap_or(&schema["type"]);
    // A leading `-` only reverses an order.
    let choices = items(&schema["enum"]).map(text).filter(|choice| !choice.starts_with('-'));
    let choices: Vec<&str> = choices.collect();
    let number = |limit: &str| schema[limit].as_u64();
    match (text(kind), text(&schema["format"]), number("minLength"), number("maxLength")) {
        ("string", ..) if !choices.is_empty() => choices.join(" · "),
        (_, "email", ..) => "e-mail address".to_owned(),
        (_, "date", ..) => "date".to_owned(),
        (_, "date-time", ..) => "timestamp".to_owned(),
        ("string", _, Some(min), Some(max)) if min == max => format!("text, exactly {max}"),
        ("string", _, Some(min), Some(max)) => format!("text, {min} to {max}"),
        ("string", _, None, Some(max)) => format!("text, at most {max}"),
        ("string", ..) => "text".to_owned(),
        ("boolean", ..) => "true or false".to_owned(),
        ("array", ..) => words(&schema["items"]),
        (kind, ..) => match (number("minimum"), number("maximum")) {
            (Some(min), Some(max)) => format!("{kind}, {min} to {max}"),
            _ => kind.to_owned(),
        },
    }
}

/// An example of the values: its own, or one made of those of its parts.
fn example(schema: &Value) -> Value {
    let own = [&schema["example"], &schema["const"], &schema["enum"][0]];
    let member = |name: &str| (name.to_owned(), example(&schema["properties"][name]));
    match own.into_iter().find(|own| !own.is_null()) {
        Some(own) => own.clone(),
        None if first(schema) != schema => example(first(schema)),
        None if schema["items"].is_object() => Value::Array(vec![example(&schema["items"])]),
        None if schema["properties"].is_object() => {
            items(&schema["required"]).map(text).map(member).collect::<Map<_, _>>().into()
        }
        None => Value::Null,
    }
}

/// A paragraph as HTML: escaped, with `code` between back quotes.
fn paragraph(text: &str) -> String {
    let mut html = String::new();
    for (at, piece) in text.split('`').enumerate() {
        let (before, after) = if at % 2 == 1 { ("<code>", "</code>") } else { ("", "") };
        html.push_str(before);
        // Writing to a `String` cannot fail.
        let _ = askama::filters::Html.write_escaped_str(&mut html, piece);
        html.push_str(after);
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let html = "a &#60;b&#62; <code>&#34;c&#34; &#38; &#39;d&#39;</code>";
        assert_eq!(paragraph("a <b> `\"c\" & 'd'`"), html);
    }
}
