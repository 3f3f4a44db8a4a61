//! A complete request as a value.

use std::net::{IpAddr, Ipv4Addr};

use uuid::Uuid;

use crate::clock::Moment;

/// A request method. No endpoint supports [`Method::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// Any other method.
    Other,
}

impl Method {
    /// Returns the method named `text`. Methods are case-sensitive (RFC 9110 section 9.1).
    pub fn parse(text: &str) -> Method {
        match text {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            _ => Method::Other,
        }
    }

    /// The name of the method; `OTHER` for [`Method::Other`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Other => "OTHER",
        }
    }
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The complete body; empty if there was none.
    Whole(Vec<u8>),
    /// More bytes than the path takes. The pipeline decides which check rejects it.
    TooLarge,
}

/// The longest body in bytes of all paths but that of batches (contract section 3).
pub const MAX_BODY: usize = 64 * 1024;

/// The longest body of a batch in bytes (contract section 15). No path takes a longer one.
pub const MAX_BATCH_BODY: usize = 1024 * 1024;

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path as sent, not percent-decoded.
    pub path: String,
    /// The query after `?` as sent; `None` without a `?`.
    pub query: Option<String>,
    /// Name and value of the headers in [`FORWARDED_HEADERS`](super::upstream_protocol::FORWARDED_HEADERS), in the order of that list.
    /// Names are in lower case. Values are decoded as Latin-1.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
    /// The client's `X-Request-Id` if it is a UUID, else a new one.
    pub id: Uuid,
    /// The client's address: the peer's, or the one that a trusted proxy reports.
    pub client: IpAddr,
    /// The request arrived over HTTPS, here or at a trusted proxy.
    pub secure: bool,
    /// When the complete request was received.
    pub received_at: Moment,
}

impl Request {
    /// A request of this machine, with a new id and without query, headers and body.
    pub fn new(method: Method, path: &str, received_at: Moment) -> Request {
        Request {
            method,
            path: path.to_owned(),
            query: None,
            headers: Vec::new(),
            body: Body::Whole(Vec::new()),
            id: Uuid::new_v4(),
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            secure: false,
            received_at,
        }
    }

    /// All values of the header `name` (in lower case), in the order sent.
    pub fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The first value of the header `name` (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}
