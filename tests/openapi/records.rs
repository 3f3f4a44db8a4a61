//! `components.schemas`: of the records, of bodies, and of filters.

use serde_json::{Map, Value, json};

use tenantdesk::api::query::Filter;
use tenantdesk::model::validation::{
    CUSTOM_NAME_PATTERN, MAX_CUSTOM_FIELDS, MAX_CUSTOM_LENGTH, MAX_EMAIL,
};
use tenantdesk::model::{
    ALL, Bound, CREATED_AT, CUSTOM, Field, ID, Kind, READ_ONLY, Resource, ResourceKind, UPDATED_AT,
};

use super::schema::{
    EXAMPLE_ETAG, capitalize, list, nullable, number, object, schema_ref, text, time, title,
};

const EXAMPLE_CURSOR: &str = "AXJ0ZW5hbnRkZQAAAAAAAAABaQAAAAAAAAABJ3y5cPzGmQ4";

/// Text without U+0000.
const TEXT: &str = r"^[^\x00]*$";
/// Text without U+0000 that is not only white space.
const FILLED_TEXT: &str = r"^[^\x00]*[^\x00\s][^\x00]*$";
/// Not only white space.
pub(crate) const FILLED: &str = r"\S";

/// A record, a page, the bodies of POST and PUT, and enumerations.
pub(crate) fn schemas() -> Map<String, Value> {
    let mut schemas = Map::new();
    for resource in ALL {
        let title = title(resource);
        schemas.insert(title.clone(), record(resource));
        schemas.insert(format!("{title}Page"), page(resource, &title));
        schemas.insert(format!("{title}Create"), create(resource));
        schemas.insert(format!("{title}Update"), update(resource));
        for field in resource.fields {
            if let Kind::Choice(allowed) = field.kind {
                let choice = json!({ "type": "string", "enum": allowed });
                schemas.insert(choice_name(resource, field), choice);
            }
        }
    }
    schemas
}

/// The name of an enumeration, such as `CustomerStatus`: generated clients use one type everywhere.
fn choice_name(resource: &Resource, field: &Field) -> String {
    format!("{}{}", title(resource), capitalize(field.name))
}

/// The fields, and the members that the service adds.
fn record(resource: &'static Resource) -> Value {
    let mut members = json!({ "id": number(ID.about, 1) });
    for field in resource.fields {
        members[field.name] = property(resource, field);
    }
    for field in [&CREATED_AT, &UPDATED_AT] {
        members[field.name] = time(field.about);
    }
    let about = "The version of the record. Send it as `If-Match`. Null only with `at`, if it is not \
        known.";
    members["etag"] = nullable(text(about, EXAMPLE_ETAG));
    members[UPDATED_AT.name] = nullable(members[UPDATED_AT.name].take());
    for name in READ_ONLY.into_iter().chain(["etag"]) {
        members[name]["readOnly"] = json!(true);
    }
    let mut record = object(resource.about, members);
    let etag = record["properties"].as_object_mut().unwrap().shift_remove("etag");
    for inclusion in resource.inclusions() {
        let (name, resource) = (inclusion.name(), inclusion.resource);
        let mut included = nullable(schema_ref(&title(resource)));
        included["description"] =
            json!(format!("The {} that it belongs to. Only with `include={name}`.", resource.name));
        record["properties"][name] = included;
    }
    record["properties"]["etag"] = etag.into();
    record
}

fn page(resource: &'static Resource, title: &str) -> Value {
    json!({
        "type": "object",
        "description": format!("A page of the list of {}.", resource.plural),
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

/// The fields of a PUT, some of them required. A default stands in the description: with `default`,
/// generated clients would require the member or send it.
fn create(resource: &'static Resource) -> Value {
    let mut schema = update(resource);
    schema["description"] = json!(format!(
        "The fields of a new {}. An absent optional field gets its default, or null.",
        resource.name
    ));
    // A natural key can stand for a reference.
    let required =
        resource.fields.iter().filter(|field| field.required && field.references.is_none());
    schema["required"] = required.map(|field| field.name).collect();
    for field in resource.fields {
        if let Some(word) = field.default {
            let about = format!("{} `{word}` if absent.", field.about);
            schema["properties"][field.name]["description"] = json!(about);
        }
    }
    schema
}

fn update(resource: &'static Resource) -> Value {
    let about = "The fields to change, at least one. The others keep their values.";
    let mut properties = json!({});
    for field in resource.fields {
        properties[field.name] = property(resource, field);
    }
    for key in resource.natural_references() {
        let mut schema = nullable(of_field(key.target, key.key));
        schema["description"] =
            json!(format!("In place of `{}`: {}", key.field.name, key.key.about));
        schema["example"] = serde_json::from_str(key.key.example).unwrap();
        properties[&key.name] = schema;
    }
    // An empty value removes a custom field, null removes all of them, and removed ones do not
    // count.
    let custom = &mut properties[CUSTOM.name];
    custom["type"] = json!(["object", "null"]);
    custom["additionalProperties"] =
        json!({ "type": ["string", "null"], "maxLength": MAX_CUSTOM_LENGTH, "pattern": TEXT });
    custom.as_object_mut().unwrap().remove("maxProperties");
    json!({ "type": "object", "description": about, "minProperties": 1, "properties": properties })
}

/// The bodies of a POST and of a PUT, as an example.
pub(crate) fn example_of(resource: &Resource) -> (Value, Value) {
    match resource.kind {
        ResourceKind::Customers => (
            json!({ "name": "Nordlicht Energie eG", "customer_number": "C-1042",
                "email": "office@nordlicht.example", "custom": { "contract": "gold" } }),
            json!({ "city": "Hamburg", "phone": "+49 40 765432" }),
        ),
        ResourceKind::Employees => (
            json!({ "customer_id": 1, "email": "eva@nordlicht.example", "first_name": "Eva",
                "last_name": "Müller" }),
            json!({ "department": "Accounting" }),
        ),
        ResourceKind::Hardware => (
            json!({ "name": "ThinkPad T14", "type": "laptop", "serial_number": "PF-3X9Q7",
                "employee_id": 1, "custom": { "room": "2.14" } }),
            json!({ "status": "in_repair", "notes": "The display flickers." }),
        ),
    }
}

/// The schema of a field. Null means empty, which a field with a default never is. A POST takes it
/// there and stores the default, but clients need not know.
fn property(resource: &Resource, field: &Field) -> Value {
    let mut schema = of_field(resource, field);
    if field.required && matches!(field.kind, Kind::Text { .. }) {
        schema["pattern"] = json!(FILLED_TEXT);
    }
    if field.is_nullable() {
        schema = nullable(schema);
    }
    schema["description"] = json!(field.about);
    schema["example"] = serde_json::from_str(field.example).unwrap();
    schema
}

fn of_field(resource: &Resource, field: &Field) -> Value {
    match field.kind {
        Kind::Text { min, max } => {
            let mut schema = json!({ "type": "string", "maxLength": max, "pattern": TEXT });
            if min > 0 {
                schema["minLength"] = json!(min);
            }
            schema
        }
        Kind::Email => json!({ "type": "string", "format": "idn-email", "maxLength": MAX_EMAIL }),
        Kind::Integer if field.references.is_some() => {
            json!({ "type": "integer", "format": "int64", "minimum": 1 })
        }
        Kind::Integer => json!({ "type": "integer", "format": "int64" }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Date => json!({ "type": "string", "format": "date" }),
        Kind::Timestamp => json!({ "type": "string", "format": "date-time" }),
        Kind::Choice(_) => schema_ref(&choice_name(resource, field)),
        Kind::Custom => json!({ "type": "object", "maxProperties": MAX_CUSTOM_FIELDS,
            "propertyNames": { "pattern": CUSTOM_NAME_PATTERN },
            "additionalProperties": { "type": "string", "minLength": 1, "maxLength": MAX_CUSTOM_LENGTH,
                "pattern": FILLED_TEXT } }),
    }
}

/// The schema of a filter's values.
pub(crate) fn of_filter(resource: &Resource, filter: &Filter) -> Value {
    let nothing = json!({ "type": "string", "const": "null" });
    let field = filter.field;
    let value = match field.kind {
        // `null` is a text too, so no second alternative is needed.
        Kind::Text { .. } => return json!({ "type": "string", "pattern": FILLED }),
        Kind::Email => return json!({ "type": "string", "pattern": r"^[^ ]*\S[^ ]*$" }),
        // A reference that leads nowhere finds nothing.
        Kind::Integer => json!({ "type": "integer", "format": "int64" }),
        Kind::Boolean => {
            let words = json!({ "type": "string", "enum": ["1", "0", "null"] });
            return json!({ "anyOf": [{ "type": "boolean" }, words] });
        }
        Kind::Timestamp if filter.bound != Bound::Equal => {
            let date = json!({ "type": "string", "format": "date" });
            return json!({ "anyOf": [of_field(resource, field), date] });
        }
        _ => of_field(resource, field),
    };
    if filter.bound == Bound::Equal { json!({ "anyOf": [value, nothing] }) } else { value }
}
