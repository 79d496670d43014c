//! A real hypervisor with an image for machines, as it is seen from outside: with virsh and in its files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{Libvirtd, MicroGuestImage, Process, StartError};

use crate::machines::libvirt::{allow_folder_of, make_pool, sha256, things};

/// The failure domain of its machines.
pub(crate) const ZONE: &str = "rack-1";

/// How many things there are of a machine: domain, disk, seed, console log and the reservation of its address.
const THINGS: usize = 5;

/// A domain. The number is another one after each start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    pub(crate) uuid: String,
    number: String,
    state: String,
}

impl Domain {
    /// Whether its guest runs.
    pub(crate) fn runs(&self) -> bool {
        self.state == "running"
    }
}

/// A libvirtd with nothing on it but an empty pool and a network.
pub(crate) struct Hypervisor {
    libvirtd: Libvirtd,
    /// The image.
    disk: PathBuf,
    folder: TempDir,
    empty: Vec<String>,
}

impl Hypervisor {
    /// One with the image of the micro guest.
    pub(crate) fn start() -> Result<Self, StartError> {
        Self::with_image(MicroGuestImage::find()?.disk)
    }

    /// One with this image, a raw disk.
    pub(crate) fn with_image(disk: PathBuf) -> Result<Self, StartError> {
        let libvirtd = Libvirtd::start()?;
        make_pool(&libvirtd)?;
        let started = Self {
            empty: things(&libvirtd)?,
            libvirtd,
            disk,
            folder: tempfile::tempdir().map_err(anyhow::Error::from)?,
        };
        fs::write(started.config(), started.config_text()).context("the configuration")?;
        Ok(started)
    }

    /// Its libvirtd.
    pub(crate) fn libvirtd(&self) -> &Libvirtd {
        &self.libvirtd
    }

    /// The file with the provider's configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("cloud.yaml")
    }

    /// The provider's configuration.
    pub(crate) fn config_text(&self) -> String {
        let uri = self.libvirtd.uri();
        let allow = allow_folder_of(&self.disk);
        format!(
            "hypervisors: [{{name: kvm1, uri: '{uri}', region: lab, zone: {ZONE}}}]\n\
             machines: {{reservedMemoryMiB: 0, allow: {allow}}}\n"
        )
    }

    /// The spec of machines that boot from the image.
    pub(crate) fn machine(&self, memory_mib: u32) -> anyhow::Result<Value> {
        let disk = &self.disk;
        Ok(json!({
            "vcpus": 1,
            "memoryMiB": memory_mib,
            "domainType": "qemu",
            "image": {"file": disk, "checksum": sha256(disk)?, "format": "raw"},
            "disks": [{"sizeGiB": 1}],
            "interfaces": [{"network": "default", "reservation": {}}],
        }))
    }

    /// All domains, by the name of their machine.
    pub(crate) fn domains(&self) -> anyhow::Result<BTreeMap<String, Domain>> {
        let table = self.libvirtd.virsh_output(&["list", "--all"])?;
        let uuids = self.libvirtd.virsh_output(&["list", "--all", "--uuid", "--name"])?;
        let uuids: BTreeMap<_, _> = uuids
            .lines()
            .filter_map(|line| line.trim().split_once(char::is_whitespace))
            .map(|(uuid, name)| (name.trim(), uuid))
            .collect();
        let domain = |line: &str| {
            let (number, rest) = line.trim().split_once(char::is_whitespace)?;
            let (name, state) = rest.trim().split_once(char::is_whitespace)?;
            // one that vanished between the two calls is not there
            let uuid = (*uuids.get(name)?).to_owned();
            let domain = Domain { uuid, number: number.to_owned(), state: state.trim().to_owned() };
            Some((machine_of(name)?.to_owned(), domain))
        };
        Ok(table.lines().filter_map(domain).collect())
    }

    /// That there are exactly these machines, they run, and nothing is there beside them.
    pub(crate) fn runs<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> anyhow::Result<()> {
        let (domains, names) = (self.domains()?, Vec::from_iter(names));
        ensure!(domains.keys().eq(names.iter().copied()), "{domains:?}, wanted {names:?}");
        ensure!(domains.values().all(Domain::runs), "{domains:?}");
        let things = things(&self.libvirtd)?;
        ensure!(things.len() == self.empty.len() + THINGS * names.len(), "{things:?}");
        Ok(())
    }

    /// That nothing is left of any machine.
    pub(crate) fn is_empty(&self) -> anyhow::Result<()> {
        let things = things(&self.libvirtd)?;
        ensure!(things == self.empty, "left: {things:?}");
        Ok(())
    }

    /// Ends a domain and its definition, as a careless administrator does. Its volumes stay.
    pub(crate) fn undefine(&self, machine: &str) -> anyhow::Result<()> {
        let uuid = self.destroy(machine)?;
        self.libvirtd.virsh_output(&["undefine", &uuid]).map(drop)
    }

    /// Powers a domain off at once. Its definition stays. Returns its UUID.
    pub(crate) fn destroy(&self, machine: &str) -> anyhow::Result<String> {
        let domain = self.domains()?.remove(machine).context("no domain")?;
        self.libvirtd.virsh_output(&["destroy", &domain.uuid])?;
        Ok(domain.uuid)
    }

    /// Has the guest agent of a machine run a program, without waiting for its end.
    pub(crate) fn run_in(&self, machine: &str, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let domain = self.domains()?.remove(machine).context("no domain")?;
        let command = json!({"execute": "guest-exec", "arguments": {"path": program, "arg": arguments}});
        self.libvirtd.virsh_output(&["qemu-agent-command", &domain.uuid, &command.to_string()]).map(drop)
    }

    /// Records what libvirt tells of domains from now on, in this file.
    pub(crate) fn record_events(&self, file: &Path) -> anyhow::Result<Events> {
        let mut command = Command::new("stdbuf");
        // line by line
        command.args(["--output=L", "virsh", "--connect", &self.libvirtd.uri(), "event", "--all", "--loop"]);
        Ok(Events(Process::spawn("virsh event", &command, file)?))
    }

    /// Whether the network has leased this address to somebody.
    pub(crate) fn has_leased(&self, address: &str) -> anyhow::Result<bool> {
        let leases = self.libvirtd.virsh_output(&["net-dhcp-leases", "default"])?;
        Ok(leases.split_whitespace().any(|word| word.split('/').next() == Some(address)))
    }

    /// What machines have printed on their consoles, as far as those still are there, by UUID.
    pub(crate) fn consoles(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut consoles = BTreeMap::new();
        for file in fs::read_dir(self.libvirtd.data_folder().join("images"))? {
            let path = file?.path();
            // one that is deleted meanwhile is not there
            if let (Some(uuid), Ok(printed)) = (console_of(&path), fs::read(&path)) {
                consoles.insert(uuid, String::from_utf8_lossy(&printed).into_owned());
            }
        }
        Ok(consoles)
    }
}

/// What libvirt has told of domains. Recorded until it is dropped.
pub(crate) struct Events(Process);

impl Events {
    /// One line for each event.
    pub(crate) fn so_far(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.0.log())?)
    }
}

/// The machine of a domain: `NAMESPACE-MACHINE-HASH`. The namespaces of these tests have no hyphen.
fn machine_of(domain: &str) -> Option<&str> {
    Some(domain.split_once('-')?.1.rsplit_once('-')?.0)
}

/// The UUID of the machine whose console log this is: `ccm-UUID-HASH-console.log`.
fn console_of(path: &Path) -> Option<String> {
    const UUID: usize = 36;
    let name = path.file_name()?.to_str()?.strip_suffix("-console.log")?;
    name.strip_prefix("ccm-")?.get(..UUID).map(str::to_owned)
}
