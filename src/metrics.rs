//! What the service counts, as Prometheus reads it.
//!
//! The app owns the counters and passes them down; each is raised where the thing happens. Labels are taken from lists that
//! the program knows: a route's path, a method, a status. Never a tenant's name, a key or what a client made up.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::http::Method;

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The label of every path that is nobody's.
pub const OTHER: &str = "other";

/// Upper ends of the latency histogram, in seconds.
const BUCKETS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Rises only.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many are inside; see [`Gauge::enter`].
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

/// One of them, until dropped.
#[derive(Debug)]
pub struct Entered<'a>(&'a Gauge);

impl Gauge {
    pub fn enter(&self) -> Entered<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Entered(self)
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All counters of one service.
#[derive(Debug)]
pub struct Metrics {
    /// The label of a path: one of a fixed number.
    route_of: fn(&str) -> &'static str,
    /// By route and method.
    requests: Mutex<BTreeMap<(&'static str, &'static str), Answered>>,
    /// Requests refused by the rate limit.
    pub rate_limited: Counter,
    /// StoredResponse answers that were given again.
    pub replays: Counter,
    /// Reads that found no free connection to their tenant's file and waited.
    pub pool_waits: Counter,
    /// Statements that found a database locked by another connection and waited.
    pub lock_waits: Counter,
    /// Workers with a request in hand.
    pub busy_workers: Gauge,
}

/// What was answered on one route with one method.
#[derive(Debug, Default)]
struct Answered {
    by_status: BTreeMap<u16, u64>,
    /// Requests that took up to [`BUCKETS`]`[n]` and longer than the bucket before; the last holds the slow rest.
    by_time: [u64; BUCKETS.len() + 1],
    seconds: f64,
}

impl Metrics {
    /// `route_of` gives the label of any path, [`OTHER`] where it knows none.
    pub fn new(route_of: fn(&str) -> &'static str) -> Metrics {
        Metrics {
            route_of,
            requests: Mutex::default(),
            rate_limited: Counter::default(),
            replays: Counter::default(),
            pool_waits: Counter::default(),
            lock_waits: Counter::default(),
            busy_workers: Gauge::default(),
        }
    }

    /// Counts one request that was answered.
    pub fn answered(&self, method: &str, path: &str, status: u16, duration: Duration) {
        let series = ((self.route_of)(path), Method::parse(method).as_str());
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS.iter().position(|end| seconds <= *end).unwrap_or(BUCKETS.len());
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = requests.entry(series).or_default();
        *answered.by_status.entry(status).or_default() += 1;
        answered.seconds += seconds;
        if let Some(count) = answered.by_time.get_mut(bucket) {
            *count += 1;
        }
    }

    /// Everything in Prometheus' text format. `open_tenants` is the store's to say.
    pub fn render(&self, open_tenants: usize) -> String {
        let mut page = Page::default();
        page.head("tenantdesk_build_info", "gauge", "The running version.");
        page.sample("tenantdesk_build_info", concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1);
        self.render_requests(&mut page);
        let counters = [
            ("tenantdesk_rate_limited_total", "Requests refused by the rate limit.", &self.rate_limited),
            ("tenantdesk_replays_total", "Answers given again for a known idempotency key.", &self.replays),
            ("tenantdesk_pool_waits_total", "Reads that waited for a connection to their file.", &self.pool_waits),
            ("tenantdesk_sqlite_busy_total", "Statements that found a database locked and waited.", &self.lock_waits),
        ];
        for (name, help, counter) in counters {
            page.metric(name, "counter", help, counter.value());
        }
        page.metric("tenantdesk_open_tenants", "gauge", "Tenants whose file is open.", open_tenants);
        let busy = self.busy_workers.value();
        page.metric("tenantdesk_workers_busy", "gauge", "Workers with a request in hand.", busy);
        render_process(&mut page);
        page.0
    }

    fn render_requests(&self, page: &mut Page) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        const REQUESTS: &str = "tenantdesk_requests_total";
        page.head(REQUESTS, "counter", "Requests by route, method and status.");
        for ((route, method), answered) in requests.iter() {
            for (status, count) in &answered.by_status {
                let labels = format!("{{route=\"{route}\",method=\"{method}\",status=\"{status}\"}}");
                page.sample(REQUESTS, &labels, count);
            }
        }
        const DURATION: &str = "tenantdesk_request_duration_seconds";
        page.head(DURATION, "histogram", "From the whole request to its answer.");
        for ((route, method), answered) in requests.iter() {
            let labels = format!("route=\"{route}\",method=\"{method}\"");
            let ends = BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
            let mut count = 0;
            for (end, more) in ends.zip(answered.by_time) {
                count += more;
                page.sample("tenantdesk_request_duration_seconds_bucket", &format!("{{{labels},le=\"{end}\"}}"), count);
            }
            page.sample("tenantdesk_request_duration_seconds_sum", &format!("{{{labels}}}"), answered.seconds);
            page.sample("tenantdesk_request_duration_seconds_count", &format!("{{{labels}}}"), count);
        }
    }
}

impl Default for Metrics {
    /// For a service without routes, as tests and benches start one.
    fn default() -> Metrics {
        Metrics::new(|_| OTHER)
    }
}

/// What the system says of this process, under the names that every Prometheus exporter uses. What it does not say is left
/// out.
fn render_process(page: &mut Page) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    if let Some(kilobytes) = resident {
        let bytes: u64 = u64::saturating_mul(kilobytes, 1024);
        page.metric("process_resident_memory_bytes", "gauge", "Memory in use.", bytes);
    }
    if let Some(open) = open_descriptors() {
        page.metric("process_open_fds", "gauge", "Open file descriptors.", open);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        page.metric("process_max_fds", "gauge", "The limit on open file descriptors.", most);
    }
}

/// How many descriptors this process has open, the one that counts them left out.
fn open_descriptors() -> Option<usize> {
    fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1))
}

/// Text in Prometheus' format. Writing to a `String` cannot fail.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn metric(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        self.sample(name, "", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(page: &str, series: &str) -> Option<f64> {
        page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    #[test]
    fn what_clients_make_up_adds_no_series() {
        let metrics = Metrics::new(|path| if path == "/known" { "/known" } else { OTHER });
        for n in 0..100 {
            metrics.answered(&format!("M{n}"), &format!("/secret-{n}"), 404, Duration::from_millis(1));
        }
        let page = metrics.render(0);
        assert!(!page.contains("secret") && !page.contains("M1"), "{page}");
        let series = "tenantdesk_requests_total{route=\"other\",method=\"OTHER\",status=\"404\"}";
        assert_eq!(value(&page, series), Some(100.0));
        assert_eq!(page.matches("tenantdesk_requests_total{").count(), 1);
    }

    #[test]
    fn buckets_hold_all_that_was_not_slower() {
        let metrics = Metrics::new(|_| "/known");
        for milliseconds in [0, 1, 3, 60_000] {
            metrics.answered("GET", "/known", 200, Duration::from_millis(milliseconds));
        }
        let page = metrics.render(3);
        let bucket = |end: &str| {
            let labels = format!("{{route=\"/known\",method=\"GET\",le=\"{end}\"}}");
            value(&page, &format!("tenantdesk_request_duration_seconds_bucket{labels}")).unwrap()
        };
        assert_eq!(["0.0005", "0.001", "0.0025", "0.005", "5", "+Inf"].map(bucket), [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]);
        let all = "{route=\"/known\",method=\"GET\"}";
        assert_eq!(value(&page, &format!("tenantdesk_request_duration_seconds_count{all}")), Some(4.0));
        assert!(value(&page, &format!("tenantdesk_request_duration_seconds_sum{all}")).unwrap() > 60.0);
        assert_eq!(value(&page, "tenantdesk_open_tenants"), Some(3.0));
        assert!(value(&page, "process_resident_memory_bytes").unwrap() > 100_000.0);
        assert!(value(&page, "process_open_fds").unwrap() >= 3.0);
    }

    #[test]
    fn a_gauge_forgets_who_left() {
        let gauge = Gauge::default();
        let inside = gauge.enter();
        assert_eq!(gauge.value(), 1);
        drop(inside);
        assert_eq!(gauge.value(), 0);
    }
}
