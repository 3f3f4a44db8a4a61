//! The metrics of the service in the text format of Prometheus.
//!
//! The application owns the metrics and passes them down. Label values come from fixed sets:
//! routes, methods and statuses. They never contain a tenant's name, a key or other input of a
//! client.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The label of every unknown path.
pub const OTHER: &str = "other";

/// The methods that have a label of their own. All others are `OTHER`.
const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "PUT", "DELETE"];

/// Upper bounds of the latency histogram, in seconds.
const BUCKETS: [f64; 13] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// A counter: its value never decreases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The current value.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts events and the time that they took.
#[derive(Debug, Default)]
pub struct TimedCounter {
    count: Counter,
    microseconds: Counter,
}

impl TimedCounter {
    /// Counts one event.
    pub fn add(&self, duration: Duration) {
        self.count.add(1);
        self.microseconds.add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }
}

/// The number of [`GaugeGuard`]s that exist.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

/// Decrements its gauge when dropped.
#[derive(Debug)]
pub struct GaugeGuard<'a>(&'a Gauge);

impl Gauge {
    /// Increments the gauge until the guard is dropped.
    pub fn enter(&self) -> GaugeGuard<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(self)
    }

    /// The current value.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All metrics of one service.
#[derive(Debug)]
pub struct Metrics {
    /// Maps a path to its label.
    route_of: fn(&str) -> &'static str,
    /// By route and method.
    requests: Mutex<BTreeMap<(&'static str, &'static str), RouteMetrics>>,
    /// Requests refused by the rate limit.
    pub rate_limited: Counter,
    /// Stored responses that were replayed.
    pub replays: Counter,
    /// Steps of merging search segments.
    pub search_merges: TimedCounter,
    /// Checkpoints of tenants' write-ahead logs.
    pub checkpoints: TimedCounter,
    /// Workers that handle a request.
    pub busy_workers: Gauge,
}

/// What [`Metrics::render`] shows of the state of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreGauges {
    /// Tenants whose file is open.
    pub open_tenants: usize,
}

/// The requests of one route and method.
#[derive(Debug, Default)]
struct RouteMetrics {
    by_status: BTreeMap<u16, u64>,
    /// Requests by bucket: up to [`BUCKETS`]`[n]` seconds, but longer than the previous bound. The
    /// last bucket has no bound.
    by_time: [u64; BUCKETS.len() + 1],
    seconds: f64,
}

impl Metrics {
    /// Metrics without any requests. `route_of` maps a path to its label, unknown paths to
    /// [`OTHER`].
    pub fn new(route_of: fn(&str) -> &'static str) -> Metrics {
        Metrics {
            route_of,
            requests: Mutex::default(),
            rate_limited: Counter::default(),
            replays: Counter::default(),
            search_merges: TimedCounter::default(),
            checkpoints: TimedCounter::default(),
            busy_workers: Gauge::default(),
        }
    }

    /// Counts one response.
    pub fn record_response(&self, method: &str, path: &str, status: u16, duration: Duration) {
        let method = METHODS.into_iter().find(|known| *known == method).unwrap_or("OTHER");
        let series = ((self.route_of)(path), method);
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS.iter().position(|end| seconds <= *end).unwrap_or(BUCKETS.len());
        let mut requests = self.requests.lock();
        let route = requests.entry(series).or_default();
        *route.by_status.entry(status).or_default() += 1;
        route.seconds += seconds;
        if let Some(count) = route.by_time.get_mut(bucket) {
            *count += 1;
        }
    }

    /// Renders all metrics.
    pub fn render(&self, store: StoreGauges) -> String {
        let mut page = Exposition::default();
        page.head("tenantdesk_build_info", "gauge", "The running version.");
        page.sample(
            "tenantdesk_build_info",
            concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}"),
            1,
        );
        self.render_requests(&mut page);
        let counters = [
            (
                "tenantdesk_rate_limited_total",
                "Requests refused by the rate limit.",
                &self.rate_limited,
            ),
            (
                "tenantdesk_replays_total",
                "Responses replayed for a known idempotency key.",
                &self.replays,
            ),
        ];
        for (name, help, counter) in counters {
            page.metric(name, "counter", help, counter.value());
        }
        page.timed(
            "tenantdesk_search_merge",
            "Bounded steps of merging search segments.",
            &self.search_merges,
        );
        page.timed("tenantdesk_checkpoint", "Checkpoints of tenants' WALs.", &self.checkpoints);
        page.metric(
            "tenantdesk_open_tenants",
            "gauge",
            "Tenants whose file is open.",
            store.open_tenants,
        );
        let busy = self.busy_workers.value();
        page.metric("tenantdesk_workers_busy", "gauge", "Workers that handle a request.", busy);
        render_process(&mut page);
        page.0
    }

    fn render_requests(&self, page: &mut Exposition) {
        let requests = self.requests.lock();
        const REQUESTS: &str = "tenantdesk_requests_total";
        page.head(REQUESTS, "counter", "Requests by route, method and status.");
        for ((route, method), route_metrics) in requests.iter() {
            for (status, count) in &route_metrics.by_status {
                let labels =
                    format!("{{route=\"{route}\",method=\"{method}\",status=\"{status}\"}}");
                page.sample(REQUESTS, &labels, count);
            }
        }
        const DURATION: &str = "tenantdesk_request_duration_seconds";
        page.head(DURATION, "histogram", "Time from the complete request to its response.");
        for ((route, method), route_metrics) in requests.iter() {
            let labels = format!("route=\"{route}\",method=\"{method}\"");
            let ends = BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
            let mut count = 0;
            for (end, more) in ends.zip(route_metrics.by_time) {
                count += more;
                page.sample(
                    "tenantdesk_request_duration_seconds_bucket",
                    &format!("{{{labels},le=\"{end}\"}}"),
                    count,
                );
            }
            page.sample(
                "tenantdesk_request_duration_seconds_sum",
                &format!("{{{labels}}}"),
                route_metrics.seconds,
            );
            page.sample(
                "tenantdesk_request_duration_seconds_count",
                &format!("{{{labels}}}"),
                count,
            );
        }
    }
}

impl Default for Metrics {
    /// Metrics without routes, for tests and benchmarks.
    fn default() -> Metrics {
        Metrics::new(|_| OTHER)
    }
}

/// Renders the metrics of the process under the standard names of Prometheus clients. Unavailable
/// values are omitted.
fn render_process(page: &mut Exposition) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
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

/// The number of open file descriptors, without the one that this function opens.
fn open_descriptors() -> Option<usize> {
    fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1))
}

/// Output in the text format of Prometheus. Writing to a `String` cannot fail.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// A summary without quantiles: `NAME_seconds_sum` and `NAME_seconds_count`.
    fn timed(&mut self, name: &str, help: &str, timed: &TimedCounter) {
        let seconds = Duration::from_micros(timed.microseconds.value()).as_secs_f64();
        self.head(&format!("{name}_seconds"), "summary", help);
        self.sample(&format!("{name}_seconds_sum"), "", seconds);
        self.sample(&format!("{name}_seconds_count"), "", timed.count.value());
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
    fn unknown_paths_and_methods_share_one_series() {
        let metrics = Metrics::new(|path| if path == "/known" { "/known" } else { OTHER });
        for n in 0..100 {
            metrics.record_response(
                "PATCH",
                &format!("/secret-{n}"),
                404,
                Duration::from_millis(1),
            );
        }
        let page = metrics.render(StoreGauges::default());
        assert!(!page.contains("secret"), "{page}");
        let series = "tenantdesk_requests_total{route=\"other\",method=\"OTHER\",status=\"404\"}";
        assert_eq!(value(&page, series), Some(100.0));
        assert_eq!(page.matches("tenantdesk_requests_total{").count(), 1);
    }

    #[test]
    fn buckets_are_cumulative() {
        let metrics = Metrics::new(|_| "/known");
        for milliseconds in [0, 1, 3, 60_000] {
            metrics.record_response("GET", "/known", 200, Duration::from_millis(milliseconds));
        }
        let page = metrics.render(StoreGauges { open_tenants: 3 });
        let bucket = |end: &str| {
            let labels = format!("{{route=\"/known\",method=\"GET\",le=\"{end}\"}}");
            value(&page, &format!("tenantdesk_request_duration_seconds_bucket{labels}")).unwrap()
        };
        assert_eq!(
            ["0.0005", "0.001", "0.0025", "0.005", "5", "+Inf"].map(bucket),
            [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]
        );
        let all = "{route=\"/known\",method=\"GET\"}";
        assert_eq!(
            value(&page, &format!("tenantdesk_request_duration_seconds_count{all}")),
            Some(4.0)
        );
        assert!(
            value(&page, &format!("tenantdesk_request_duration_seconds_sum{all}")).unwrap() > 60.0
        );
        assert_eq!(value(&page, "tenantdesk_open_tenants"), Some(3.0));
        assert!(value(&page, "process_resident_memory_bytes").unwrap() > 100_000.0);
        assert!(value(&page, "process_open_fds").unwrap() >= 3.0);
    }

    #[test]
    fn a_gauge_counts_guards() {
        let gauge = Gauge::default();
        let guard = gauge.enter();
        assert_eq!(gauge.value(), 1);
        drop(guard);
        assert_eq!(gauge.value(), 0);
    }
}
