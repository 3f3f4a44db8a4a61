//! A request, whole and owned: nothing in it is still to be read from a socket.

use std::net::{IpAddr, Ipv4Addr};

use uuid::Uuid;

use crate::clock::Moment;

/// The methods that an endpoint can have; any other is one that every endpoint lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Other,
}

impl Method {
    /// Methods are case-sensitive (RFC 9110 section 9.1).
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

/// What came after the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// All of it; empty where there was none.
    Whole(Vec<u8>),
    /// More than the gate keeps ([`MAX_BODY`]); which check answers that is the pipeline's to decide.
    TooLarge,
}

/// The most of a body that the gate keeps, in bytes (contract section 3).
pub const MAX_BODY: usize = 64 * 1024;

/// One request as the pipeline sees it.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    /// The path as sent: no percent-decoding.
    pub path: String,
    /// What follows `?`, as sent; `None` without one.
    pub query: Option<String>,
    /// Name and value of the headers that the gate hands on, names in lower case, in the order sent. Values are bytes that HTTP
    /// allows there, taken as Latin-1.
    pub headers: Vec<(String, String)>,
    pub body: Body,
    /// The client's own `X-Request-Id` where it is a UUID, else a new one.
    pub id: Uuid,
    /// The client's address: the peer's, or what a trusted proxy says.
    pub client: IpAddr,
    /// The request came by HTTPS, here or to a trusted proxy.
    pub secure: bool,
    pub received_at: Moment,
}

impl Request {
    /// A request without headers and body, as tests and the edge start from.
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

    /// Every value of the header `name` (lower case), in order.
    pub fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The first value of the header `name` (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}
