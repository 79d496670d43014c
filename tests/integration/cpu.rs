//! What the tests compute, as the kernel counts it. On a busy machine a time says little, and this says much.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time of the calling thread.
pub(crate) fn of_this_thread() -> Duration {
    of(ClockId::ThreadCPUTime)
}

/// The CPU time of all threads of this process.
pub(crate) fn of_this_process() -> Duration {
    of(ClockId::ProcessCPUTime)
}

/// The CPU time of the processes that this one started, that have ended, and for which it waited.
pub(crate) fn of_children() -> Duration {
    /// `USER_HZ` is 100 on each architecture but alpha.
    const TICK: Duration = Duration::from_millis(10);
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name is in parentheses and may have spaces. `cutime` and `cstime` are fields 16 and 17, the third follows the name.
    let fields = line.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    fields.skip(13).take(2).filter_map(|field| field.parse::<u32>().ok()).map(|ticks| TICK * ticks).sum()
}

fn of(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
