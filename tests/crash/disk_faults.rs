//! The disk refuses a call. The answer is as in the contract, no acknowledged change is lost, and a
//! failed request changes nothing. Other tenants are served, and service resumes by itself.

use crate::client::{Client, observe, of_client};
use crate::history::mismatch;
use crate::recorder::{Call, Fault, Recorder};
use crate::run::serve;
use crate::support::{Reply, TestServer, until};
use crate::{THREADS, in_threads};

/// The errors of Linux that a disk, or the table of open files, gives.
pub(crate) const ERRORS: [(i32, &str); 5] =
    [(28, "ENOSPC"), (122, "EDQUOT"), (5, "EIO"), (30, "EROFS"), (24, "EMFILE")];

/// The calls that fail.
pub(crate) const CALLS: [Call; 6] =
    [Call::Write, Call::Sync, Call::Open, Call::Rename, Call::Truncate, Call::Remove];

/// The faults of one data directory. Then a new one is made: the history of all requests grows.
const FAULTS: usize = 40;

/// The requests of a run.
const REQUESTS: usize = 5;

/// The faults to try, in `THREADS` parts. Without `CRASH_MOMENTS` a sample: each call fails once
/// and for ever, with one error after the other.
fn faults(path: &str, part: usize) -> impl Iterator<Item = (Fault, &'static str)> + '_ {
    let whole = crate::moments().is_some();
    let both = [false, true];
    let kinds = CALLS.into_iter().flat_map(move |call| both.map(|lasting| (call, lasting)));
    kinds.enumerate().skip(part).step_by(THREADS).flat_map(move |(number, (call, lasting))| {
        let errors = ERRORS.into_iter().enumerate();
        let chosen = errors.filter(move |(other, _)| whole || *other == number % ERRORS.len());
        chosen.map(move |(_, (errno, name))| {
            (Fault { call, path: path.to_owned(), errno, first: 1, lasting }, name)
        })
    })
}

/// The calls that fail, one in each run: every one, or some without `CRASH_MOMENTS`.
fn next_call(first: u64) -> u64 {
    if crate::moments().is_some() { first + 1 } else { first * 4 + 1 }
}

/// The clients of a [`Fixture`]: that of the tenant with the fault, and that of another tenant.
const UNLUCKY: usize = 0;
const OTHER: usize = 1;

/// A server with two tenants, one of them with the fault.
struct Fixture<'a> {
    recorder: &'a Recorder,
    server: TestServer,
    clients: [Client<'a>; 2],
    keys: [String; 2],
    tried: usize,
    /// The runs since the server was started anew.
    age: usize,
}

impl<'a> Fixture<'a> {
    fn new(recorder: &'a Recorder) -> Fixture<'a> {
        let keys = ["unlucky", "other"].map(|name| {
            let data_dir = &recorder.data_dir;
            data_dir.tenant(name).key(&["all"]).key
        });
        let server = serve(recorder, &[]);
        let mut clients =
            [Client::new(recorder, "u", &keys[UNLUCKY]), Client::new(recorder, "o", &keys[OTHER])];
        for client in &mut clients {
            client.make_requests(4);
        }
        Fixture { recorder, server, clients, keys, tried: 0, age: 0 }
    }

    /// Runs requests with the fault, and one after it. Returns whether any call failed.
    fn try_fault(&mut self, fault: &Fault, what: &str) -> bool {
        self.tried += 1;
        self.restart_sometimes();
        // A file that is opened with the fault may not be readable: SQLite writes to the index of
        // its log.
        let was_open = self.age > 0;
        if was_open {
            self.compare(what, "before the fault");
        }
        self.recorder.set_fault(fault);
        for _ in 0..REQUESTS {
            self.unlucky_request(fault, what);
            let reply = self.send(OTHER, fault, what);
            assert!(reply.status < 300, "{what}: another tenant is not served: {reply}");
        }
        // A checkpoint that cannot sync ends the process, whatever the clients do.
        if !matches!(fault.call, Call::Open | Call::Sync) && was_open {
            self.compare(what, "with the fault");
        }
        let hits = self.recorder.end_fault();
        let key = self.keys[UNLUCKY].clone();
        if self.tried.is_multiple_of(3) {
            self.crash(what);
        }
        until(&format!("service resumes after {what}"), || {
            (self.unlucky_request(fault, what) < 300).then_some(())
        });
        let ready = self.recorder.data_dir.with_key(&key).get("/readyz");
        assert_eq!(ready.status, 200, "{what}");
        self.compare(what, "after the fault");
        hits > 0
    }

    /// So that files are opened with the fault, too.
    fn restart_sometimes(&mut self) {
        self.age += 1;
        if self.age == 4 {
            self.age = 0;
            self.server.kill();
            self.server.restart();
        }
    }

    /// A request of the unlucky tenant succeeds, or is refused as the contract says (sections 6 and
    /// 11).
    fn unlucky_request(&mut self, fault: &Fault, what: &str) -> u16 {
        let reply = self.send(UNLUCKY, fault, what);
        if reply.status >= 300 {
            assert_refused(&reply, what);
        }
        reply.status
    }

    /// Sends the next request of a client. If the disk refuses to sync, there may be no answer: the
    /// process ends, and the repeat succeeds.
    fn send(&mut self, client: usize, fault: &Fault, what: &str) -> Reply {
        if let Some(reply) = self.clients[client].attempt() {
            return reply;
        }
        assert_eq!(fault.call, Call::Sync, "{what}: no answer");
        self.server.ended_at_failed_sync();
        self.restart_after(fault);
        self.clients[client].repeat()
    }

    /// The supervisor starts the server again. A fault that lasts may end that start, too.
    fn restart_after(&mut self, fault: &Fault) {
        self.age = 0;
        if fault.lasting {
            match self.server.try_restart() {
                None => self.server.kill(),
                ended => self.server.assert_failed_sync(ended),
            }
        }
        self.recorder.end_fault();
        self.server.restart();
    }

    /// The process ends at once.
    fn crash(&mut self, what: &str) {
        self.age = 0;
        self.server.kill();
        self.server.restart();
        self.compare(what, "after a crash");
    }

    fn compare(&self, what: &str, when: &str) {
        for (client, key) in self.clients.iter().zip(&self.keys) {
            let reply = self.recorder.data_dir.with_key(key).get("/customers.php");
            assert_eq!(reply.status, 200, "{what}, {when}: {reply}");
            let found = of_client(&observe(&self.recorder.data_dir.with_key(key)), &client.name);
            if let Some(difference) = mismatch(&found, &client.history.end()) {
                panic!("{what}, {when}: {difference}");
            }
        }
    }
}

#[track_caller]
fn assert_refused(reply: &Reply, what: &str) {
    let answer = (reply.status, reply.code());
    assert_eq!(answer, (503, "tenant_unavailable".to_owned()), "{what}: {reply}");
    assert_eq!(reply.header("Retry-After"), Some("5"), "{what}");
}

/// Tries a part of the faults. Returns how many.
fn try_part(part: usize) -> usize {
    let mut tried = 0;
    let mut faults = faults("tenants/1.db", part);
    let mut next = faults.next();
    while next.is_some() {
        let recorder = Recorder::in_memory();
        let mut fixture = Fixture::new(&recorder);
        while let Some((fault, errno)) = next.as_mut().filter(|_| fixture.tried < FAULTS) {
            let times = if fault.lasting { "from then on" } else { "once" };
            let what = format!("{errno} at {:?} {} {times}", fault.call, fault.first);
            // Some runs make more calls than others.
            if !fixture.try_fault(fault, &what) && fault.first > 8 {
                next = faults.next();
            } else {
                fault.first = next_call(fault.first);
            }
        }
        fixture.server.stop();
        recorder.data_dir.cli(&["check"]).done();
        tried += fixture.tried;
        eprintln!("part {part}: {tried} faults of a tenant's file");
    }
    tried
}

#[test]
fn of_a_tenants_file() {
    let tried: usize = in_threads(try_part).into_iter().sum();
    eprintln!("{tried} faults of a tenant's file");
    assert!(tried > CALLS.len());
}

#[test]
#[ignore = "takes 4 s; `make proof` runs it"]
fn proof_of_checkpoints_leave_the_records_in_the_log() {
    let recorder = Recorder::in_memory();
    let mut fixture = Fixture::new(&recorder);
    let full = Fault {
        call: Call::Write,
        path: "tenants/1.db$".to_owned(),
        errno: 28,
        first: 1,
        lasting: true,
    };
    recorder.set_fault(&full);
    until("a checkpoint finds no room", || {
        assert_eq!(fixture.clients[UNLUCKY].post_large_customer().status, 201);
        (recorder.fault_hits() > 0).then_some(())
    });
    for _ in 0..100 {
        assert_eq!(fixture.clients[UNLUCKY].post_large_customer().status, 201, "the log has room");
    }
    fixture.compare("no room for a checkpoint", "with the fault");
    recorder.end_fault();
    fixture.server.stop();
    recorder.data_dir.cli(&["check"]).done();
}
