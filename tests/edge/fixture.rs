//! The shipped binary with a tenant and a key, and clients that send it any bytes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::process_stats::ProcessStats;
use crate::support::raw::{Answer, Client, request};
use crate::support::{ALL, Api, DEADLINE, Setup, Tenant, TestServer};

pub const RECORDS: &str = "/customers.php";

/// Descriptors of a tenant's reading connections beyond the first: seven, with two each.
const POOLED: usize = 14;

/// Pages of two databases, in KiB: each connection may keep 2 MiB.
const CACHED: usize = 16 * 1024;

/// Threads that tiny_http keeps for its next connection, once it had so many.
const SPARE_THREADS: usize = 4;

pub struct Fixture {
    pub server: TestServer,
    pub tenant: Tenant,
    pub key: String,
}

impl Fixture {
    /// With a rate limit that is out of the way.
    pub fn new() -> Fixture {
        Fixture::with(Setup::without_rate_limit())
    }

    pub fn with(setup: Setup) -> Fixture {
        let server = setup.start();
        let tenant = server.tenant("acme");
        let key = tenant.key(ALL).key;
        Fixture { server, tenant, key }
    }

    /// A client that checks what it gets.
    pub fn api(&self) -> Api {
        self.server.with_key(&self.key)
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.server.address())
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
        assert_eq!(self.ask(RECORDS).status, 200, "{}", self.server.log());
        assert_eq!(self.ask("/healthz").status, 200);
    }

    pub fn stats(&self) -> ProcessStats {
        ProcessStats::of(self.server.pid())
    }

    /// What it takes when its databases are open and nothing is asked of it.
    pub fn settled(&self) -> ProcessStats {
        (0..5).for_each(|_| self.is_served());
        self.stats()
    }

    /// Waits until threads, descriptors and memory are what they were; connections to the databases and a few threads stay
    /// for the next.
    #[track_caller]
    pub fn is_back_at(&self, before: ProcessStats) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let now = self.stats();
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
