//! The paths that need no key (contract section 1).

use serde_json::json;

use super::routes::{PAGE_METHODS, Page};
use crate::app::App;
use crate::http::{ApiError, Method, Request, Response};
use crate::reference::docs;
use crate::reference::openapi;

/// Answers a page; unknown query parameters are ignored.
pub fn answer(app: &App, page: Page, request: &Request) -> Response {
    if !matches!(request.method, Method::Get | Method::Head) {
        return ApiError::method_not_allowed(PAGE_METHODS).into();
    }
    match page {
        Page::OpenApi => Response::json_bytes(200, openapi::JSON.as_bytes()),
        Page::Docs => docs::answer(request),
        Page::Health => Response::json(200, &json!({"status": "ok"})),
        Page::Ready => match app.ready(request.received_at) {
            Ok(()) => Response::json(200, &json!({"status": "ok"})),
            Err(what) => ApiError::not_ready(&what).into(),
        },
        Page::Root => Response::empty(302).header("Location", "/docs"),
    }
}
