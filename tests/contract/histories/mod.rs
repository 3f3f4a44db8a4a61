//! Contract sections 3, 8, 11, 12, 13 and 15 as one promise. Concurrent clients get responses that
//! they could also get one after the other. Clients record their requests and responses.
//! [`checker`] looks for an order of the requests that [`model`] allows.
//!
//! `HISTORIES=1000` records 1,000 histories. With `HISTORY_SEED`, the clients repeat the requests
//! of an earlier run.

mod checker;
mod clients;
mod model;
mod recorder;

use crate::support::random::seed;
use checker::Fault;
use model::State;
use recorder::{OWNERS, record};

#[test]
fn what_clients_see_has_an_order() {
    let count = std::env::var("HISTORIES").map_or(3, |text| text.parse().unwrap());
    let first = seed("HISTORY_SEED");
    let (mut operations, mut undecided) = (0, 0);
    for number in 0..count {
        let seed = first.wrapping_add(number);
        let history = record(seed);
        operations += history.len();
        match checker::check(State::with_owners(OWNERS), &history) {
            Ok(()) => (),
            Err(Fault::Undecided) => undecided += 1,
            Err(Fault::NotLinearizable(why)) => {
                history.iter().for_each(|timed| eprintln!("{timed:?}"));
                panic!("HISTORY_SEED={seed} HISTORIES=1: not linearizable: {why}");
            }
        }
    }
    eprintln!(
        "{count} histories, {operations} operations; {undecided} histories have too many orders \
         to try"
    );
    assert!(undecided <= count / 50 + 1, "too many histories are undecided");
}
