//! The declarations of the change log's parameters (contract section 12). Validation, the OpenAPI
//! document and the documentation page follow from this table.

use serde_json::json;

use crate::api::cursor_encoding::MAX_CURSOR;
use crate::api::list::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::api::query::QueryParameter;
use crate::model::{ALL, Resource};

/// The value of `cursor` for the end of the change log.
pub(super) const NOW: &str = "now";

/// Every parameter in the order of the reference.
pub static PARAMETERS: [QueryParameter<()>; 4] = [
    QueryParameter {
        name: "limit",
        values: || format!("1 to {MAX_LIMIT}, default {DEFAULT_LIMIT}"),
        about: "Entries on a page.",
        schema: |()| json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT }),
        example: || json!(DEFAULT_LIMIT),
    },
    QueryParameter {
        name: "cursor",
        values: || "opaque, or now".to_owned(),
        about: "The `next_cursor` of an earlier answer, or `now` for what comes from this moment on. Without it the answer begins \
                with the oldest entry that is kept.",
        schema: |()| json!({ "type": "string", "minLength": 1, "maxLength": MAX_CURSOR }),
        example: || json!(NOW),
    },
    QueryParameter {
        name: "resource",
        values: || names().join(" · "),
        about: "The entries of this resource alone.",
        schema: |()| json!({ "type": "string", "enum": names() }),
        example: || json!("customers"),
    },
    QueryParameter {
        name: "id",
        values: || "integer".to_owned(),
        about: "With `resource`: the entries of this record alone.",
        schema: |()| json!({ "type": "integer", "format": "int64", "minimum": 1 }),
        example: || json!(1),
    },
];

/// The values of `resource`.
pub(super) fn names() -> Vec<&'static str> {
    ALL.iter().map(|resource: &&Resource| resource.plural).collect()
}
