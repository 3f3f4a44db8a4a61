//! The addresses of clients, and what one address may take of the server.
//!
//! The address of a client is the peer's address, or the address that a trusted proxy reports.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName};
use ipnet::IpNet;
use parking_lot::Mutex;

use crate::http::request::address_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    /// The request arrived over HTTPS, here or at a trusted proxy.
    pub(super) secure: bool,
}

/// Loopback and the networks of `--trusted-proxy`. The service believes their `X-Forwarded-For` and
/// `X-Forwarded-Proto`.
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

/// A limited resource: connections, memory of request bodies, or memory of responses that clients
/// have not read. One address can take a quarter of it. Loopback and trusted proxies are exempt from
/// the quarter, because many clients share their addresses.
///
/// Example: bodies have 96 MiB together, and one address has 24 MiB. A client sends 30 batches of
/// 1 MiB at the same time. The 25th batch gets `overloaded`, and 72 MiB remain for other addresses.
/// Without the quarter, one client could take all 96 MiB, and every other client would get
/// `overloaded`.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    exempt: TrustedNetworks,
    reserved: Mutex<Reserved>,
}

#[derive(Debug, Default)]
struct Reserved {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A part of a budget. Dropping it gives the part back.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<Budget>,
    address: IpAddr,
    is_exempt: bool,
    amount: usize,
}

impl Budget {
    pub(super) fn new(limit: usize, exempt: TrustedNetworks) -> Arc<Budget> {
        Arc::new(Budget { limit, exempt, reserved: Mutex::default() })
    }

    /// A reservation of nothing, which can grow.
    pub(super) fn reservation(self: &Arc<Budget>, client: IpAddr) -> Reservation {
        let is_exempt = self.exempt.contains(client);
        Reservation { budget: Arc::clone(self), address: address_of(client), is_exempt, amount: 0 }
    }
}

impl Reservation {
    /// Reserves `amount` more, and returns whether the limits allow it. If not, the caller drops the
    /// reservation.
    pub(super) fn grow(&mut self, amount: usize) -> bool {
        let limit = self.budget.limit;
        let address_limit = (limit / 4).max(1);
        let mut reserved = self.budget.reserved.lock();
        self.amount += amount;
        reserved.total += amount;
        let own = reserved.by_address.entry(self.address).or_default();
        *own += amount;
        (self.is_exempt || *own <= address_limit) && reserved.total <= limit
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = self.budget.reserved.lock();
        reserved.total -= self.amount;
        if let Some(own) = reserved.by_address.get_mut(&self.address) {
            *own -= self.amount;
            if *own == 0 {
                reserved.by_address.remove(&self.address);
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

    fn budget(limit: usize) -> Arc<Budget> {
        let exempt = TrustedNetworks::new(vec!["10.0.0.0/8".parse().unwrap()]);
        Budget::new(limit, exempt)
    }

    fn take(budget: &Arc<Budget>, address: &str, amount: usize) -> (Reservation, bool) {
        let mut reservation = budget.reservation(address.parse().unwrap());
        let is_fair = reservation.grow(amount);
        (reservation, is_fair)
    }

    #[test]
    fn an_address_holds_a_quarter_and_leaves_the_rest() {
        let budget = budget(40);
        let (first, is_fair) = take(&budget, "192.0.2.1", 10);
        assert!(is_fair);
        assert!(!take(&budget, "192.0.2.1", 1).1);
        assert!(take(&budget, "192.0.2.2", 10).1);
        drop(first);
        assert!(take(&budget, "192.0.2.1", 10).1);
        assert!(budget.reserved.lock().by_address.is_empty());
    }

    #[test]
    fn one_ipv6_network_is_one_address() {
        let budget = budget(4);
        let _first = take(&budget, "2001:db8::1", 1);
        assert!(!take(&budget, "2001:db8::2", 1).1);
        assert!(take(&budget, "2001:db8:0:1::1", 1).1);
    }

    #[test]
    fn loopback_and_trusted_proxies_are_limited_by_the_total_alone() {
        let budget = budget(4);
        let _first = take(&budget, "127.0.0.1", 1);
        let (_second, is_fair) = take(&budget, "10.1.2.3", 3);
        assert!(is_fair);
        assert!(!take(&budget, "127.0.0.1", 1).1);
    }
}
