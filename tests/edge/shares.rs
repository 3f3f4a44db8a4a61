//! The shipped binary with more requests than it accepts.

use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{Client, request};
use crate::support::{ALL, database};

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn a_tenant_whose_file_is_locked_holds_up_nobody_else() {
    let fixture = Fixture::new();
    let stuck = fixture.server.tenant("stuck");
    let key = stuck.key(ALL).key;
    let locked = database(&stuck.file());
    locked.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT").unwrap();
    let gets = request("GET", RECORDS, &key, "", "");
    let post = request("POST", RECORDS, &key, JSON, "{\"name\": \"Late\"}");
    let mut held: Vec<Client> = (0..200).map(|_| fixture.connect()).collect();
    held.iter_mut().zip([&gets, &post].iter().cycle()).for_each(|(client, bytes)| client.send(bytes));
    fixture.is_served();
    fixture.api().customer("Served");
    // The lock times out after 5 s: a request that waited for these would have seen their responses.
    assert!(held.iter().any(|client| !client.is_answered()), "others waited");
    for _ in 0..20 {
        fixture.is_served();
        fixture.api().customer("Served");
    }
    drop(locked);
    held.iter_mut().for_each(|client| assert!([200, 201, 503].contains(&client.answer().status)));
}
