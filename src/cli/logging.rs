//! The log on standard error, as text or as JSON Lines.

use std::io;

use clap::ValueEnum;
use tracing::Level;

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// Starts logging. Failures to write to the log are ignored, so that they do not affect the
/// service.
pub(super) fn start(format: LogFormat) {
    let builder = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(Level::INFO)
        .log_internal_errors(false);
    // It fails only if the process has a logger already.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .try_init(),
    };
}
