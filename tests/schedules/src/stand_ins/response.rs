//! A response is its status.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response(pub u16);

impl Response {
    pub fn status(&self) -> u16 {
        self.0
    }

    pub fn has_header(&self, _name: &str) -> bool {
        false
    }

    #[must_use]
    pub fn header(self, _name: &'static str, _value: impl Into<String>) -> Response {
        self
    }

    #[must_use]
    pub fn with<V>(self, _: impl IntoIterator<Item = (&'static str, V)>) -> Response {
        self
    }
}

pub struct ApiError(u16);

impl ApiError {
    pub fn overloaded() -> ApiError {
        ApiError(503)
    }

    pub fn internal() -> ApiError {
        ApiError(500)
    }
}

impl From<ApiError> for Response {
    fn from(error: ApiError) -> Response {
        Response(error.0)
    }
}
