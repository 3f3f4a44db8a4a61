//! The headers of every answer of the panel, pages and redirects, successes and refusals.

use std::sync::LazyLock;

use super::templates::{SCRIPT, STYLE};
use crate::html::{self, BASE_STYLE, Policy};
use crate::http::Response;

static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::new(&[BASE_STYLE, STYLE], &[SCRIPT]));

/// Adds them.
pub(super) fn protect(response: Response) -> Response {
    html::protect(response.header("Cache-Control", "no-store"), &POLICY)
}
