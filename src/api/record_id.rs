//! The id of a record as a client sends it (contract section 3).

use super::errors;
use super::query::Query;
use crate::http::{ApiError, Request};
use crate::model::validation::is_positive_integer;
use crate::model::validation::shorten;
use crate::model::{RecordId, Resource};

/// The id of a record as the client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedId(String);

impl RequestedId {
    /// Accepts decimal digits without sign or leading zero.
    ///
    /// # Errors
    ///
    /// `bad_request` for any other text.
    pub fn parse(text: &str) -> Result<RequestedId, ApiError> {
        if is_positive_integer(text) {
            return Ok(RequestedId(text.to_owned()));
        }
        Err(ApiError::bad_request(format!(
            "The query parameter \"id\" was {:?}; send a positive integer without sign or leading zero, such as 12.",
            shorten(text)
        )))
    }

    /// The id in a query that has no other parameter.
    ///
    /// # Errors
    ///
    /// `missing_id`, or `bad_request` for an invalid id or another parameter.
    pub fn alone_in(query: &Query) -> Result<RequestedId, ApiError> {
        query.only(["id"].into_iter())?;
        RequestedId::parse(query.get("id").ok_or_else(errors::missing_id)?)
    }

    /// The id in the query of a request, which has no other parameter.
    ///
    /// # Errors
    ///
    /// Those of [`RequestedId::alone_in`] and [`Query::parse`].
    pub fn of(request: &Request) -> Result<RequestedId, ApiError> {
        RequestedId::alone_in(&Query::parse(request.query.as_deref())?)
    }

    /// The number; `None` if it exceeds 64 bits. No record has such an id.
    pub fn number(&self) -> Option<RecordId> {
        self.0.parse().ok().map(RecordId)
    }

    /// The id as it was sent.
    pub fn text(&self) -> &str {
        &self.0
    }

    pub fn not_found(&self, resource: &Resource) -> ApiError {
        errors::not_found(resource, &shorten(&self.0))
    }
}
