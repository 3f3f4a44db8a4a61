//! A queue that is dequeued round-robin by client address, so that a client with many items does
//! not delay the others.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

/// A queue with one list of items for each client address.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// The address that is served next is at the front. No list is empty. There are few addresses,
    /// so a linear search is fast.
    clients: VecDeque<(IpAddr, VecDeque<T>)>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { clients: VecDeque::new(), len: 0 }
    }
}

impl<T> FairQueue<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `item` behind the client's other items.
    pub fn push(&mut self, client: IpAddr, item: T) {
        self.len += 1;
        let client = address_of(client);
        match self.clients.iter_mut().find(|(address, _)| *address == client) {
            Some((_, items)) => items.push_back(item),
            None => self.clients.push_back((client, VecDeque::from([item]))),
        }
    }

    /// Removes and returns the next item. Its client is then served after all others.
    pub fn pop(&mut self) -> Option<T> {
        let (address, mut items) = self.clients.pop_front()?;
        let item = items.pop_front()?;
        self.len -= 1;
        if !items.is_empty() {
            self.clients.push_back((address, items));
        }
        Some(item)
    }

    /// Like [`FairQueue::push`], in a queue of at most `limit` items. Returns the item that is
    /// refused where it is full: the newest of the address with the most, or `item` itself.
    pub fn push_within(&mut self, limit: usize, client: IpAddr, item: T) -> Option<T> {
        let mut refused = None;
        if self.len >= limit {
            refused = self.evict_for(client);
            if refused.is_none() {
                return Some(item);
            }
        }
        self.push(client, item);
        refused
    }

    /// Removes and returns the newest item of the address with the most items. Returns `None` and
    /// removes nothing if that address has at most one item more than `client`.
    fn evict_for(&mut self, client: IpAddr) -> Option<T> {
        let client = address_of(client);
        let own = self
            .clients
            .iter()
            .find(|(address, _)| *address == client)
            .map_or(0, |(_, items)| items.len());
        let (_, longest) = self.clients.iter_mut().max_by_key(|(_, items)| items.len())?;
        if longest.len() <= own + 1 {
            return None;
        }
        self.len -= 1;
        longest.pop_back()
    }

    /// Removes the items for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.clients.iter_mut().for_each(|(_, items)| items.retain(&keep));
        self.clients.retain(|(_, items)| !items.is_empty());
        self.len = self.clients.iter().map(|(_, items)| items.len()).sum();
    }
}

/// Returns the address that identifies a client: an IPv4 address, or the /64 network of an IPv6
/// address, since a provider assigns at least a /64 to each customer.
pub fn address_of(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn filled(items: &[(&str, u32)]) -> FairQueue<u32> {
        let mut queue = FairQueue::default();
        for (client, item) in items {
            queue.push(ip(client), *item);
        }
        queue
    }

    fn drained(mut queue: FairQueue<u32>) -> Vec<u32> {
        let items = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(queue.len(), 0);
        assert!(queue.is_empty());
        items
    }

    #[test]
    fn addresses_are_served_round_robin() {
        let mut queue = filled(&[
            ("192.0.2.1", 1),
            ("192.0.2.1", 2),
            ("192.0.2.1", 3),
            ("192.0.2.2", 4),
            ("192.0.2.3", 5),
        ]);
        assert_eq!(queue.pop(), Some(1));
        queue.push(ip("192.0.2.2"), 6);
        assert_eq!(drained(queue), [4, 5, 2, 6, 3]);
    }

    #[test]
    fn one_network_of_ipv6_is_one_client() {
        let queue = filled(&[("2001:db8::1", 1), ("2001:db8::2", 2), ("2001:db8:0:1::1", 3)]);
        assert_eq!(drained(queue), [1, 3, 2]);
    }

    #[test]
    fn items_of_the_address_with_the_most_are_evicted() {
        let mut queue =
            filled(&[("192.0.2.1", 1), ("192.0.2.1", 2), ("192.0.2.1", 3), ("192.0.2.2", 4)]);
        assert_eq!(queue.evict_for(ip("192.0.2.1")), None);
        assert_eq!(queue.evict_for(ip("192.0.2.3")), Some(3));
        assert_eq!(queue.evict_for(ip("192.0.2.2")), None);
        assert_eq!(queue.evict_for(ip("192.0.2.3")), Some(2));
        assert_eq!(queue.evict_for(ip("192.0.2.3")), None);
        assert_eq!(drained(queue), [1, 4]);
    }

    #[test]
    fn retain_keeps_the_order() {
        let mut queue =
            filled(&[("192.0.2.1", 1), ("192.0.2.2", 2), ("192.0.2.1", 3), ("192.0.2.3", 4)]);
        queue.retain(|item| *item > 2);
        assert_eq!(queue.len(), 2);
        assert_eq!(drained(queue), [3, 4]);
    }
}
