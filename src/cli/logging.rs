//! Where the log goes: standard error, as text or as one JSON object a line.

use std::io;

use clap::ValueEnum;
use tracing::Level;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// From here on the process logs. A log that cannot be written to is no reason to stop serving.
pub fn start(format: LogFormat) {
    let builder =
        tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(Level::INFO).log_internal_errors(false);
    // Only the first of a process counts; there is no other.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
    };
}
