//! What explains a failed scenario: warnings of the daemon, its requests, and what the API server logged meanwhile.

use std::{
    collections::VecDeque,
    fs,
    io::{Read as _, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use test_env::ControlPlane;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use crate::api::RequestCounts;

/// How many lines are kept of each log, and how many characters of each.
const LINES: usize = 8;
const LENGTH: usize = 300;

/// The last warnings of this thread's daemon.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<VecDeque<String>>>);

impl Warnings {
    /// Collects them until the guard is dropped. With `RUST_LOG` all lines go to standard error instead.
    pub(crate) fn collect() -> (Self, Option<DefaultGuard>) {
        let warnings = Self::default();
        let guard = std::env::var_os("RUST_LOG").is_none().then(|| {
            let subscriber = tracing_subscriber::fmt()
                .with_max_level(tracing::Level::WARN)
                .with_ansi(false)
                .with_writer(warnings.clone())
                .finish();
            tracing::subscriber::set_default(subscriber)
        });
        (warnings, guard)
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }
}

/// Each line is one write.
impl Write for Warnings {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let mut lines = self.0.lock();
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(shortened(&String::from_utf8_lossy(line)));
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Warnings {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The log of an API server from now on.
pub(crate) struct ServerLog {
    file: PathBuf,
    start: u64,
}

impl ServerLog {
    pub(crate) fn of(control_plane: &ControlPlane) -> Self {
        let file = control_plane.api_server_log();
        let start = fs::metadata(&file).map_or(0, |metadata| metadata.len());
        Self { file, start }
    }

    /// Its last warnings and errors.
    fn lines(&self) -> Vec<String> {
        let text = read_from(&self.file, self.start).unwrap_or_default();
        let mut last: Vec<String> = text
            .lines()
            .rev()
            .filter(|line| line.starts_with(['W', 'E', 'F']))
            .take(LINES)
            .map(shortened)
            .collect();
        last.reverse();
        last
    }
}

fn read_from(file: &Path, start: u64) -> std::io::Result<String> {
    let mut file = fs::File::open(file)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn shortened(line: &str) -> String {
    line.trim_end().chars().take(LENGTH).collect()
}

/// What explains an error, and then the error: the end of a run repeats the end of each message.
pub(crate) fn explained(
    error: &anyhow::Error,
    warnings: &Warnings,
    server: Option<&ServerLog>,
    requests: &RequestCounts,
) -> String {
    let mut text = String::new();
    let mut part = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            text.extend([title, ":\n", &lines.join("\n"), "\n"]);
        }
    };
    part("the API server warned", &server.map(ServerLog::lines).unwrap_or_default());
    part("the daemon warned", &warnings.lines());
    part("the daemon's requests", &[format!("{requests:?}")]);
    text + &format!("{error:#}")
}
