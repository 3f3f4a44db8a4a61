//! A stand-in for Litestream's control socket that fails as a test wants.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use super::DEADLINE;

/// How a request for a confirmation is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The copy has everything.
    Confirm,
    /// With an error.
    Error(u16, &'static str),
    /// With bytes that are no response.
    Garbage,
    /// With a number of a transaction that is not in the copy.
    Lacking,
    /// Not, until another answer is set.
    Hold,
}

/// What Litestream says of a database that it does not know.
pub const UNKNOWN: Answer = Answer::Error(404, "database not found");

/// A socket that is answered by a thread of its own. Nobody listens on it after [`CopySocket::stop`].
#[derive(Debug)]
pub struct CopySocket {
    folder: tempfile::TempDir,
    shared: Arc<Shared>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The answers to the next requests, one each.
    next: VecDeque<Answer>,
    /// The answer to all further ones.
    answer: Answer,
    version: &'static str,
    /// The databases that `GET /list` shows.
    known: Vec<PathBuf>,
    /// The databases that a confirmation was asked for, and those that were opened anew.
    asked: Vec<PathBuf>,
    /// Those whose log was to be read.
    read: Vec<PathBuf>,
    reopened: Vec<PathBuf>,
    is_stopped: bool,
}

impl CopySocket {
    /// A socket that confirms everything.
    pub fn start() -> CopySocket {
        let state = State {
            next: VecDeque::new(),
            answer: Answer::Confirm,
            version: "0.5.17",
            known: Vec::new(),
            asked: Vec::new(),
            read: Vec::new(),
            reopened: Vec::new(),
            is_stopped: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let socket = CopySocket { folder: tempfile::tempdir().unwrap(), shared, listening: Mutex::new(None) };
        socket.listen();
        socket
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The path as an argument.
    pub fn argument(&self) -> String {
        self.path().to_str().unwrap().to_owned()
    }

    fn listen(&self) {
        let listener = UnixListener::bind(self.path()).unwrap();
        let shared = Arc::clone(&self.shared);
        shared.state.lock().unwrap().is_stopped = false;
        let listening = thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.state.lock().unwrap().is_stopped {
                    return;
                }
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.respond(stream.unwrap()));
            }
        });
        *self.listening.lock().unwrap() = Some(listening);
    }

    /// As if Litestream had ended.
    pub fn stop(&self) {
        self.shared.state.lock().unwrap().is_stopped = true;
        self.shared.changed.notify_all();
        // Wakes the thread, which then drops the listener.
        let _ = UnixStream::connect(self.path());
        std::fs::remove_file(self.path()).unwrap();
        self.listening.lock().unwrap().take().unwrap().join().unwrap();
    }

    /// As if Litestream were started again.
    pub fn restart(&self) {
        self.listen();
    }

    /// Answers all further requests, and those that are held.
    pub fn answer(&self, answer: Answer) {
        self.shared.state.lock().unwrap().answer = answer;
        self.shared.changed.notify_all();
    }

    /// Answers the next requests, one each.
    pub fn answer_next(&self, answers: impl IntoIterator<Item = Answer>) {
        self.shared.state.lock().unwrap().next.extend(answers);
    }

    /// Has it say that it is of another version.
    pub fn set_version(&self, version: &'static str) {
        self.shared.state.lock().unwrap().version = version;
    }

    /// Has it list these databases.
    pub fn set_known(&self, known: impl IntoIterator<Item = PathBuf>) {
        self.shared.state.lock().unwrap().known = known.into_iter().collect();
    }

    /// How often it was asked to confirm the database.
    pub fn asked(&self, database: &Path) -> usize {
        self.shared.state.lock().unwrap().asked.iter().filter(|asked| *asked == database).count()
    }

    /// How often it was told to read the log of the database.
    pub fn read(&self, database: &Path) -> usize {
        self.shared.state.lock().unwrap().read.iter().filter(|read| *read == database).count()
    }

    /// The databases that it was told to open anew.
    pub fn reopened(&self) -> Vec<PathBuf> {
        self.shared.state.lock().unwrap().reopened.clone()
    }
}

impl Drop for CopySocket {
    fn drop(&mut self) {
        if !self.shared.state.lock().unwrap().is_stopped {
            self.stop();
        }
    }
}

impl Shared {
    /// Reads one request and answers it. The client may have left.
    fn respond(&self, mut stream: UnixStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut target, mut length) = (String::new(), 0);
        if reader.read_line(&mut target).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let request: Value = serde_json::from_slice(&body).unwrap();
        if let Some(response) = self.response(target.rsplit_once(' ').unwrap().0, &request) {
            let _ = stream.write_all(&response);
        }
    }

    fn response(&self, target: &str, request: &Value) -> Option<Vec<u8>> {
        let path = || PathBuf::from(request["path"].as_str().unwrap());
        let mut state = self.state.lock().unwrap();
        let document = match target {
            "POST /sync" => {
                let asked = if request["wait"] == true { &mut state.asked } else { &mut state.read };
                asked.push(path());
                let answer = state.next.pop_front().unwrap_or_else(|| state.answer.clone());
                drop(state);
                return self.confirmation(answer);
            }
            "POST /stop" => json!({"status": "stopped", "path": path(), "txid": 1}),
            "POST /start" => {
                state.reopened.push(path());
                json!({"status": "started", "path": path(), "txid": 1})
            }
            "GET /info" => json!({"version": state.version, "pid": 1, "database_count": state.known.len()}),
            "GET /list" => {
                let now = tenantdesk::clock::Clock::system().now().wall.to_string();
                let database = |path: &PathBuf| json!({"path": path, "status": "replicating", "last_sync_at": now});
                json!({"databases": state.known.iter().map(database).collect::<Vec<_>>()})
            }
            other => panic!("Litestream has no {other}"),
        };
        Some(message(200, &document))
    }

    /// `None` if the socket was stopped while the request was held.
    fn confirmation(&self, mut answer: Answer) -> Option<Vec<u8>> {
        if answer == Answer::Hold {
            let held = |state: &mut State| state.answer == Answer::Hold && !state.is_stopped;
            let state = self.state.lock().unwrap();
            let (state, timeout) = self.changed.wait_timeout_while(state, DEADLINE * 2, held).unwrap();
            if timeout.timed_out() || state.is_stopped {
                return None;
            }
            answer = state.answer.clone();
        }
        let numbers = |txid: u64, replicated: u64| {
            message(200, &json!({"status": "synced", "path": "", "txid": txid, "replicated_txid": replicated}))
        };
        match answer {
            Answer::Confirm => Some(numbers(7, 7)),
            Answer::Lacking => Some(numbers(7, 6)),
            Answer::Error(status, text) => Some(message(status, &json!({"error": text}))),
            Answer::Garbage => Some(b"SSH-2.0-OpenSSH\r\n".to_vec()),
            Answer::Hold => None,
        }
    }
}

fn message(status: u16, document: &Value) -> Vec<u8> {
    format!("HTTP/1.0 {status} Something\r\nContent-Type: application/json\r\n\r\n{document}\n").into_bytes()
}
