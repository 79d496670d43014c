//! How late the machine is, for the few bounds in real time that no other means can replace.

use std::{
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use parking_lot::Mutex;

/// The part of a time, in percent, that the machine may have been late before the time says nothing about the product.
const MAX_LAG: u32 = 20;

/// By how much the sleeps of the meter's thread were too long so far, in microseconds.
static LATE: AtomicU64 = AtomicU64::new(0);

static UNJUDGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A measured time, and how late the machine was in it.
pub(crate) struct Stopwatch {
    began: Instant,
    late: u64,
}

fn late() -> u64 {
    const INTERVAL: Duration = Duration::from_millis(10);
    static METER: Once = Once::new();
    METER.call_once(|| {
        thread::spawn(|| {
            loop {
                let began = Instant::now();
                thread::sleep(INTERVAL);
                let late = began.elapsed().saturating_sub(INTERVAL);
                LATE.fetch_add(u64::try_from(late.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
    });
    LATE.load(Ordering::Relaxed)
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), late: late() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Fails if `what` took longer than `limit`. On a machine that was late for a good part of the time it is not judged, which the
    /// end of the run repeats.
    pub(crate) fn within(&self, limit: Duration, what: &str) -> anyhow::Result<()> {
        self.judge(self.elapsed(), limit, what)
    }

    /// The same for a time that was measured since the start.
    pub(crate) fn judge(&self, took: Duration, limit: Duration, what: &str) -> anyhow::Result<()> {
        if took < limit {
            return Ok(());
        }
        let lag = Duration::from_micros(late() - self.late);
        let line = format!(
            "{what}: {took:?} of {limit:?}, and the machine was late for {lag:?} of {:?}",
            self.elapsed()
        );
        ensure!(lag * 100 > self.elapsed() * MAX_LAG, "{line}");
        not_judged(line);
        Ok(())
    }
}

/// Says what could not be judged, at once and at the end of the run.
pub(crate) fn not_judged(line: String) {
    eprintln!("NOT JUDGED {line}");
    UNJUDGED.lock().push(line);
}

/// Lists once more, at the end of the run, what was not judged.
pub(crate) fn report_unjudged() {
    let unjudged = UNJUDGED.lock();
    if !unjudged.is_empty() {
        eprintln!("NOT JUDGED {} times, because the machine was late:", unjudged.len());
        for line in unjudged.iter() {
            eprintln!("NOT JUDGED {line}");
        }
    }
}
