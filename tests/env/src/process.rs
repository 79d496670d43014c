//! Child processes that end with this process, however it ends.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal;
use nix::unistd::Pid;
use parking_lot::Mutex;

use crate::PATIENCE;

/// How long a process may take to end after `SIGTERM` before it is killed. Some never end by themselves.
const GRACE: Duration = Duration::from_secs(30);
/// The interval of polling a condition.
pub(crate) const POLL: Duration = Duration::from_millis(20);
/// The longest interval of polling whether a process is ready: each answer costs the process some of its start.
const LONGEST_POLL: Duration = Duration::from_millis(200);

/// A signal that tests send to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Asks the process to end.
    Term,
    /// Interrupts it, as Ctrl-C does.
    Int,
    /// Ends it at once.
    Kill,
    /// Freezes it.
    Stop,
    /// Resumes it after [`Signal::Stop`].
    Cont,
    /// Makes it read its configuration again, if the program supports that.
    Hup,
}

impl Signal {
    fn number(self) -> signal::Signal {
        match self {
            Self::Term => signal::SIGTERM,
            Self::Int => signal::SIGINT,
            Self::Kill => signal::SIGKILL,
            Self::Stop => signal::SIGSTOP,
            Self::Cont => signal::SIGCONT,
            Self::Hup => signal::SIGHUP,
        }
    }
}

/// A child process. It is ended when dropped, and killed by the kernel if this process dies.
///
/// Tests may use it for programs of their own, such as the daemon under test.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    ended: Option<ExitStatus>,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with standard output and error appended to the file `log`. The program, arguments,
    /// environment and working folder of `command` are used, but not its streams.
    ///
    /// The process is the leader of its own process group, so that Ctrl-C at the terminal reaches only the
    /// tests. It receives `SIGKILL` if this process ends for any reason.
    ///
    /// # Errors
    /// If the log cannot be opened or `setpriv` (util-linux) is missing. A program that does not exist
    /// appears as a process that ends at once with status 127.
    pub fn spawn(name: impl Into<String>, command: &Command, log: impl Into<PathBuf>) -> Result<Self> {
        let (name, log) = (name.into(), log.into());
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot open the log {}", log.display()))?;
        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(key, value),
                None => wrapped.env_remove(key),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        wrapped.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let child = spawn_from_lasting_thread(wrapped).with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, ended: None, log })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    pub fn log_tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Whether it runs. A frozen process counts as running.
    pub fn is_running(&mut self) -> bool {
        self.end_status().is_none()
    }

    /// Its exit status, or `None` while it runs.
    pub fn end_status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Nothing, while it runs.
    ///
    /// # Errors
    /// If it has ended; the error contains the end of the log.
    pub fn still_runs(&mut self) -> Result<()> {
        match self.end_status() {
            Some(status) => {
                bail!("{} ended with {status}; the end of its log:\n{}", self.name, self.log_tail())
            }
            None => Ok(()),
        }
    }

    /// Sends `signal`. Does nothing if the process has ended.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        // the process was not waited for yet, so the ID still belongs to it
        send(self.id(), signal)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// If it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.end_status() {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("{} still runs after {limit:?}", self.name);
            }
            thread::sleep(POLL);
        }
    }

    /// Ends it: with `SIGTERM`, and with `SIGKILL` if it still runs after 30 s.
    ///
    /// # Errors
    /// If the kernel refuses to end it.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::Term)?;
        // a frozen process handles SIGTERM only when it is resumed
        self.signal(Signal::Cont)?;
        self.wait(GRACE).or_else(|_| self.kill())
    }

    /// Ends it at once with `SIGKILL`.
    ///
    /// # Errors
    /// If the kernel refuses to end it.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if self.is_running() {
            self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        }
        self.wait(PATIENCE)
    }

    /// Polls `ready` until it is true: often at first, and less often the longer it takes.
    ///
    /// # Errors
    /// If the process ends first or `limit` passes; the error contains the end of the log.
    pub fn wait_until(&mut self, limit: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let began = Instant::now();
        loop {
            let is_ready = ready();
            // what answers in the place of a process that has ended is another one
            self.still_runs()?;
            if is_ready {
                return Ok(());
            }
            if began.elapsed() >= limit {
                bail!("{} is not ready after {limit:?}; the end of its log:\n{}", self.name, self.log_tail());
            }
            thread::sleep((began.elapsed() / 16).clamp(POLL, LONGEST_POLL));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // an error cannot be reported here, and the kernel kills the process when this one ends
        drop(self.stop());
    }
}

/// Lets a program in Go collect its garbage seldom, which is a good part of what a small one computes. It collects more often when it
/// has this much memory, so that many of them fit into a small machine.
pub(crate) fn collect_seldom(command: &mut Command) {
    command.env("GOGC", "300").env("GOMEMLIMIT", "768MiB");
}

/// Sends a signal to the process with this ID.
pub(crate) fn send(id: u32, signal: Signal) -> Result<()> {
    let process = Pid::from_raw(i32::try_from(id)?);
    signal::kill(process, signal.number()).with_context(|| format!("cannot send {signal:?} to process {id}"))
}

/// The only child of a process, if it has one.
pub(crate) fn child_of(id: u32) -> Option<u32> {
    run(Command::new("pgrep").arg("-P").arg(id.to_string())).ok()?.lines().next()?.trim().parse().ok()
}

/// The last lines of a log file.
pub(crate) fn log_tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // what clients of etcd say again and again hides why etcd is away
    let says_more = |line: &&str| !line.contains("retrying of unary invoker failed");
    let cut = |line: &str| line.chars().take(400).collect::<String>();
    let lines: Vec<_> = text.lines().filter(says_more).map(cut).collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

/// Runs a command until it ends, and returns its standard output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        bail!(
            "{name} {} ended with {}: {}",
            command.get_args().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

type Request = (Command, mpsc::Sender<io::Result<Child>>);

/// Spawns from one thread that lives as long as this process. Linux sends the parent-death signal when the
/// spawning THREAD ends, and tests run in short-lived threads.
fn spawn_from_lasting_thread(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Request>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, answer) in requests {
                drop(answer.send(command.spawn()));
            }
        });
        Mutex::new(sender)
    });
    let (answer, result) = mpsc::channel();
    spawner.lock().send((command, answer)).map_err(|_| anyhow!("the spawning thread is gone"))?;
    Ok(result.recv().context("the spawning thread is gone")??)
}
