//! Makes inputs by mutation.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use proptest::test_runner::{RngAlgorithm, TestRng};
use proptest::test_runner::{RngSeed, TestRunner};

/// How long one input may take before it counts as a hang.
const DEADLINE: Duration = Duration::from_secs(10);

/// Numbers that differ from run to run, and that a failing run need not repeat: its input is kept.
pub(crate) struct Chance(TestRng);

impl Chance {
    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        use proptest::prelude::Rng;
        usize::try_from(self.0.next_u64() % end as u64).unwrap()
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, among: &[&'a T]) -> &'a T {
        among[self.below(among.len())]
    }
}

/// Runs `check` on `seeds` and on their mutations with `pieces`, until the time is over.
pub(crate) fn fuzz(target: &str, seeds: &[&[u8]], pieces: &[&[u8]], mut check: impl FnMut(&[u8])) {
    let seconds = std::env::var("FUZZ_SECONDS")
        .map_or(3, |text| text.parse().expect("FUZZ_SECONDS is a number"));
    let mut chance = chance();
    let mut corpus: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    let started = Instant::now();
    let mut runs: u64 = 0;
    while runs < corpus.len() as u64 || started.elapsed() < Duration::from_secs(seconds) {
        // The seeds come first.
        let known = usize::try_from(runs).ok().and_then(|run| corpus.get(run)).cloned();
        let input = known.unwrap_or_else(|| mutated(&corpus, seeds.len(), pieces, &mut chance));
        run(target, &input, &mut check);
        runs += 1;
        // Mutations of mutations get further from where they began.
        if runs.is_multiple_of(64) && corpus.len() < 4_096 {
            corpus.push(input);
        }
    }
    println!("{target}: {runs} inputs");
}

fn run(target: &str, input: &[u8], check: &mut impl FnMut(&[u8])) {
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| check(input)));
    let slow = started.elapsed() > DEADLINE;
    if outcome.is_err() || slow {
        println!("{target} fails on b\"{}\"", input.escape_ascii());
    }
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
    assert!(!slow, "it took {:?}", started.elapsed());
}

fn chance() -> Chance {
    let config = proptest::test_runner::Config {
        rng_seed: RngSeed::Random,
        rng_algorithm: RngAlgorithm::ChaCha,
        ..Default::default()
    };
    Chance(TestRunner::new(config).new_rng())
}

fn mutated(corpus: &[Vec<u8>], seeds: usize, pieces: &[&[u8]], chance: &mut Chance) -> Vec<u8> {
    // Mostly near a seed: what is far from all of them is refused at its first byte.
    let among = if chance.below(4) == 0 { corpus.len() } else { seeds };
    let mut input = corpus[chance.below(among)].clone();
    for _ in 0..=chance.below(4) {
        let at = chance.below(input.len() + 1);
        let end = (at + chance.below(16)).min(input.len());
        match chance.below(8) {
            0 => drop(input.splice(at..at, chance.pick(pieces).iter().copied())),
            1 => drop(input.splice(at..end, chance.pick(pieces).iter().copied())),
            2 => drop(input.drain(at..end)),
            3 => input.truncate(at),
            4 => input.insert(at, u8::try_from(chance.below(256)).unwrap()),
            5 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << chance.below(8);
                }
            }
            6 => {
                let part = input[at..end].to_vec();
                drop(input.splice(at..at, part));
            }
            _ => {
                let other = &corpus[chance.below(corpus.len())];
                let from = chance.below(other.len() + 1);
                drop(input.splice(at.., other[from..].iter().copied()));
            }
        }
    }
    // A far larger input only costs time.
    input.truncate(100_000);
    input
}
