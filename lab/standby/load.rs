//! Clients that create customers of many tenants and remember what was acknowledged when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde_json::json;

use crate::support::{ALL, Api, DataDir, uuid};

/// Tenants with a key each, as a client knows them.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) key: String,
}

/// Makes tenants on a machine that may serve already.
pub(crate) fn tenants(data_dir: &Arc<DataDir>, count: usize) -> Vec<Known> {
    let mut known = Vec::new();
    for n in 0..count {
        let tenant = data_dir.tenant(&format!("shop-{n}"));
        known.push(Known { id: tenant.id, name: tenant.name.clone(), key: tenant.key(ALL).key });
    }
    known
}

/// An acknowledged customer. Its name stands in its notes, too.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Which of the tenants.
    pub(crate) tenant: usize,
    pub(crate) name: String,
    pub(crate) sent: Instant,
    pub(crate) acknowledged: Instant,
}

/// Clients at work.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Change>>>,
}

impl Load {
    /// Each client goes from tenant to tenant until it is told to end. If the machine `may_die`,
    /// the client also ends when there is no answer.
    pub(crate) fn begin(
        data_dir: &Arc<DataDir>,
        tenants: &[Known],
        clients: usize,
        may_die: bool,
    ) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for client in 0..clients {
            let apis: Vec<Api> =
                tenants.iter().map(|tenant| data_dir.with_key(&tenant.key)).collect();
            let stop = Arc::clone(&stop);
            threads.push(thread::spawn(move || work(&apis, client, may_die, &stop)));
        }
        Load { stop, clients: threads }
    }

    /// What was acknowledged in all.
    pub(crate) fn end(self) -> Vec<Change> {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

fn work(apis: &[Api], client: usize, may_die: bool, stop: &AtomicBool) -> Vec<Change> {
    let mut changes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let tenant = (client + changes.len()) % apis.len();
        let name = format!("entry {}", uuid());
        let body = json!({"name": name, "notes": name});
        let sent = Instant::now();
        let Ok(reply) = apis[tenant].call("POST", "/customers.php").json(&body).try_send() else {
            assert!(may_die, "the machine does not answer");
            break;
        };
        // While an import holds the file for more than 5 s, other writers get 503.
        if reply.status == 503 {
            continue;
        }
        assert_eq!(reply.status, 201, "{}", reply.text());
        changes.push(Change { tenant, name, sent, acknowledged: Instant::now() });
    }
    changes
}
