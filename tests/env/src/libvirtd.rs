//! A libvirtd with QEMU, isolated from the system's libvirtd.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use parking_lot::Mutex;

use crate::PATIENCE;
use crate::StartError;
use crate::error::need_programs;
use crate::namespace::{Daemon, Namespace, need_namespaces};
use crate::process::{POLL, Process, Signal, run};
use crate::relay;
use crate::scratch::Scratch;

/// Dual stack, with leases from dnsmasq. `open`: no packet filter rules, so no packet filter is needed.
/// `no-ping`: otherwise dnsmasq probes an address for 3 s before it offers it.
const NETWORK: &str = "<network xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'>
  <name>default</name>
  <forward mode='open'/>
  <bridge name='virbr0' stp='off' delay='0'/>
  <ip address='192.168.122.1' netmask='255.255.255.0'>
    <dhcp><range start='192.168.122.2' end='192.168.122.254'/></dhcp>
  </ip>
  <ip family='ipv6' address='fd00:122::1' prefix='64'>
    <dhcp><range start='fd00:122::100' end='fd00:122::1ff'/></dhcp>
  </ip>
  <dnsmasq:options><dnsmasq:option value='no-ping'/></dnsmasq:options>
</network>
";

/// `stdio_handler`: there is no virtlogd. `user`, `group`: if only root may open /dev/kvm, any other user
/// makes libvirt discard its cached QEMU capabilities with every call.
const QEMU_CONF: &str = "stdio_handler = \"file\"
user = \"root\"
group = \"root\"
security_driver = \"none\"
namespaces = []
";

/// A separate libvirtd with its own virtual machines and networks. Stopped and removed when dropped.
///
/// It runs in mount, network and process namespaces of its own: the system's libvirtd, folders and networks
/// are never changed, and several can run at the same time, like hypervisors of several zones.
///
/// The network `default` is active: 192.168.122.0/24 and `fd00:122::/64`, both with DHCP. Its addresses are
/// reachable only from its network namespace, see [`Libvirtd::in_network`].
#[derive(Debug)]
pub struct Libvirtd {
    // Fields drop in this order: the namespaces, with all processes in them, before the folder
    relays: Mutex<Vec<Process>>,
    namespace: Namespace,
    daemon: Daemon,
    scratch: Scratch,
}

impl Libvirtd {
    /// The machine's own address in the network `default`.
    pub const GATEWAY: &str = "192.168.122.1";

    /// Starts libvirtd and waits up to 60 s until it answers.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] without root, the programs of libvirt and QEMU, or `/dev/net/tun`;
    /// [`StartError::Failed`] if it does not answer.
    pub fn start() -> Result<Self, StartError> {
        need_programs(&[
            "libvirtd",
            "virsh",
            "qemu-system-x86_64",
            "qemu-img",
            "dnsmasq",
            "ip",
            "setpriv",
            "unshare",
            "nsenter",
            "socat",
        ])?;
        need_namespaces()?;
        if !Path::new("/dev/net/tun").exists() {
            return Err(StartError::Unavailable(
                "no /dev/net/tun for the virtual machines' network (a container needs --device=/dev/net/tun)"
                    .into(),
            ));
        }

        let scratch = Scratch::new("virt")?;
        prepare(&scratch)?;
        let namespace = Namespace::start(&scratch, "libvirt/namespace.sh", &["--net"], [scratch.path()])?;
        let started = Self { relays: Mutex::default(), daemon: Daemon::default(), namespace, scratch };
        started.start_again()?;
        Ok(started)
    }

    /// The connection URI, usable by any process on this machine.
    pub fn uri(&self) -> String {
        format!("qemu+unix:///system?socket={}", self.socket().display())
    }

    /// The URI of a read-only connection.
    pub fn read_only_uri(&self) -> String {
        format!("qemu+unix:///system?socket={}", self.scratch.join("libvirt-sock-ro").display())
    }

    /// The URI of libvirt's test driver in it, whose world all connections share, and which ends with the last of them.
    pub fn test_driver_uri(&self) -> String {
        format!("test+unix:///default?socket={}", self.socket().display())
    }

    /// A command that runs `virsh` connected to it.
    pub fn virsh(&self) -> Command {
        virsh(&self.uri())
    }

    /// Runs `virsh` and returns its output.
    ///
    /// # Errors
    /// If its exit status is not 0; the error contains its standard error.
    pub fn virsh_output(&self, arguments: &[&str]) -> Result<String> {
        run(self.virsh().args(arguments))
    }

    /// Defines an object from XML with the `virsh` command `verb` (`define`, `net-define`, `pool-define`, ...).
    ///
    /// # Errors
    /// If libvirt refuses it.
    pub fn define_xml(&self, verb: &str, xml: &str) -> Result<()> {
        let mut file = tempfile::NamedTempFile::new()?;
        std::io::Write::write_all(&mut file, xml.as_bytes())?;
        run(self.virsh().arg(verb).arg(file.path())).map(drop)
    }

    /// ID of a process in libvirtd's mount, network and process namespaces that lives as long as this value,
    /// for `nsenter --target`.
    pub fn network_namespace_pid(&self) -> u32 {
        self.namespace.first()
    }

    /// A command that runs `program` in libvirtd's network namespace, where it can reach the virtual
    /// machines.
    pub fn in_network(&self, program: &str) -> Command {
        self.namespace.enter(&["--net"], program)
    }

    /// Makes a port of 127.0.0.1 of the machine reachable for the virtual machines, as the same port of
    /// [`GATEWAY`](Self::GATEWAY).
    ///
    /// # Errors
    /// If the relay does not start.
    pub fn relay(&self, port: u16) -> Result<()> {
        let socket = self.scratch.join(format!("{port}.sock"));
        let far = self.in_network("socat");
        let cat = || self.in_network("cat");
        let relay = relay::start(Command::new("socat"), port, far, (Self::GATEWAY, port), &socket, cat)?;
        self.relays.lock().extend(relay);
        Ok(())
    }

    /// The folder that libvirtd sees as `/var/lib/libvirt`. XML can refer to files in it by that path.
    pub fn data_folder(&self) -> PathBuf {
        self.scratch.join("lib")
    }

    /// Log file of the daemon.
    pub fn log(&self) -> PathBuf {
        self.scratch.join("libvirtd.log")
    }

    /// Folder with the logs and consoles of the virtual machines, which libvirtd sees as
    /// `/var/log/libvirt/qemu`.
    pub fn guest_logs(&self) -> PathBuf {
        self.scratch.join("log/qemu")
    }

    /// Freezes the daemon (`SIGSTOP`): connections stay open, but no request is answered. Machines keep
    /// running.
    ///
    /// # Errors
    /// If it is stopped or the signal cannot be sent.
    pub fn freeze(&self) -> Result<()> {
        self.daemon.signal(Signal::Stop)
    }

    /// Resumes a frozen daemon.
    ///
    /// # Errors
    /// If it is stopped or the signal cannot be sent.
    pub fn thaw(&self) -> Result<()> {
        self.daemon.signal(Signal::Cont)
    }

    /// Stops the daemon gracefully (`SIGTERM`). Machines and networks keep running.
    ///
    /// # Errors
    /// If it does not end.
    pub fn stop(&self) -> Result<()> {
        self.end(Signal::Term)
    }

    /// Kills the daemon (`SIGKILL`). Machines and networks keep running.
    ///
    /// # Errors
    /// If it does not end.
    pub fn kill(&self) -> Result<()> {
        self.end(Signal::Kill)
    }

    /// Starts a stopped daemon again and waits until it answers. Does nothing if it is running.
    ///
    /// # Errors
    /// If it does not answer within [`PATIENCE`]; the error contains the end of its log.
    pub fn start_again(&self) -> Result<()> {
        let mut command = self.namespace.enter(&["--mount", "--net", "--pid"], "libvirtd");
        command.args(["-f", "/etc/libvirt/libvirtd.conf", "-p", "/run/libvirtd.pid"]);
        let socket = self.socket();
        self.daemon.start("libvirtd", &command, &self.log(), PATIENCE, || {
            // `version` makes libvirtd ask QEMU for its capabilities now rather than in the first test
            socket.exists() && run(self.virsh().arg("version")).is_ok()
        })
    }

    fn end(&self, signal: Signal) -> Result<()> {
        self.daemon.end(signal)?;
        // a stale socket file would make the next start look ready
        drop(fs::remove_file(self.socket()));
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.scratch.join("libvirt-sock")
    }
}

/// A command that runs `virsh` connected to `uri`.
pub(crate) fn virsh(uri: &str) -> Command {
    let mut command = Command::new("virsh");
    // untranslated: tests match its messages, and errors show them
    command.args(["--quiet", "--connect", uri]).env("LC_ALL", "C");
    command
}

/// Polls `check` until it returns a value, for up to `limit`.
pub(crate) fn poll<T>(
    limit: Duration,
    what: &str,
    mut check: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let last = check();
        if let Ok(Some(value)) = last {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return match last {
                Err(error) => Err(error.context(format!("{what}: not within {limit:?}"))),
                Ok(_) => bail!("{what}: not within {limit:?}"),
            };
        }
        std::thread::sleep(POLL * 5);
    }
}

fn prepare(scratch: &Scratch) -> Result<()> {
    for folder in ["lib/images", "lib/boot", "cache", "log/qemu", "etc/qemu/networks/autostart"] {
        scratch.make(folder)?;
    }
    scratch.write("etc/qemu.conf", QEMU_CONF)?;
    scratch.write(
        "etc/libvirtd.conf",
        // many tests make calls and receive events at once over few connections
        &format!(
            "unix_sock_dir = \"{}\"\nauth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\n\
             max_clients = 1000\nmax_client_requests = 50\n",
            scratch.path().display()
        ),
    )?;
    let network = "etc/qemu/networks/default.xml";
    scratch.write(network, NETWORK)?;
    symlink(
        "/etc/libvirt/qemu/networks/default.xml",
        scratch.join("etc/qemu/networks/autostart/default.xml"),
    )?;
    Ok(())
}
