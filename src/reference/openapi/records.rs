//! `components.schemas`: of the records, of their fields in responses and bodies, and of filters.

use serde_json::{Map, Value, json};

use super::examples::{NOW, example_of};
use super::schemas::{list, nullable, number, object, schema_ref, text, time};
use crate::api::list::{Bound, EXAMPLE_CURSOR, Filter};
use crate::capitalize::capitalize;
use crate::model::email::MAX_EMAIL;
use crate::model::{ALL, Column, Field, Kind, Resource};

/// Text without U+0000.
const TEXT: &str = r"^[^\u0000]*$";
/// Text without U+0000 that is not only white space.
const FILLED_TEXT: &str = r"^[^\u0000]*[^\u0000\s][^\u0000]*$";
/// Not only white space.
const FILLED: &str = r"\S";

pub(super) fn schemas() -> Map<String, Value> {
    let mut all: Map<_, _> = ALL.into_iter().flat_map(of_resource).collect();
    all.extend(filters().as_object().cloned().unwrap_or_default());
    all
}

/// A record, a page, the bodies of POST and PUT, and enumerations.
fn of_resource(resource: &'static Resource) -> Vec<(String, Value)> {
    let title = capitalize(resource.name);
    let mut schemas = vec![
        (title.clone(), record(resource)),
        (format!("{title}Page"), page(resource, &title)),
        (format!("{title}Create"), create(resource, &title)),
        (format!("{title}Update"), update(resource)),
    ];
    for field in resource.fields {
        if let Kind::Choice(allowed) = field.kind {
            let choice = json!({ "type": "string", "enum": allowed });
            schemas.push((choice_name(resource, field), choice));
        }
    }
    schemas
}

/// The name of an enumeration, such as `CustomerStatus`: generated clients use one type everywhere.
pub(super) fn choice_name(resource: &Resource, field: &Field) -> String {
    format!("{}{}", capitalize(resource.name), capitalize(field.name))
}

fn record(resource: &'static Resource) -> Value {
    let about_id = format!("The number of the {}. It is never reused.", resource.name);
    let mut properties = Map::from_iter([("id".to_owned(), read_only(number(&about_id, 1)))]);
    for field in resource.fields {
        properties.insert(field.name.to_owned(), read(resource, field));
    }
    let times = [("created_at", "The time of creation."), ("updated_at", "The last change.")];
    properties.extend(times.map(|(name, about)| (name.to_owned(), read_only(time(about)))));
    let mut record = object(resource.about, Value::Object(properties));
    for one in resource.inclusions() {
        let included = schema_ref(&capitalize(one.resource.name));
        let mut schema = nullable(included);
        schema["description"] = json!(format!(
            "The {} that it belongs to. Only with `include={}`.",
            one.resource.name,
            one.name()
        ));
        record["properties"][one.name()] = schema;
    }
    record
}

fn page(resource: &'static Resource, title: &str) -> Value {
    let about = format!("A page of the list of {}.", resource.plural);
    json!({
        "type": "object",
        "description": about,
        "required": ["data", "next_cursor"],
        "properties": {
            "data": list(schema_ref(title), "The records of this page."),
            "next_cursor": nullable(text("The `cursor` for the next page; null on the last.",
                EXAMPLE_CURSOR)),
            "total": { "type": "integer", "format": "int64", "minimum": 0, "example": 2,
                "description": "The number of all matching records. Only with `total=true`." },
        },
    })
}

/// The fields of a PUT, some of them required, some with a default.
fn create(resource: &'static Resource, title: &str) -> Value {
    let required: Vec<&str> =
        resource.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let defaults = resource.fields.iter().filter_map(|field| {
        let word = field.default?;
        let value = if field.kind == Kind::Boolean { json!(word == "true") } else { json!(word) };
        Some((field.name.to_owned(), json!({ "default": value })))
    });
    json!({
        "description": format!(
            "The fields of a new {}. An absent optional field gets its default, or null.",
            resource.name
        ),
        "allOf": [schema_ref(&format!("{title}Update")), {
            "type": "object",
            "required": required,
            "properties": defaults.collect::<Map<_, _>>(),
        }],
    })
}

fn update(resource: &'static Resource) -> Value {
    let about = "The fields to change, at least one. The others keep their values.";
    let fields = resource.fields.iter();
    let properties: Map<_, _> =
        fields.map(|field| (field.name.to_owned(), write(resource, field))).collect();
    json!({ "type": "object", "description": about, "minProperties": 1, "properties": properties })
}

/// The schema of a field in a response: nullable if it is neither required nor has a default.
fn read(resource: &Resource, field: &Field) -> Value {
    let schema = match field.kind {
        Kind::Text { max, .. } => json!({ "type": "string", "maxLength": max }),
        _ => of_field(resource, field),
    };
    let can_be_null = !field.required && field.default.is_none();
    let mut schema = if can_be_null { nullable(schema) } else { schema };
    schema["description"] = json!(field.about);
    schema["example"] = example_of(field);
    schema
}

/// The schema of a field in a body. Null means empty, which a field with a default never is. A POST
/// takes it there and stores the default, but clients need not know.
fn write(resource: &Resource, field: &Field) -> Value {
    let mut schema = of_field(resource, field);
    if field.required && matches!(field.kind, Kind::Text { .. }) {
        schema["pattern"] = json!(FILLED_TEXT);
    }
    if field.required || field.default.is_some() { schema } else { nullable(schema) }
}

fn of_field(resource: &Resource, field: &Field) -> Value {
    match field.kind {
        Kind::Text { min: 0, max } => {
            json!({ "type": "string", "maxLength": max, "pattern": TEXT })
        }
        Kind::Text { min, max } => {
            json!({ "type": "string", "minLength": min, "maxLength": max, "pattern": TEXT })
        }
        Kind::Email => json!({ "type": "string", "format": "email", "maxLength": MAX_EMAIL }),
        Kind::Integer => {
            json!({ "type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX })
        }
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Date => json!({ "type": "string", "format": "date" }),
        Kind::Choice(_) => schema_ref(&choice_name(resource, field)),
    }
}

/// The schema of a filter's values.
pub(super) fn of_filter(resource: &Resource, filter: &Filter) -> Value {
    let (Column::Field(field) | Column::Referenced { field, .. }) = filter.column else {
        let exact = filter.bound == Bound::Equal;
        return schema_ref(if exact { "TimestampFilter" } else { "TimestampBound" });
    };
    match (field.kind, filter.bound) {
        (Kind::Text { .. } | Kind::Email, _) => schema_ref("TextFilter"),
        (Kind::Integer, _) => schema_ref("IntegerFilter"),
        (Kind::Boolean, _) => schema_ref("BooleanFilter"),
        (Kind::Date, Bound::Equal) => schema_ref("DateFilter"),
        (Kind::Date, _) => schema_ref("DateBound"),
        (Kind::Choice(_), _) => {
            let choice = schema_ref(&choice_name(resource, field));
            json!({ "anyOf": [choice, { "type": "string", "const": "null" }] })
        }
    }
}

fn filters() -> Value {
    let exact = "The value of the field; `null` finds empty fields.";
    let empty = json!({ "type": "string", "const": "null" });
    let date = json!({ "type": "string", "format": "date" });
    let time = json!({ "type": "string", "format": "date-time" });
    let number = json!({ "type": "integer", "format": "int64" });
    let bound = "The first (`_from`) or the last (`_to`) value.";
    json!({
        // `null` is a text too, so no second alternative is needed.
        "TextFilter": { "description": exact, "type": "string", "pattern": FILLED },
        "IntegerFilter": { "description": exact, "anyOf": [number, empty], "example": 1 },
        "BooleanFilter": { "description": exact, "anyOf": [
            { "type": "boolean" }, { "type": "string", "enum": ["1", "0", "null"] },
        ], "example": true },
        "DateFilter": { "description": exact, "anyOf": [date, empty], "example": "2026-11-20" },
        "TimestampFilter": { "description": exact, "anyOf": [time, empty], "example": NOW },
        "DateBound": { "description": bound, "type": "string", "format": "date",
            "example": "2026-11-20" },
        "TimestampBound": { "description": bound, "anyOf": [time, date], "example": NOW },
    })
}

fn read_only(mut schema: Value) -> Value {
    schema["readOnly"] = json!(true);
    schema
}
