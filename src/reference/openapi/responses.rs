//! Error responses of the operations, grouped by status, their schemas, and the headers of all responses.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::examples::{ETAG, EXPIRES, RESET, UUID, error_example};
use super::schemas::schema_ref;
use crate::api::errors;
use crate::api::list::EXAMPLE_CURSOR;
use crate::api::routes::{Operation, PAGES, PublicPage, RECORD_METHODS};
use crate::capitalize::capitalize;
use crate::html;
use crate::http::{API_VERSION, Condition, ProtocolViolation};
use crate::model::FieldCode;
use crate::model::{ALL, CUSTOMER, Field, Resource};

/// The part of an operation that its errors depend on.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// An operation on records.
    Records(Operation, &'static Resource),
    /// The journal.
    Changes,
    /// `/whoami.php`.
    Whoami,
    /// Batches.
    Batch,
    /// A path without authentication.
    Page(PublicPage),
}

impl Target {
    /// Every operation of the service.
    pub fn all() -> impl Iterator<Item = Target> {
        let operations = [Operation::Read, Operation::Create, Operation::Update, Operation::Delete];
        let records =
            ALL.into_iter().flat_map(move |resource| operations.map(|operation| Target::Records(operation, resource)));
        let with_a_key = [Target::Changes, Target::Whoami, Target::Batch];
        records.chain(with_a_key).chain(PAGES.into_iter().map(|(_, page)| Target::Page(page)))
    }

    /// Every condition that it can fail with.
    pub fn conditions(self) -> Vec<Condition> {
        use Condition as C;
        let mut found = vec![C::MalformedRequest, C::InternalError];
        match self {
            Target::Page(PublicPage::Health) => (),
            Target::Page(PublicPage::Ready) => found.extend([C::Overloaded, C::NotReady]),
            Target::Page(PublicPage::OpenApi | PublicPage::Docs | PublicPage::Root) => found.push(C::Overloaded),
            Target::Changes => {
                found.extend(EVERY_OPERATION_WITH_A_KEY);
                found.extend([C::InsufficientScope, C::ChangesGone]);
            }
            Target::Whoami => found.extend(EVERY_OPERATION_WITH_A_KEY),
            Target::Batch => {
                found.extend(EVERY_OPERATION_WITH_A_KEY);
                found.push(C::InsufficientScope);
                found.extend(of_operation(Operation::Update));
                found.extend(ALL.into_iter().flat_map(|resource| resource.fields).filter_map(missing_reference));
                found.push(C::HasDependents);
            }
            Target::Records(operation, resource) => {
                found.extend(EVERY_OPERATION_WITH_A_KEY);
                found.push(C::InsufficientScope);
                found.extend(of_operation(operation));
                if matches!(operation, Operation::Create | Operation::Update) {
                    found.extend(resource.fields.iter().filter_map(missing_reference));
                }
                if operation == Operation::Delete && is_referenced(resource) {
                    found.push(C::HasDependents);
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// The component name of the error response with this status. Responses with the same conditions share a name.
    fn response_name(self, status: u16) -> String {
        let prefix = match self {
            Target::Page(_) => "Page",
            Target::Changes => "Changes",
            Target::Whoami => "Whoami",
            Target::Batch => "Batch",
            Target::Records(Operation::Read, _) => "Read",
            Target::Records(Operation::Create, _) => "Create",
            Target::Records(Operation::Update, _) => "Update",
            Target::Records(Operation::Delete, _) => "Delete",
        };
        match (status, self) {
            (400, _) => format!("{prefix}BadRequest"),
            (403, Target::Whoami) => "TenantInactive".to_owned(),
            (422, Target::Batch) => "BatchUnprocessable".to_owned(),
            (403 | 404 | 409 | 412, Target::Batch) => format!("Batch{}", phrase(status)),
            (422, Target::Records(Operation::Delete, _)) => "DeleteUnprocessable".to_owned(),
            (422, Target::Records(_, resource)) => format!("{}Unprocessable", capitalize(resource.name)),
            (503, Target::Page(PublicPage::Ready)) => "NotReady".to_owned(),
            (503, Target::Page(_)) => "PageUnavailable".to_owned(),
            (other, _) => phrase(other).to_owned(),
        }
    }

    /// Its error responses to HEAD, by status. They have no body and so no code.
    pub fn errors_without_bodies(self) -> impl Iterator<Item = (String, Value)> {
        by_status(self.conditions()).into_iter().map(move |(status, conditions)| {
            let name = self.response_name(status);
            let response = ErrorResponse { name, status, conditions, resource: &CUSTOMER, of_batch: false };
            let codes: Vec<&str> = response.conditions.iter().map(|condition| condition.describe().code).collect();
            let about = format!("As with GET, without the body: `{}`.", codes.join("`, `"));
            (status.to_string(), json!({ "description": about, "headers": references("headers", response.headers()) }))
        })
    }

    /// References to its error responses, by status.
    pub fn errors(self) -> impl Iterator<Item = (String, Value)> {
        by_status(self.conditions()).into_keys().map(move |status| {
            let reference = format!("#/components/responses/{}", self.response_name(status));
            (status.to_string(), json!({ "$ref": reference }))
        })
    }
}

/// The conditions of every path that needs a key.
const EVERY_OPERATION_WITH_A_KEY: [Condition; 10] = [
    Condition::MissingAuthorization,
    Condition::MalformedApiKey,
    Condition::InvalidApiKey,
    Condition::RevokedApiKey,
    Condition::ExpiredApiKey,
    Condition::TenantInactive,
    Condition::TenantUnavailable,
    Condition::RateLimited,
    Condition::BadRequest,
    Condition::Overloaded,
];

fn of_operation(operation: Operation) -> &'static [Condition] {
    use Condition as C;
    match operation {
        Operation::Read => &[C::NotFound],
        Operation::Create => &[
            C::InvalidIdempotencyKey,
            C::UnsupportedMediaType,
            C::PayloadTooLarge,
            C::InvalidJson,
            C::ValidationFailed,
            C::IdempotencyKeyReused,
        ],
        Operation::Update => &[
            C::InvalidIdempotencyKey,
            C::UnsupportedMediaType,
            C::PayloadTooLarge,
            C::InvalidJson,
            C::MissingId,
            C::NoUpdatableFields,
            C::ValidationFailed,
            C::IdempotencyKeyReused,
            C::NotFound,
            C::PreconditionFailed,
        ],
        Operation::Delete => {
            &[C::InvalidIdempotencyKey, C::MissingId, C::IdempotencyKeyReused, C::NotFound, C::PreconditionFailed]
        }
    }
}

/// The condition of a reference to a missing record.
fn missing_reference(field: &'static Field) -> Option<Condition> {
    Resource::referenced(field).and_then(errors::missing_reference_condition)
}

fn is_referenced(resource: &Resource) -> bool {
    ALL.into_iter().flat_map(|other| other.fields).any(|field| field.references == Some(resource.name))
}

/// Groups conditions by status. `malformed_request` has several.
fn by_status(conditions: Vec<Condition>) -> BTreeMap<u16, Vec<Condition>> {
    let mut found: BTreeMap<u16, Vec<Condition>> = BTreeMap::new();
    for condition in conditions {
        if condition == Condition::MalformedRequest {
            for violation in ProtocolViolation::ALL {
                found.entry(violation.status()).or_default().push(condition);
            }
        } else {
            found.entry(condition.describe().status).or_default().push(condition);
        }
    }
    found
}

const fn phrase(status: u16) -> &'static str {
    match status {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        408 => "RequestTimeout",
        409 => "Conflict",
        410 => "Gone",
        412 => "PreconditionFailed",
        413 => "ContentTooLarge",
        414 => "UriTooLong",
        415 => "UnsupportedMediaType",
        417 => "ExpectationFailed",
        429 => "TooManyRequests",
        431 => "HeadTooLarge",
        501 => "NotImplemented",
        503 => "Unavailable",
        505 => "HttpVersionNotSupported",
        _ => "InternalServerError",
    }
}

/// An error response.
struct ErrorResponse {
    name: String,
    status: u16,
    conditions: Vec<Condition>,
    /// The resource of its example.
    resource: &'static Resource,
    /// Only batches have it.
    of_batch: bool,
}

/// Every error response once, in the order of the operations, and the two that belong to no operation.
fn error_responses() -> Vec<ErrorResponse> {
    let mut found: Vec<ErrorResponse> = Vec::new();
    for target in Target::all() {
        let resource = if let Target::Records(_, resource) = target { resource } else { &CUSTOMER };
        for (status, conditions) in by_status(target.conditions()) {
            let name = target.response_name(status);
            if !found.iter().any(|known| known.name == name) {
                let of_batch = matches!(target, Target::Batch);
                found.push(ErrorResponse { name, status, conditions, resource, of_batch });
            }
        }
    }
    for condition in [Condition::EndpointNotFound, Condition::MethodNotAllowed] {
        let name = title_of(condition.describe().code);
        let status = condition.describe().status;
        found.push(ErrorResponse { name, status, conditions: vec![condition], resource: &CUSTOMER, of_batch: false });
    }
    found
}

/// `EndpointNotFound` for `endpoint_not_found`.
fn title_of(code: &str) -> String {
    code.split('_').map(capitalize).collect()
}

/// `components.responses`.
pub fn responses() -> impl Iterator<Item = (String, Value)> {
    error_responses().into_iter().map(|response| (response.name.clone(), response.response()))
}

/// The schemas of error bodies.
pub fn schemas() -> impl Iterator<Item = (String, Value)> {
    let codes: Vec<Value> = FieldCode::ALL.iter().map(|(code, _)| json!(code.as_str())).collect();
    let meanings: Vec<String> =
        FieldCode::ALL.iter().map(|(code, about)| format!("`{}`: {about}", code.as_str())).collect();
    let field_error = json!({
        "type": "object",
        "description": "The error of one field.",
        "required": ["code", "message"],
        "properties": {
            "code": { "type": "string", "enum": codes, "description": meanings.join(" ") },
            "message": { "type": "string", "description": "The fault and the remedy, for people." },
        },
    });
    let error_responses =
        error_responses().into_iter().map(|response| (format!("{}Error", response.name), response.schema()));
    [("FieldError".to_owned(), field_error)].into_iter().chain(error_responses)
}

impl ErrorResponse {
    fn response(&self) -> Value {
        let examples: Map<String, Value> = self.conditions.iter().map(|condition| self.example(*condition)).collect();
        json!({
            "description": self.meanings(),
            "headers": references("headers", self.headers()),
            "content": {
                "application/json": { "schema": schema_ref(&format!("{}Error", self.name)), "examples": examples },
            },
        })
    }

    fn example(&self, condition: Condition) -> (String, Value) {
        let violation = ProtocolViolation::ALL.into_iter().find(|violation| violation.status() == self.status);
        let mut body = error_example(condition, violation.unwrap_or(ProtocolViolation::Malformed), self.resource);
        if let (true, Some(members)) = (self.of_batch && is_of_one_operation(condition), body.as_object_mut()) {
            members.insert("operation".to_owned(), json!(2));
        }
        let about = condition.describe();
        (about.code.to_owned(), json!({ "summary": about.meaning, "value": body }))
    }

    fn meanings(&self) -> String {
        let lines = self.conditions.iter().map(|condition| {
            let about = condition.describe();
            format!("- `{}`: {} {}", about.code, about.meaning, about.remedy)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn has(&self, condition: Condition) -> bool {
        self.conditions.contains(&condition)
    }

    fn schema(&self) -> Value {
        let codes: Vec<&str> = self.conditions.iter().map(|condition| condition.describe().code).collect();
        let mut required = vec!["error"];
        let mut properties = Map::new();
        properties.insert(
            "error".to_owned(),
            json!({
                "type": "object",
                "required": ["code", "message", "status"],
                "properties": {
                    "code": { "type": "string", "enum": codes, "description": "The condition, for programs." },
                    "message": { "type": "string", "description": "The fault and the remedy, for people." },
                    "status": { "type": "integer", "const": self.status, "description": "The HTTP status." },
                },
            }),
        );
        if self.has(Condition::ValidationFailed) {
            let of_batch = self.of_batch.then_some(ALL.as_slice());
            properties.extend(field_errors(of_batch.unwrap_or(&[self.resource])));
        }
        if self.has(Condition::HasDependents) {
            required.push("details");
            let details = json!({ "type": "string", "description": "The message of the database." });
            properties.insert("details".to_owned(), details);
        }
        if self.of_batch {
            let mut about = "The number of the operation that failed, from 0.".to_owned();
            if self.conditions.iter().all(|condition| is_of_one_operation(*condition)) {
                required.push("operation");
            } else {
                about.push_str(" Absent if the batch itself is at fault.");
            }
            properties.insert("operation".to_owned(), json!({ "type": "integer", "minimum": 0, "description": about }));
        }
        json!({ "type": "object", "required": required, "properties": properties })
    }

    fn headers(&self) -> Vec<&'static str> {
        let mut names = vec!["X-Request-Id", "X-API-Version", "Cache-Control"];
        let with_key = self.conditions.iter().any(|condition| needs_key(*condition));
        if with_key && (self.of_batch || !matches!(self.status, 401 | 403)) {
            names.extend(COUNTED);
        }
        match self.status {
            401 | 403 => names.push("WWW-Authenticate"),
            405 => names.push("Allow"),
            412 => names.push("ETag"),
            429 | 503 => names.push("Retry-After"),
            _ => (),
        }
        names
    }
}

/// Whether the condition arises only on paths that need a key.
fn needs_key(condition: Condition) -> bool {
    !matches!(
        condition,
        Condition::EndpointNotFound | Condition::MalformedRequest | Condition::Overloaded | Condition::NotReady
    )
}

/// Whether the condition of a batch is always that of one operation.
fn is_of_one_operation(condition: Condition) -> bool {
    use Condition as C;
    let of_requests = [C::InsufficientScope, C::MissingId, C::NoUpdatableFields, C::ValidationFailed];
    let of_records = [C::NotFound, C::PreconditionFailed, C::CustomerNotFound, C::EmployeeNotFound, C::HasDependents];
    of_requests.contains(&condition) || of_records.contains(&condition)
}

/// The members `errors` and `fields` of a `validation_failed` response.
fn field_errors(resources: &[&'static Resource]) -> [(String, Value); 2] {
    let mut names: Vec<&str> = Vec::new();
    for field in resources.iter().flat_map(|resource| resource.fields) {
        if !names.contains(&field.name) {
            names.push(field.name);
        }
    }
    let each: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), schema_ref("FieldError"))).collect();
    [
        (
            "errors".to_owned(),
            json!({
                "type": "object",
                "description": "Every invalid field. Only with `validation_failed`.",
                "properties": each,
            }),
        ),
        (
            "fields".to_owned(),
            json!({
                "type": "array",
                "description": "The names of the invalid fields. Only with `validation_failed`.",
                "items": { "type": "string", "enum": names },
            }),
        ),
    ]
}

/// The headers of responses to requests that passed the scope check.
pub const COUNTED: [&str; 4] = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-Key-Expires"];

/// References to components by name.
pub fn references(kind: &str, names: impl IntoIterator<Item = &'static str>) -> Value {
    let reference = |name: &str| json!({ "$ref": format!("#/components/{kind}/{name}") });
    Value::Object(names.into_iter().map(|name| (name.to_owned(), reference(name))).collect())
}

/// `components.headers`.
pub fn headers() -> impl Iterator<Item = (String, Value)> {
    let of_pages = html::HEADERS
        .map(|name| header(name, true, "Restricts what browsers may do with the page.", text(), Value::Null));
    common_headers().into_iter().chain(limit_headers()).chain(record_headers()).chain(of_pages)
}

/// A header with its description. `example` is null if there is none.
fn header(name: &str, required: bool, about: &str, schema: Value, example: Value) -> (String, Value) {
    let mut value = json!({ "description": about, "required": required, "schema": schema });
    if let (false, Some(members)) = (example.is_null(), value.as_object_mut()) {
        members.insert("example".to_owned(), example);
    }
    (name.to_owned(), value)
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn constant(text: &str) -> Value {
    json!({ "type": "string", "const": text })
}

fn common_headers() -> [(String, Value); 3] {
    [
        header(
            "X-Request-Id",
            true,
            "The id of the request: the client's if it is a UUID, otherwise a new one. The log contains it.",
            json!({ "type": "string", "format": "uuid" }),
            json!(UUID),
        ),
        header("X-API-Version", true, "The version of the API.", constant(API_VERSION), json!(API_VERSION)),
        header(
            "Cache-Control",
            false,
            "Records and errors must not be cached.",
            constant("no-store"),
            json!("no-store"),
        ),
    ]
}

/// The headers of the rate limit and of overload.
fn limit_headers() -> [(String, Value); 5] {
    let number = || json!({ "type": "integer", "minimum": 0 });
    [
        header("X-RateLimit-Limit", false, "Requests that the key may make in a minute.", number(), json!(100)),
        header("X-RateLimit-Remaining", false, "Requests left in the current minute.", number(), json!(99)),
        header("X-RateLimit-Reset", false, "The end of the current minute in Unix seconds.", number(), json!(RESET)),
        header(
            "X-Key-Expires",
            false,
            "The end of the key, during its last 14 days. From this second on it is refused.",
            json!({ "type": "string", "format": "date-time" }),
            json!(EXPIRES),
        ),
        header("Retry-After", true, "Seconds to wait before the next attempt.", number(), json!(5)),
    ]
}

/// The headers of single responses of the operations on records.
fn record_headers() -> [(String, Value); 6] {
    let path = CUSTOMER.path;
    let next_page = format!("<{path}?limit=1&cursor={EXAMPLE_CURSOR}>; rel=\"next\"");
    let challenge = "Bearer error=\"insufficient_scope\", scope=\"customers:write\"";
    [
        header("Location", true, "The absolute path of the new record.", text(), json!(format!("{path}?id=1"))),
        header("Link", false, "The address of the next page, if there is one.", text(), json!(next_page)),
        header(
            "ETag",
            false,
            "The version of the record, in quotes. Absent from lists. Send it in `If-Match` or `If-None-Match`.",
            text(),
            json!(ETAG),
        ),
        header(
            "Idempotent-Replayed",
            false,
            "The response is a replay of the first response. Nothing was changed.",
            constant("true"),
            json!("true"),
        ),
        header(
            "WWW-Authenticate",
            false,
            "What is missing or wrong about the key. Absent if the tenant is inactive.",
            text(),
            json!(challenge),
        ),
        header("Allow", true, "The methods of the endpoint.", text(), json!(RECORD_METHODS)),
    ]
}
