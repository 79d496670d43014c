//! Namespaces that keep a peer's mounts, network and processes apart from the machine's.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{Process, child_of, run, send};
use crate::scratch::Scratch;
use crate::{Signal, StartError};

const STOPPED_WITHIN: Duration = Duration::from_secs(10);

/// Mount and process namespaces with a first process that prepares them and then only waits. When that
/// process dies, everything in the namespaces dies with it, daemons included.
#[derive(Debug)]
pub(crate) struct Namespace {
    unshare: Process,
    first: u32,
}

impl Namespace {
    /// Makes namespaces, and those that the `unshare` flags `more` ask for, whose first process runs a script of
    /// this crate. The script gets `arguments` and makes the file `prepared` in `scratch` when it is through.
    pub(crate) fn start<I>(scratch: &Scratch, script: &str, more: &[&str], arguments: I) -> Result<Self>
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut unshare = Process::spawn(
            script,
            unshare(more).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script)).args(arguments),
            scratch.join("namespace.log"),
        )?;
        let prepared = scratch.join("prepared");
        unshare.wait_until(STOPPED_WITHIN, || prepared.exists())?;
        let first = child_of(unshare.id()).context("the namespaces have no first process")?;
        Ok(Self { unshare, first })
    }

    /// Id of the first process, as the rest of the machine sees it.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// A command that runs `program` in the namespaces that the `nsenter` flags ask for.
    pub(crate) fn enter(&self, flags: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.first)).args(flags).arg("--").arg(program);
        // daemons look for their helpers in folders that a user's PATH often lacks
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(send(self.first, Signal::Kill));
        drop(self.unshare.wait(STOPPED_WITHIN));
    }
}

/// A daemon in a [`Namespace`], which may be stopped and started again.
#[derive(Debug, Default)]
pub(crate) struct Daemon {
    /// The `nsenter` whose only child is the daemon. It follows the daemon into the end and into a freeze.
    nsenter: Mutex<Option<Process>>,
}

impl Daemon {
    /// Starts it with a command of [`Namespace::enter`] (the process namespace must be among those entered)
    /// and waits until it is ready. Does nothing while it runs.
    pub(crate) fn start(
        &self,
        name: &str,
        command: &Command,
        log: &Path,
        limit: Duration,
        ready: impl FnMut() -> bool,
    ) -> Result<()> {
        let mut slot = self.slot();
        if slot.as_mut().is_some_and(Process::is_running) {
            return Ok(());
        }
        let mut process = Process::spawn(name, command, log)?;
        process.wait_until(limit, ready)?;
        *slot = Some(process);
        Ok(())
    }

    /// Sends it a signal, from the daemon to its `nsenter`, which sees to its own stopping and going on only
    /// when its child does.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let mut slot = self.slot();
        let nsenter = slot.as_mut().context("the daemon is stopped")?;
        send(child_of(nsenter.id()).context("the daemon has ended")?, signal)?;
        if signal == Signal::Cont { nsenter.signal(signal) } else { Ok(()) }
    }

    /// Ends it with `signal` and waits for its end. Does nothing when it is not running.
    pub(crate) fn end(&self, signal: Signal) -> Result<()> {
        let Some(mut nsenter) = self.slot().take() else { return Ok(()) };
        if let Some(id) = child_of(nsenter.id()) {
            send(id, signal)?;
            if signal != Signal::Kill {
                // a frozen daemon sees the signal only once it goes on; one that was not may have ended by now
                let _ = send(id, Signal::Cont);
            }
        }
        nsenter.signal(Signal::Cont)?;
        nsenter.wait(STOPPED_WITHIN).map(drop)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Process>> {
        // a test that panicked in between leaves the slot as it is, which the next user can handle
        self.nsenter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unshare(more: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]).args(more).arg("--");
    command
}

/// Whether this process may make namespaces.
pub(crate) fn need_namespaces() -> Result<(), StartError> {
    static REFUSAL: OnceLock<Option<String>> = OnceLock::new();
    let refusal =
        REFUSAL.get_or_init(|| run(unshare(&["--net"]).arg("true")).err().map(|error| error.to_string()));
    refusal.as_ref().map_or(Ok(()), |error| {
        Err(StartError::Unavailable(format!(
            "no right to make namespaces: run as root, in a container with --privileged ({error})"
        )))
    })
}
