//! Clients that write to many tenants and remember what was acknowledged when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{ALL, Api, DataDir, uuid};

/// Tenants with a key each, as a client knows them.
#[derive(Clone, Debug)]
pub struct Known {
    pub id: i64,
    pub name: String,
    pub key: String,
}

/// Makes tenants on a machine that may serve already.
pub fn tenants(data_dir: &Arc<DataDir>, count: usize) -> Vec<Known> {
    (0..count)
        .map(|n| {
            let tenant = data_dir.tenant(&format!("shop-{n}"));
            Known { id: tenant.id, name: tenant.name.clone(), key: tenant.key(ALL).key }
        })
        .collect()
}

/// One acknowledged change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which of the tenants.
    pub tenant: usize,
    pub sent: Instant,
    pub acknowledged: Instant,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    /// A customer with this id and this name, which also stands in its notes.
    Made { id: i64, name: String },
    /// The client's own customer with this id had its notes set to a number, which only rises.
    Counted { id: i64, number: u32 },
}

/// Clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Change>>>,
}

impl Load {
    /// Each client goes from tenant to tenant, in an order of its own: now it makes a customer
    /// there, now it counts in one. It ends when it is told to, or, where the machine `may_die`,
    /// when there is no answer any more.
    pub fn begin(
        data_dir: &Arc<DataDir>,
        tenants: &[Known],
        clients: usize,
        may_die: bool,
    ) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..clients)
            .map(|_| {
                let apis: Vec<Api> =
                    tenants.iter().map(|tenant| data_dir.with_key(&tenant.key)).collect();
                let client = Client {
                    name: uuid(),
                    apis,
                    may_die,
                    places: vec![None; tenants.len()],
                    done: Vec::new(),
                };
                let stop = Arc::clone(&stop);
                thread::spawn(move || client.work(&stop))
            })
            .collect();
        Load { stop, clients }
    }

    /// What was acknowledged in all.
    pub fn end(self) -> Vec<Change> {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

struct Client {
    name: String,
    apis: Vec<Api>,
    may_die: bool,
    /// The client's own customer in each tenant, and how far it has counted.
    places: Vec<Option<(i64, u32)>>,
    done: Vec<Change>,
}

impl Client {
    fn work(mut self, stop: &AtomicBool) -> Vec<Change> {
        let mut rng = u64::from_str_radix(&self.name[..8], 16).unwrap() | 1;
        while !stop.load(Ordering::Relaxed) {
            rng ^= rng << 13;
            rng ^= rng >> 7;
            rng ^= rng << 17;
            let tenant = usize::try_from(rng % self.apis.len() as u64).unwrap();
            if self.change(tenant, rng & 64 == 0).is_none() {
                assert!(self.may_die, "the machine does not answer");
                break;
            }
        }
        self.done
    }

    fn change(&mut self, tenant: usize, counts: bool) -> Option<()> {
        let sent = Instant::now();
        let what = match self.places[tenant] {
            None => {
                let id = self.make(tenant, &self.name.clone())?;
                self.places[tenant] = Some((id, 0));
                What::Counted { id, number: 0 }
            }
            Some((id, number)) if counts => {
                let number = number + 1;
                self.say(
                    tenant,
                    "PUT",
                    &format!("/customers.php?id={id}"),
                    &json!({"notes": number.to_string()}),
                )?;
                self.places[tenant] = Some((id, number));
                What::Counted { id, number }
            }
            Some(_) => {
                let name = format!("entry {}", uuid());
                What::Made { id: self.make(tenant, &name)?, name }
            }
        };
        self.done.push(Change { tenant, sent, acknowledged: Instant::now(), what });
        Some(())
    }

    fn make(&self, tenant: usize, name: &str) -> Option<i64> {
        let notes = if name.starts_with("entry") { name } else { "0" };
        let made =
            self.say(tenant, "POST", "/customers.php", &json!({"name": name, "notes": notes}))?;
        made["id"].as_i64()
    }

    /// `None` where there is no answer. One that is no success is a fault.
    fn say(&self, tenant: usize, method: &str, target: &str, body: &Value) -> Option<Value> {
        let reply = self.apis[tenant].call(method, target).json(body).try_send().ok()?;
        assert!(reply.status < 300, "{} {}", reply.status, reply.text());
        Some(reply.json())
    }
}
