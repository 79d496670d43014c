//! Upstream's `process_*`, read from `/proc`.

use std::fs;

use prometheus::{
    Counter, Gauge, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use super::register::{MetricSet, Register};

/// Ticks per second in `/proc`. The kernel reports 100 whatever its own clock rate is.
const TICKS: f64 = 100.0;

/// The kernel's value for no limit.
const UNLIMITED: f64 = 18_446_744_073_709_551_615.0;

/// The metrics of this process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    cpu: Counter,
    received: Counter,
    transmitted: Counter,
    open_files: Gauge,
    most_files: Gauge,
    virtual_memory: Gauge,
    most_virtual_memory: Gauge,
    resident_memory: Gauge,
    start: Gauge,
}

impl MetricSet for Process {
    fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
        let process = Self::new()?;
        register.add("gauge", &process)?;
        Ok(process)
    }
}

impl Process {
    fn new() -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| Counter::with_opts(Opts::new(name, help));
        let gauge = |name: &str, help: &str| Gauge::with_opts(Opts::new(name, help));
        Ok(Self {
            cpu: counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")?,
            received: counter(
                "process_network_receive_bytes_total",
                "Number of bytes received by the process over the network.",
            )?,
            transmitted: counter(
                "process_network_transmit_bytes_total",
                "Number of bytes sent by the process over the network.",
            )?,
            open_files: gauge("process_open_fds", "Number of open file descriptors.")?,
            most_files: gauge("process_max_fds", "Maximum number of open file descriptors.")?,
            virtual_memory: gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.")?,
            most_virtual_memory: gauge(
                "process_virtual_memory_max_bytes",
                "Maximum amount of virtual memory available in bytes.",
            )?,
            resident_memory: gauge("process_resident_memory_bytes", "Resident memory size in bytes.")?,
            start: gauge(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
            )?,
        })
    }

    fn collectors(&self) -> [&dyn Collector; 9] {
        [
            &self.cpu,
            &self.received,
            &self.transmitted,
            &self.open_files,
            &self.most_files,
            &self.virtual_memory,
            &self.most_virtual_memory,
            &self.resident_memory,
            &self.start,
        ]
    }

    /// Updates the metrics. A metric that cannot be read keeps its value.
    fn update(&self) {
        if let Some((cpu, start)) = stat() {
            raise(&self.cpu, cpu);
            self.start.set(start);
        }
        if let Some((received, transmitted)) = network() {
            raise(&self.received, received);
            raise(&self.transmitted, transmitted);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // Does not count the open folder itself.
            self.open_files.set(as_float(open.count().saturating_sub(1)));
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kilobytes =
            |key: &str| field(&status, key).and_then(|value| value.split(' ').next()?.parse().ok());
        let set = |gauge: &Gauge, value: Option<f64>| value.inspect(|value| gauge.set(*value));
        set(&self.virtual_memory, kilobytes("VmSize:").map(|size: f64| size * 1024.0));
        set(&self.resident_memory, kilobytes("VmRSS:").map(|size: f64| size * 1024.0));
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let limit = |key: &str| match field(&limits, key)?.split(' ').next()? {
            "unlimited" => Some(UNLIMITED),
            number => number.parse().ok(),
        };
        set(&self.most_files, limit("Max open files"));
        set(&self.most_virtual_memory, limit("Max address space"));
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.update();
        self.collectors().into_iter().flat_map(Collector::collect).collect()
    }
}

/// Sets a counter to a value that is counted elsewhere.
fn raise(counter: &Counter, value: f64) {
    counter.inc_by((value - counter.get()).max(0.0));
}

/// The text after `key` on its line.
fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim_start)
}

/// When this process was started, in seconds since 1970.
pub fn start_time() -> Option<f64> {
    stat().map(|(_, start)| start)
}

/// The CPU time in seconds, and the start time in seconds since 1970.
fn stat() -> Option<(f64, f64)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in parentheses and may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<f64> = rest.split_whitespace().map(|text| text.parse().unwrap_or_default()).collect();
    let boot: f64 = field(&fs::read_to_string("/proc/stat").ok()?, "btime ")?.trim().parse().ok()?;
    let (user, system, start) = (fields.get(11)?, fields.get(12)?, fields.get(19)?);
    Some(((user + system) / TICKS, boot + start / TICKS))
}

/// Bytes received and sent in this network namespace, as upstream counts them.
fn network() -> Option<(f64, f64)> {
    let text = fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |wanted: &str| {
        let index = names.split_whitespace().position(|name| name == wanted)?;
        values.split_whitespace().nth(index)?.parse().ok()
    };
    Some((value("InOctets")?, value("OutOctets")?))
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
fn as_float(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_measured() {
        let process = Process::new().expect("good names");
        assert_eq!(process.collect().len(), 9);
        for (gauge, least) in [
            (&process.open_files, 3.0),
            (&process.most_files, 10.0),
            (&process.resident_memory, 1e6),
            (&process.virtual_memory, 1e6),
            (&process.most_virtual_memory, 1e6),
            (&process.start, 1.6e9),
        ] {
            assert!(gauge.get() >= least, "{gauge:?}");
        }
        assert!(process.cpu.get() >= 0.0);
    }
}
