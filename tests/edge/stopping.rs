//! SIGTERM while connections are in every state.

use std::net::TcpStream;

use serde_json::json;

use crate::fixture::{Fixture, RECORDS};
use crate::support::raw::{Client, get, request};
use crate::support::{database, until};

#[test]
fn sigterm_ends_what_waits_and_answers_what_is_under_way() {
    let mut fixture = Fixture::new();
    let address = fixture.server.address();
    let begin = |bytes: &str| {
        let mut client = Client::connect(address);
        client.send(bytes);
        client
    };
    let mut idle: Vec<Client> = (0..100).map(|_| begin(&get("/readyz"))).collect();
    idle.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    let silent = Client::connect(address);
    let half = begin("GET /readyz HTTP/1.1\r\nHost: ");
    let body = json!({"name": "Under way"}).to_string();
    let post = request("POST", RECORDS, &fixture.key, "Content-Type: application/json\r\n", &body);
    let locked = database(&fixture.tenant.file());
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut under_way: Vec<Client> = (0..20).map(|_| begin(&post)).collect();
    assert_eq!(fixture.ask(RECORDS).status, 200, "those before it are with the service");

    fixture.server.signal("TERM");
    until("it stops listening", || TcpStream::connect(address).is_err().then_some(()));
    for mut client in idle.into_iter().chain([silent, half]) {
        assert!(client.is_closed());
    }
    assert!(under_way.iter().all(|client| !client.is_answered()), "they wait for the lock");
    locked.execute_batch("COMMIT").unwrap();
    for client in &mut under_way {
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (201, "close"));
        assert!(client.is_closed());
    }
    assert_eq!(fixture.server.ended().code(), Some(0));
    let kept: i64 =
        locked.query_row("SELECT count(*) FROM customers", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 20, "nothing acknowledged is lost");
}
