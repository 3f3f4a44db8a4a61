//! An operation as the page shows it.

use serde_json::Value;

use super::page::{Field, paragraph};
use super::schema::{body, example, items, members, resolve, text};
use crate::api::list;
use crate::reference::openapi::DOCUMENT;

/// What the page shows under one heading: GET of records is two, with and without `id`.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Whole,
    List,
    One,
}

pub(super) struct Operation {
    path: &'static str,
    pub(super) method: &'static str,
    item: &'static Value,
    part: Part,
}

impl Operation {
    /// Those of a path.
    pub(super) fn all(path: &'static str, item: &'static Value) -> Vec<Operation> {
        let mut all = Vec::new();
        for (method, operation) in members(item).filter(|(method, _)| *method != "head") {
            let mut parameters = items(&operation["parameters"]);
            let parts = match parameters.any(|one| text(&one["$ref"]).ends_with("/OptionalId")) {
                true => &[Part::List, Part::One][..],
                false => &[Part::Whole],
            };
            if operation.is_object() {
                all.extend(parts.iter().map(|part| Operation { path, method, item, part: *part }));
            }
        }
        all
    }

    fn operation(&self) -> &'static Value {
        &self.item[self.method]
    }

    /// The anchor.
    pub(super) fn id(&self) -> String {
        let suffix = if self.part == Part::One { "-id" } else { "" };
        format!("{}{suffix}", text(&self.operation()["operationId"]))
    }

    /// The id of HEAD, which is a second anchor.
    pub(super) fn head(&self) -> &'static str {
        let is_first = self.method == "get" && self.part != Part::One;
        if is_first { text(&self.item["head"]["operationId"]) } else { "" }
    }

    pub(super) fn name(&self) -> String {
        let summary = text(&self.operation()["summary"]);
        match self.part {
            Part::Whole => summary.to_owned(),
            Part::List => format!("List {}", text(&self.operation()["tags"][0])),
            Part::One => summary.split(',').next().unwrap_or_default().to_owned(),
        }
    }

    pub(super) fn verb(&self) -> String {
        self.name().split(' ').next().unwrap_or_default().to_owned()
    }

    /// What it does and needs, as HTML.
    pub(super) fn about(&self) -> String {
        let operation = self.operation();
        let scopes = items(&operation["security"]).flat_map(|key| items(&key["apiKey"]));
        let scopes: Vec<String> = scopes.map(|scope| format!("`{}`", text(scope))).collect();
        let scopes = match scopes.as_slice() {
            [scope] => format!(" Needs the scope {scope}."),
            [] => String::new(),
            scopes => format!(" The scopes are {}.", scopes.join(", ")),
        };
        let head =
            if self.method == "get" { " HEAD returns the same without the body." } else { "" };
        paragraph(&format!("{}{scopes}{head}", text(&operation["description"])))
    }

    fn own_parameters(&self) -> impl Iterator<Item = &'static Value> {
        let part = self.part;
        items(&self.operation()["parameters"]).map(resolve).filter(move |parameter| {
            let is_of_one = parameter["name"] == "id" || parameter["in"] == "header";
            let is_of_both = part == Part::Whole || parameter["name"] == "include";
            is_of_both || is_of_one == (part == Part::One)
        })
    }

    /// The filters of a list, or all other parameters.
    pub(super) fn parameters(&self, filters: bool) -> Vec<Field> {
        let is_filter = |parameter: &Value| {
            let is_declared = list::PARAMETERS.iter().any(|known| parameter["name"] == known.name);
            self.part == Part::List && !is_declared
        };
        let parameters = self.own_parameters().filter(|each| is_filter(each) == filters);
        parameters.map(Field::parameter).collect()
    }

    /// The columns for `sort`.
    pub(super) fn columns(&self) -> String {
        let mut sort = self.own_parameters().filter(|parameter| parameter["name"] == "sort");
        let orders = items(sort.next().map_or(&Value::Null, |sort| &sort["schema"]["enum"]));
        let names = orders.map(text).filter(|order| !order.starts_with('-'));
        names.collect::<Vec<_>>().join(", ")
    }

    /// The path with the parameters of an example.
    pub(super) fn target(&self) -> String {
        let mut target = self.path.to_owned();
        for parameter in self.own_parameters() {
            let name = text(&parameter["name"]);
            let id = name == "id" && (self.part == Part::One || parameter["required"] == true);
            if id || ["limit", "sort"].contains(&name) {
                let value = parameter["example"].to_string();
                let mark = if target.contains('?') { '&' } else { '?' };
                target.push_str(&format!("{mark}{name}={}", value.trim_matches('"')));
            }
        }
        target
    }

    fn success(&self) -> (&'static str, &'static Value) {
        let first = members(&self.operation()["responses"]).next();
        first.map_or(("", &Value::Null), |(status, response)| (status, resolve(response)))
    }

    pub(super) fn status(&self) -> &'static str {
        self.success().0
    }

    /// An example of the body of a success, unless it is one `record`.
    pub(super) fn response(&self, record: &Value) -> Option<String> {
        let schema = &body(self.success().1)["schema"];
        let schema = match self.part {
            Part::Whole => schema,
            Part::List => &schema["oneOf"][1],
            Part::One => &schema["oneOf"][0],
        };
        (schema != record).then(|| format!("{:#}", example(schema)))
    }

    /// Its codes, in the order of the document.
    pub(super) fn errors(&self) -> Vec<&'static str> {
        let responses = members(&self.operation()["responses"]);
        let responses = responses.filter(|(status, _)| self.part != Part::List || *status != "404");
        let responses: Vec<_> =
            responses.map(|(_, response)| &body(resolve(response))["examples"]).collect();
        let codes = members(&DOCUMENT["components"]["examples"]).map(|(code, _)| code);
        codes.filter(|code| responses.iter().any(|examples| examples.get(code).is_some())).collect()
    }

    /// The example of its body as JSON.
    pub(super) fn json(&self) -> Option<String> {
        let example = &body(&self.operation()["requestBody"])["example"];
        (!example.is_null()).then(|| format!("{example:#}"))
    }

    /// The body in Python, which has other words for null, true and false.
    pub(super) fn python(&self) -> Option<String> {
        let words = [("null", "None"), ("true", "True"), ("false", "False")];
        let replace = |body: String, (json, python): &(&str, &str)| {
            body.replace(&format!("\": {json}"), &format!("\": {python}"))
        };
        Some(words.iter().fold(self.json()?, replace))
    }
}
