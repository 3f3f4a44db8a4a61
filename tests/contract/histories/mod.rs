//! Contract sections 3, 8, 11, 12, 13 and 15 as one promise. Concurrent clients get responses that
//! they could also get one after the other. Clients record their requests and responses.
//! [`checker`] looks for an order of the requests that [`model`] allows.
//!
//! `HISTORIES=1000` records 1,000 histories. With `HISTORY_SEED`, the clients repeat the requests
//! of an earlier run.

mod bad_histories;
mod checker;
mod clients;
mod model;
mod recorder;

use crate::support::random::seed;
use crate::support::syncs::Syncs;
use checker::Fault;
use model::State;
use recorder::{OWNERS, record};

#[test]
fn what_clients_see_has_an_order() {
    let count = std::env::var("HISTORIES").map_or(5, |text| text.parse().unwrap());
    let first = seed("HISTORY_SEED");
    let syncs = Syncs::new();
    let (mut operations, mut unknown, mut undecided) = (0, 0, 0);
    for number in 0..count {
        let seed = first.wrapping_add(number);
        let history = record(seed, &syncs);
        operations += history.len();
        unknown += history.iter().filter(|timed| timed.operation.answer.is_none()).count();
        match checker::check(State::with_owners(OWNERS), &history, State::step) {
            Ok(()) => (),
            Err(Fault::Undecided) => undecided += 1,
            Err(Fault::NotLinearizable(why)) => {
                history.iter().for_each(|timed| eprintln!("{timed:?}"));
                panic!("HISTORY_SEED={seed} HISTORIES=1: not linearizable: {why}");
            }
        }
    }
    eprintln!(
        "{count} histories, {operations} operations, {unknown} of them without an answer; \
         {undecided} histories have too many orders to try"
    );
    assert!(undecided <= count / 50 + 1, "too many histories are undecided");
}
