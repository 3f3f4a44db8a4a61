//! The shipped binary with a tenant and a key, and clients that send it any bytes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::process_stats::Vitals;
use crate::support::raw::{Answer, Client, request};
use crate::support::{ALL, Api, Desk, PATIENCE, Setup, Tenant};

pub const RECORDS: &str = "/customers.php";

/// Descriptors of a tenant's reading connections beyond the first: seven, with two each.
const POOLED: usize = 14;

/// Pages of two databases, in KiB: each connection may keep 2 MiB.
const CACHED: usize = 16 * 1024;

/// Threads that tiny_http keeps for its next connection, once it had so many.
const SPARE_THREADS: usize = 4;

pub struct Scene {
    pub desk: Desk,
    pub tenant: Tenant,
    pub key: String,
}

impl Scene {
    /// With a rate limit that is out of the way.
    pub fn new() -> Scene {
        Scene::with(Setup::roomy())
    }

    pub fn with(setup: Setup) -> Scene {
        let desk = setup.start();
        let tenant = desk.tenant("acme");
        let key = tenant.key(ALL).key;
        Scene { desk, tenant, key }
    }

    /// A client that checks what it gets.
    pub fn api(&self) -> Api {
        self.desk.with_key(&self.key)
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.desk.address())
    }

    pub fn get(&self, target: &str) -> String {
        request("GET", target, &self.key, "", "")
    }

    /// One GET on a connection of its own.
    pub fn ask(&self, target: &str) -> Answer {
        let mut client = self.connect();
        client.send(self.get(target));
        client.answer()
    }

    #[track_caller]
    pub fn is_served(&self) {
        assert_eq!(self.ask(RECORDS).status, 200, "{}", self.desk.log());
        assert_eq!(self.ask("/healthz").status, 200);
    }

    pub fn vitals(&self) -> Vitals {
        Vitals::of(self.desk.pid())
    }

    /// What it takes when its databases are open and nothing is asked of it.
    pub fn settled(&self) -> Vitals {
        (0..5).for_each(|_| self.is_served());
        self.vitals()
    }

    /// Waits until threads, descriptors and memory are what they were; connections to the databases and a few threads stay
    /// for the next.
    #[track_caller]
    pub fn is_back_at(&self, before: Vitals) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = self.vitals();
            if now.threads <= before.threads + SPARE_THREADS
                && now.descriptors <= before.descriptors + POOLED
                && now.memory <= before.memory + CACHED
            {
                return;
            }
            assert!(Instant::now() < deadline, "{now:?}, but before {before:?}");
            sleep(Duration::from_millis(50));
        }
    }
}
