//! What an address may take of the server's connections and memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use parking_lot::Mutex;

use crate::http::request::address_of;

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
