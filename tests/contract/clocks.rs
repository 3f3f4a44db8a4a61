//! The wall clock is set forward and back while the service runs: nothing is lost, doubled, or prolonged for long.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::support::{ALL, Api, InProcess, Reply, uuid};

const RECORDS: &str = "/customers.php";
const START: &str = "2026-11-20T19:30:00Z";

/// An hour, a day and ten years.
const STEPS: [SignedDuration; 3] =
    [SignedDuration::from_hours(1), SignedDuration::from_hours(24), SignedDuration::from_hours(10 * 365 * 24)];

/// Every step, forward and back.
fn steps() -> impl Iterator<Item = SignedDuration> {
    STEPS.into_iter().flat_map(|step| [step, -step])
}

fn post(api: &Api, name: &str, key: &str) -> Reply {
    api.call("POST", RECORDS).header("Idempotency-Key", key).json(&json!({"name": name})).send()
}

#[test]
fn a_window_of_the_rate_limit_stays_a_minute_and_its_end_follows_the_clock() {
    let server = InProcess::at(START);
    let tenant = server.tenant("acme");
    for step in steps() {
        let api = tenant.with_scopes(ALL);
        for _ in 0..60 {
            api.get(RECORDS).is(200);
        }
        server.advance(20);
        server.step(step);
        for left in (0..40).rev() {
            let reply = api.get(RECORDS).is(200);
            assert_eq!((reply.limit("Remaining"), reply.limit("Reset")), (left, server.unix_seconds() + 40), "{step}");
        }
        server.advance_millis(39_999);
        api.get(RECORDS).fails_with(429, "rate_limited");
        server.advance_millis(1);
        api.get(RECORDS).is(200);
    }
}

#[test]
fn a_repeated_request_takes_effect_once_whatever_the_clock_says() {
    for step in steps() {
        let server = InProcess::at(START);
        let api = server.tenant("acme").with_scopes(ALL);
        let (before, after) = (uuid(), uuid());
        post(&api, "Before", &before).is(201);
        server.step(step);
        for (key, name, id) in [(&before, "Before", 1), (&after, "After", 2), (&before, "Before", 1)] {
            assert_eq!(post(&api, name, key).created()["id"], id, "{step}");
        }
        server.step(-step);
        for (key, name, id) in [(&before, "Before", 1), (&after, "After", 2)] {
            assert_eq!(post(&api, name, key).created()["id"], id, "{step} and back");
        }
        assert_eq!(api.total(RECORDS), 2);
    }
}

#[test]
fn an_idempotency_key_is_free_again_a_day_later_whatever_the_clock_says() {
    const DAY: u64 = 24 * 3600;
    for step in steps() {
        let server = InProcess::at(START);
        let api = server.tenant("acme").with_scopes(ALL);
        let key = uuid();
        post(&api, "First", &key).is(201);
        server.step(step);
        // After a step back this dates the stored response to the present.
        post(&api, "Other", &uuid()).is(201);
        server.advance(DAY - 1);
        post(&api, "Second", &key).fails_with(422, "idempotency_key_reused");
        // A response is dated to the present if it is more than an hour ahead.
        server.advance(1 + 3600);
        post(&api, "Second", &key).is(201);
    }
}

#[test]
fn no_entry_of_the_journal_is_lost_while_the_clock_is_wrong() {
    for step in STEPS {
        let server = InProcess::at(START);
        let api = server.tenant("acme").with_scopes(ALL);
        for _ in 0..5 {
            api.customer("Before");
        }
        let cursor = api.get("/changes.php?limit=2").is(200).json()["next_cursor"].as_str().unwrap().to_owned();
        server.step(step);
        for _ in 0..20 {
            api.customer("Meanwhile");
        }
        let entries = |target: &str| api.get(target).is(200).json()["data"].as_array().unwrap().len();
        assert_eq!(entries("/changes.php"), 25, "{step}");
        server.step(-step);
        api.customer("After");
        assert_eq!(entries("/changes.php"), 26, "{step} and back");
        assert_eq!(entries(&format!("/changes.php?cursor={cursor}")), 24, "{step} and back");
    }
}

#[test]
fn the_last_use_of_a_key_is_right_again_when_the_clock_is() {
    let server = InProcess::at(START);
    let tenant = server.tenant("acme");
    let api = tenant.with_scopes(ALL);
    let last_use = || -> Value {
        server.flush_uses();
        server.cli(&["--json", "key", "list", "acme"]).done().json()[0]["last_used_at"].clone()
    };
    api.get(RECORDS).is(200);
    assert_eq!(last_use(), START);
    for step in STEPS {
        server.step(step);
        api.get(RECORDS).is(200);
        assert_ne!(last_use(), START);
        server.step(-step);
        api.get(RECORDS).is(200);
        assert_eq!(last_use(), START, "{step} and back");
    }
}

#[test]
fn the_end_of_a_key_and_of_a_trial_are_moments_of_the_wall_clock() {
    let server = InProcess::at(START);
    let tenant = server.tenant_with("acme", &["--trial-until", "2026-12-31"]);
    let other = server.tenant("other");
    let (key, trial) = (other.key_with(ALL, &["--expires", "2026-12-31"]), tenant.with_scopes(ALL));
    let key = server.with_key(&key.key);
    for step in STEPS {
        for now in [-step, step] {
            server.step(now);
            if now > SignedDuration::from_hours(1_000) {
                key.get(RECORDS).fails_with(401, "expired_api_key");
                trial.get(RECORDS).fails_with(403, "tenant_inactive");
            } else {
                key.get(RECORDS).is(200);
                trial.get(RECORDS).is(200);
            }
            server.step(-now);
        }
    }
    key.get(RECORDS).is(200);
    trial.get(RECORDS).is(200);
}
