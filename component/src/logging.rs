//! The log. One record is one line, in klog's text format or in Kubernetes' JSON format.
//!
//! docs/reference/logging.md describes the verbosities.

mod json;
mod level;
mod record;
mod text;

use std::{
    io::Write as _,
    sync::atomic::{AtomicU64, Ordering},
};

use tracing::{Event, Level, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

pub use level::LogLevel;
use record::Record;

use crate::command_line::{GlobalFlags, VModule};

/// The settings of the log.
#[derive(Clone, Debug)]
struct Log {
    vmodule: Vec<VModule>,
    json: bool,
    /// Whether records other than errors go to stdout.
    split: bool,
}

/// Number of records that could not be written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Starts the log of this process. Panics are logged too. A second call changes nothing. The records of
/// `crates` and of this crate are logged at the daemon's own levels. All other crates are libraries, of which
/// less is logged. More crates can be [added](add_crates) later.
pub fn start(flags: &GlobalFlags, crates: &[&'static str]) {
    LogLevel::set(flags.v);
    level::add_ours([env!("CARGO_CRATE_NAME")].into_iter().chain(crates.iter().copied()));
    let json = flags.logging_format == "json";
    let split = if json { flags.log_json_split_stream } else { flags.log_text_split_stream };
    let log = Log { vmodule: flags.vmodule.clone(), json, split };
    if tracing_subscriber::registry().with(log).try_init().is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let message = panic.payload_as_str().unwrap_or("of an unknown kind");
            let thread = std::thread::current();
            let thread = thread.name().unwrap_or("unnamed").to_owned();
            match panic.location() {
                Some(at) => tracing::error!(%at, thread, "panic: {message}"),
                None => tracing::error!(thread, "panic: {message}"),
            }
        }));
    }
}

/// Adds crates whose records are logged at the daemon's own levels, such as that of a provider. Names are
/// written as in paths: `my_cloud`.
pub fn add_crates(crates: impl IntoIterator<Item = &'static str>) {
    level::add_ours(crates);
}

impl Log {
    fn shows(&self, metadata: &Metadata<'_>) -> bool {
        let of_file = self
            .vmodule
            .iter()
            .filter(|module| level::matches(&module.pattern, metadata.file(), metadata.target()))
            .map(|module| module.level)
            .max();
        let verbosity = LogLevel::get().max(of_file.unwrap_or(0));
        let is_ours = level::is_ours(metadata.target());
        *metadata.level() <= level::least(verbosity, metadata.target(), is_ours)
    }

    fn write(&self, record: &Record) {
        let line = if self.json { json::line(record) } else { text::line(record) };
        // One call per line, so that lines of several threads do not mix.
        let written = if self.split && record.level != Level::ERROR {
            std::io::stdout().lock().write_all(line.as_bytes())
        } else {
            std::io::stderr().lock().write_all(line.as_bytes())
        };
        if written.is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Called again when the verbosity changes.
        if self.shows(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.shows(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.write(&Record::new(event, jiff::Timestamp::now()));
    }
}

#[cfg(test)]
mod tests;
