//! What a hostile tenant, a client without a key, a prepared backup and a user of the machine can
//! do: the findings F1 to F19 of an audit of version 0.2.0. Each test failed on commit 404279e.
//!
//! | finding | test, or why there is none |
//! |---|---|
//! | F1 a search stops every tenant | `tenant::a_search_of_long_words_is_refused` |
//! | F2 a key fills the disk | `contract/space.rs` |
//! | F3 a local user becomes root | none: the script of the pair is gone |
//! | F4 an address has all bodies refused | `client::bodies_…`, `edge/sizes.rs::no_body_…` |
//! | F5 an address takes all connections | `client::connections_…`, `edge/shares.rs` |
//! | F6 a tenant has any number of keys | `tenant::a_tenant_has_at_most_200_keys` |
//! | F7 a backup is trusted | `backup`, `src/store/archive/hostile_tests.rs` |
//! | F8 a writing key reads | promised; `tenant::the_panel_says_…` |
//! | F9 the audit trail is flushed | `tenant::many_changes_of_keys_…` |
//! | F10 anybody locks an admin out | `client::wrong_passwords_…` |
//! | F11 an export follows a link | `local_user::an_export_…` |
//! | F12 the account of the copy reads files | `standby/account.rs` |
//! | F13 a known weakness passes the checks | none: `.ci/run` itself fails |
//! | F14 no public key | none: `release/build` signs with no key but that of the repository |
//! | F15 a purge frees the user's number | `local_user::a_purge_…` |
//! | F16 secrets on standard output | none: contract section 10 promises it |
//! | F17 a bare line feed ends a line | none: RFC 9112 section 2.2 allows it |
//! | F18 connections hold up the metrics | `operator/metrics.rs::idle_connections_…` |
//! | F19 headers, names | `edge/tls.rs`, `client::json_…`, `local_user::names_…` |
//!
//! `tenant::searches_…`, `client::bodies_…` and `client::connections_…` also hold that a client of
//! another tenant and another address is served meanwhile. `TEST_BINARY=PATH` tests another binary.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "each test binary needs another part of it")]
mod support;

mod backup;
mod browser;
mod client;
mod local_user;
mod tenant;
