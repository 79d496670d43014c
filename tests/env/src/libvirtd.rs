//! libvirtd with QEMU, isolated from the system's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::StartError;
use crate::error::need_programs;
use crate::namespace::{Daemon, Namespace, need_namespaces};
use crate::process::{POLL, Signal, run};
use crate::scratch::Scratch;

/// The first call asks QEMU for its capabilities, 4 to 12 s on a small machine.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// Dual stack, with leases from dnsmasq. `open`: no packet filter rules, so no packet filter is needed.
/// `no-ping`: dnsmasq would try an address for 3 s before it offers it.
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

/// `stdio_handler`: there is no virtlogd. `user`, `group`: with a /dev/kvm that only root may open, any other
/// user makes libvirt throw its knowledge of QEMU away with every call.
const QEMU_CONF: &str = "stdio_handler = \"file\"
user = \"root\"
group = \"root\"
security_driver = \"none\"
namespaces = []
";

/// A libvirtd of its own, with its virtual machines and networks, ended and removed when dropped.
///
/// It runs in its own mount, network and process namespaces: the system's libvirtd, folders and networks are
/// never touched, and several can run at the same time, as hypervisors of several zones do.
///
/// The network `default` is there and active: 192.168.122.0/24 and `fd00:122::/64`, both with DHCP.
/// Its addresses are reachable from within its network namespace only, see [`Libvirtd::in_network`].
#[derive(Debug)]
pub struct Libvirtd {
    // fields drop in this order: the namespaces end with all that runs in them, the folder goes last
    namespace: Namespace,
    daemon: Daemon,
    scratch: Scratch,
}

impl Libvirtd {
    /// Starts libvirtd and waits until it answers, 60 s at most.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] without root, the programs of libvirt and QEMU, or `/dev/net/tun`;
    /// [`StartError::Failed`] when it does not answer.
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
        let started = Self { daemon: Daemon::default(), namespace, scratch };
        started.start_again()?;
        Ok(started)
    }

    /// The connection URI, usable by any process of this machine.
    pub fn uri(&self) -> String {
        format!("qemu+unix:///system?socket={}", self.socket().display())
    }

    /// The URI of a read-only connection.
    pub fn read_only_uri(&self) -> String {
        format!("qemu+unix:///system?socket={}", self.scratch.join("libvirt-sock-ro").display())
    }

    /// `virsh` connected to it.
    pub fn virsh(&self) -> Command {
        virsh(&self.uri())
    }

    /// Runs `virsh` and returns what it printed.
    ///
    /// # Errors
    /// If it ends with another status than 0; the error holds its standard error.
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

    /// Id of a process that lives as long as this value and is in libvirtd's mount, network and process
    /// namespaces: what `nsenter --target` wants.
    pub fn network_namespace_pid(&self) -> u32 {
        self.namespace.first()
    }

    /// `program`, to be run in libvirtd's network namespace: there it reaches the virtual machines.
    pub fn in_network(&self, program: &str) -> Command {
        self.namespace.enter(&["--net"], program)
    }

    /// The folder that libvirtd sees as `/var/lib/libvirt`: files put here can be named in its XML by that path.
    pub fn data_folder(&self) -> PathBuf {
        self.scratch.join("lib")
    }

    /// Log file of the daemon.
    pub fn log(&self) -> PathBuf {
        self.scratch.join("libvirtd.log")
    }

    /// Folder with the logs and consoles of the virtual machines, `/var/log/libvirt/qemu` to libvirtd.
    pub fn guest_logs(&self) -> PathBuf {
        self.scratch.join("log/qemu")
    }

    /// Freezes the daemon (`SIGSTOP`): connections stay open and nobody answers. Machines go on.
    ///
    /// # Errors
    /// If it is stopped or the signal cannot be sent.
    pub fn freeze(&self) -> Result<()> {
        self.daemon.signal(Signal::Stop)
    }

    /// Lets a frozen daemon go on.
    ///
    /// # Errors
    /// If it is stopped or the signal cannot be sent.
    pub fn thaw(&self) -> Result<()> {
        self.daemon.signal(Signal::Cont)
    }

    /// Stops the daemon in an orderly way (`SIGTERM`). Machines and networks go on.
    ///
    /// # Errors
    /// If it does not end.
    pub fn stop(&self) -> Result<()> {
        self.end(Signal::Term)
    }

    /// Kills the daemon (`SIGKILL`). Machines and networks go on.
    ///
    /// # Errors
    /// If it does not end.
    pub fn kill(&self) -> Result<()> {
        self.end(Signal::Kill)
    }

    /// Starts the daemon again after it was stopped and waits until it answers. Does nothing while it runs.
    ///
    /// # Errors
    /// If it does not answer within 60 s; the error holds the end of its log.
    pub fn start_again(&self) -> Result<()> {
        let mut command = self.namespace.enter(&["--mount", "--net", "--pid"], "libvirtd");
        command.args(["-f", "/etc/libvirt/libvirtd.conf", "-p", "/run/libvirtd.pid"]);
        let socket = self.socket();
        self.daemon.start("libvirtd", &command, &self.log(), READY_WITHIN, || {
            // `version` makes libvirtd ask QEMU for its capabilities now and not in the first test
            socket.exists() && run(self.virsh().arg("version")).is_ok()
        })
    }

    fn end(&self, signal: Signal) -> Result<()> {
        self.daemon.end(signal)?;
        // a dead socket file would make the next start look ready
        drop(fs::remove_file(self.socket()));
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.scratch.join("libvirt-sock")
    }
}

/// `virsh` connected to `uri`.
pub(crate) fn virsh(uri: &str) -> Command {
    let mut command = Command::new("virsh");
    // messages are matched in tests and shown in errors
    command.args(["--quiet", "--connect", uri]).env("LC_ALL", "C");
    command
}

/// Polls `check` until it gives a value, for `limit` at most.
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
        // events and calls of many tests at once over few connections
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
