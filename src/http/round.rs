//! What waits, taken in turn by client address, so that nobody waits for all that another asked.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

/// Rows of what waits, one for each address, the one whose turn is next in front.
#[derive(Debug)]
pub(super) struct Round<T>(VecDeque<(IpAddr, VecDeque<T>)>);

impl<T> Default for Round<T> {
    fn default() -> Round<T> {
        Round(VecDeque::new())
    }
}

impl<T> Round<T> {
    /// Adds to the end of its client's row. There are as many rows as lines at most, so one is looked for from the front.
    pub(super) fn push(&mut self, client: IpAddr, item: T) {
        let address = address_of(client);
        match self.0.iter_mut().find(|(whose, _)| *whose == address) {
            Some((_, row)) => row.push_back(item),
            None => self.0.push_back((address, VecDeque::from([item]))),
        }
    }

    /// The next one; its client's row goes to the end.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (address, mut row) = self.0.pop_front()?;
        let item = row.pop_front();
        if !row.is_empty() {
            self.0.push_back((address, row));
        }
        item
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Who takes turns: an address, and in IPv6 a /64, which one customer of a provider has whole.
pub fn address_of(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_waits_for_one_request_of_every_other() {
        let mut round = Round::default();
        for (client, item) in [("192.0.2.1", 1), ("192.0.2.1", 2), ("192.0.2.1", 3), ("192.0.2.2", 4), ("192.0.2.3", 5)]
        {
            round.push(client.parse().unwrap(), item);
        }
        let mut order = vec![round.pop().unwrap()];
        round.push("192.0.2.2".parse().unwrap(), 6);
        order.extend(std::iter::from_fn(|| round.pop()));
        assert_eq!(order, [1, 4, 5, 2, 6, 3]);
        assert!(round.is_empty());
    }

    #[test]
    fn neighbours_in_ipv6_are_one_client() {
        let mut round = Round::default();
        for (client, item) in [("2001:db8::1", 1), ("2001:db8::2", 2), ("2001:db8:0:1::1", 3)] {
            round.push(client.parse().unwrap(), item);
        }
        assert_eq!(std::iter::from_fn(|| round.pop()).collect::<Vec<_>>(), [1, 3, 2]);
    }
}
