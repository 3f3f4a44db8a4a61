//! A queue in which client addresses take turns, so that a client with many items does not delay
//! the others.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

/// A queue with one list of items for each client address.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// The address at the front has its turn next. No list is empty. There are few addresses, so a
    /// linear search is fast.
    clients: VecDeque<(IpAddr, VecDeque<T>)>,
    length: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { clients: VecDeque::new(), length: 0 }
    }
}

impl<T> FairQueue<T> {
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Adds `item` behind the client's other items. Returns the rejected item if the queue has
    /// `limit` items already.
    ///
    /// Example: A waits with 5 items, and B adds its second. A loses its newest item. If A had only
    /// 3, B's new item would be rejected, because A's list is not two items longer.
    pub fn push(&mut self, limit: usize, client: IpAddr, item: T) -> Option<T> {
        let client = address_of(client);
        let mut rejected = None;
        if self.length >= limit {
            let own = self.clients.iter().find(|(address, _)| *address == client);
            let own = own.map_or(0, |(_, items)| items.len());
            if self.clients.iter().all(|(_, items)| items.len() <= own + 1) {
                return Some(item);
            }
            rejected = self.pop_newest();
        }
        self.length += 1;
        match self.clients.iter_mut().find(|(address, _)| *address == client) {
            Some((_, items)) => items.push_back(item),
            None => self.clients.push_back((client, VecDeque::from([item]))),
        }
        rejected
    }

    /// Removes and returns the newest item of the address with the most items.
    pub fn pop_newest(&mut self) -> Option<T> {
        let (_, longest) = self.clients.iter_mut().max_by_key(|(_, items)| items.len())?;
        let item = longest.pop_back();
        self.clients.retain(|(_, items)| !items.is_empty());
        self.length -= 1;
        item
    }

    /// Removes and returns the next item. Its client is then served after all others.
    pub fn pop(&mut self) -> Option<T> {
        let (address, mut items) = self.clients.pop_front()?;
        let item = items.pop_front();
        self.length -= 1;
        if !items.is_empty() {
            self.clients.push_back((address, items));
        }
        item
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
            assert_eq!(queue.push(usize::MAX, ip(client), *item), None);
        }
        queue
    }

    fn drained(mut queue: FairQueue<u32>) -> Vec<u32> {
        let items = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(queue.len(), 0);
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
        assert_eq!(queue.push(9, ip("192.0.2.2"), 6), None);
        assert_eq!(drained(queue), [4, 5, 2, 6, 3]);
    }

    #[test]
    fn one_network_of_ipv6_is_one_client() {
        let queue = filled(&[("2001:db8::1", 1), ("2001:db8::2", 2), ("2001:db8:0:1::1", 3)]);
        assert_eq!(drained(queue), [1, 3, 2]);
    }

    #[test]
    fn in_a_full_queue_the_address_with_the_most_items_loses_its_newest() {
        let mut queue =
            filled(&[("192.0.2.1", 1), ("192.0.2.1", 2), ("192.0.2.1", 3), ("192.0.2.2", 4)]);
        let mut push = |client, item| queue.push(4, ip(client), item);
        assert_eq!(push("192.0.2.1", 5), Some(5));
        assert_eq!(push("192.0.2.3", 6), Some(3));
        assert_eq!(push("192.0.2.2", 7), Some(7), "one has two, the other one");
        assert_eq!(push("192.0.2.4", 8), Some(2));
        assert_eq!(push("192.0.2.5", 9), Some(9));
        assert_eq!(drained(queue), [1, 4, 6, 8]);
    }
}
