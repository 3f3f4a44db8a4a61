//! JSON Schemas of fields: in responses, in bodies and in filters.

use serde_json::{Map, Value, json};

use super::examples::{change_example, example_of, record_example};
use crate::api::batch::MAX_OPERATIONS;
use crate::api::list::{Bound, Filter};
use crate::capitalize::capitalize;
use crate::model::field::MAX_EMAIL;
use crate::model::{ALL, Column, Field, Kind, Resource, Scope};

/// Text without U+0000.
const TEXT: &str = r"^[^\u0000]*$";
/// Text without U+0000 that is not only white space.
const FILLED_TEXT: &str = r"^[^\u0000]*[^\u0000\s][^\u0000]*$";
/// Entity tags with commas between, or `*`. The service also takes tags beyond ASCII and empty elements (RFC 9110 section 5.6.1).
pub const ENTITY_TAGS: &str = r#"^(\*|(W/)?"[!#-~]*"(, ?(W/)?"[!#-~]*")*)$"#;
/// Not only white space.
const FILLED: &str = r"\S";

/// A reference to the schema `name`.
pub fn schema_ref(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The schemas of a resource: record, page, body of a POST, body of a PUT, and enumerations.
pub fn of_resource(resource: &'static Resource) -> impl Iterator<Item = (String, Value)> {
    let title = capitalize(resource.name);
    let choices = resource.fields.iter().filter_map(|field| match field.kind {
        Kind::Choice(allowed) => {
            Some((choice_name(resource, field.name), json!({ "type": "string", "enum": allowed })))
        }
        _ => None,
    });
    let own = [
        (title.clone(), record(resource)),
        (format!("{title}Page"), page(resource, &title)),
        (format!("{title}Create"), create(resource)),
        (format!("{title}Update"), update(resource)),
    ];
    own.into_iter().chain(choices)
}

/// The schemas of the response of `/whoami.php`.
pub fn of_whoami() -> [(String, Value); 2] {
    let object = |properties: Value| {
        let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
        json!({ "type": "object", "required": required, "properties": properties })
    };
    let text = |about: &str| json!({ "type": "string", "description": about });
    let scopes: Vec<String> = Scope::all().map(|scope| scope.to_string()).collect();
    let key = object(json!({
        "id": { "type": "integer", "format": "int64", "minimum": 1, "description": "The number of the key." },
        "name": text("The name of the key."),
        "prefix": text("The first 8 characters of the key."),
        "scopes": {
            "type": "array",
            "items": { "type": "string", "enum": scopes },
            "description": "What the key permits.",
        },
        "created_at": { "type": "string", "format": "date-time", "description": "The time of creation." },
        "expires_at": {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "The second from which on the key is refused; null for a key without an end.",
        },
    }));
    let whoami = object(json!({
        "tenant": text("The name of the tenant."),
        "key": schema_ref("WhoamiKey"),
        "rate_limit": { "type": "integer", "minimum": 1, "description": "Requests that the key may make in a minute." },
        "api_version": text("The version of the API."),
        "server": text("The version of the service."),
    }));
    [("Whoami".to_owned(), whoami), ("WhoamiKey".to_owned(), key)]
}

/// The name of an enumeration, such as `CustomerStatus`. It makes generated clients use one type everywhere.
fn choice_name(resource: &Resource, field: &str) -> String {
    format!("{}{}", capitalize(resource.name), capitalize(field))
}

fn record(resource: &'static Resource) -> Value {
    let mut properties = Map::new();
    properties.insert("id".to_owned(), read_only_id(resource));
    properties.extend(resource.fields.iter().map(|field| (field.name.to_owned(), read(resource, field))));
    for (name, about) in [("created_at", "The time of creation."), ("updated_at", "The time of the last change.")] {
        let schema = json!({ "type": "string", "format": "date-time", "readOnly": true, "description": about });
        properties.insert(name.to_owned(), schema);
    }
    json!({
        "type": "object",
        "description": resource.about,
        "required": properties.keys().collect::<Vec<_>>(),
        "properties": properties,
        "example": record_example(resource),
    })
}

fn read_only_id(resource: &Resource) -> Value {
    json!({
        "type": "integer",
        "format": "int64",
        "minimum": 1,
        "readOnly": true,
        "description": format!("The number of the {}. It is never reused.", resource.name),
    })
}

fn page(resource: &'static Resource, title: &str) -> Value {
    json!({
        "type": "object",
        "description": format!("A page of the list of {}.", resource.plural),
        "required": ["data", "next_cursor"],
        "properties": {
            "data": { "type": "array", "items": schema_ref(title), "description": "The records of this page." },
            "next_cursor": {
                "type": ["string", "null"],
                "description": "The value of `cursor` for the next page; null on the last page.",
            },
            "total": {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "description": "The number of all matching records. Only with `total=true`.",
            },
        },
    })
}

/// The schemas of the journal: a page, an entry, and who made a change.
pub fn of_changes() -> impl Iterator<Item = (String, Value)> {
    [
        ("ChangePage".to_owned(), change_page()),
        ("Change".to_owned(), change()),
        ("KeyAuthor".to_owned(), key_author()),
        ("CommandAuthor".to_owned(), command_author()),
    ]
    .into_iter()
}

/// The schemas of batches: the request with its operations, and the response with their results.
pub fn of_batches() -> impl Iterator<Item = (String, Value)> {
    [
        ("Batch".to_owned(), batch()),
        ("BatchOperation".to_owned(), batch_operation()),
        ("BatchResults".to_owned(), batch_results()),
        ("BatchResult".to_owned(), batch_result()),
    ]
    .into_iter()
}

fn batch() -> Value {
    json!({
        "type": "object",
        "description": "Operations that are run in their order, all or none.",
        "required": ["operations"],
        "additionalProperties": false,
        "properties": {
            "operations": {
                "type": "array",
                "items": schema_ref("BatchOperation"),
                "minItems": 1,
                "maxItems": MAX_OPERATIONS,
                "description": "The operations.",
            },
        },
    })
}

fn batch_operation() -> Value {
    let paths: Vec<&str> = ALL.iter().filter_map(|resource| resource.path.strip_prefix('/')).collect();
    let paths = paths.join("|").replace('.', "\\.");
    json!({
        "type": "object",
        "description": "A change of one record, as a request of its own would make it.",
        "required": ["method", "path"],
        "additionalProperties": false,
        "properties": {
            "method": { "type": "string", "enum": ["POST", "PUT", "DELETE"], "description": "The method." },
            "path": {
                "type": "string",
                "pattern": format!("^(/v1)?/({paths})(\\?id=[1-9][0-9]*)?$"),
                "description": "A record path, with `id` for PUT and DELETE. `location` in the result begins as it does.",
            },
            "body": {
                "type": ["object", "null"],
                "additionalProperties": true,
                "description": "The body of the request. POST and PUT need it. In place of the value of a reference, `{\"result\": N}` \
                    stands for the id that operation N gave, an earlier POST, counted from 0.",
            },
            "if_match": {
                "type": ["string", "null"],
                "pattern": ENTITY_TAGS,
                "description": "The header `If-Match` of the request, for PUT and DELETE.",
            },
        },
    })
}

fn batch_results() -> Value {
    json!({
        "type": "object",
        "description": "The results of a batch.",
        "required": ["results"],
        "properties": {
            "results": {
                "type": "array",
                "items": schema_ref("BatchResult"),
                "description": "The results, in the order of the operations.",
            },
        },
    })
}

fn batch_result() -> Value {
    let records = ALL.map(|resource| schema_ref(&capitalize(resource.name)));
    let record_or_null = records.into_iter().chain([json!({ "type": "null" })]).collect::<Vec<_>>();
    let text_or_null = |about: &str| json!({ "type": ["string", "null"], "description": about });
    json!({
        "type": "object",
        "description": "The response that a request of its own would have had.",
        "required": ["status", "location", "etag", "body"],
        "properties": {
            "status": { "type": "integer", "enum": [200, 201, 204], "description": "The HTTP status." },
            "location": text_or_null("The path of a new record, otherwise null."),
            "etag": text_or_null("The version of the record after the operation; null if it is deleted."),
            "body": { "anyOf": record_or_null, "description": "The record after the operation; null if it is deleted." },
        },
    })
}

fn change_page() -> Value {
    json!({
        "type": "object",
        "description": "A page of the journal.",
        "required": ["data", "next_cursor", "more"],
        "properties": {
            "data": { "type": "array", "items": schema_ref("Change"), "description": "The entries, the oldest first." },
            "next_cursor": {
                "type": "string",
                "description": "The value of `cursor` for what comes after this page, now or later.",
            },
            "more": { "type": "boolean", "description": "Whether further entries are there already." },
        },
    })
}

fn change() -> Value {
    let records = || ALL.map(|resource| schema_ref(&capitalize(resource.name)));
    let record_or_null = records().into_iter().chain([json!({ "type": "null" })]).collect::<Vec<_>>();
    json!({
        "type": "object",
        "description": "An entry of the journal: one change of one record.",
        "required": ["seq", "at", "resource", "id", "action", "fields", "before", "by", "request_id", "record"],
        "properties": {
            "seq": {
                "type": "integer",
                "format": "int64",
                "minimum": 1,
                "description": "The number of the entry. Later entries have higher numbers.",
            },
            "at": { "type": "string", "format": "date-time", "description": "When the change was made." },
            "resource": { "type": "string", "enum": ALL.map(|resource| resource.plural), "description": "The resource." },
            "id": { "type": "integer", "format": "int64", "minimum": 1, "description": "The record." },
            "action": { "type": "string", "enum": ["created", "updated", "deleted"], "description": "What was done." },
            "fields": {
                "type": "array",
                "items": { "type": "string" },
                "description": "The fields whose values changed; of a new record those that are not null.",
            },
            "before": {
                "type": ["object", "null"],
                "additionalProperties": true,
                "description": "The former values of these fields; the whole record if it was deleted; null for a new record.",
            },
            "by": {
                "oneOf": [schema_ref("KeyAuthor"), schema_ref("CommandAuthor")],
                "description": "Who made the change.",
            },
            "request_id": {
                "type": ["string", "null"],
                "description": "The `X-Request-Id` of the request; null for a command.",
            },
            "record": { "anyOf": record_or_null, "description": "The record as it is now; null once it is deleted." },
        },
        "example": change_example(),
    })
}

fn key_author() -> Value {
    json!({
        "type": "object",
        "description": "An API key, as it was when it made the change.",
        "required": ["kind", "id", "name", "prefix"],
        "properties": {
            "kind": { "type": "string", "const": "key" },
            "id": { "type": "integer", "format": "int64", "minimum": 1, "description": "The number of the key." },
            "name": { "type": "string", "description": "The name of the key." },
            "prefix": { "type": "string", "description": "The first characters of the key." },
        },
    })
}

fn command_author() -> Value {
    json!({
        "type": "object",
        "description": "A command of the operator.",
        "required": ["kind", "name"],
        "properties": {
            "kind": { "type": "string", "const": "command" },
            "name": { "type": "string", "enum": ["import"], "description": "The name of the command." },
        },
    })
}

fn create(resource: &'static Resource) -> Value {
    let required: Vec<&str> = resource.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    json!({
        "type": "object",
        "description": format!("The fields of a new {}. An absent optional field gets its default, or null.", resource.name),
        "required": required,
        "properties": written(resource, Field::written_default),
    })
}

fn update(resource: &'static Resource) -> Value {
    json!({
        "type": "object",
        "description": format!("The fields of the {} to change, at least one. The others keep their values.", resource.name),
        "minProperties": 1,
        "properties": written(resource, |_| None),
    })
}

fn written(resource: &'static Resource, default: impl Fn(&Field) -> Option<Value>) -> Map<String, Value> {
    let property = |field: &Field| {
        let mut schema = write(resource, field);
        if let Some(default) = default(field) {
            schema.insert("default".to_owned(), default);
        }
        (field.name.to_owned(), Value::Object(schema))
    };
    resource.fields.iter().map(property).collect()
}

impl Field {
    /// The default as JSON, if there is one.
    fn written_default(&self) -> Option<Value> {
        self.default.map(|word| if self.kind == Kind::Boolean { json!(word == "true") } else { json!(word) })
    }
}

/// The schema of a field in a response: nullable if it is neither required nor has a default.
fn read(resource: &Resource, field: &Field) -> Value {
    let nullable = !field.required && field.default.is_none();
    let schema = match field.kind {
        Kind::Text { max, .. } => json!({ "type": "string", "maxLength": max }),
        _ => of_field(resource, field),
    };
    Value::Object(described(schema, field, nullable))
}

/// The schema of a field in a body. Null means empty.
fn write(resource: &Resource, field: &Field) -> Map<String, Value> {
    let mut schema = of_field(resource, field);
    if let (Kind::Text { .. }, true, Some(members)) = (field.kind, field.required, schema.as_object_mut()) {
        members.insert("pattern".to_owned(), json!(FILLED_TEXT));
    }
    described(schema, field, !field.required)
}

fn of_field(resource: &Resource, field: &Field) -> Value {
    match field.kind {
        Kind::Text { min: 0, max } => json!({ "type": "string", "maxLength": max, "pattern": TEXT }),
        Kind::Text { min, max } => json!({ "type": "string", "minLength": min, "maxLength": max, "pattern": TEXT }),
        Kind::Email => json!({ "type": "string", "format": "email", "maxLength": MAX_EMAIL }),
        Kind::Integer => json!({ "type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Date => json!({ "type": "string", "format": "date" }),
        Kind::Choice(_) => schema_ref(&choice_name(resource, field.name)),
    }
}

fn described(schema: Value, field: &Field, nullable: bool) -> Map<String, Value> {
    let mut members = match schema {
        Value::Object(members) if nullable && members.contains_key("$ref") => {
            Map::from_iter([("anyOf".to_owned(), json!([members, { "type": "null" }]))])
        }
        Value::Object(members) => members,
        _ => Map::new(),
    };
    if let (true, Some(kind)) = (nullable, members.get_mut("type")) {
        *kind = json!([kind.take(), "null"]);
    }
    members.insert("description".to_owned(), json!(field.about));
    members.insert("example".to_owned(), example_of(field));
    members
}

/// The schema of a filter's values.
pub fn filter_schema(resource: &Resource, filter: &Filter) -> Value {
    let empty = || json!({ "type": "string", "const": "null" });
    let value = match (filter.column, filter.bound) {
        (Column::Id, _) => json!({ "type": "integer", "format": "int64" }),
        (Column::CreatedAt | Column::UpdatedAt, Bound::Equal) => json!({ "type": "string", "format": "date-time" }),
        (Column::CreatedAt | Column::UpdatedAt, _) => {
            return json!({ "anyOf": [{ "type": "string", "format": "date-time" }, { "type": "string", "format": "date" }] });
        }
        (Column::Field(field) | Column::Referenced { field, .. }, _) => match field.kind {
            // `null` is a text too, so no second alternative is needed.
            Kind::Text { .. } | Kind::Email => return json!({ "type": "string", "pattern": FILLED }),
            Kind::Boolean => {
                return json!({ "anyOf": [{ "type": "boolean" }, { "type": "string", "enum": ["1", "0", "null"] }] });
            }
            _ => of_field(resource, field),
        },
    };
    match filter.bound {
        Bound::Equal => json!({ "anyOf": [value, empty()] }),
        Bound::From | Bound::To => value,
    }
}
