//! The shipped binary with a tenant and a key, and clients that send it arbitrary bytes.

use crate::support::process_stats::ProcessStats;
use crate::support::raw::{Client, request};
use crate::support::{ALL, Api, Reply, Setup, Tenant, TestServer, until};

pub(crate) const RECORDS: &str = "/customers.php";

/// Descriptors of extra connections that may stay open. Each of two tenants has three reading
/// connections beyond the first. Each connection has a database and a write-ahead log open.
const EXTRA_DESCRIPTORS: usize = 2 * 3 * 2;

/// Memory that page caches and the allocator may keep, in KiB.
const CACHED: usize = 16 * 1024;

/// Threads that tiny_http keeps for its next connections.
const SPARE_THREADS: usize = 4;

pub(crate) struct Fixture {
    pub server: TestServer,
    pub tenant: Tenant,
    pub key: String,
}

impl Fixture {
    /// With a rate limit that no test reaches.
    pub(crate) fn new() -> Fixture {
        Fixture::with(Setup::without_rate_limit())
    }

    pub(crate) fn with(setup: Setup) -> Fixture {
        let (server, tenant) = setup.start_with_tenant();
        let key = tenant.key(ALL).key;
        Fixture { server, tenant, key }
    }

    /// A client that checks every response.
    pub(crate) fn api(&self) -> Api {
        self.server.with_key(&self.key)
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.server.address())
    }

    pub(crate) fn get(&self, target: &str) -> String {
        request("GET", target, &self.key, "", "")
    }

    /// Sends one GET on a new connection.
    pub(crate) fn ask(&self, target: &str) -> Reply {
        let mut client = self.connect();
        client.send(self.get(target));
        client.answer()
    }

    #[track_caller]
    pub(crate) fn is_served(&self) {
        assert_eq!(self.ask(RECORDS).status, 200, "{}", self.server.log());
        assert_eq!(self.ask("/healthz").status, 200);
    }

    pub(crate) fn stats(&self) -> ProcessStats {
        ProcessStats::of(self.server.pid())
    }

    /// Its stats when its databases are open and no request is under way.
    pub(crate) fn settled(&self) -> ProcessStats {
        (0..5).for_each(|_| self.is_served());
        self.stats()
    }

    /// Waits until threads, descriptors and memory are about what they were in `before`.
    #[track_caller]
    pub(crate) fn is_back_at(&self, before: ProcessStats) {
        until(&format!("it is back at {before:?}"), || {
            let now = self.stats();
            let is_back = now.threads <= before.threads + SPARE_THREADS
                && now.descriptors <= before.descriptors + EXTRA_DESCRIPTORS
                && now.memory <= before.memory + CACHED;
            is_back.then_some(())
        });
    }
}
