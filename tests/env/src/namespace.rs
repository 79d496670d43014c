//! Namespaces that separate a peer's mounts, network and processes from the machine's.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};

use crate::PATIENCE;
use crate::process::{Process, child_of, run, send};
use crate::scratch::Scratch;
use crate::{Signal, StartError};

/// Mount and process namespaces with a first process that sets them up and then only waits. When that process
/// dies, all other processes in the namespaces die too, including daemons.
#[derive(Debug)]
pub(crate) struct Namespace {
    unshare: Process,
    first: u32,
}

impl Namespace {
    /// Creates these namespaces, and those of the additional `unshare` flags `more`. The first process runs a
    /// script of this crate. The script gets `arguments`, and creates the file `prepared` in `scratch` when
    /// it has finished.
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
        unshare.wait_until(PATIENCE, || prepared.exists())?;
        let first = child_of(unshare.id()).context("the namespaces have no first process")?;
        Ok(Self { unshare, first })
    }

    /// ID of the first process outside of the namespaces.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// A command that runs `program` in the namespaces that the `nsenter` flags select.
    pub(crate) fn enter(&self, flags: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.first)).args(flags).arg("--").arg(program);
        // daemons look for their helper programs in folders that a user's PATH often lacks
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(send(self.first, Signal::Kill));
        drop(self.unshare.wait(PATIENCE));
    }
}

/// A daemon in a [`Namespace`], which can be stopped and started again.
#[derive(Debug, Default)]
pub(crate) struct Daemon {
    /// The `nsenter` whose only child is the daemon. It ends and freezes together with the daemon.
    nsenter: Mutex<Option<Process>>,
}

impl Daemon {
    /// Starts the daemon with a command of [`Namespace::enter`], which must enter the process namespace, and
    /// waits until it is ready. Does nothing if it is running.
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

    /// Sends a signal to the daemon. `Cont` goes to its `nsenter` too, which stops whenever its child stops.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let mut slot = self.slot();
        let nsenter = slot.as_mut().context("the daemon is stopped")?;
        send(child_of(nsenter.id()).context("the daemon has ended")?, signal)?;
        if signal == Signal::Cont { nsenter.signal(signal) } else { Ok(()) }
    }

    /// Ends the daemon with `signal` and waits for its end. Does nothing if it is not running.
    pub(crate) fn end(&self, signal: Signal) -> Result<()> {
        let Some(mut nsenter) = self.slot().take() else { return Ok(()) };
        if let Some(id) = child_of(nsenter.id()) {
            send(id, signal)?;
            if signal != Signal::Kill {
                // A frozen daemon handles the signal only when it is resumed. A daemon that was not frozen
                // may have ended by now.
                let _ = send(id, Signal::Cont);
            }
        }
        nsenter.signal(Signal::Cont)?;
        nsenter.wait(PATIENCE).map(drop)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Process>> {
        // a panic of a test while it holds the lock leaves a valid slot
        self.nsenter.lock()
    }
}

fn unshare(more: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]).args(more).arg("--");
    command
}

/// Whether this process may create namespaces.
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
