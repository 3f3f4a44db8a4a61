//! The change log of a tenant: what was changed, in the order of the commits (contract section 12).
//! And `/whoami.php`: what a client can learn about its own key (section 14).

use serde_json::json;

use super::list::{decode_cursor, encode_cursor, page_response, parse_limit};
use super::query::{Query, invalid_parameter};
use super::rate_limit::RateLimitStatus;
use crate::http::{API_VERSION, ApiError, ErrorCode, Request, Response};
use crate::model::{ALL, Access, Resource, Scope, Scopes, Version};
use crate::store::registry::Principal;
use crate::store::{ChangesQuery, Deadline, Position, Start, Tenant};

/// The value of `cursor` for the end of the change log.
const NOW: &str = "now";

/// Every parameter in the order of the reference.
pub static PARAMETERS: [&str; 4] = ["limit", "cursor", "resource", "id"];

/// GET and HEAD: a page of the entries that `scopes` permit.
pub(super) fn read(
    tenant: &Tenant,
    request: &Request,
    scopes: Scopes,
) -> Result<Response, ApiError> {
    let query = Query::parse(request.query.as_deref())?;
    let changes = parse(&query, scopes)?;
    let deadline = Deadline::new(&request.abandoned);
    let page = tenant.read(deadline, |reading| reading.changes(&changes))?;
    let page = page.ok_or(ErrorCode::ChangesGone)?;
    let cursor = write_cursor(&page.next);
    let response = page_response(&page.json, |body| {
        body.member("next_cursor", &cursor);
        body.member("more", &page.more);
    });
    Ok(if page.more {
        response.header("Link", query.link_to_next(&request.path, &cursor))
    } else {
        response
    })
}

fn parse(query: &Query, scopes: Scopes) -> Result<ChangesQuery, ApiError> {
    query.only(&PARAMETERS)?;
    let limit = parse_limit(query)?;
    let start = match query.get("cursor") {
        None | Some("") => Start::Oldest,
        Some(NOW) => Start::Now,
        Some(cursor) => Start::After(decode_cursor(cursor, CURSOR_KIND, read_position)?),
    };
    let resource = match query.get("resource") {
        None => None,
        Some(plural) => {
            let names = ALL.map(|resource| resource.plural).join(", ");
            Some(Resource::find(plural).ok_or_else(|| {
                invalid_parameter("resource", plural, &format!("send one of {names}"))
            })?)
        }
    };
    let record = query.id()?;
    if record.is_some() && resource.is_none() {
        return Err(ApiError::bad_request(
            "The query parameter \"id\" is the id of a record; send \"resource\" with it, such as \
             resource=customers.",
        ));
    }
    let readable = ALL
        .into_iter()
        .filter(|resource| scopes.contains(Scope { resource, access: Access::Read }));
    Ok(ChangesQuery { readable: readable.collect(), resource, record, start, limit })
}

/// The kind byte of a cursor. The log's lineage and the number of the last entry that the client has
/// seen follow. `store/records/change_log.rs` says what the lineage is for.
const CURSOR_KIND: u8 = 0x81;

fn write_cursor(position: &Position) -> String {
    let mut bytes = position.lineage.to_vec();
    bytes.extend_from_slice(&position.seq.0.to_be_bytes());
    encode_cursor(CURSOR_KIND, &bytes)
}

fn read_position(bytes: &[u8]) -> Option<Position> {
    let (lineage, seq) = bytes.split_first_chunk::<16>()?;
    let seq = Version(i64::from_be_bytes(seq.try_into().ok()?));
    Some(Position { lineage: *lineage, seq })
}

/// Describes the key of the request.
pub(super) fn whoami(
    request: &Request,
    principal: &Principal,
    rate_limit: RateLimitStatus,
) -> Result<Response, ApiError> {
    Query::parse(request.query.as_deref())?.only(&[])?;
    let key = &principal.key;
    let document = json!({
        "tenant": principal.tenant_name,
        "key": {
            "id": key.id,
            "name": key.name,
            "prefix": key.prefix,
            "scopes": key.scopes.names(),
            "created_at": key.created_at,
            "expires_at": key.expires_at,
        },
        "rate_limit": rate_limit.limit,
        "api_version": API_VERSION,
        "server": env!("CARGO_PKG_VERSION"),
    });
    Ok(Response::json(200, &document))
}
