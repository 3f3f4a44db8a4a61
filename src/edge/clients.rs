//! The addresses of clients, and what one address may take of the server.
//!
//! The address of a client is the peer's address, or the address that a trusted proxy reports. One
//! address has at most a quarter of the connections, of the requests under way and of the memory
//! for their bodies (contract section 6). Loopback and trusted proxies are exempt, because many
//! clients share their addresses. [`UnreadResponses`] limits the memory of responses.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName};
use ipnet::IpNet;
use parking_lot::Mutex;

use super::limits::RESPONSE_BUDGET;
use super::stream::ConnectionState;
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

/// A limited resource: the requests under way, or the memory of their bodies. One address can take
/// only a part of it.
///
/// Example: bodies have 96 MiB together, and one address has 24 MiB. A client sends 30 batches of
/// 1 MiB at the same time. The 25th batch gets `overloaded`, and 72 MiB remain for other addresses.
/// Without the part of an address, one client could take all 96 MiB, and every other client would
/// get `overloaded`.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    /// The limit of one address, unless it is exempt.
    address_limit: usize,
    exempt: TrustedNetworks,
    reserved: Mutex<Reserved>,
}

#[derive(Debug, Default)]
struct Reserved {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The part of a budget that one request has reserved. Dropping it gives the part back.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<Budget>,
    address: IpAddr,
    is_exempt: bool,
    amount: usize,
}

impl Budget {
    pub(super) fn new(limit: usize, address_limit: usize, exempt: TrustedNetworks) -> Arc<Budget> {
        Arc::new(Budget { limit, address_limit, exempt, reserved: Mutex::default() })
    }

    /// A reservation of nothing, which can grow.
    pub(super) fn reservation(self: &Arc<Budget>, client: IpAddr) -> Reservation {
        let is_exempt = self.exempt.contains(client);
        Reservation { budget: Arc::clone(self), address: address_of(client), is_exempt, amount: 0 }
    }
}

impl Reservation {
    /// Reserves `amount` more, and returns whether the limits allow it. If not, the caller refuses
    /// the request and drops the reservation.
    pub(super) fn grow(&mut self, amount: usize) -> bool {
        let Budget { limit, address_limit, reserved, .. } = &*self.budget;
        let mut reserved = reserved.lock();
        self.amount += amount;
        reserved.total += amount;
        let own = reserved.by_address.entry(self.address).or_default();
        *own += amount;
        (self.is_exempt || *own <= *address_limit) && reserved.total <= *limit
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

/// The responses that clients have not read yet. Together they take at most [`RESPONSE_BUDGET`].
///
/// A worker gives the edge a complete response, and the memory is free again when the client has
/// read it. If a new response exceeds the budget, the address with the most unread bytes loses its
/// oldest response, and the connection of that response closes at once.
///
/// Example: A has 60 unread lists of 1 MiB. B downloads a list of 4 MiB, and asks for another 1
/// MiB. The 64 MiB are full, and the first of A's connections closes. Without the budget, 10,000
/// connections such as A's would take 10 GiB within the 10 seconds of the write timeout.
#[derive(Default)]
pub(super) struct UnreadResponses(Mutex<Unread>);

#[derive(Default)]
struct Unread {
    next_number: u64,
    bytes: usize,
    /// The oldest first.
    responses: BTreeMap<u64, UnreadResponse>,
}

struct UnreadResponse {
    bytes: usize,
    address: IpAddr,
    connection: Arc<ConnectionState>,
}

impl UnreadResponses {
    /// Returns the bytes of `response`. They count until the last of them is written.
    pub(super) fn hold(
        self: &Arc<Self>,
        response: Vec<u8>,
        address: IpAddr,
        connection: &Arc<ConnectionState>,
    ) -> Bytes {
        let mut unread = self.0.lock();
        let (number, bytes) = (unread.next_number, response.len());
        unread.next_number += 1;
        unread.bytes += bytes;
        let connection = Arc::clone(connection);
        unread.responses.insert(number, UnreadResponse { bytes, address, connection });
        while unread.bytes > RESPONSE_BUDGET && unread.responses.len() > 1 {
            unread.abort_one();
        }
        drop(unread);
        Bytes::from_owner(HeldResponse { response, number, unread: Arc::clone(self) })
    }
}

impl Unread {
    /// Aborts the oldest response of the address with the most unread bytes.
    fn abort_one(&mut self) {
        let mut by_address = HashMap::new();
        for response in self.responses.values() {
            *by_address.entry(response.address).or_insert(0) += response.bytes;
        }
        let most = by_address.into_iter().max_by_key(|(_, bytes)| *bytes);
        let Some((address, _)) = most else { return };
        let oldest = self.responses.iter().find(|(_, response)| response.address == address);
        let Some(number) = oldest.map(|(number, _)| *number) else { return };
        if let Some(response) = self.forget(number) {
            response.connection.abort();
        }
    }

    fn forget(&mut self, number: u64) -> Option<UnreadResponse> {
        self.responses.remove(&number).inspect(|response| self.bytes -= response.bytes)
    }
}

/// One response that counts against the limit.
struct HeldResponse {
    response: Vec<u8>,
    number: u64,
    unread: Arc<UnreadResponses>,
}

impl AsRef<[u8]> for HeldResponse {
    fn as_ref(&self) -> &[u8] {
        &self.response
    }
}

impl Drop for HeldResponse {
    fn drop(&mut self) {
        self.unread.0.lock().forget(self.number);
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
        Budget::new(limit, limit / 4, exempt)
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
