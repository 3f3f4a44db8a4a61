//! The errors that an operation can have, and their responses by status.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::components::{Components, reference, with_headers};
use crate::api::errors::missing_reference_code;
use crate::http::ErrorCode as Code;
use crate::model::{ALL, Resource};

/// Adds to `operation` references to the responses of all errors, by status. The errors are those
/// of all operations, of those with a key or a scope, and of `groups`. `resources` are what the
/// operation changes.
pub(super) fn add(
    components: &mut Components,
    operation: &mut Value,
    groups: &[&str],
    resources: &[&'static Resource],
) {
    let scopes = operation["security"][0]["apiKey"].as_array();
    let can_have = |code: &Code| {
        let mut of_code = code.describe().groups.split(' ');
        of_code.any(|group| match group {
            "all" => true,
            "key" => scopes.is_some(),
            "scope" => scopes.is_some_and(|scopes| !scopes.is_empty()),
            group => groups.contains(&group),
        }) && concerns(*code, resources)
    };
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in Code::all().filter(can_have) {
        by_status.entry(code.describe().status).or_default().push(code);
    }
    for (status, codes) in by_status {
        operation["responses"][status.to_string()] = share(components, &codes, status);
    }
    // Statuses that HTTP has for single faults of a message.
    operation["responses"]["default"] = share(components, &[Code::MalformedRequest], 400);
}

/// Whether the code is not about a reference that these resources lack.
fn concerns(code: Code, resources: &[&'static Resource]) -> bool {
    let targets =
        |resource: &'static Resource| resource.fields.iter().filter_map(Resource::referenced);
    match code {
        Code::CustomerNotFound | Code::EmployeeNotFound => {
            let mut all = resources.iter().copied().flat_map(targets);
            all.any(|target| missing_reference_code(target) == Some(code))
        }
        Code::HasDependents => {
            ALL.into_iter().flat_map(targets).any(|target| resources.contains(&target))
        }
        _ => true,
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
    let before_the_key = [Code::MalformedRequest, Code::Overloaded, Code::NotReady];
    let counted = status != 401 && codes.iter().any(|code| !before_the_key.contains(code));
    let headers: &[&str] = match status {
        401 | 403 => &["WWW-Authenticate"],
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
