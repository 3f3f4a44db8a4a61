//! Fuzzing on stable Rust: inputs are mutated from a few seeds and from pieces that matter, for as
//! long as `FUZZ_SECONDS` says (1 without it). Each place that reads bytes of strangers is a target:
//!
//!     FUZZ_SECONDS=1800 cargo test --release --test edge fuzz::edge
//!
//! An input that fails is printed as a literal. Add the literal to the seeds of the target, together
//! with the correction.

mod api;
mod edge;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use crate::support::random::{Random, seed};

/// Runs `check` on `seeds` and on their mutations with `pieces`, until the time is over.
fn fuzz(target: &str, seeds: &[&[u8]], pieces: &[&[u8]], mut check: impl FnMut(&[u8])) {
    let seconds = std::env::var("FUZZ_SECONDS")
        .map_or(1, |text| text.parse().expect("FUZZ_SECONDS is a number"));
    let mut random = Random::new(seed("FUZZ_SEED"));
    let mut corpus: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    let started = Instant::now();
    let mut runs: u64 = 0;
    while runs < corpus.len() as u64 || started.elapsed() < Duration::from_secs(seconds) {
        // The seeds come first.
        let known = usize::try_from(runs).ok().and_then(|run| corpus.get(run)).cloned();
        let input = known.unwrap_or_else(|| mutated(&corpus, seeds.len(), pieces, &mut random));
        run(target, &input, &mut check);
        runs += 1;
        // Mutations of mutations get further from where they began.
        if runs.is_multiple_of(64) && corpus.len() < 4_096 {
            corpus.push(input);
        }
    }
    println!("{target}: {runs} inputs");
}

/// The words of a text, as pieces.
fn words(text: &str) -> Vec<&[u8]> {
    text.split_whitespace().map(str::as_bytes).collect()
}

fn run(target: &str, input: &[u8], check: &mut impl FnMut(&[u8])) {
    // The deadline of the client ends a hang.
    let outcome = catch_unwind(AssertUnwindSafe(|| check(input)));
    outcome.unwrap_or_else(|panic| {
        println!("{target} fails on b\"{}\"", input.escape_ascii());
        resume_unwind(panic)
    });
}

fn mutated(corpus: &[Vec<u8>], seeds: usize, pieces: &[&[u8]], random: &mut Random) -> Vec<u8> {
    // Mostly near a seed: what is far from all of them is refused at its first byte.
    let among = if random.below(4) == 0 { corpus.len() } else { seeds };
    let mut input = corpus[random.below(among)].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(16)).min(input.len());
        match random.below(8) {
            0 => drop(input.splice(at..at, random.pick(pieces).iter().copied())),
            1 => drop(input.splice(at..end, random.pick(pieces).iter().copied())),
            2 => drop(input.drain(at..end)),
            3 => input.truncate(at),
            4 => input.insert(at, u8::try_from(random.below(256)).unwrap()),
            5 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            6 => {
                let part = input[at..end].to_vec();
                drop(input.splice(at..at, part));
            }
            _ => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                drop(input.splice(at.., other[from..].iter().copied()));
            }
        }
    }
    // A far larger input only costs time.
    input.truncate(100_000);
    input
}
