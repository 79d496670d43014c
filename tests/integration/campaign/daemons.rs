//! The daemons as processes: this test binary, started as the daemon with the campaign's provider.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use parking_lot::{Mutex, MutexGuard};
use test_env::{Process, Signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    judge::Rules,
    provider::{self, Config, PANIC},
    proxy::{Way, What, Which},
    world::{World, micros},
};

/// The variable that makes this binary run as the daemon.
const VARIABLE: &str = "CAMPAIGN_DAEMON";

/// Debian's libfaketime, if it is installed: it sets the wall clock of a single process.
fn libfaketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1")).find(|file| file.exists())
}

/// Runs the daemon, if this process was started as one.
pub(super) fn main_of_process() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    Some(ccm::app::main(provider::registry))
}

/// The timing flags of one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    lease: u64,
    renew: u64,
    retry_millis: u64,
    period_millis: u64,
    grace_millis: u64,
}

const DEFAULT: Timing =
    Timing { lease: 15, renew: 10, retry_millis: 2000, period_millis: 5000, grace_millis: 5000 };
const EAGER: Timing = Timing { period_millis: 2000, grace_millis: 2500, ..DEFAULT };
const QUICK: Timing =
    Timing { lease: 6, renew: 4, retry_millis: 1000, period_millis: 1500, grace_millis: 2000 };

/// For leaders that keep the Lease through every fault that upstream's defaults tolerate.
pub(super) const LASTING: &[Timing] = &[DEFAULT, EAGER];
/// For short campaigns.
pub(super) const SHORT: &[Timing] = &[QUICK];
/// All timings, the quick one more often: nothing happens while there is no leader.
pub(super) const MIXED: &[Timing] = &[DEFAULT, EAGER, QUICK, QUICK];

const MINIMUM_AGE: Duration = Duration::from_secs(5);

/// State that all processes share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) world: World,
    pub(super) folder: PathBuf,
    pub(super) cloud_port: u16,
    pub(super) token: String,
    pub(super) password: String,
    pub(super) lives: AtomicU32,
    pub(super) rules: Mutex<HashMap<u32, Rules>>,
    /// Faults of processes or in their logs.
    pub(super) faults: Mutex<Vec<String>>,
    pub(super) most_memory: Mutex<Memory>,
    /// Whether a fault was found, so that logs must be kept.
    pub(super) keep_logs: AtomicBool,
    /// The timings to choose from.
    pub(super) timings: &'static [Timing],
    /// Chooses the timing and the clock of a process.
    pub(super) rng: Mutex<fastrand::Rng>,
}

/// The peak memory of any process, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// Allocated memory, without mapped files.
    pub(super) anonymous: u64,
    pub(super) resident: u64,
}

/// A daemon. When its process ends, another one is started, as the kubelet does with a pod.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) way: Arc<Way>,
    running: Mutex<Option<Running>>,
    common: Arc<Common>,
}

#[derive(Debug)]
struct Running {
    process: Process,
    life: u32,
    /// The signals that should end it. It may end by any of them: one that is killed may get another before its end is noticed.
    sent: Vec<Signal>,
    clock: Option<PathBuf>,
}

impl Daemon {
    pub(super) fn new(way: Arc<Way>, common: Arc<Common>) -> Arc<Self> {
        Arc::new(Self { way, running: Mutex::default(), common })
    }

    /// Keeps a process running until stopped.
    pub(super) async fn keep(self: Arc<Self>, stop: CancellationToken) -> anyhow::Result<()> {
        while !stop.is_cancelled() {
            let started = self.start()?;
            *self.running() = Some(started);
            loop {
                sleep(Duration::from_millis(50)).await;
                let mut running = self.running();
                let Some(now) = running.as_mut() else { break };
                self.common.measure(now.process.id());
                if stop.is_cancelled() {
                    // Whether it ends gracefully is checked by another test.
                    now.sent.push(Signal::Kill);
                    now.process.kill()?;
                }
                if let Some(status) = now.process.end_status() {
                    let ended = running.take();
                    drop(running);
                    if let Some(ended) = ended {
                        self.common.world.lock().forget_process(ended.life);
                        self.common.look_at_end(&ended, status);
                    }
                    break;
                }
            }
            let _ = stop.run_until_cancelled(sleep(Duration::from_millis(300))).await;
        }
        Ok(())
    }

    fn start(&self) -> anyhow::Result<Running> {
        let common = &self.common;
        let life = common.lives.fetch_add(1, Ordering::SeqCst) + 1;
        let timing = {
            let mut rng = common.rng.lock();
            common.timings[rng.usize(..common.timings.len())]
        };
        common.rules.lock().insert(
            life,
            Rules {
                lease_duration: micros(Duration::from_secs(timing.lease)),
                grace: micros(Duration::from_millis(timing.grace_millis)),
                minimum_age: micros(MINIMUM_AGE),
            },
        );
        let in_folder = |name: &str| common.folder.join(format!("{name}-{life}"));
        let kubeconfig = in_folder("kubeconfig");
        fs::write(
            &kubeconfig,
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                 clusters:\n- name: c\n  cluster: {{server: 'http://127.0.0.1:{}'}}\n\
                 contexts:\n- name: c\n  context: {{cluster: c, user: u}}\n\
                 users:\n- name: u\n  user: {{token: {}}}\n",
                self.way.port, common.token
            ),
        )?;
        let config = in_folder("cloud");
        let of_cloud = Config { port: common.cloud_port, life, password: common.password.clone() };
        fs::write(&config, serde_json::to_string(&of_cloud)?)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.env(VARIABLE, "1").env("RUST_BACKTRACE", "1").args([
            format!("--cloud-provider={}", provider::NAME),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--leader-elect-lease-duration={}s", timing.lease),
            format!("--leader-elect-renew-deadline={}s", timing.renew),
            format!("--leader-elect-retry-period={}ms", timing.retry_millis),
            format!("--node-monitor-period={}ms", timing.period_millis),
            format!("--node-deletion-grace-period={}ms", timing.grace_millis),
            format!("--node-deletion-minimum-age={}s", MINIMUM_AGE.as_secs()),
            "--node-status-update-frequency=15s".to_owned(),
            "--secure-port=0".to_owned(),
            "-v=2".to_owned(),
        ]);
        let library = libfaketime();
        let clock = library.is_some().then(|| in_folder("clock"));
        if let (Some(clock), Some(library)) = (&clock, library) {
            fs::write(clock, "+0\n")?;
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", clock)
                .env("FAKETIME_NO_CACHE", "1")
                .env("DONT_FAKE_MONOTONIC", "1");
        }
        // From here on, connections belong to the new process: the old one is dead.
        self.way.life.store(life, Ordering::SeqCst);
        let process = Process::spawn(format!("daemon {life}"), &command, in_folder("log"))?;
        Ok(Running { process, life, sent: Vec::new(), clock })
    }

    /// The number of the current process.
    pub(super) fn life(&self) -> Option<u32> {
        self.running().as_ref().map(|running| running.life)
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let mut running = self.running();
        let Some(running) = running.as_mut() else { return Ok(()) };
        if matches!(signal, Signal::Kill | Signal::Term) {
            running.sent.push(signal);
        }
        running.process.signal(signal)
    }

    /// Sets the wall clock of the process this many seconds off. `false` if clocks cannot be set here.
    pub(super) fn set_clock(&self, seconds: i64) -> anyhow::Result<bool> {
        let running = self.running();
        let Some(Running { clock: Some(clock), life, .. }) = running.as_ref() else { return Ok(false) };
        self.common.world.lock().jumped.insert(*life);
        // Atomically, since the process may read it at any time.
        let new = clock.with_extension("new");
        fs::write(&new, format!("{seconds:+}\n"))?;
        fs::rename(new, clock)?;
        Ok(true)
    }

    /// Injects faults into its requests.
    pub(super) fn spoil(&self, time: Duration, which: Which, what: What, probability: f64) {
        self.way.spoil(time, which, what, probability);
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock()
    }
}

impl Common {
    fn measure(&self, id: u32) {
        let Ok(status) = fs::read_to_string(format!("/proc/{id}/status")) else { return };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
        };
        let mut most = self.most_memory.lock();
        most.anonymous = most.anonymous.max(field("RssAnon").unwrap_or_default());
        most.resident = most.resident.max(field("VmHWM").unwrap_or_default());
    }

    /// Checks how a process ended. It may end after a signal, after losing the Lease, and when the API server
    /// does not answer.
    fn look_at_end(&self, ended: &Running, status: std::process::ExitStatus) {
        use std::os::unix::process::ExitStatusExt as _;
        let is_expected = match status.code() {
            None => status.signal() == Some(9) && ended.sent.contains(&Signal::Kill),
            Some(0) => ended.sent.contains(&Signal::Term),
            Some(code) => matches!(code, 1 | 255),
        };
        let mut faults = self.faults.lock();
        if !is_expected {
            faults.push(format!(
                "daemon {} ended with {status}; the end of its log:\n{}",
                ended.life,
                ended.process.log_tail()
            ));
        }
        faults.extend(self.faults_of_log(ended.process.log(), ended.life));
        // There may be thousands of processes, so only the files of those that ended after the first fault
        // are kept.
        if faults.is_empty() && !self.keep_logs.load(Ordering::SeqCst) {
            for name in ["log", "cloud", "kubeconfig", "clock"] {
                let _ = fs::remove_file(self.folder.join(format!("{name}-{}", ended.life)));
            }
        }
    }

    fn faults_of_log(&self, log: &Path, life: u32) -> Vec<String> {
        let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
        let secrets = [("the bearer token", &self.token), ("the cloud's password", &self.password)];
        let mut faults: Vec<String> = secrets
            .iter()
            .filter(|(_, secret)| text.contains(secret.as_str()))
            .map(|(what, _)| format!("the log of daemon {life} holds {what}"))
            .collect();
        let panics = text.lines().filter(|line| line.contains("panicked at") && !line.contains(PANIC));
        faults.extend(panics.map(|line| format!("daemon {life} panicked: {line}")));
        faults
    }

    /// Checks the logs of the running processes.
    pub(super) fn look_at_logs(&self) -> anyhow::Result<()> {
        for entry in fs::read_dir(&self.folder).context("the folder of the logs")? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if let Some(life) = name.strip_prefix("log-").and_then(|life| life.parse().ok()) {
                let found = self.faults_of_log(&path, life);
                self.faults.lock().extend(found);
            }
        }
        Ok(())
    }
}
