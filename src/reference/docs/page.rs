//! What the templates show, read from the document.

use askama::Template;
use askama::filters::Escaper as _;
use serde_json::Value;

use super::operation::Operation;
use super::schema::{body, example, items, members, resolve, text, words};
use super::{SCRIPT, STYLE};
use crate::html::BASE_STYLE;
use crate::reference::openapi::DOCUMENT;

#[derive(Template)]
#[template(path = "reference/docs/page.html")]
pub(super) struct Page {
    /// Anchor, heading, paragraph as HTML.
    topics: Vec<(String, &'static str, String)>,
    chapters: Vec<Chapter>,
    /// Code, status, and what it means and what to do as HTML.
    errors: Vec<(&'static str, &'static Value, String, String)>,
    /// The codes of single fields with their meanings.
    field_codes: Vec<(&'static str, &'static str)>,
}

/// The operations of a path that needs a key.
struct Chapter {
    id: &'static str,
    about: &'static str,
    /// Those of a record; empty if the path has none.
    fields: Vec<Field>,
    /// The schema of a record, or null.
    record: &'static Value,
    operations: Vec<Operation>,
}

/// A field or a parameter.
pub(super) struct Field {
    name: &'static str,
    values: String,
    about: String,
    required: bool,
}

impl Page {
    pub(super) fn new() -> Page {
        let topics = text(&DOCUMENT["info"]["description"]).split("## ");
        let topics = topics.filter_map(|topic| topic.split_once("\n\n")).map(|(title, text)| {
            (title.to_lowercase().replace(' ', "-"), title, paragraph(text.trim()))
        });
        let errors = members(&DOCUMENT["components"]["examples"]).map(|(code, example)| {
            let html = |name: &str| paragraph(text(&example[name]));
            (code, &example["value"]["error"]["status"], html("summary"), html("description"))
        });
        let field_code = &DOCUMENT["components"]["schemas"]["FieldError"]["properties"]["code"];
        let meanings = items(&field_code["x-enum-descriptions"]).map(text);
        Page {
            topics: topics.collect(),
            chapters: items(&DOCUMENT["tags"]).filter_map(Chapter::new).collect(),
            errors: errors.collect(),
            field_codes: items(&field_code["enum"]).map(text).zip(meanings).collect(),
        }
    }
}

impl Chapter {
    /// The path with this tag, unless it is about the service itself.
    fn new(tag: &'static Value) -> Option<Chapter> {
        let id = text(&tag["name"]);
        let is_tagged =
            |item: &'static Value| members(item).any(|(_, operation)| operation["tags"][0] == id);
        let mut paths = members(&DOCUMENT["paths"]);
        let (path, item) = paths.find(|(_, item)| id != "service" && is_tagged(item))?;
        let record = &body(&item["post"]["responses"]["201"])["schema"];
        Some(Chapter {
            id,
            about: text(&tag["description"]),
            fields: fields(record, &body(&item["post"]["requestBody"])["schema"]),
            record,
            operations: Operation::all(path, item),
        })
    }

    fn example(&self) -> String {
        format!("{:#}", example(self.record))
    }
}

/// The fields of a record. `create` is the schema of a POST: that of a PUT, and what is required.
fn fields(record: &'static Value, create: &'static Value) -> Vec<Field> {
    let create = resolve(create);
    let (update, own) = (resolve(&create["allOf"][0]), &create["allOf"][1]);
    let fields = members(&resolve(record)["properties"]).map(|(name, schema)| {
        let written = &update["properties"][name];
        let default = &own["properties"][name]["default"];
        let values = match (written, default) {
            (Value::Null, _) => format!("{}, read-only", words(schema)),
            (_, Value::Null) => words(written),
            (_, default) => {
                format!("{}; default {}", words(written), default.to_string().trim_matches('"'))
            }
        };
        let required = items(&own["required"]).any(|required| required == name);
        Field { name, values, about: paragraph(text(&schema["description"])), required }
    });
    fields.collect()
}

impl Field {
    pub(super) fn parameter(parameter: &'static Value) -> Field {
        let header = if parameter["in"] == "header" { "header, " } else { "" };
        Field {
            name: text(&parameter["name"]),
            values: format!("{header}{}", words(&parameter["schema"])),
            about: paragraph(text(&parameter["description"])),
            required: parameter["required"] == true,
        }
    }
}

/// A paragraph as HTML: escaped, with `code` between back quotes.
pub(super) fn paragraph(text: &str) -> String {
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
