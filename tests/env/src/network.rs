//! Network namespaces: machines that have only a network.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::Result;
use parking_lot::Mutex;

use crate::PATIENCE;
use crate::error::{StartError, need_programs};
use crate::namespace::need_namespaces;
use crate::ports::free_port;
use crate::process::{Process, run};
use crate::relay;
use crate::scratch::Scratch;

const LOOPBACK: &str = "127.0.0.1";

/// A network namespace, whose files and processes are the machine's. It ends when dropped, with its interfaces.
///
/// It has loopback and nothing else until [`link`](Self::link) connects it. It forwards packets, and its IPv6
/// addresses are usable at once: nothing looks for duplicates. Its first process only waits.
#[derive(Debug)]
pub struct Netns {
    // Fields drop in this order: the processes before their folder
    relays: Mutex<Vec<Process>>,
    first: Process,
    name: String,
    scratch: Scratch,
}

impl Netns {
    /// Makes one. The name is for messages only.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine does not let us make namespaces.
    pub fn new(name: &str) -> Result<Self, StartError> {
        need_programs(&["ip", "nsenter", "setpriv", "socat", "unshare"])?;
        need_namespaces()?;
        let scratch = Scratch::new("netns")?;
        let prepared = scratch.join("prepared");
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--", "sh", "-ec", PREPARE]).arg(&prepared);
        let mut first = Process::spawn(name, &unshare, scratch.join("netns.log"))?;
        first.wait_until(PATIENCE, || prepared.exists())?;
        Ok(Self { relays: Mutex::default(), first, name: name.to_owned(), scratch })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs `program` in it. The process ID is that of the program itself.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.first.id())).arg("--").arg(program);
        // programs look for nft and ip in folders that a user's PATH often lacks
        command.env("PATH", PATH);
        command
    }

    /// Runs `ip` with these words, which are separated by spaces, and returns its output.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn ip(&self, words: &str) -> Result<String> {
        run(self.command("ip").args(words.split_whitespace()))
    }

    /// Connects it to another one by a pair of interfaces, both of which are up afterwards: `mine` here, `theirs`
    /// there.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn link(&self, mine: &str, other: &Self, theirs: &str) -> Result<()> {
        self.ip(&format!("link add {mine} type veth peer name {theirs} netns {}", other.first.id()))?;
        self.ip(&format!("link set {mine} up"))?;
        other.ip(&format!("link set {theirs} up")).map(drop)
    }

    /// Makes a port of 127.0.0.1 of the machine reachable as the same port of 127.0.0.1 in here, so that a
    /// kubeconfig for it works in here too.
    ///
    /// # Errors
    /// If the relay does not start.
    pub fn relay(&self, port: u16) -> Result<()> {
        let socket = self.scratch.join(format!("{port}.sock"));
        let cat = || self.command("cat");
        self.keep(relay::start(
            Command::new("socat"),
            port,
            self.command("socat"),
            (LOOPBACK, port),
            &socket,
            cat,
        )?);
        Ok(())
    }

    /// The opposite: makes a port of 127.0.0.1 in here reachable from the machine, and returns the port of the
    /// machine's 127.0.0.1 for it. Nothing has to listen on it yet.
    ///
    /// # Errors
    /// If the relay does not start.
    pub fn expose(&self, port: u16) -> Result<u16> {
        let outer = free_port()?;
        let socket = self.scratch.join(format!("{port}-out.sock"));
        let cat = || Command::new("cat");
        self.keep(relay::start(
            self.command("socat"),
            port,
            Command::new("socat"),
            (LOOPBACK, outer),
            &socket,
            cat,
        )?);
        Ok(outer)
    }

    fn keep(&self, relay: [Process; 2]) {
        self.relays.lock().extend(relay);
    }
}

/// The folders of daemons are included.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Prepares a namespace, says so by making the file `$0`, and waits.
const PREPARE: &str = "
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
for scope in all default; do
    echo 1 >/proc/sys/net/ipv6/conf/$scope/forwarding
    echo 0 >/proc/sys/net/ipv6/conf/$scope/accept_dad
done
: >\"$0\"
exec sleep infinity
";
