//! The errors that an operation can have, and their responses by status.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::components::{Components, reference, with_headers};
use crate::api::errors::missing_reference_code;
use crate::api::routes::{Operation, PublicPage};
use crate::http::ErrorCode as Code;
use crate::model::{ALL, Resource};

/// What the errors of an operation depend on.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Target {
    Records(Operation, &'static Resource),
    Changes,
    Whoami,
    Batch,
    Page(PublicPage),
}

impl Target {
    /// Whether one of the operations on records, of which a batch has all that change something.
    fn is_one_of(self, operations: &[Operation]) -> bool {
        match self {
            Target::Records(operation, _) => operations.contains(&operation),
            Target::Batch => operations != [Operation::Read],
            Target::Changes | Target::Whoami | Target::Page(_) => false,
        }
    }

    fn can_have(self, code: Code) -> bool {
        use Operation::{Create, Delete, Read, Update};
        match code {
            Code::MalformedRequest | Code::InternalError => true,
            Code::Overloaded => self != Target::Page(PublicPage::Health),
            Code::NotReady => self == Target::Page(PublicPage::Ready),
            Code::MissingAuthorization
            | Code::MalformedApiKey
            | Code::InvalidApiKey
            | Code::RevokedApiKey
            | Code::ExpiredApiKey
            | Code::TenantInactive
            | Code::TenantUnavailable
            | Code::RateLimited
            | Code::BadRequest => !matches!(self, Target::Page(_)),
            Code::InsufficientScope => !matches!(self, Target::Page(_) | Target::Whoami),
            Code::ChangesGone => self == Target::Changes,
            Code::InvalidIdempotencyKey | Code::IdempotencyKeyReused => {
                self.is_one_of(&[Create, Update, Delete])
            }
            Code::UnsupportedMediaType
            | Code::PayloadTooLarge
            | Code::InvalidJson
            | Code::ValidationFailed => self.is_one_of(&[Create, Update]),
            Code::NoUpdatableFields => self.is_one_of(&[Update]),
            Code::MissingId | Code::PreconditionFailed => self.is_one_of(&[Update, Delete]),
            Code::NotFound => self.is_one_of(&[Read, Update, Delete]),
            Code::CustomerNotFound | Code::EmployeeNotFound => {
                self.is_one_of(&[Create, Update]) && self.refers_to(code)
            }
            Code::HasDependents => self.is_one_of(&[Delete]) && self.is_referenced(),
            // Of no operation.
            Code::EndpointNotFound | Code::MethodNotAllowed => false,
        }
    }

    /// Whether a field refers to records whose absence has this code.
    fn refers_to(self, code: Code) -> bool {
        let resources = ALL.into_iter().filter(|resource| self.concerns(resource));
        let mut targets =
            resources.flat_map(|resource| resource.fields).filter_map(Resource::referenced);
        targets.any(|target| missing_reference_code(target) == Some(code))
    }

    fn is_referenced(self) -> bool {
        let targets =
            ALL.into_iter().flat_map(|resource| resource.fields).filter_map(Resource::referenced);
        targets.into_iter().any(|target| self.concerns(target))
    }

    fn concerns(self, resource: &Resource) -> bool {
        match self {
            Target::Records(_, own) => own == resource,
            _ => true,
        }
    }
}

/// Adds references to the responses of all errors to `responses`, by status.
pub(super) fn add(components: &mut Components, target: Target, mut responses: Value) -> Value {
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in Code::all().filter(|code| target.can_have(*code)) {
        by_status.entry(code.describe().status).or_default().push(code);
    }
    for (status, codes) in by_status {
        responses[status.to_string()] = share(components, &codes, status);
    }
    // Statuses that HTTP has for single faults of a message.
    responses["default"] = share(components, &[Code::MalformedRequest], 400);
    responses
}

/// Adds the errors that belong to no operation.
pub(super) fn add_others(components: &mut Components) {
    for code in [Code::EndpointNotFound, Code::MethodNotAllowed] {
        share(components, &[code], code.describe().status);
    }
}

fn share(components: &mut Components, codes: &[Code], status: u16) -> Value {
    let names = codes.iter().map(|code| code.describe().code);
    let description = names.clone().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", ");
    let examples = names.map(|code| (code.to_owned(), reference("examples", code)));
    let response = json!({
        "description": description,
        "content": { "application/json": {
            "schema": reference("schemas", "Error"),
            "examples": examples.collect::<Map<_, _>>(),
        } },
    });
    let without_key =
        [Code::EndpointNotFound, Code::MalformedRequest, Code::Overloaded, Code::NotReady];
    let counted = status != 401 && codes.iter().any(|code| !without_key.contains(code));
    let headers: &[&str] = match status {
        401 | 403 => &["WWW-Authenticate"],
        405 => &["Allow"],
        412 => &["ETag"],
        429 | 503 => &["Retry-After"],
        _ => &[],
    };
    let name = match codes {
        [code] => code.describe().code.to_owned(),
        _ => format!("status_{status}"),
    };
    components.share("responses", &name, with_headers(response, counted, headers))
}
