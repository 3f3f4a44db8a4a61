//! The clients: their addresses, and what one address may hold.
//!
//! The address is the peer's, or the one that a trusted proxy reports. One address holds at most a
//! quarter of the connections, of the requests under way and of the memory for their bodies
//! (contract section 6). Loopback and trusted proxies are exempt, because many clients share their
//! addresses.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName};
use ipnet::IpNet;
use parking_lot::Mutex;

use crate::http::request::address_of;

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    /// The request arrived over HTTPS, here or at a trusted proxy.
    pub(super) secure: bool,
}

/// The networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed: loopback, and those
/// of `--trusted-proxy`.
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
pub(super) fn identify(
    peer: IpAddr,
    tls: bool,
    headers: &HeaderMap,
    trusted: &TrustedNetworks,
) -> Client {
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
    let forwarded_https = last_first(headers, &FORWARDED_PROTO)
        .next()
        .is_some_and(|p| p.eq_ignore_ascii_case("https"));
    Client { address, secure: tls || forwarded_https }
}

/// The elements of a list header (RFC 9110 section 5.6.1), from last to first.
fn last_first<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values: Vec<&str> =
        headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("")).collect();
    values.into_iter().rev().flat_map(|value| value.rsplit(',')).map(str::trim)
}

/// Parses an address. Some proxies append a port.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare
        .parse::<IpAddr>()
        .ok()
        .or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address| address.to_canonical())
}

/// A limited resource, and how much of it each address holds.
#[derive(Debug)]
pub(super) struct Shares {
    limit: usize,
    /// What one address may hold, unless it is exempt.
    address_limit: usize,
    exempt: TrustedNetworks,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// What one request holds. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    address: IpAddr,
    is_exempt: bool,
    amount: usize,
}

impl Shares {
    pub(super) fn new(limit: usize, address_limit: usize, exempt: TrustedNetworks) -> Arc<Shares> {
        Arc::new(Shares { limit, address_limit, exempt, held: Mutex::default() })
    }

    /// A share of nothing, which can grow.
    pub(super) fn of(self: &Arc<Shares>, client: IpAddr) -> Share {
        let is_exempt = self.exempt.contains(client);
        Share { shares: Arc::clone(self), address: address_of(client), is_exempt, amount: 0 }
    }
}

impl Share {
    /// Takes `amount` more, and returns whether this is within the limits. A caller that gets
    /// `false` refuses the request and drops the share.
    pub(super) fn grow(&mut self, amount: usize) -> bool {
        let Shares { limit, address_limit, held, .. } = &*self.shares;
        let mut held = held.lock();
        self.amount += amount;
        held.total += amount;
        let own = held.by_address.entry(self.address).or_default();
        *own += amount;
        (self.is_exempt || *own <= *address_limit) && held.total <= *limit
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.held.lock();
        held.total -= self.amount;
        if let Some(own) = held.by_address.get_mut(&self.address) {
            *own -= self.amount;
            if *own == 0 {
                held.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_network;
    use hyper::header::HeaderValue;

    fn from(peer: &str, forwarded: &[&str], proxies: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(&FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        let trusted =
            TrustedNetworks::new(proxies.iter().map(|text| parse_network(text).unwrap()).collect());
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
        assert_eq!(
            from("10.1.1.1", &["6.6.6.6", "203.0.113.9", "2001:db8::7"], &proxies),
            "203.0.113.9"
        );
        assert_eq!(from("10.1.1.1", &["203.0.113.9:4711"], &proxies), "203.0.113.9");
        assert_eq!(from("10.1.1.1", &["[2001:470::1]:4711"], &proxies), "2001:470::1");
        assert_eq!(from("10.1.1.1", &["6.6.6.6, nonsense, 10.2.2.2"], &proxies), "10.2.2.2");
        assert_eq!(from("10.1.1.1", &[], &proxies), "10.1.1.1");
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

    fn shares(limit: usize) -> Arc<Shares> {
        let exempt = TrustedNetworks::new(vec!["10.0.0.0/8".parse().unwrap()]);
        Shares::new(limit, limit / 4, exempt)
    }

    fn take(shares: &Arc<Shares>, address: &str, amount: usize) -> (Share, bool) {
        let mut share = shares.of(address.parse().unwrap());
        let is_fair = share.grow(amount);
        (share, is_fair)
    }

    #[test]
    fn an_address_holds_a_quarter_and_leaves_the_rest() {
        let shares = shares(40);
        let (first, is_fair) = take(&shares, "192.0.2.1", 10);
        assert!(is_fair);
        assert!(!take(&shares, "192.0.2.1", 1).1);
        assert!(take(&shares, "192.0.2.2", 10).1);
        drop(first);
        assert!(take(&shares, "192.0.2.1", 10).1);
        assert!(shares.held.lock().by_address.is_empty());
    }

    #[test]
    fn one_ipv6_network_is_one_address() {
        let shares = shares(4);
        let _first = take(&shares, "2001:db8::1", 1);
        assert!(!take(&shares, "2001:db8::2", 1).1);
        assert!(take(&shares, "2001:db8:0:1::1", 1).1);
    }

    #[test]
    fn loopback_and_trusted_proxies_are_limited_by_the_total_alone() {
        let shares = shares(4);
        let _first = take(&shares, "127.0.0.1", 1);
        let (_second, is_fair) = take(&shares, "10.1.2.3", 3);
        assert!(is_fair);
        assert!(!take(&shares, "127.0.0.1", 1).1);
    }
}
