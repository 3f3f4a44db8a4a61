//! The operations that need a key, as the OpenAPI document and the documentation page describe
//! them.

use serde_json::{Value, json};

use super::records::of_filter;
use super::schema::{ENTITY_TAGS, EXAMPLE_ETAG, EXAMPLE_UUID};
use crate::api::list::{self, filters};
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
const REQUEST_ID: &str =
    "A UUID chosen by the client for this request. Any other value is ignored.";

/// A row of the route table.
#[derive(Clone, Copy)]
pub(in crate::reference) struct Operation {
    pub path: &'static str,
    row: &'static routes::Operation,
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
            rows.iter().map(|row| Operation { path, row })
        })
    }

    pub(in crate::reference) fn action(&self) -> Action {
        self.row.action
    }

    pub(in crate::reference) fn method(&self) -> String {
        self.row.method.as_str().to_lowercase()
    }

    /// The `operationId` of the OpenAPI document, and the anchor on the documentation page.
    pub(in crate::reference) fn id(&self) -> String {
        self.fill(self.row.id)
    }

    pub(in crate::reference) fn title(&self) -> String {
        self.fill(self.row.title)
    }

    pub(in crate::reference) fn about(&self) -> &'static str {
        self.row.about
    }

    /// The scopes of which a key needs one.
    pub(in crate::reference) fn scopes(&self) -> Vec<Scope> {
        let needed = self.row.scopes();
        let is_batch = self.row.action == Action::Batch;
        let is_needed =
            |one: &Scope| needed.contains(*one) || is_batch && one.access == Access::Write;
        Scope::all().filter(is_needed).collect()
    }

    pub(in crate::reference) fn resource(&self) -> Option<&'static Resource> {
        self.row.action.resource()
    }

    /// The group of operations: the resource, or the path's own.
    pub(in crate::reference) fn tag(&self) -> &'static str {
        match self.row.action {
            Action::Changes => "changes",
            Action::Whoami => "key",
            Action::Batch => "batch",
            Action::Create(of) | Action::Read(of) | Action::Update(of) | Action::Delete(of) => {
                of.plural
            }
        }
    }

    fn fill(&self, text: &str) -> String {
        let Some(Resource { name, plural, .. }) = self.resource() else { return text.to_owned() };
        let text = text.replace("{resource}", name).replace("{Resource}", &capitalize(name));
        text.replace("{resources}", plural).replace("{Resources}", &capitalize(plural))
    }

    /// The parameters but `X-Request-Id`, which every operation has.
    pub(in crate::reference) fn parameters(&self) -> Vec<Parameter> {
        let shared = |names: &[&str]| {
            let is_named =
                |one: &Parameter| one.shared_as.is_some_and(|name| names.contains(&name));
            Parameter::shared().into_iter().filter(is_named).collect::<Vec<_>>()
        };
        match self.row.action {
            Action::Read(resource) => {
                let declared = list::parameters(resource).map(|each| Parameter::of(each, resource));
                let parameters = shared(&["OptionalId", "IfNoneMatch"]).into_iter();
                parameters.chain(declared).chain(filter_parameters(resource)).collect()
            }
            Action::Create(resource) => {
                let update_by = Parameter::of(&change::UPDATE_BY, resource);
                let parameters = shared(&["IfMatch", "IdempotencyKey", "Prefer"]).into_iter();
                parameters.chain([update_by]).collect()
            }
            Action::Update(_) => shared(&["Id", "IfMatch", "IdempotencyKey", "Prefer"]),
            Action::Delete(_) => shared(&["Id", "IfMatch", "IdempotencyKey"]),
            Action::Changes => {
                changes::PARAMETERS.iter().map(|each| Parameter::of(each, ())).collect()
            }
            Action::Batch => shared(&["IdempotencyKey", "Prefer"]),
            Action::Whoami => Vec::new(),
        }
    }

    /// The errors that the operation can have, in the order of the table of errors.
    pub(in crate::reference) fn errors(&self) -> Vec<Description> {
        errors(|group| self.is_in(group))
    }

    fn is_in(&self, group: OperationGroup) -> bool {
        use OperationGroup as Group;
        let action = self.row.action;
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
}

/// The errors of which one group is in `is_in`.
pub(super) fn errors(is_in: impl Fn(OperationGroup) -> bool) -> Vec<Description> {
    let codes = ErrorCode::all().map(ErrorCode::describe);
    codes.filter(|code| code.groups.iter().any(|group| is_in(*group))).collect()
}

/// The schema says what a filter does, unless it is about a record that is referred to.
fn filter_parameters(resource: &'static Resource) -> impl Iterator<Item = Parameter> {
    filters(resource).iter().map(|filter| {
        let about = filter.column.behind.and_then(|field| field.references).map(|target| {
            let name = target.name;
            format!("Only records of this {name}; `null` finds those of no {name}.")
        });
        let (values, schema) = ("integer".to_owned(), of_filter(resource, filter));
        Parameter::query(&filter.name, values, about.unwrap_or_default(), schema, Value::Null)
    })
}

impl Parameter {
    /// Those that operations share, and `X-Request-Id`.
    pub(in crate::reference) fn shared() -> [Parameter; 7] {
        let id = json!({ "type": "integer", "format": "int64", "minimum": 1 });
        let text = json!({ "type": "string" });
        // Patterns and not the format `uuid`: generated clients would use an object of their own,
        // but a header needs a text.
        let uuid = json!({ "type": "string", "pattern": UUID_PATTERN });
        let tags = json!({ "type": "string", "pattern": ENTITY_TAGS });
        let (one, etag, new) = (json!(1), json!(EXAMPLE_ETAG), json!(EXAMPLE_UUID));
        [
            ("Id", "id", "integer", &id, &one, ID),
            ("OptionalId", "id", "integer", &id, &one, OPTIONAL_ID),
            ("IfMatch", "If-Match", "header, entity tags", &tags, &etag, IF_MATCH),
            ("IfNoneMatch", "If-None-Match", "header, entity tags", &text, &etag, IF_NONE_MATCH),
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
