//! Whose request it is: the peer's address, or what a trusted proxy says.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use hyper::header::{HeaderMap, HeaderName};

/// `ADDRESS[/BITS]`: an address, or all that share its first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// What is wrong with a network's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not an address, or an address and its number of leading bits such as 10.0.0.0/8")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = width(address);
        let bits = bits.unwrap_or(width);
        if bits > width { Err(wrong()) } else { Ok(Network { address, bits }) }
    }
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        let width = width(self.address);
        let rest = width - self.bits;
        width == self::width(address)
            && (rest == 128 || (number(self.address) ^ number(address)).checked_shr(rest) == Some(0))
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Who sent a request, and whether by HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    pub(super) secure: bool,
}

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// `X-Forwarded-For` and `-Proto` are believed when the peer is of this machine or a trusted proxy. Of the addresses the
/// rightmost counts that is not itself trusted; everything left of it may be forged.
pub(super) fn identify(peer: IpAddr, tls: bool, headers: &HeaderMap, proxies: &[Network]) -> Client {
    let trusted = |address: IpAddr| address.is_loopback() || proxies.iter().any(|network| network.contains(address));
    if !trusted(peer) {
        return Client { address: peer, secure: tls };
    }
    let mut address = peer;
    for hop in last_first(headers, &FORWARDED_FOR) {
        match parse_hop(hop) {
            Some(hop) => address = hop,
            None => break,
        }
        if !trusted(address) {
            break;
        }
    }
    let by_https = last_first(headers, &FORWARDED_PROTO).next().is_some_and(|p| p.eq_ignore_ascii_case("https"));
    Client { address, secure: tls || by_https }
}

/// The elements of a header that is a list, from the last to the first.
fn last_first<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines: Vec<&str> = headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("")).collect();
    lines.into_iter().rev().flat_map(|line| line.rsplit(',')).map(str::trim)
}

/// An address, which some proxies write with its port.
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
        let proxies: Vec<Network> = proxies.iter().map(|text| text.parse().unwrap()).collect();
        identify(peer.parse().unwrap(), false, &headers, &proxies).address.to_string()
    }

    #[test]
    fn only_a_trusted_peer_is_believed() {
        assert_eq!(from("192.0.2.1", &["203.0.113.9"], &[]), "192.0.2.1");
        assert_eq!(from("127.0.0.1", &["203.0.113.9"], &[]), "203.0.113.9");
        assert_eq!(from("192.0.2.1", &["203.0.113.9"], &["192.0.2.0/24"]), "203.0.113.9");
    }

    #[test]
    fn the_rightmost_address_that_is_not_a_proxy_counts() {
        let proxies = ["10.0.0.0/8", "2001:db8::/32"];
        assert_eq!(from("10.1.1.1", &["6.6.6.6, 203.0.113.9, 10.2.2.2"], &proxies), "203.0.113.9");
        assert_eq!(from("10.1.1.1", &["6.6.6.6", "203.0.113.9", "2001:db8::7"], &proxies), "203.0.113.9");
        assert_eq!(from("10.1.1.1", &["203.0.113.9:4711"], &proxies), "203.0.113.9");
        assert_eq!(from("10.1.1.1", &["[2001:470::1]:4711"], &proxies), "2001:470::1");
        assert_eq!(from("10.1.1.1", &["6.6.6.6, nonsense, 10.2.2.2"], &proxies), "10.2.2.2");
        assert_eq!(from("10.1.1.1", &[], &proxies), "10.1.1.1");
    }

    #[test]
    fn networks() {
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("9.9.9.9".parse().unwrap()));
        assert!("::/0".parse::<Network>().unwrap().contains("2001:db8::1".parse().unwrap()));
        assert!(!"::/0".parse::<Network>().unwrap().contains("9.9.9.9".parse().unwrap()));
        assert!("10.0.0.0/33".parse::<Network>().is_err());
        assert!("proxy".parse::<Network>().is_err());
        assert!("10.0.0.0/".parse::<Network>().is_err());
    }

    #[test]
    fn https_by_a_proxy_is_secure() {
        let mut headers = HeaderMap::new();
        headers.insert(&FORWARDED_PROTO, HeaderValue::from_static("https"));
        assert!(identify("127.0.0.1".parse().unwrap(), false, &headers, &[]).secure);
        assert!(!identify("192.0.2.1".parse().unwrap(), false, &headers, &[]).secure);
        assert!(identify("192.0.2.1".parse().unwrap(), true, &HeaderMap::new(), &[]).secure);
    }
}
