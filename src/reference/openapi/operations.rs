//! The operations that need a key, as the OpenAPI document and the documentation page describe
//! them.

use serde_json::{Value, json};

use super::records::{FILLED, of_filter};
use super::schema::{ENTITY_TAGS, EXAMPLE_ETAG, EXAMPLE_UUID};
use crate::api::filter::{Filter, filters};
use crate::api::list;
use crate::api::query::QueryParameter;
use crate::api::routes::{self, Action, ROUTES, Route};
use crate::api::{change, changes};
use crate::http::ErrorCode;
use crate::http::error_code::{Description, OperationGroup};
use crate::model::{ALL, Access, Resource, Scope};
use crate::words::capitalize;

const UUID_PATTERN: &str = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$";

const ID: &str = "The record. It excludes every other parameter.";
const OPTIONAL_ID: &str =
    "One record instead of a list. It excludes every other parameter but `include`.";
const IF_MATCH: &str = "The `ETag` of the record as the client knows it, or several with commas \
    between, or `*`. The change is made only if the record has this version. Without the header \
    the last change wins. A POST ignores it, unless it has `update_by`.";
const IF_NONE_MATCH: &str = "With `id`: the `ETag` of the record as the client knows it. If the \
    record still has this version, the response is 304 without a body.";
const IDEMPOTENCY_KEY: &str =
    "A new UUID for every new request. A repeat of the request uses the same UUID.";
const PREFER: &str = "With `handling=strict`, unknown members of the body are an error. Without \
    it they are ignored.";
const CUSTOM_FILTER: &str = "Only records with this text in a custom field; `null` finds records \
    without it. In place of `name`, write the name of the field, such as `custom.room=2.14`. A list \
    takes at most 3 such filters.";
const REQUEST_ID: &str =
    "A UUID chosen by the client for this request. Any other value is ignored.";

/// An operation that needs a key.
pub(in crate::reference) struct Operation {
    pub path: &'static str,
    /// In small letters.
    pub method: String,
    pub action: Action,
    pub resource: Option<&'static Resource>,
    /// The group of operations: the resource, or the path's own.
    pub tag: &'static str,
    /// The `operationId` of the OpenAPI document, and the anchor on the documentation page.
    pub id: String,
    pub title: String,
    pub about: &'static str,
    /// The scopes of which a key needs one.
    pub scopes: Vec<Scope>,
    /// The parameters but `X-Request-Id`, which every operation has.
    pub parameters: Vec<Parameter>,
    /// The errors that the operation can have, in the order of the table of errors.
    pub errors: Vec<Description>,
}

/// A parameter of an operation.
pub(in crate::reference) struct Parameter {
    /// The name in `components` of the OpenAPI document, if operations share the parameter.
    pub shared_as: Option<&'static str>,
    pub name: String,
    pub is_required: bool,
    /// The values in a few words, for people.
    pub values: String,
    /// Sentences with code between back quotes; empty for most filters.
    pub about: String,
    pub schema: Value,
    pub example: Value,
}

impl Operation {
    /// Every operation, in the order of the reference.
    pub(in crate::reference) fn all() -> impl Iterator<Item = Operation> {
        ROUTES.iter().flat_map(|(path, route)| {
            let rows: &[_] = if let Route::Api(rows) = route { rows } else { &[] };
            rows.iter().map(|row| Operation::of(path, row))
        })
    }

    fn of(path: &'static str, row: &routes::Operation) -> Operation {
        let (action, resource) = (row.action, row.action.resource());
        let fill = |text: &str| {
            let Some(Resource { name, plural, .. }) = resource else { return text.to_owned() };
            text.replace("{resource}", name)
                .replace("{Resource}", &capitalize(name))
                .replace("{resources}", plural)
                .replace("{Resources}", &capitalize(plural))
        };
        let needs = |scope: &Scope| {
            row.scopes().contains(*scope)
                || action == Action::Batch && scope.access == Access::Write
        };
        Operation {
            path,
            method: row.method.as_str().to_lowercase(),
            action,
            resource,
            tag: match action {
                Action::Changes => "changes",
                Action::Whoami => "key",
                Action::Batch => "batch",
                Action::Create(of) | Action::Read(of) | Action::Update(of) | Action::Delete(of) => {
                    of.plural
                }
            },
            id: fill(row.id),
            title: fill(row.title),
            about: row.about,
            scopes: Scope::all().filter(needs).collect(),
            parameters: parameters(action),
            errors: errors(|group| is_in(action, group)),
        }
    }
}

fn parameters(action: Action) -> Vec<Parameter> {
    let shared = |names: &[&str]| {
        let is_named = |one: &Parameter| one.shared_as.is_some_and(|name| names.contains(&name));
        Parameter::shared().into_iter().filter(is_named).collect::<Vec<_>>()
    };
    match action {
        Action::Read(resource) => {
            let mut parameters = shared(&["OptionalId", "IfNoneMatch"]);
            parameters.extend(list::parameters(resource).map(|one| Parameter::of(one, resource)));
            parameters.extend(filters(resource).iter().map(|one| Parameter::filter(one, resource)));
            parameters.extend(shared(&["CustomFilter"]));
            parameters
        }
        Action::Create(resource) => {
            let mut parameters = shared(&["IfMatch", "IdempotencyKey", "Prefer"]);
            parameters.push(Parameter::of(&change::UPDATE_BY, resource));
            parameters
        }
        Action::Update(_) => shared(&["Id", "IfMatch", "IdempotencyKey", "Prefer"]),
        Action::Delete(_) => shared(&["Id", "IfMatch", "IdempotencyKey"]),
        Action::Changes => changes::PARAMETERS.iter().map(|one| Parameter::of(one, ())).collect(),
        Action::Batch => shared(&["IdempotencyKey", "Prefer"]),
        Action::Whoami => Vec::new(),
    }
}

/// Whether an operation with this action belongs to the group.
fn is_in(action: Action, group: OperationGroup) -> bool {
    use OperationGroup as Group;
    let is_batch = action == Action::Batch;
    let refers = |of: &Resource, kind| {
        of.fields.iter().filter_map(|field| field.references).any(|target| target.kind == kind)
    };
    match (group, action) {
        (Group::All | Group::Key, _) => true,
        (Group::Scope, _) => action != Action::Whoami,
        (Group::Read, _) => matches!(action, Action::Read(_)),
        (Group::Create, _) => is_batch || matches!(action, Action::Create(_)),
        (Group::Update, _) => is_batch || matches!(action, Action::Update(_)),
        (Group::Delete, _) => is_batch || matches!(action, Action::Delete(_)),
        (Group::RefersTo(kind), Action::Create(of) | Action::Update(of)) => refers(of, kind),
        (Group::Referenced, Action::Delete(of)) => ALL.iter().any(|one| refers(one, of.kind)),
        (Group::RefersTo(_) | Group::Referenced, _) => is_batch,
        (Group::Changes, _) => action == Action::Changes,
        (Group::Page | Group::Ready, _) => false,
    }
}

/// The errors of which one group is in `is_in`.
pub(super) fn errors(is_in: impl Fn(OperationGroup) -> bool) -> Vec<Description> {
    let codes = ErrorCode::all().map(ErrorCode::describe);
    codes.filter(|code| code.groups.iter().any(|group| is_in(*group))).collect()
}

impl Parameter {
    /// The parameters that several operations have.
    pub(in crate::reference) fn shared() -> [Parameter; 8] {
        let id = json!({ "type": "integer", "format": "int64", "minimum": 1 });
        let text = json!({ "type": "string" });
        // Patterns and not the format `uuid`: generated clients would use an object of their own,
        // but a header needs a text.
        let uuid = json!({ "type": "string", "pattern": UUID_PATTERN });
        let tags = json!({ "type": "string", "pattern": ENTITY_TAGS });
        let filled = json!({ "type": "string", "pattern": FILLED });
        let (one, etag, new) = (json!(1), json!(EXAMPLE_ETAG), json!(EXAMPLE_UUID));
        [
            ("Id", "id", "integer", &id, &one, ID),
            ("OptionalId", "id", "integer", &id, &one, OPTIONAL_ID),
            ("IfMatch", "If-Match", "header, entity tags", &tags, &etag, IF_MATCH),
            ("IfNoneMatch", "If-None-Match", "header, entity tags", &text, &etag, IF_NONE_MATCH),
            ("CustomFilter", "custom.name", "text", &filled, &json!("2.14"), CUSTOM_FILTER),
            ("IdempotencyKey", "Idempotency-Key", "header, UUID", &uuid, &new, IDEMPOTENCY_KEY),
            ("Prefer", "Prefer", "header", &text, &json!("handling=strict"), PREFER),
            ("RequestId", "X-Request-Id", "header, UUID", &text, &new, REQUEST_ID),
        ]
        .map(|(shared_as, name, values, schema, example, about)| Parameter {
            shared_as: Some(shared_as),
            name: name.to_owned(),
            is_required: shared_as == "Id",
            values: values.to_owned(),
            about: about.to_owned(),
            schema: schema.clone(),
            example: example.clone(),
        })
    }

    fn of<Subject: Copy>(declared: &QueryParameter<Subject>, subject: Subject) -> Parameter {
        let QueryParameter { name, about, values, schema, example } = declared;
        Parameter::query(name, values(subject), (*about).to_owned(), schema(subject), example())
    }

    /// A filter. Only a filter by a referenced record needs words beside its schema.
    fn filter(filter: &Filter, resource: &Resource) -> Parameter {
        let reference = filter.column.through.and_then(|field| field.references);
        let about = reference.zip(filter.column.field.references).map(|(through, target)| {
            let (plural, name, through) = (through.plural, target.name, through.name);
            format!(
                "Only records of the {plural} of this {name}; `null` finds those of no {through}."
            )
        });
        let schema = of_filter(resource, filter);
        Parameter::query(
            &filter.name,
            "integer".to_owned(),
            about.unwrap_or_default(),
            schema,
            Value::Null,
        )
    }

    fn query(
        name: &str,
        values: String,
        about: String,
        schema: Value,
        example: Value,
    ) -> Parameter {
        let name = name.to_owned();
        Parameter { shared_as: None, name, is_required: false, values, about, schema, example }
    }

    pub(in crate::reference) fn is_header(&self) -> bool {
        self.values.starts_with("header")
    }
}
