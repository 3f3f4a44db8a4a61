//! The declarations of the list parameters (contract section 4). Validation, the OpenAPI document
//! and the documentation page follow from this table. The filters follow from the fields: see
//! [`super::filters`].

use serde_json::{Value, json};

use super::sortable;
use crate::api::cursor::MAX_CURSOR;
use crate::api::query::QueryParameter;
use crate::model::{Column, Inclusion, Resource};

/// Records on a page if `limit` is absent.
pub const DEFAULT_LIMIT: usize = 50;
/// Maximum of `limit`.
pub const MAX_LIMIT: usize = 200;
/// Maximum number of words in `q`.
pub const MAX_WORDS: usize = 20;
/// Maximum number of characters in `q`.
pub const MAX_SEARCH_LENGTH: usize = 200;
/// The cursor of a list of customers by id.
pub const EXAMPLE_CURSOR: &str = "AXJ0ZW5hbnRkZQAAAAAAAAABaQAAAAAAAAABJ3y5cPzGmQ4";

// The descriptions name them.
const _: () = assert!(DEFAULT_LIMIT == 50 && MAX_WORDS == 20);

/// Every list parameter in the order of the reference.
pub static PARAMETERS: [QueryParameter<&Resource>; 6] = [
    QueryParameter {
        name: "limit",
        about: "Records on a page; 50 if absent.",
        schema: |_| json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT }),
        example: || json!(DEFAULT_LIMIT),
    },
    QueryParameter {
        name: "cursor",
        about: "The `next_cursor` of the previous page. Sort, filters and `q` must be the same.",
        schema: |_| json!({ "type": "string", "minLength": 1, "maxLength": MAX_CURSOR }),
        example: || json!(EXAMPLE_CURSOR),
    },
    QueryParameter {
        name: "sort",
        about: "The order; `id` if absent. A leading `-` means descending. Nulls come first; ties are \
                ordered by `id`.",
        schema: sort_schema,
        example: || json!("-updated_at"),
    },
    QueryParameter {
        name: "total",
        about: "Whether the response has `total`, the number of all matching records.",
        schema: |_| json!({ "anyOf": [{ "type": "boolean" }, { "type": "string", "enum": ["1", "0"] }] }),
        example: || json!(true),
    },
    QueryParameter {
        name: "q",
        about: "A record matches if each word occurs in one of its text or e-mail fields. Case is \
                ignored. At most 20 words.",
        schema: |_| json!({ "type": "string", "maxLength": MAX_SEARCH_LENGTH }),
        example: || json!("eva"),
    },
    QueryParameter {
        name: "include",
        about: "Adds to each record the records that it belongs to. Needs the scope for reading \
                each.",
        schema: include_schema,
        example: || json!(["customer"]),
    },
];

/// The parameters of the resource's lists. Records without references have no `include`.
pub fn parameters(
    resource: &'static Resource,
) -> impl Iterator<Item = &'static QueryParameter<&'static Resource>> + Clone {
    let has = |name| name != "include" || !resource.inclusions().is_empty();
    PARAMETERS.iter().filter(move |parameter| has(parameter.name))
}

fn include_schema(resource: &'static Resource) -> Value {
    let names: Vec<&str> = resource.inclusions().iter().map(Inclusion::name).collect();
    let items = json!({ "type": "string", "enum": names });
    json!({ "type": "array", "items": items, "minItems": 1, "uniqueItems": true })
}

fn sort_schema(resource: &'static Resource) -> Value {
    let columns = || sortable(resource).map(Column::name);
    let orders: Vec<String> =
        columns().flat_map(|name| [name.to_owned(), format!("-{name}")]).collect();
    // Generators derive identifiers from the values, and a leading minus is not valid in one.
    let names: Vec<String> =
        columns().flat_map(|name| [name.to_owned(), format!("{name}_descending")]).collect();
    json!({ "type": "string", "enum": orders, "x-enum-varnames": names })
}
