//! Clients that repeat a request with its idempotency key until it succeeds.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::load::Known;
use crate::support::{Api, DataDir, Reply, until, uuid};

/// A request with its idempotency key.
#[derive(Clone, Debug)]
pub struct Request {
    pub tenant: usize,
    pub name: String,
    pub key: String,
}

impl Request {
    pub fn new(tenant: usize) -> Request {
        Request { tenant, name: format!("entry {}", uuid()), key: uuid() }
    }

    /// The id of the record that it made, or the refusal. `None` if it is not answered.
    pub fn try_send(&self, api: &Api) -> Option<Result<i64, Reply>> {
        let body = json!({"name": self.name});
        let reply = api.call("POST", "/customers.php").json(&body).key(&self.key).try_send().ok()?;
        match reply.status {
            201 => Some(Ok(reply.json()["id"].as_i64().unwrap())),
            503 => {
                assert_eq!(reply.code(), "tenant_unavailable");
                Some(Err(reply))
            }
            _ => panic!("{reply}"),
        }
    }

    /// The id of the record that it made. `None` if it is refused, or not answered.
    fn send_by(&self, api: &Api) -> Option<i64> {
        self.try_send(api)?.ok()
    }

    pub fn send(&self, data_dir: &Arc<DataDir>, known: &[Known]) -> Option<i64> {
        self.send_by(&data_dir.with_key(&known[self.tenant].key))
    }
}

/// Clients at work.
pub struct Clients {
    phase: Arc<AtomicU8>,
    /// When each client's last request succeeded.
    last: Vec<LastSuccess>,
    threads: Vec<JoinHandle<Done>>,
}

/// What clients have done.
#[derive(Default)]
pub struct Done {
    /// Requests with the ids of their records.
    pub acknowledged: Vec<(Request, i64)>,
    pub unanswered: Vec<Request>,
    /// Attempts that were refused or not answered.
    pub refused: usize,
}

type LastSuccess = Arc<Mutex<Option<Instant>>>;

const RUNNING: u8 = 0;
const ENDED: u8 = 1;

impl Clients {
    pub fn start(data_dir: &Arc<DataDir>, known: &[Known], count: usize) -> Clients {
        let phase = Arc::new(AtomicU8::new(RUNNING));
        let last: Vec<LastSuccess> = (0..count).map(|_| Arc::default()).collect();
        let threads = last
            .iter()
            .enumerate()
            .map(|(n, last)| {
                let (data_dir, known, phase, last) =
                    (Arc::clone(data_dir), known.to_vec(), Arc::clone(&phase), Arc::clone(last));
                thread::spawn(move || work(n, &data_dir, &known, &phase, &last))
            })
            .collect();
        Clients { phase, last, threads }
    }

    /// Waits until each client has had a success since `over`. Returns how long the last of them took.
    #[track_caller]
    pub fn await_all_acknowledged_after(&self, over: Instant) -> Duration {
        until("each client goes on", || {
            let last: Option<Vec<Instant>> =
                self.last.iter().map(|last| last.lock().unwrap().filter(|last| *last > over)).collect();
            last.map(|_| over.elapsed())
        })
    }

    pub fn end(self) -> Done {
        self.phase.store(ENDED, Ordering::Relaxed);
        let mut all = Done::default();
        for thread in self.threads {
            let done = thread.join().unwrap();
            all.acknowledged.extend(done.acknowledged);
            all.unanswered.extend(done.unanswered);
            all.refused += done.refused;
        }
        all
    }
}

fn work(client: usize, data_dir: &Arc<DataDir>, known: &[Known], phase: &AtomicU8, last: &LastSuccess) -> Done {
    let mut done = Done::default();
    // A server that is started again has another address.
    let apis = || -> Vec<Api> { known.iter().map(|tenant| data_dir.with_key(&tenant.key)).collect() };
    let mut own = apis();
    let mut tenant = client;
    let mut next = Request::new(tenant % known.len());
    while phase.load(Ordering::Relaxed) == RUNNING {
        match next.send_by(&own[next.tenant]) {
            Some(id) => {
                *last.lock().unwrap() = Some(Instant::now());
                tenant += 1;
                let made = std::mem::replace(&mut next, Request::new(tenant % known.len()));
                done.acknowledged.push((made, id));
            }
            None => {
                done.refused += 1;
                thread::sleep(Duration::from_millis(20));
                own = apis();
            }
        }
    }
    done.unanswered.push(next);
    done
}
