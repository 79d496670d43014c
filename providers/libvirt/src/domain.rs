//! A domain as this provider sees it, and the parser of libvirt's XML.

use std::collections::BTreeMap;

use cloudprovider::{PowerState, machines::Mark, uuids::parse_uuid};
use quick_xml::{
    NsReader, XmlVersion,
    escape::resolve_xml_entity,
    events::{BytesStart, Event},
    name::{Namespace, ResolveResult},
};
use uuid::Uuid;

use crate::mac::Mac;

/// Namespace of the element `instance` in a domain's `<metadata>`, for properties that libvirt's own XML
/// cannot hold.
pub const METADATA_NAMESPACE: &str = "urn:cloud-controller-manager:libvirt:1";

/// Name of the virtio channel of the guest agent.
pub(crate) const AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";

/// How the names of the volumes begin of a machine whose mark has this UID.
pub(crate) fn volume_prefix(uid: &str) -> String {
    format!("ccm-{uid}-")
}

/// A domain: its XML and its state. About 500 bytes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u64,
    /// In the order of the XML.
    pub(crate) nics: Vec<Nic>,
    pub(crate) agent: AgentChannel,
    pub(crate) metadata: Option<Box<DomainMetadata>>,
    /// The state, or libvirt's message why it is not known.
    pub(crate) state: Result<DomainState, String>,
}

/// A NIC of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nic {
    pub(crate) mac: Mac,
    pub(crate) source: NicSource,
}

impl Nic {
    /// The libvirt network that it is on.
    pub(crate) fn network(&self) -> Option<&str> {
        match &self.source {
            NicSource::Network(name) => Some(name),
            NicSource::Other => None,
        }
    }
}

/// What a NIC is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NicSource {
    /// A libvirt network, whose DHCP server may know the NIC's address.
    Network(String),
    /// Anything else; only the guest agent can know its address.
    Other,
}

/// The guest agent's channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentChannel {
    /// The domain has no channel.
    None,
    /// It has a channel, and no agent is connected.
    Disconnected,
    /// An agent is connected.
    Connected,
}

/// The fields that are read from the domain's `<metadata>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DomainMetadata {
    pub(crate) instance_type: Option<String>,
    pub(crate) cluster: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// Whose machine it is, if it was made here.
    pub(crate) mark: Option<Mark>,
    /// The file name of one of its disks that is called after the UID of the mark.
    pub(crate) volume: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// The state of a domain, in the terms of this provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DomainState {
    pub(crate) power: PowerState,
}

impl DomainState {
    /// From `virDomainState` and its reason. `None` for values that libvirt does not define.
    pub(crate) fn from_raw(state: i32, reason: i32) -> Option<Self> {
        let state = u32::try_from(state).ok()?;
        let shutoff_crashed = i32::try_from(virt_sys::VIR_DOMAIN_SHUTOFF_CRASHED).ok()?;
        let power = match state {
            virt_sys::VIR_DOMAIN_NOSTATE | virt_sys::VIR_DOMAIN_RUNNING | virt_sys::VIR_DOMAIN_BLOCKED => {
                PowerState::Running
            }
            virt_sys::VIR_DOMAIN_PAUSED | virt_sys::VIR_DOMAIN_PMSUSPENDED => PowerState::Paused,
            virt_sys::VIR_DOMAIN_SHUTDOWN => PowerState::ShuttingDown,
            virt_sys::VIR_DOMAIN_SHUTOFF if reason == shutoff_crashed => PowerState::Crashed,
            virt_sys::VIR_DOMAIN_SHUTOFF => PowerState::Off,
            virt_sys::VIR_DOMAIN_CRASHED => PowerState::Crashed,
            _ => return None,
        };
        Some(Self { power })
    }
}

impl Domain {
    /// A domain that exists and cannot be read, and why.
    pub(crate) fn unreadable(uuid: Uuid, name: String, why: String) -> Self {
        Self {
            uuid,
            name,
            vcpus: 0,
            memory_mib: 0,
            nics: Vec::new(),
            agent: AgentChannel::None,
            metadata: None,
            state: Err(why),
        }
    }

    /// Whether it runs. False if its state is not known.
    pub(crate) fn is_running(&self) -> bool {
        self.power() == Some(PowerState::Running)
    }

    pub(crate) fn power(&self) -> Option<PowerState> {
        self.state.as_ref().ok().map(|state| state.power)
    }

    /// The instance type: the class from the metadata, or one made from vCPUs and memory, such as `2c-4096m`.
    pub(crate) fn instance_type(&self) -> String {
        self.metadata
            .as_ref()
            .and_then(|metadata| metadata.instance_type.clone())
            .unwrap_or_else(|| format!("{}c-{}m", self.vcpus, self.memory_mib))
    }

    /// Whose machine it is, if it was made here.
    pub(crate) fn mark(&self) -> Option<&Mark> {
        self.metadata.as_ref()?.mark.as_ref()
    }

    /// A volume of the machine that the domain has as a disk, if it was made here.
    pub(crate) fn volume(&self) -> Option<&str> {
        self.metadata.as_ref()?.volume.as_deref()
    }

    /// The name of its Node, as far as the domain tells: that of its machine, if it was made here, else its
    /// own.
    pub(crate) fn node_name(&self) -> &str {
        self.mark().and_then(|mark| mark.machine.as_deref()).unwrap_or(&self.name)
    }

    /// Whether its Node has another name than the domain.
    pub(crate) fn has_node_name(&self) -> bool {
        self.node_name() != self.name
    }

    /// The libvirt networks that its NICs are on.
    pub(crate) fn networks(&self) -> impl Iterator<Item = &str> {
        self.nics.iter().filter_map(|nic| match &nic.source {
            NicSource::Network(name) => Some(name.as_str()),
            NicSource::Other => None,
        })
    }

    /// Whether any source can know its addresses.
    pub(crate) fn has_address_source(&self) -> bool {
        !self.nics.is_empty() && (self.networks().next().is_some() || self.agent != AgentChannel::None)
    }

    /// Parses the XML of a domain. The state is not in the XML, so it is passed in.
    pub(crate) fn parse(xml: &str, state: Result<DomainState, String>) -> Result<Self, String> {
        let mut parser = Parser::default();
        let mut reader = NsReader::from_str(xml);
        loop {
            let (namespace, event) = reader.read_resolved_event().map_err(|error| error.to_string())?;
            let ours = namespace == ResolveResult::Bound(Namespace(METADATA_NAMESPACE));
            match event {
                Event::Start(start) => parser.open(&start, ours),
                Event::Empty(start) => {
                    parser.open(&start, ours);
                    parser.close();
                }
                Event::End(_) => parser.close(),
                Event::Text(text) => parser.text.push_str(&text.xml_content(XmlVersion::Implicit1_0)),
                Event::CData(text) => parser.text.push_str(&text.xml_content(XmlVersion::Implicit1_0)),
                Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                    Ok(Some(character)) => parser.text.push(character),
                    _ => parser.text.push_str(resolve_xml_entity(&reference).unwrap_or_default()),
                },
                Event::Eof => break,
                _ => {}
            }
        }
        parser.finish(state)
    }
}

/// The parts read so far. Elements are identified by their path. Elements in foreign metadata do not count,
/// even if they have the same names.
#[derive(Default)]
struct Parser {
    path: Vec<String>,
    text: String,
    unit: Option<String>,
    current: Option<String>,
    uuid: Option<Uuid>,
    name: Option<String>,
    vcpus: Option<u32>,
    memory_mib: Option<u64>,
    nics: Vec<Nic>,
    mac: Option<Mac>,
    source: Option<NicSource>,
    agent: Option<AgentChannel>,
    metadata: Option<Box<DomainMetadata>>,
    /// The file names of its disks.
    volumes: Vec<String>,
    label: Option<String>,
}

impl Parser {
    fn open(&mut self, start: &BytesStart<'_>, ours: bool) {
        let local = start.local_name();
        // a foreign element inside <metadata> gets a name that matches no path below
        let name = match (self.path.get(1).map(String::as_str), ours) {
            (Some("metadata"), true) => format!("ccm:{}", local.as_ref()),
            (Some("metadata"), false) => "-".to_owned(),
            _ => local.as_ref().to_owned(),
        };
        self.path.push(name);
        self.text.clear();
        let attribute = |wanted: &str| attribute(start, wanted);
        match self.place().as_slice() {
            ["domain", "memory"] => self.unit = attribute("unit"),
            ["domain", "vcpu"] => self.current = attribute("current"),
            ["domain", "devices", "disk", "source"] => {
                let path = attribute("file").or_else(|| attribute("dev"));
                let name = path.as_deref().and_then(|path| path.rsplit('/').next());
                self.volumes.extend(name.map(str::to_owned));
            }
            ["domain", "devices", "interface"] => {
                self.mac = None;
                self.source = None;
            }
            ["domain", "devices", "interface", "mac"] => {
                self.mac = attribute("address").as_deref().and_then(Mac::parse);
            }
            ["domain", "devices", "interface", "source"] => {
                self.source = attribute("network").map(NicSource::Network);
            }
            ["domain", "devices", "channel", "target"]
                if attribute("name").as_deref() == Some(AGENT_CHANNEL) =>
            {
                let connected = attribute("state").as_deref() == Some("connected");
                self.agent =
                    Some(if connected { AgentChannel::Connected } else { AgentChannel::Disconnected });
            }
            ["domain", "metadata", "ccm:instance"] => {
                self.metadata = Some(Box::new(DomainMetadata {
                    instance_type: attribute("type"),
                    cluster: attribute("cluster"),
                    role: attribute("role"),
                    endpoint: attribute("endpoint"),
                    mark: None,
                    volume: None,
                    labels: BTreeMap::new(),
                }));
            }
            ["domain", "metadata", "ccm:instance", "ccm:label"] => self.label = attribute("key"),
            ["domain", "metadata", "ccm:instance", "ccm:mark"] => {
                if let (Some(metadata), Some(uid), Some(namespace), Some(cluster)) =
                    (&mut self.metadata, attribute("uid"), attribute("namespace"), attribute("cluster"))
                {
                    metadata.mark = Some(Mark {
                        machine: attribute("machine"),
                        ..Mark::cluster(uid, namespace, cluster)
                    });
                }
            }
            _ => {}
        }
    }

    fn close(&mut self) {
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match self.place().as_slice() {
            ["domain", "uuid"] => self.uuid = parse_uuid(text),
            ["domain", "name"] => self.name = Some(text.to_owned()),
            ["domain", "vcpu"] => {
                let current = self.current.take();
                self.vcpus = current.as_deref().unwrap_or(text).parse().ok();
            }
            ["domain", "memory"] => {
                let unit = self.unit.take();
                self.memory_mib = text.parse().ok().map(|number| mebibytes(number, unit.as_deref()));
            }
            ["domain", "devices", "interface"] => {
                if let Some(mac) = self.mac.take() {
                    self.nics.push(Nic { mac, source: self.source.take().unwrap_or(NicSource::Other) });
                }
            }
            ["domain", "metadata", "ccm:instance", "ccm:label"] => {
                if let (Some(key), Some(metadata)) = (self.label.take(), &mut self.metadata) {
                    metadata.labels.insert(key, text.to_owned());
                }
            }
            _ => {}
        }
        self.path.pop();
    }

    fn place(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    fn finish(mut self, state: Result<DomainState, String>) -> Result<Domain, String> {
        if let Some(metadata) = &mut self.metadata
            && let Some(mark) = &metadata.mark
        {
            let prefix = volume_prefix(&mark.uid);
            metadata.volume = self.volumes.into_iter().find(|name| name.starts_with(&prefix));
        }
        Ok(Domain {
            uuid: self.uuid.ok_or("the XML of the domain has no valid <uuid>")?,
            name: self.name.filter(|name| !name.is_empty()).ok_or("the XML of the domain has no <name>")?,
            vcpus: self.vcpus.unwrap_or(1),
            memory_mib: self.memory_mib.unwrap_or(0),
            nics: self.nics,
            agent: self.agent.unwrap_or(AgentChannel::None),
            metadata: self.metadata,
            state,
        })
    }
}

/// A non-empty attribute.
fn attribute(start: &BytesStart<'_>, wanted: &str) -> Option<String> {
    start
        .attributes()
        .flatten()
        .find(|attribute| attribute.key.as_ref() == wanted)
        .and_then(|attribute| attribute.normalized_value(XmlVersion::Implicit1_0).ok())
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

/// libvirt writes KiB. Other units occur only in XML that a person wrote.
fn mebibytes(number: u64, unit: Option<&str>) -> u64 {
    match unit {
        Some("b" | "bytes") => number >> 20,
        Some("M" | "MiB") => number,
        Some("G" | "GiB") => number << 10,
        Some("T" | "TiB") => number << 20,
        _ => number >> 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: Result<DomainState, String> = Ok(DomainState { power: PowerState::Running });

    const XML: &str = r"<domain type='qemu' id='3'>
  <name>node&amp;1</name>
  <uuid>01234567-89ab-cdef-0123-456789abcdef</uuid>
  <metadata>
    <x:instance xmlns:x='urn:somebody:else' type='wrong'><x:name>wrong</x:name></x:instance>
    <ccm:instance xmlns:ccm='urn:cloud-controller-manager:libvirt:1' type='m.large' cluster='prod'
      role='control-plane'><ccm:label key='example.org/rack'>r&lt;1</ccm:label><ccm:label>no key</ccm:label>
    </ccm:instance>
  </metadata>
  <memory unit='KiB'>4194304</memory>
  <vcpu placement='static' current='2'>4</vcpu>
  <devices>
    <interface type='network'>
      <mac address='52:54:00:00:00:01'/>
      <source network='default' portid='x' bridge='virbr0'/>
    </interface>
    <interface type='bridge'><source bridge='br0'/><mac address='52:54:00:00:00:02'/></interface>
    <interface type='user'/>
    <channel type='unix'>
      <source mode='bind' path='/x'/>
      <target type='virtio' name='org.qemu.guest_agent.0' state='connected'/>
    </channel>
    <channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0' state='disconnected'/></channel>
  </devices>
</domain>";

    #[test]
    fn a_whole_domain() {
        let domain = Domain::parse(XML, RUNNING).expect("valid");
        assert_eq!(domain.uuid.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(domain.name, "node&1");
        assert_eq!((domain.vcpus, domain.memory_mib), (2, 4096));
        assert_eq!(domain.nics.len(), 2);
        assert_eq!(domain.nics[0].source, NicSource::Network("default".into()));
        assert_eq!(domain.nics[1].source, NicSource::Other);
        assert_eq!(domain.nics[1].mac.to_string(), "52:54:00:00:00:02");
        assert_eq!(domain.agent, AgentChannel::Connected);
        assert_eq!(domain.instance_type(), "m.large");
        let metadata = domain.metadata.expect("there");
        assert_eq!(
            (metadata.cluster.as_deref(), metadata.role.as_deref()),
            (Some("prod"), Some("control-plane"))
        );
        assert_eq!(metadata.labels, BTreeMap::from([("example.org/rack".into(), "r<1".into())]));
    }

    #[test]
    fn a_default_namespace_is_ours_too() {
        let xml = "<domain><name>a</name><uuid>01234567-89ab-cdef-0123-456789abcdef</uuid><metadata>\
            <instance xmlns='urn:cloud-controller-manager:libvirt:1' type='t'><label key='k'>v</label></instance>\
            </metadata><memory>1048576</memory><vcpu>1</vcpu></domain>";
        let domain = Domain::parse(xml, RUNNING).expect("valid");
        assert_eq!(domain.instance_type(), "t");
        assert_eq!(domain.metadata.expect("there").labels.len(), 1);
    }

    #[test]
    fn a_machine_has_a_volume_of_its_own_uid_among_its_disks() {
        let with = |devices: &str| {
            let xml = format!(
                "<domain><name>a</name><uuid>01234567-89ab-cdef-0123-456789abcdef</uuid><metadata>\
                 <c:instance xmlns:c='urn:cloud-controller-manager:libvirt:1'><c:mark uid='u' namespace='n' cluster='c'/>\
                 </c:instance></metadata><devices>{devices}</devices></domain>"
            );
            Domain::parse(&xml, RUNNING).expect("valid").volume().map(str::to_owned)
        };
        let added = "<disk><source file='/iso/ccm-v-1-seed'/></disk><disk/>";
        let own = "<disk><source dev='/dev/vg/ccm-u-1-seed'/></disk>";
        assert_eq!(with(&format!("{added}{own}")).as_deref(), Some("ccm-u-1-seed"));
        let below = "<disk><source file='/x'/><backingStore><source file='/images/ccm-u-1-disk-root'/></backingStore></disk>";
        let elsewhere = "<serial><source path='/images/ccm-u-1-console.log'/></serial>";
        assert_eq!(with(&format!("{added}{below}{elsewhere}")), None);
    }

    #[test]
    fn without_metadata_the_type_is_made_of_size() {
        let xml = "<domain><name>a</name><uuid>01234567-89ab-cdef-0123-456789abcdef</uuid>\
            <memory unit='KiB'>2097152</memory><vcpu>3</vcpu></domain>";
        assert_eq!(Domain::parse(xml, RUNNING).expect("valid").instance_type(), "3c-2048m");
    }

    #[test]
    fn broken_xml_is_an_error() {
        for xml in
            ["", "<domain>", "<domain><name>a</name></domain>", "<domain><uuid>x</uuid></domain>", "<a></b>"]
        {
            assert!(Domain::parse(xml, RUNNING).is_err(), "{xml}");
        }
    }

    #[test]
    fn states() {
        use PowerState::{Crashed, Off, Paused, Running, ShuttingDown};
        for (state, reason, power) in [
            (0, 0, Running),
            (1, 1, Running),
            (2, 0, Running),
            (3, 1, Paused),
            (7, 0, Paused),
            (4, 0, ShuttingDown),
            (5, 1, Off),
            (5, 3, Crashed),
            (6, 0, Crashed),
            (5, 6, Off),
        ] {
            assert_eq!(DomainState::from_raw(state, reason), Some(DomainState { power }), "{state}/{reason}");
        }
        // the safe layer's state() returns an undefined value for a dead connection
        for unknown in [-1, 8, 99] {
            assert_eq!(DomainState::from_raw(unknown, -1), None);
        }
    }
}
