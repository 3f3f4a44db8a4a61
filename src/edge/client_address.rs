//! The client's address: the peer's, or the one that a trusted proxy reports.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName};
use ipnet::IpNet;

/// The text is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not an address, or an address and its number of leading bits such as 10.0.0.0/8")]
pub struct NetworkError(String);

/// Parses `ADDRESS[/BITS]`. An address without bits is a network of one address.
///
/// # Errors
///
/// [`NetworkError`] with the text.
pub fn parse_network(text: &str) -> Result<IpNet, NetworkError> {
    let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    network.ok_or_else(|| NetworkError(text.to_owned()))
}

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    /// The request arrived over HTTPS, here or at a trusted proxy.
    pub(super) secure: bool,
}

/// The networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed: loopback, and those of
/// `--trusted-proxy`.
#[derive(Clone, Debug)]
pub(super) struct TrustedNetworks(Arc<[IpNet]>);

impl TrustedNetworks {
    pub(super) fn new(proxies: Vec<IpNet>) -> TrustedNetworks {
        TrustedNetworks(proxies.into())
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.0.iter().any(|network| network.contains(&address))
    }
}

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Determines the client of a request. The client is the rightmost address that is not itself
/// trusted; a client can forge everything left of it.
pub(super) fn identify(peer: IpAddr, tls: bool, headers: &HeaderMap, trusted: &TrustedNetworks) -> Client {
    if !trusted.contains(peer) {
        return Client { address: peer, secure: tls };
    }
    let mut address = peer;
    for hop in last_first(headers, &FORWARDED_FOR) {
        match parse_hop(hop) {
            Some(hop) => address = hop,
            None => break,
        }
        if !trusted.contains(address) {
            break;
        }
    }
    let forwarded_https = last_first(headers, &FORWARDED_PROTO).next().is_some_and(|p| p.eq_ignore_ascii_case("https"));
    Client { address, secure: tls || forwarded_https }
}

/// The elements of a list header (RFC 9110 section 5.6.1), from last to first.
fn last_first<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values: Vec<&str> = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("")).collect();
    values.into_iter().rev().flat_map(|value| value.rsplit(',')).map(str::trim)
}

/// Parses an address. Some proxies append a port.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn from(peer: &str, forwarded: &[&str], proxies: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(&FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        let trusted = TrustedNetworks::new(proxies.iter().map(|text| parse_network(text).unwrap()).collect());
        identify(peer.parse().unwrap(), false, &headers, &trusted).address.to_string()
    }

    #[test]
    fn forwarded_headers_of_an_untrusted_peer_are_ignored() {
        assert_eq!(from("192.0.2.1", &["203.0.113.9"], &[]), "192.0.2.1");
        assert_eq!(from("127.0.0.1", &["203.0.113.9"], &[]), "203.0.113.9");
        assert_eq!(from("192.0.2.1", &["203.0.113.9"], &["192.0.2.0/24"]), "203.0.113.9");
    }

    #[test]
    fn the_rightmost_untrusted_address_is_the_client() {
        let proxies = ["10.0.0.0/8", "2001:db8::/32"];
        assert_eq!(from("10.1.1.1", &["6.6.6.6, 203.0.113.9, 10.2.2.2"], &proxies), "203.0.113.9");
        assert_eq!(from("10.1.1.1", &["6.6.6.6", "203.0.113.9", "2001:db8::7"], &proxies), "203.0.113.9");
        assert_eq!(from("10.1.1.1", &["203.0.113.9:4711"], &proxies), "203.0.113.9");
        assert_eq!(from("10.1.1.1", &["[2001:470::1]:4711"], &proxies), "2001:470::1");
        assert_eq!(from("10.1.1.1", &["6.6.6.6, nonsense, 10.2.2.2"], &proxies), "10.2.2.2");
        assert_eq!(from("10.1.1.1", &[], &proxies), "10.1.1.1");
    }

    #[test]
    fn networks_are_addresses_with_optional_bits() {
        let contains = |network: &str, address: &str| {
            parse_network(network).unwrap().contains(&address.parse::<IpAddr>().unwrap())
        };
        assert!(contains("0.0.0.0/0", "9.9.9.9"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(!contains("::/0", "9.9.9.9"));
        assert!(contains("10.1.2.3/8", "10.9.9.9"));
        assert!(contains("192.0.2.1", "192.0.2.1") && !contains("192.0.2.1", "192.0.2.2"));
        assert!(contains("2001:db8::1", "2001:db8::1") && !contains("2001:db8::1", "2001:db8::2"));
        for bad in ["10.0.0.0/33", "::/129", "proxy", "10.0.0.0/", ""] {
            assert_eq!(parse_network(bad), Err(NetworkError(bad.to_owned())));
        }
    }

    #[test]
    fn https_to_a_trusted_proxy_is_secure() {
        let mut headers = HeaderMap::new();
        headers.insert(&FORWARDED_PROTO, HeaderValue::from_static("https"));
        let loopback = TrustedNetworks::new(Vec::new());
        assert!(identify("127.0.0.1".parse().unwrap(), false, &headers, &loopback).secure);
        assert!(!identify("192.0.2.1".parse().unwrap(), false, &headers, &loopback).secure);
        assert!(identify("192.0.2.1".parse().unwrap(), true, &HeaderMap::new(), &loopback).secure);
    }
}
