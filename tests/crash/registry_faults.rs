//! The disk refuses a call on the registry of a server. Requests are answered, or refused with 500
//! or 503. Keys that were reported made or revoked are so afterwards.

use crate::client::Client;
use crate::disk_faults::{CALLS, ERRORS};
use crate::recorder::{Call, Fault, Recorder};
use crate::run::serve;
use crate::support::server::Output;
use crate::support::{Reply, TestServer, until};

/// A server with one tenant and its client.
struct Fixture<'a> {
    recorder: &'a Recorder,
    server: TestServer,
    client: Client<'a>,
    /// The keys that were reported revoked.
    revoked: Vec<String>,
}

impl<'a> Fixture<'a> {
    fn new(recorder: &'a Recorder) -> Fixture<'a> {
        let key = recorder.data_dir.tenant("acme").key(&["all"]).key;
        let server = serve(recorder, &[]);
        let mut client = Client::new(recorder, "c", &key);
        client.make_requests(4);
        Fixture { recorder, server, client, revoked: Vec::new() }
    }

    /// Makes requests and commands with the fault.
    fn try_fault(&mut self, fault: &Fault, what: &str) {
        self.recorder.set_fault(fault);
        for _ in 0..2 {
            let reply = self.send(fault, what);
            assert!(matches!(reply.status, 200..300 | 500 | 503), "{what}: {reply}");
        }
        let made = self
            .command(&["--json", "key", "create", "acme", "--name", "k", "--scope", "all"], what);
        if made.code == Some(0) {
            let made = made.json();
            self.revoke(made["key"].as_str().unwrap(), &made["id"].to_string(), fault, what);
        }
        self.recorder.end_fault();
        until(&format!("service resumes after {what}"), || {
            (self.send(fault, what).status < 300).then_some(())
        });
        self.assert_revoked(what);
    }

    /// Sends the next request. The server writes the last uses of keys into the registry. If the
    /// disk refuses to sync them, the process ends, and the repeat succeeds.
    fn send(&mut self, fault: &Fault, what: &str) -> Reply {
        if let Some(reply) = self.client.attempt() {
            return reply;
        }
        assert_eq!(fault.call, Call::Sync, "{what}: no answer");
        self.server.ended_at_failed_sync();
        self.recorder.end_fault();
        self.server.restart();
        self.client.repeat()
    }

    fn revoke(&mut self, key: &str, id: &str, fault: &Fault, what: &str) {
        let answer = self.command(&["key", "revoke", "acme", id], what);
        self.recorder.end_fault();
        match answer.code {
            Some(0) => self.revoked.push(key.to_owned()),
            _ if fault.call == Call::Sync => (),
            _ => drop(self.recorder.data_dir.with_key(key).get("/whoami.php").is(200)),
        }
    }

    fn command(&self, arguments: &[&str], what: &str) -> Output {
        let output = self.recorder.cli(arguments);
        assert!(
            matches!(output.code, Some(0 | 1)) && !output.stderr.contains("panicked"),
            "{what}: {output:?}"
        );
        output
    }

    fn assert_revoked(&self, what: &str) {
        for key in &self.revoked {
            let reply = self.recorder.data_dir.with_key(key).get("/whoami.php");
            assert_eq!(reply.code(), "revoked_api_key", "{what}: {reply}");
        }
    }
}

#[test]
fn of_the_registry_of_a_server() {
    let recorder = Recorder::in_memory();
    let mut fixture = Fixture::new(&recorder);
    let mut tried = 0;
    for (kind, call) in CALLS.into_iter().enumerate() {
        for first in 1..=if crate::moments().is_some() { 40 } else { 2 } {
            let (errno, name) = ERRORS[(kind + first) % ERRORS.len()];
            let lasting = first % 2 == 0;
            let fault =
                Fault { call, path: "registry.db".to_owned(), errno, first: first as u64, lasting };
            fixture.try_fault(
                &fault,
                &format!("{name} at {call:?} {first} of the registry, lasting: {lasting}"),
            );
            tried += 1;
            if first % 4 == 0 {
                fixture.server.kill();
                fixture.server.restart();
                fixture.assert_revoked("after a crash");
            }
        }
    }
    eprintln!("{tried} faults of the registry");
    fixture.server.stop();
    assert!(!fixture.revoked.is_empty());
    recorder.data_dir.cli(&["check"]).done();
}
