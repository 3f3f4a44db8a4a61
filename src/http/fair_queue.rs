//! A queue in which client addresses take turns, so that a client with many items does not delay
//! the others.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::http::request::address_of;

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
        self.length == 0
    }

    /// Adds `item` behind the client's other items.
    pub fn push(&mut self, client: IpAddr, item: T) {
        let client = address_of(client);
        self.length += 1;
        match self.clients.iter_mut().find(|(address, _)| *address == client) {
            Some((_, items)) => items.push_back(item),
            None => self.clients.push_back((client, VecDeque::from([item]))),
        }
    }

    /// Removes and returns the newest item of the address with the most items. If several addresses
    /// have the most, `client` loses its item.
    ///
    /// Example: A has 5 items, and B has just added its second. A loses its newest item. If A had
    /// only 2, B would lose the item that it has just added: otherwise A and B would take away each
    /// other's items in turn.
    pub fn pop_newest_of_longest(&mut self, client: IpAddr) -> Option<T> {
        let client = address_of(client);
        let length =
            |(address, items): &&mut (IpAddr, VecDeque<T>)| (items.len(), *address == client);
        let (_, longest) = self.clients.iter_mut().max_by_key(length)?;
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
    fn the_address_with_the_most_items_loses_its_newest() {
        let mut queue =
            filled(&[("192.0.2.1", 1), ("192.0.2.1", 2), ("192.0.2.1", 3), ("192.0.2.2", 4)]);
        let mut replace = |client, item| {
            queue.push(ip(client), item);
            queue.pop_newest_of_longest(ip(client))
        };
        assert_eq!(replace("192.0.2.1", 5), Some(5));
        assert_eq!(replace("192.0.2.3", 6), Some(3));
        assert_eq!(replace("192.0.2.2", 7), Some(7), "both would have two");
        assert_eq!(replace("192.0.2.4", 8), Some(2));
        assert_eq!(replace("192.0.2.5", 9), Some(9));
        assert_eq!(drained(queue), [1, 4, 6, 8]);
    }
}
