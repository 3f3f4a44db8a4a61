//! `examples/webhook`: each change arrives at least once and in order, signed, whatever fails on
//! the way.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tenantdesk::clock::Clock;

use crate::support::{ALL, Api, Setup, TestServer, example, signal, until};

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const OLD_SECRET: &[u8] = b"old secret, old secret, old secret";

/// HMAC-SHA256 (RFC 2104) with a key of at most 64 bytes.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad = |byte: u8| (0..64).map(|at| key.get(at).unwrap_or(&0) ^ byte).collect::<Vec<u8>>();
    let inner = Sha256::new_with_prefix(pad(0x36)).chain_update(message).finalize();
    Sha256::new_with_prefix(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

/// The receiver's reaction to a request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Status(&'static str),
    /// The connection is closed before the message is stored.
    Closed,
    /// The message is stored; the answer gets lost.
    Lost,
    /// No answer until the client gives up.
    Silent,
}

/// A message that the receiver has stored.
#[derive(Clone, Debug)]
struct Message {
    id: String,
    body: Value,
    at: Instant,
}

/// A receiver of webhooks.
struct Receiver {
    address: SocketAddr,
    stored: Arc<Mutex<Vec<Message>>>,
}

impl Receiver {
    /// Answers its n-th request with the n-th of `answers`, beginning again after the last.
    fn start(answers: &'static [Answer]) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stored = Arc::<Mutex<Vec<Message>>>::default();
        let messages = Arc::clone(&stored);
        // Ends with the test's process.
        thread::spawn(move || {
            for answer in answers.iter().cycle() {
                let (connection, _) = listener.accept().unwrap();
                serve(connection, *answer, &messages);
            }
        });
        Receiver { address, stored }
    }

    /// The stored messages. Repeats of one may follow it directly, and are left out.
    #[track_caller]
    fn messages(&self) -> Vec<Message> {
        let mut messages = self.stored.lock().unwrap().clone();
        messages.dedup_by(|later, earlier| {
            let same = later.id == earlier.id;
            assert!(
                !same || later.body["data"]["seq"] == earlier.body["data"]["seq"],
                "an id stands for one message"
            );
            same
        });
        messages
    }

    /// Waits for so many messages.
    #[track_caller]
    fn await_messages(&self, count: usize) -> Vec<Message> {
        until(&format!("{count} messages have come"), || {
            let messages = self.messages();
            (messages.len() >= count).then_some(messages)
        })
    }
}

/// Reads one request, checks it, and answers. A request that a killed client did not complete is
/// dropped.
fn serve(connection: TcpStream, answer: Answer, messages: &Mutex<Vec<Message>>) {
    let mut reader = BufReader::new(&connection);
    let Some(message) = read_message(&mut reader) else { return };
    if matches!(answer, Answer::Lost | Answer::Status("204 No Content")) {
        messages.lock().unwrap().push(message);
    }
    match answer {
        Answer::Status(status) => {
            drop(write!(&connection, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))
        }
        Answer::Silent => drop(reader.read_to_end(&mut Vec::new())),
        Answer::Closed | Answer::Lost => {}
    }
}

/// The message of a request whose signatures are good.
fn read_message(reader: &mut impl BufRead) -> Option<Message> {
    let lines: Vec<String> =
        reader.lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    assert!(lines.first()?.starts_with("POST /hook "), "{lines:?}");
    let header = |name: &str| {
        let found = lines
            .iter()
            .filter_map(|line| line.split_once(": "))
            .find(|line| line.0.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_owned())
    };
    let mut body = vec![0; header("content-length")?.parse().unwrap()];
    reader.read_exact(&mut body).ok()?;
    let (id, sent) = (header("webhook-id")?, header("webhook-timestamp")?);
    assert!(!id.contains('.') && header("content-type")? == "application/json", "{lines:?}");
    let now = Clock::system().now().unix_seconds();
    assert!(now.abs_diff(sent.parse().unwrap()) < 60, "the time of this try");
    let signed = [format!("{id}.{sent}.").as_bytes(), &body].concat();
    let good = [SECRET, OLD_SECRET]
        .map(|secret| format!("v1,{}", Base64::encode_string(&hmac(secret, &signed))));
    assert_eq!(header("webhook-signature")?, good.join(" "));
    Some(Message { id, body: serde_json::from_slice(&body).unwrap(), at: Instant::now() })
}

/// A running follower.
struct Follower {
    child: Child,
    state: PathBuf,
    log: Arc<Mutex<String>>,
}

impl Follower {
    /// Starts it, or starts it again with the state it left. It gives up a request after `timeout`
    /// seconds.
    #[track_caller]
    fn start(server: &TestServer, key: &str, receiver: &Receiver, timeout: &str) -> Follower {
        let state = server.home().join("webhook.json");
        let secrets =
            [SECRET, OLD_SECRET].map(|secret| format!("whsec_{}", Base64::encode_string(secret)));
        let mut child = Command::new("python3")
            .args(["-B", "webhook.py"])
            .current_dir(example("webhook"))
            .env("TENANTDESK_URL", format!("http://{}", server.address()))
            .env("TENANTDESK_KEY", key)
            .env("WEBHOOK_URL", format!("http://{}/hook", receiver.address))
            .env("WEBHOOK_SECRET", secrets.join(" "))
            .env("WEBHOOK_STATE", &state)
            .envs([("WEBHOOK_INTERVAL", "0.05"), ("WEBHOOK_TIMEOUT", timeout)])
            .envs([("WEBHOOK_FIRST_WAIT", "0.01"), ("WEBHOOK_LONGEST_WAIT", "0.1")])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<String>>::default();
        let (all, lines) = (Arc::clone(&log), BufReader::new(child.stderr.take().unwrap()).lines());
        thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| *all.lock().unwrap() += &(line + "\n"))
        });
        Follower { child, state, log }
    }

    /// Waits until it has written down where it begins.
    #[track_caller]
    fn await_state(&self) {
        until("the follower has its first cursor", || self.state.exists().then_some(()));
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Ends it as its supervisor would.
    #[track_caller]
    fn stop(mut self) -> String {
        signal(self.child.id(), "TERM");
        let ended = until("the follower ends", || self.child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "{}", self.log());
        assert!(!self.log().contains("Traceback"), "{}", self.log());
        self.log()
    }

    /// Kills it with signal 9.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server, and a client with its key.
fn fixture(setup: Setup) -> (TestServer, Api, String) {
    let (server, tenant) = setup.start_with_tenant();
    let key = tenant.key(ALL).key;
    let api = server.with_key(&key);
    (server, api, key)
}

/// Makes 4 changes.
fn change(api: &Api, name: &str) {
    let id = api.customer(name);
    api.put(&format!("/customers.php?id={id}"), json!({"city": "Köln", "notes": "\u{2028}\"🦀"}))
        .is(200);
    api.create("/hardware.php", json!({"name": "Laptop"}));
    api.delete(&format!("/customers.php?id={id}")).is(204);
}

/// The part of an entry that never changes.
fn fixed(entry: &Value) -> Value {
    let mut entry = entry.clone();
    entry.as_object_mut().unwrap().remove("record").unwrap();
    entry
}

#[test]
fn each_change_arrives_in_order_though_half_the_requests_fail_and_the_follower_is_killed() {
    use Answer::{Closed, Lost, Silent, Status};
    const OK: Answer = Status("204 No Content");
    const ANSWERS: &[Answer] = &[
        OK,
        Status("500 Oops"),
        OK,
        Closed,
        OK,
        Lost,
        OK,
        Silent,
        Status("302 Found\r\nLocation: /hook"),
        OK,
    ];
    let (server, api, key) = fixture(Setup::without_rate_limit());
    change(&api, "Before the follower");
    let receiver = Receiver::start(ANSWERS);
    let mut follower = Follower::start(&server, &key, &receiver, "0.5");
    follower.await_state();
    for round in 0..7 {
        change(&api, &format!("Round {round}"));
        receiver.await_messages(round * 4 + 1 + round % 4);
        follower.kill();
        change_behind_its_back(&api, round);
        follower = Follower::start(&server, &key, &receiver, "0.5");
    }
    let expected = api.get("/changes.php?limit=200").found();
    let expected = &expected["data"].as_array().unwrap()[4..];
    let messages = receiver.await_messages(expected.len());
    let log = follower.stop();
    assert_eq!(messages.len(), expected.len(), "{log}");
    for (message, entry) in messages.iter().zip(expected) {
        let kind = format!(
            "{}.{}",
            entry["resource"].as_str().unwrap(),
            entry["action"].as_str().unwrap()
        );
        assert_eq!(
            (&message.body["type"], &message.body["timestamp"]),
            (&json!(kind), &entry["at"])
        );
        assert_eq!(fixed(&message.body["data"]), fixed(entry));
    }
}

/// A change while no follower runs.
fn change_behind_its_back(api: &Api, round: usize) {
    if round.is_multiple_of(3) {
        api.customer("Meanwhile");
    }
}

#[test]
fn a_follower_whose_cursor_is_gone_says_so_once_and_goes_on() {
    const ANSWERS: &[Answer] =
        &[Answer::Lost, Answer::Status("503 Later"), Answer::Status("204 No Content")];
    let (server, api, key) = fixture(Setup::without_rate_limit());
    let receiver = Receiver::start(ANSWERS);
    let follower = Follower::start(&server, &key, &receiver, "30");
    follower.await_state();
    api.customer("Seen");
    receiver.await_messages(1);
    follower.stop();
    server.cli(&["backup", "backups"]).done();
    api.customer("Lost by the restore");
    server.cli(&["restore", "backups", "acme", "--force"]).done();
    until("the tenant is served again", || (api.get("/changes.php").status == 200).then_some(()));
    let follower = Follower::start(&server, &key, &receiver, "30");
    receiver.await_messages(2);
    // The answer was lost: a follower that starts here repeats the message under its id.
    follower.kill();
    let follower = Follower::start(&server, &key, &receiver, "30");
    until("the message is taken", || {
        let state: Value =
            serde_json::from_slice(&std::fs::read(&follower.state).unwrap()).unwrap();
        state["gone"].is_null().then_some(())
    });
    api.customer("New");
    let messages = receiver.await_messages(3);
    follower.stop();
    let kinds: Vec<&Value> = messages.iter().map(|message| &message.body["type"]).collect();
    assert_eq!(kinds, ["customers.created", "changes.gone", "customers.created"]);
    assert!(messages[1].body["data"]["message"].as_str().unwrap().contains("Read the lists again"));
    assert_eq!(messages[2].body["data"]["record"]["name"], "New");
}

#[test]
fn a_receiver_that_asks_for_time_gets_it() {
    const ANSWERS: &[Answer] = &[
        Answer::Lost,
        Answer::Status("429 Slower\r\nRetry-After: 1"),
        Answer::Status("204 No Content"),
    ];
    let (server, api, key) = fixture(Setup::without_rate_limit());
    let receiver = Receiver::start(ANSWERS);
    let follower = Follower::start(&server, &key, &receiver, "30");
    follower.await_state();
    api.customer("Eins");
    let stored = until("the message has come twice", || {
        let stored = receiver.stored.lock().unwrap().clone();
        (stored.len() == 2).then_some(stored)
    });
    // The waits of this follower are 0.1 s at most.
    assert!(stored[1].at - stored[0].at >= Duration::from_secs(1), "{}", follower.log());
    follower.stop();
}
