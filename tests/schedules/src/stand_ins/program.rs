//! Small modules of the program, with the names that its sources use.

/// Time stands still.
pub mod clock {
    use std::time::Duration;

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct Moment {
        pub monotonic: Duration,
    }

    #[derive(Clone, Copy, Debug, Default)]
    pub struct Clock;

    #[derive(Clone, Copy)]
    pub struct Timestamp;

    impl Moment {
        pub fn timestamp(self) -> Timestamp {
            Timestamp
        }
    }

    impl Clock {
        pub fn system() -> Clock {
            Clock
        }

        pub fn now(&self) -> Moment {
            Moment::default()
        }
    }
}

pub mod config {
    use std::time::Duration;

    #[derive(Clone, Copy)]
    pub struct TenantLimits {
        pub open: usize,
        pub keep_changes: Duration,
        pub max_size: u64,
    }
}

/// A disk with space.
pub mod files {
    use std::io;
    use std::path::Path;

    pub fn free_space(_: &Path) -> io::Result<(u64, Option<String>)> {
        Ok((u64::MAX, None))
    }
}

pub mod metrics {
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    #[derive(Default)]
    pub struct Metrics {
        pub busy_workers: Number,
    }

    impl Metrics {
        pub fn record_response(&self, _method: &str, _path: &str, _status: u16, _: Duration) {}
    }

    #[derive(Default)]
    pub struct Number(AtomicI64);

    impl Number {
        pub fn get(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }

        pub fn inc(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        pub fn dec(&self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

pub mod model {
    use std::fmt;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct TenantId(pub i64);

    impl fmt::Display for TenantId {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }
}

/// A response is its status.
pub mod response {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Response(pub u16);

    impl Response {
        pub fn status(&self) -> u16 {
            self.0
        }

        pub fn has_header(&self, _name: &str) -> bool {
            false
        }

        #[must_use]
        pub fn header(self, _name: &'static str, _value: impl Into<String>) -> Response {
            self
        }

        #[must_use]
        pub fn with<V>(self, _: impl IntoIterator<Item = (&'static str, V)>) -> Response {
            self
        }
    }

    pub struct ApiError(u16);

    impl ApiError {
        pub fn overloaded() -> ApiError {
            ApiError(503)
        }

        pub fn internal() -> ApiError {
            ApiError(500)
        }
    }

    impl From<ApiError> for Response {
        fn from(error: ApiError) -> Response {
            Response(error.0)
        }
    }
}

/// No path has a key.
pub mod secret {
    pub const KEY_START: &str = "key";

    pub const PREFIX_LENGTH: usize = 8;
}
