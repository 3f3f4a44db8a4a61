//! What one client address may hold (contract section 6): at most a quarter of the connections, of
//! the requests under way and of the memory for their bodies. Loopback and trusted proxies are
//! exempt, because many clients share their addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::client_address::TrustedNetworks;
use crate::fair_queue::address_of;

/// One address holds at most the limit divided by this.
const PARTS: usize = 4;

/// A limited resource, and how much of it each address holds.
#[derive(Debug)]
pub(super) struct Shares {
    limit: usize,
    exempt: TrustedNetworks,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// What one connection or request holds. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    address: IpAddr,
    is_exempt: bool,
    amount: usize,
}

/// Whether a share may be as large as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fair,
    /// The address holds more than its part.
    AddressOver,
    /// All addresses together hold more than there is.
    TotalOver,
}

impl Shares {
    pub(super) fn new(limit: usize, exempt: TrustedNetworks) -> Arc<Shares> {
        Arc::new(Shares { limit, exempt, held: Mutex::default() })
    }

    /// A share of nothing, which can grow.
    pub(super) fn of(self: &Arc<Shares>, client: IpAddr) -> Share {
        let is_exempt = self.exempt.contains(client);
        Share { shares: Arc::clone(self), address: address_of(client), is_exempt, amount: 0 }
    }
}

impl Share {
    /// Takes `amount` more, whatever the verdict: a caller that does not accept it drops the share.
    pub(super) fn grow(&mut self, amount: usize) -> Verdict {
        let Shares { limit, held, .. } = &*self.shares;
        let mut held = held.lock();
        self.amount += amount;
        held.total += amount;
        let own = held.by_address.entry(self.address).or_default();
        *own += amount;
        if *own > (limit / PARTS).max(1) && !self.is_exempt {
            Verdict::AddressOver
        } else if held.total > *limit {
            Verdict::TotalOver
        } else {
            Verdict::Fair
        }
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

    fn shares(limit: usize) -> Arc<Shares> {
        Shares::new(limit, TrustedNetworks::new(vec!["10.0.0.0/8".parse().unwrap()]))
    }

    fn take(shares: &Arc<Shares>, address: &str, amount: usize) -> (Share, Verdict) {
        let mut share = shares.of(address.parse().unwrap());
        let verdict = share.grow(amount);
        (share, verdict)
    }

    #[test]
    fn an_address_holds_a_quarter_and_leaves_the_rest() {
        let shares = shares(40);
        let (first, verdict) = take(&shares, "192.0.2.1", 10);
        assert_eq!(verdict, Verdict::Fair);
        assert_eq!(take(&shares, "192.0.2.1", 1).1, Verdict::AddressOver);
        assert_eq!(take(&shares, "192.0.2.2", 10).1, Verdict::Fair);
        drop(first);
        assert_eq!(take(&shares, "192.0.2.1", 10).1, Verdict::Fair);
        assert!(shares.held.lock().by_address.is_empty());
    }

    #[test]
    fn one_ipv6_network_is_one_address() {
        let shares = shares(4);
        let _first = take(&shares, "2001:db8::1", 1);
        assert_eq!(take(&shares, "2001:db8::2", 1).1, Verdict::AddressOver);
        assert_eq!(take(&shares, "2001:db8:0:1::1", 1).1, Verdict::Fair);
    }

    #[test]
    fn loopback_and_trusted_proxies_are_limited_by_the_total_alone() {
        let shares = shares(4);
        let _first = take(&shares, "127.0.0.1", 1);
        let (_second, verdict) = take(&shares, "10.1.2.3", 3);
        assert_eq!(verdict, Verdict::Fair);
        assert_eq!(take(&shares, "127.0.0.1", 1).1, Verdict::TotalOver);
    }
}
