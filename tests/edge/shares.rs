//! The shipped binary with more asked of it than it takes on.

use crate::fixture::{RECORDS, Scene};
use crate::support::raw::{Client, request};
use crate::support::{ALL, database};

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn a_tenant_whose_file_is_locked_holds_up_nobody_else() {
    let scene = Scene::new();
    let stuck = scene.desk.tenant("stuck");
    let key = stuck.key(ALL).key;
    let locked = database(&stuck.file());
    locked.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT").unwrap();
    let gets = request("GET", RECORDS, &key, "", "");
    let post = request("POST", RECORDS, &key, JSON, "{\"name\": \"Late\"}");
    let mut held: Vec<Client> = (0..200).map(|_| scene.connect()).collect();
    held.iter_mut().zip([&gets, &post].iter().cycle()).for_each(|(client, bytes)| client.send(bytes));
    scene.is_served();
    scene.api().customer("Served");
    // A lock is waited for 5 s: whoever had to wait behind them would have seen them answered.
    assert!(held.iter().any(|client| !client.is_answered()), "others waited");
    for _ in 0..20 {
        scene.is_served();
        scene.api().customer("Served");
    }
    drop(locked);
    held.iter_mut().for_each(|client| assert!([200, 201, 503].contains(&client.answer().status)));
}
