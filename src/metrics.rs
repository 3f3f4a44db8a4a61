//! The metrics of the service, as text for Prometheus.
//!
//! The application owns the metrics and passes them down. Label values come from fixed sets:
//! routes, methods and statuses. They never contain a tenant's name, a key or other input of a
//! client.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use rustix::process::{Resource, getrlimit};
use tracing_appender::non_blocking::ErrorCounter;

/// The media type of [`Metrics::render`]: the plain format, which every collector reads.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The label of every unknown path.
pub const OTHER: &str = "other";

/// The methods that have a label of their own. All others are `OTHER`.
const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "PUT", "DELETE"];

/// Upper bounds of the histogram, in seconds.
const BUCKETS: [f64; 13] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    method: &'static str,
    status: u16,
}

/// All metrics of one service.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Maps a path to its label: `api::routes::label`.
    route_of: fn(&str) -> &'static str,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram, fn() -> Histogram>,
    pub busy_workers: Gauge,
    /// Counts the lines of the log that were lost.
    pub lost_lines: OnceLock<ErrorCounter>,
    lost: Counter,
    free_space: Gauge,
    resident_memory: Gauge,
    open_descriptors: Gauge,
    max_descriptors: Gauge,
}

impl Metrics {
    /// Metrics without any requests. `route_of` maps a path to its label, unknown paths to
    /// [`OTHER`].
    pub fn new(route_of: fn(&str) -> &'static str) -> Metrics {
        let mut registry = Registry::default();
        let r = &mut registry;
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        r.register("tenantdesk_build", "The running version", version);
        let durations: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let help = "Time from the complete request to its response";
        r.register("tenantdesk_request_duration_seconds", help, durations.clone());
        Metrics {
            route_of,
            requests: add(r, "tenantdesk_requests", "Requests by route, method and status"),
            durations,
            busy_workers: add(r, "tenantdesk_workers_busy", "Workers that run a request"),
            lost_lines: OnceLock::new(),
            lost: add(r, "tenantdesk_log_lines_lost", "Lines of the log that were lost"),
            free_space: add(r, "tenantdesk_free_bytes", "Free space of the data directory's disk"),
            resident_memory: add(r, "process_resident_memory_bytes", "Memory in use"),
            open_descriptors: add(r, "process_open_fds", "Open file descriptors"),
            max_descriptors: add(r, "process_max_fds", "The limit on open file descriptors"),
            registry,
        }
    }

    /// Counts one response.
    pub fn record_response(&self, method: &str, path: &str, status: u16, duration: Duration) {
        let method = METHODS.into_iter().find(|known| *known == method).unwrap_or("OTHER");
        let route = (self.route_of)(path);
        self.requests.get_or_create(&RequestLabels { route, method, status }).inc();
        let seconds = duration.as_secs_f64();
        self.durations.get_or_create(&RouteLabels { route, method }).observe(seconds);
    }

    /// Sets the free space of the data directory's disk, in bytes.
    pub fn set_free_space(&self, free: u64) {
        self.free_space.set(i64::try_from(free).unwrap_or(i64::MAX));
    }

    /// Renders all metrics. Values of the process that the system does not tell are 0.
    pub fn render(&self) -> String {
        let set = |gauge: &Gauge, value: Option<u64>| {
            gauge.set(value.unwrap_or(0).try_into().unwrap_or(i64::MAX))
        };
        let lost = self.lost_lines.get().map_or(0, ErrorCounter::dropped_lines);
        self.lost.inner().store(lost as u64, Ordering::Relaxed);
        set(&self.resident_memory, resident_memory());
        set(&self.open_descriptors, open_descriptors());
        set(&self.max_descriptors, getrlimit(Resource::Nofile).current);
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut page, &self.registry);
        to_plain(&page)
    }
}

/// Turns OpenMetrics text, which the crate writes, into the plain format. Only the comments differ:
/// a metric has the name of its samples, a counter `x` that of `x_total`. There is no type `info`,
/// and no mark of the end.
fn to_plain(page: &str) -> String {
    let mut plain = page.replace("# EOF\n", "");
    for line in page.lines() {
        let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|declared| declared.split_once(' '))
        else {
            continue;
        };
        let (suffix, plain_kind) = match kind {
            "counter" => ("_total", kind),
            "info" => ("_info", "gauge"),
            _ => continue,
        };
        plain = plain
            .replace(&format!("{line}\n"), &format!("# TYPE {name}{suffix} {plain_kind}\n"))
            .replace(&format!("# HELP {name} "), &format!("# HELP {name}{suffix} "));
    }
    plain
}

/// Registers a metric. The registry keeps another handle of it.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn resident_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The open descriptors of the process, without the descriptor that this function opens.
fn open_descriptors() -> Option<u64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    u64::try_from(count.saturating_sub(1)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(page: &str, series: &str) -> Option<f64> {
        page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    #[test]
    fn buckets_are_cumulative() {
        let metrics = Metrics::new(|_| "/known");
        for milliseconds in [0, 1, 3, 60_000] {
            metrics.record_response("GET", "/known", 200, Duration::from_millis(milliseconds));
        }
        let page = metrics.render();
        let bucket = |end: &str| {
            let labels = format!("{{le=\"{end}\",route=\"/known\",method=\"GET\"}}");
            value(&page, &format!("tenantdesk_request_duration_seconds_bucket{labels}")).unwrap()
        };
        assert_eq!(
            ["0.0005", "0.001", "0.0025", "0.005", "5.0", "+Inf"].map(bucket),
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
        assert!(value(&page, "process_resident_memory_bytes").unwrap() > 100_000.0);
        assert!(value(&page, "process_open_fds").unwrap() >= 3.0);
    }

    #[test]
    fn the_plain_format_types_each_sample_by_its_own_name() {
        let metrics = Metrics::new(|_| "/known");
        metrics.record_response("GET", "/known", 200, Duration::ZERO);
        let page = metrics.render();
        for line in [
            "# TYPE tenantdesk_build_info gauge",
            "# TYPE tenantdesk_requests_total counter",
            "# TYPE tenantdesk_request_duration_seconds histogram",
            "# HELP tenantdesk_requests_total Requests by route, method and status.",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
        }
        for absent in
            ["# EOF", " info\n", "# TYPE tenantdesk_requests ", "# HELP tenantdesk_build "]
        {
            assert!(!page.contains(absent), "{absent} is in {page}");
        }
        let samples = |page: &str| -> Vec<String> {
            page.lines().filter(|line| line.starts_with("tenantdesk")).map(str::to_owned).collect()
        };
        assert_eq!(samples(&page), samples(&metrics.render()));
    }
}
