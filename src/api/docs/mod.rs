use crate::http::{Request, Response};
pub fn answer(_r: &Request) -> Response {
    Response::empty(204)
}
