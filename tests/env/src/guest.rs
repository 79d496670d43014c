//! Small virtual machines that boot in seconds.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::error::StartError;
use crate::libvirtd::{Libvirtd, poll, virsh};
use crate::process::{Signal, run, send};

/// Options of a [`MicroGuest`]. The defaults are for an ordinary machine.
#[derive(Debug, Clone)]
pub struct MicroGuestOptions {
    /// Domain UUID, random by default. The guest and its kubelet see it as the system UUID.
    pub uuid: Option<String>,
    /// MAC address of the only interface, derived from the UUID by default.
    pub mac: Option<String>,
    /// libvirt network of the interface, `default` by default; `None` for a machine without an interface.
    pub network: Option<String>,
    /// Host name that the guest sends in DHCP requests, by default the domain's name.
    pub hostname: Option<String>,
    /// Whether the guest agent runs and has its channel.
    pub agent: bool,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Elements for the domain's `<metadata>`.
    pub metadata: String,
    /// Elements for the domain's `<devices>`, for example disks.
    pub devices: String,
}

impl Default for MicroGuestOptions {
    fn default() -> Self {
        Self {
            uuid: None,
            mac: None,
            network: Some("default".into()),
            hostname: None,
            agent: true,
            memory_mib: 160,
            metadata: String::new(),
            devices: String::new(),
        }
    }
}

/// The micro guest's kernel and initrd, at paths that libvirtd can use.
#[derive(Debug, Clone)]
pub struct MicroGuestImage {
    /// Kernel with a serial console.
    pub kernel: PathBuf,
    /// The initrd, which contains the whole system.
    pub initrd: PathBuf,
    /// A raw disk that boots both from a BIOS: the image of a virtual machine.
    pub disk: PathBuf,
}

impl MicroGuestImage {
    /// The image in the cache folder. If it is missing, it is made first (seconds).
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot make it.
    pub fn find() -> Result<Self, StartError> {
        let folder = crate::built("guest")?;
        Ok(Self {
            kernel: folder.join("vmlinuz"),
            initrd: folder.join("initrd"),
            disk: folder.join("disk.raw"),
        })
    }

    /// Kernel command line for a guest with this host name.
    pub fn command_line(hostname: &str) -> String {
        // an emulated timer may be late on a busy machine, which must not make the kernel panic
        format!("console=ttyS0 quiet panic=1 no_timer_check guest-name={hostname}")
    }
}

/// A domain of a [`Libvirtd`] with a small Linux: it has an address by DHCP (IPv4, then IPv6), the QEMU guest
/// agent, and a power button. It boots without a disk in about 3 s of emulated CPU time.
///
/// Dropping it does not end the domain; dropping its [`Libvirtd`] does.
#[derive(Debug, Clone)]
pub struct MicroGuest {
    uri: String,
    name: String,
    uuid: String,
    mac: String,
    network: Option<String>,
    console: PathBuf,
}

impl MicroGuest {
    /// Defines the domain without starting it.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot make the image, [`StartError::Failed`] if libvirt
    /// refuses the domain.
    pub fn define(libvirtd: &Libvirtd, name: &str, options: &MicroGuestOptions) -> Result<Self, StartError> {
        let image = MicroGuestImage::find()?;
        let uuid = match &options.uuid {
            Some(uuid) => uuid.clone(),
            None => random_uuid()?,
        };
        let mac = options.mac.clone().unwrap_or_else(|| mac_from(&uuid));
        let console = libvirtd.guest_logs().join(format!("{name}.console"));
        libvirtd.define_xml("define", &domain(name, &uuid, &mac, &image, options))?;
        let network = options.network.clone();
        Ok(Self { uri: libvirtd.uri(), name: name.to_owned(), uuid, mac, network, console })
    }

    /// The domain's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The domain's UUID, lower case with dashes.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// MAC address of its interface.
    pub fn mac(&self) -> &str {
        &self.mac
    }

    /// Starts it. Returns when QEMU runs, which is seconds before the guest is up.
    ///
    /// # Errors
    /// If libvirt does not start it.
    pub fn start(&self) -> Result<()> {
        self.virsh(&["start", &self.name]).map(drop)
    }

    /// Presses its power button. Returns at once, see [`MicroGuest::wait_for_state`].
    ///
    /// # Errors
    /// If libvirt refuses.
    pub fn shutdown(&self) -> Result<()> {
        self.virsh(&["shutdown", &self.name, "--mode", "acpi"]).map(drop)
    }

    /// Powers it off at once.
    ///
    /// # Errors
    /// If libvirt refuses, for example because the domain is off.
    pub fn destroy(&self) -> Result<()> {
        self.virsh(&["destroy", &self.name]).map(drop)
    }

    /// Pauses it.
    ///
    /// # Errors
    /// If libvirt refuses.
    pub fn suspend(&self) -> Result<()> {
        self.virsh(&["suspend", &self.name]).map(drop)
    }

    /// Resumes it after [`MicroGuest::suspend`].
    ///
    /// # Errors
    /// If libvirt refuses.
    pub fn resume(&self) -> Result<()> {
        self.virsh(&["resume", &self.name]).map(drop)
    }

    /// Freezes its QEMU (`SIGSTOP`): libvirt reports that it runs, but neither its monitor nor its guest
    /// agent answers.
    ///
    /// # Errors
    /// If it does not run.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::Stop)
    }

    /// Resumes a frozen QEMU.
    ///
    /// # Errors
    /// If it does not run.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::Cont)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let is_its_qemu = |process: &Path| {
            let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
            let mut arguments = arguments.split(|byte| *byte == 0);
            arguments.next().is_some_and(|program| String::from_utf8_lossy(program).contains("qemu-system"))
                && arguments.any(|argument| argument == self.uuid.as_bytes())
        };
        let process = fs::read_dir("/proc")?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|process| is_its_qemu(process))
            .with_context(|| format!("no QEMU of {}", self.name))?;
        let id = process.file_name().and_then(|name| name.to_str()?.parse().ok()).context("a process id")?;
        send(id, signal)
    }

    /// Removes its definition. A running domain keeps running and vanishes when it ends.
    ///
    /// # Errors
    /// If libvirt refuses.
    pub fn undefine(&self) -> Result<()> {
        self.virsh(&["undefine", &self.name, "--managed-save", "--snapshots-metadata"]).map(drop)
    }

    /// Its state as virsh prints it: `running`, `paused`, `shut off`, `crashed`, ...
    ///
    /// # Errors
    /// If libvirt does not answer or has no such domain.
    pub fn state(&self) -> Result<String> {
        Ok(self.virsh(&["domstate", &self.name])?.trim().to_owned())
    }

    /// Waits until [`MicroGuest::state`] is `state`.
    ///
    /// # Errors
    /// If it is not after `limit`.
    pub fn wait_for_state(&self, state: &str, limit: Duration) -> Result<()> {
        poll(limit, &format!("{} is {state}", self.name), || Ok((self.state()? == state).then_some(())))
    }

    /// The addresses that its network leased to its interface, IPv4 first. A stopped domain keeps its leases.
    ///
    /// # Errors
    /// If libvirt does not answer.
    pub fn leases(&self) -> Result<Vec<IpAddr>> {
        let network = self.network.as_deref().context("the guest has no network")?;
        let table = self.virsh(&["net-dhcp-leases", network, "--mac", &self.mac])?;
        let mut addresses: Vec<IpAddr> = table
            .split_whitespace()
            .filter_map(|word| word.split_once('/'))
            .filter_map(|(address, _)| address.parse().ok())
            .collect();
        addresses.sort();
        Ok(addresses)
    }

    /// Waits for an IPv4 lease.
    ///
    /// # Errors
    /// If there is none after `limit`; the error contains the end of the guest's console.
    pub fn wait_for_lease(&self, limit: Duration) -> Result<IpAddr> {
        self.wait_for_lease_that(limit, "an IPv4 lease", IpAddr::is_ipv4)
    }

    /// Waits for an IPv6 lease, which the guest gets some seconds after the IPv4 one.
    ///
    /// # Errors
    /// If there is none after `limit`; the error contains the end of the guest's console.
    pub fn wait_for_ipv6_lease(&self, limit: Duration) -> Result<IpAddr> {
        self.wait_for_lease_that(limit, "an IPv6 lease", IpAddr::is_ipv6)
    }

    /// Waits for a line on its console, for example `GUEST ready`: everything is up except for the guest
    /// agent, which [`MicroGuest::wait_for_agent`] waits for.
    ///
    /// # Errors
    /// If there is none after `limit`; the error contains the end of the console.
    pub fn wait_for_console(&self, text: &str, limit: Duration) -> Result<()> {
        poll(limit, &format!("the console of {} says {text:?}", self.name), || {
            Ok(self.console().contains(text).then_some(()))
        })
        .with_context(|| self.console_tail())
    }

    /// Waits until the guest agent answers.
    ///
    /// # Errors
    /// If it does not after `limit`; the error contains the end of the console.
    pub fn wait_for_agent(&self, limit: Duration) -> Result<()> {
        poll(limit, &format!("the guest agent of {}", self.name), || {
            self.virsh(&["qemu-agent-command", &self.name, "{\"execute\":\"guest-ping\"}"]).map(Some)
        })
        .map(drop)
        .with_context(|| self.console_tail())
    }

    /// The output on its console since it was last started.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    fn wait_for_lease_that(
        &self,
        limit: Duration,
        what: &str,
        wanted: fn(&IpAddr) -> bool,
    ) -> Result<IpAddr> {
        poll(limit, &format!("{what} for {}", self.name), || Ok(self.leases()?.into_iter().find(wanted)))
            .with_context(|| self.console_tail())
    }

    fn console_tail(&self) -> String {
        format!("the end of the console of {}:\n{}", self.name, crate::process::log_tail(&self.console))
    }

    fn virsh(&self, arguments: &[&str]) -> Result<String> {
        run(virsh(&self.uri).args(arguments))
    }
}

fn domain(name: &str, uuid: &str, mac: &str, image: &MicroGuestImage, options: &MicroGuestOptions) -> String {
    let MicroGuestOptions { network, hostname, agent, memory_mib, metadata, devices, .. } = options;
    let interface = network.as_ref().map_or_else(String::new, |network| {
        format!(
            "<interface type='network'><source network='{network}'/><mac address='{mac}'/>\
             <model type='virtio'/></interface>"
        )
    });
    let agent = if *agent {
        "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
    } else {
        ""
    };
    let kernel = image.kernel.display();
    let initrd = image.initrd.display();
    let command_line = MicroGuestImage::command_line(hostname.as_deref().unwrap_or(name));
    format!(
        "<domain type='qemu'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <metadata>{metadata}</metadata>
  <memory unit='MiB'>{memory_mib}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initrd}</initrd>
    <cmdline>{command_line}</cmdline>
  </os>
  <features><acpi/></features>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>preserve</on_crash>
  <devices>
    {interface}
    <serial type='file'><source path='/var/log/libvirt/qemu/{name}.console'/></serial>
    <console type='file'><target type='serial'/></console>
    {agent}
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <memballoon model='none'/>
    {devices}
  </devices>
</domain>
"
    )
}

/// A MAC address in QEMU's range, from the first three bytes of a UUID.
fn mac_from(uuid: &str) -> String {
    let digits: Vec<char> = uuid.chars().filter(char::is_ascii_hexdigit).take(6).collect();
    let bytes: Vec<String> = digits.chunks(2).map(|pair| pair.iter().collect()).collect();
    format!("52:54:00:{}", bytes.join(":"))
}

fn random_uuid() -> Result<String> {
    let text = fs::read_to_string(Path::new("/proc/sys/kernel/random/uuid")).context("no random numbers")?;
    Ok(text.trim().to_owned())
}
