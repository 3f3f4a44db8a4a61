//! The declarations of the list parameters (contract section 4). Validation, the OpenAPI document and the documentation page
//! follow from this table. The filters follow from the fields: see [`super::filters`].

use serde_json::{Value, json};

use super::sortable;
use crate::api::cursor_encoding::MAX_CURSOR;
use crate::model::{Column, Resource};

/// Records on a page if `limit` is absent.
pub const DEFAULT_LIMIT: usize = 50;
/// Maximum of `limit`.
pub const MAX_LIMIT: usize = 200;
/// Maximum number of words in `q`.
pub const MAX_WORDS: usize = 20;
/// The cursor of a list of customers by id.
pub const EXAMPLE_CURSOR: &str = "AXJ0ZW5hbnRkZQAAAAAAAAABaQAAAAAAAAABJ3y5cPzGmQ4";

/// A query parameter of every list.
pub struct ListParameter {
    /// The name in the query.
    pub name: &'static str,
    /// The accepted values and the default, in words.
    pub values: fn() -> String,
    /// The effect, in one or two sentences with code between back quotes.
    pub about: &'static str,
    /// The JSON Schema of the values. It has no `default`: generated clients would send it together with `id`, which
    /// excludes every other parameter.
    pub schema: fn(&'static Resource) -> Value,
    /// An example.
    pub example: fn() -> Value,
}

/// Every list parameter in the order of the reference.
pub static PARAMETERS: [ListParameter; 5] = [
    ListParameter {
        name: "limit",
        values: || format!("1 to {MAX_LIMIT}, default {DEFAULT_LIMIT}"),
        about: "Records on a page.",
        schema: |_| json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT }),
        example: || json!(DEFAULT_LIMIT),
    },
    ListParameter {
        name: "cursor",
        values: || "opaque".to_owned(),
        about: "The `next_cursor` of the previous page. Sort, filters and `q` must be the same.",
        schema: |_| json!({ "type": "string", "minLength": 1, "maxLength": MAX_CURSOR }),
        example: || json!(EXAMPLE_CURSOR),
    },
    ListParameter {
        name: "sort",
        values: || "a field, default id".to_owned(),
        about: "The order. A leading `-` means descending. Nulls come first; ties are ordered by `id`.",
        schema: sort_schema,
        example: || json!("-updated_at"),
    },
    ListParameter {
        name: "total",
        values: || "true or false, default false".to_owned(),
        about: "Whether the response has `total`, the number of all matching records.",
        schema: |_| json!({ "anyOf": [{ "type": "boolean" }, { "type": "string", "enum": ["1", "0"] }] }),
        example: || json!(true),
    },
    ListParameter {
        name: "q",
        values: || format!("words, at most {MAX_WORDS}"),
        about: "A record matches if each word occurs in one of its text or e-mail fields. Case is ignored.",
        schema: |_| json!({ "type": "string" }),
        example: || json!("eva"),
    },
];

fn sort_schema(resource: &'static Resource) -> Value {
    let columns = || sortable(resource).map(Column::name);
    let orders: Vec<String> = columns().flat_map(|name| [name.to_owned(), format!("-{name}")]).collect();
    // Generators derive identifiers from the values, and a leading minus is not valid in one.
    let names: Vec<String> = columns().flat_map(|name| [name.to_owned(), format!("{name}_descending")]).collect();
    json!({ "type": "string", "enum": orders, "x-enum-varnames": names })
}
