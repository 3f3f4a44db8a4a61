//! Whether a history is linearizable: the search of Wing and Gong, with Lowe's memory of the
//! configurations that were seen.
//!
//! The search looks for an order of all operations. If an operation returned before another one was
//! called, it comes first. A sequential model allows each outcome in this order.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, RandomState};

/// An operation of a history. Times are numbers that rise with each event.
#[derive(Clone, Debug)]
pub(crate) struct Timed<O> {
    pub called: u64,
    pub returned: u64,
    /// Operations with a rank take effect in its order. It saves the search what the model would
    /// reject later.
    pub rank: Option<i64>,
    /// Whether an order stays one if this operation moves to an earlier place where it fits and has
    /// no effect.
    pub is_settled: bool,
    pub operation: O,
}

/// The most configurations that are tried.
const MOST: usize = 200_000;

/// Why no order was found.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The longest order, and what could not come after it.
    NotLinearizable(String),
    /// More than [`MOST`] configurations would have to be tried.
    Undecided,
}

/// The operations that have taken effect, as bits, and the state that they give.
type Configuration<S> = (Vec<u64>, S);

/// Checks a history. `step` returns the states that an operation with its outcome can lead to; none
/// where the model does not allow the outcome.
pub(crate) fn check<S, O>(
    initial: S,
    history: &[Timed<O>],
    step: impl Fn(&S, &O) -> Vec<S>,
) -> Result<(), Fault>
where
    S: Clone + Debug + Eq + Hash,
    O: Debug,
{
    let start = (vec![0; history.len().div_ceil(64)], initial);
    // Their hashes: two with the same one are not to be expected.
    let (mut seen, hasher) = (HashSet::new(), RandomState::new());
    let mut stack = vec![start];
    let mut longest: Option<Configuration<S>> = None;
    while let Some((done, state)) = stack.pop() {
        if count(&done) == history.len() {
            return Ok(());
        }
        let next = successors(&done, &state, history, &step);
        if longest.as_ref().is_none_or(|(best, _)| count(&done) > count(best)) {
            longest = Some((done, state));
        }
        if seen.len() > MOST {
            return Err(Fault::Undecided);
        }
        // The first that was found is tried first.
        for configuration in next.into_iter().rev() {
            if seen.insert(hasher.hash_one(&configuration)) {
                stack.push(configuration);
            }
        }
    }
    let (done, state) = longest.expect("the start is a configuration");
    let open: Vec<&Timed<O>> = open(&done, history).map(|number| &history[number]).collect();
    Err(Fault::NotLinearizable(format!(
        "{} of {} operations have an order; none of these fits after them: \
         {open:?}\nin the state {state:?}",
        count(&done),
        history.len()
    )))
}

fn count(done: &[u64]) -> usize {
    done.iter().map(|bits| bits.count_ones() as usize).sum()
}

fn is_done(done: &[u64], number: usize) -> bool {
    done[number / 64] >> (number % 64) & 1 == 1
}

/// The operations that may come next: each was called before any other that is left has returned.
fn open<'a, O>(done: &'a [u64], history: &'a [Timed<O>]) -> impl Iterator<Item = usize> + 'a {
    let left = move || (0..history.len()).filter(move |number| !is_done(done, *number));
    let first_return = left().map(|number| history[number].returned).min().unwrap_or(0);
    let lowest_rank = left().filter_map(|number| history[number].rank).min();
    left().filter(move |number| {
        let Timed { called, rank, .. } = history[*number];
        called < first_return && rank.is_none_or(|rank| Some(rank) == lowest_rank)
    })
}

fn successors<S: Clone + Eq, O>(
    done: &[u64],
    state: &S,
    history: &[Timed<O>],
    step: impl Fn(&S, &O) -> Vec<S>,
) -> Vec<Configuration<S>> {
    let mut next = Vec::new();
    for number in open(done, history) {
        let mut with = done.to_vec();
        with[number / 64] |= 1 << (number % 64);
        let states = step(state, &history[number].operation);
        if history[number].is_settled && states == [state.clone()] {
            return vec![(with, state.clone())];
        }
        next.extend(states.into_iter().map(|state| (with.clone(), state)));
    }
    next
}
