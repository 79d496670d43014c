//! What a process has used, from `/proc`.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

/// Linux counts CPU time for user space in hundredths of a second, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU and memory of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// User and system time since it started.
    pub(crate) cpu: Duration,
    /// The most memory that it had, in bytes (`VmHWM`).
    pub(crate) peak_memory: u64,
    /// The memory that it has, in bytes (`VmRSS`).
    pub(crate) memory: u64,
}

impl Usage {
    /// The usage of the process with this ID.
    pub(crate) fn of(id: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
        // The name, in brackets, may hold anything; times are the 14th and 15th fields.
        let after_name = stat.rsplit_once(')').context("no name in /proc/PID/stat")?.1;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let cpu = ticks(11).zip(ticks(12)).context("no times in /proc/PID/stat")?;
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let kilobytes = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        Ok(Self {
            cpu: Duration::from_secs_f64((cpu.0 + cpu.1) / TICKS_PER_SECOND),
            peak_memory: 1024 * kilobytes("VmHWM:").context("no VmHWM")?,
            memory: 1024 * kilobytes("VmRSS:").context("no VmRSS")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_this_process() {
        let usage = Usage::of(std::process::id()).expect("it runs");
        assert!(usage.peak_memory >= usage.memory && usage.memory > 100_000, "{usage:?}");
    }
}
