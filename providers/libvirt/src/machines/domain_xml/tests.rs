use serde_json::{Value, json};

use super::*;
use crate::domain::{AgentChannel, Domain, DomainState};
use cloudprovider::PowerState;

const UID: Uuid = Uuid::from_u128(0x5d0b_0b0e_3c53_4c5c_9b5e_2f0f_6c9a_7a10);

fn mark() -> Mark {
    Mark::machine(UID.to_string(), "default", "prod", "node-1")
}

fn spec(more: &Value) -> LibvirtMachineSpec {
    let mut value = json!({
        "vcpus": 2, "memoryMiB": 2048,
        "image": { "volume": { "name": "debian-12.qcow2" } },
        "disks": [{ "sizeGiB": 20 }],
    });
    for (name, field) in more.as_object().expect("an object") {
        value[name] = field.clone();
    }
    serde_json::from_value(value).expect("valid")
}

fn host(has_kvm: bool) -> Capabilities {
    Capabilities { arch: "x86_64".to_owned(), has_kvm }
}

fn root() -> PlannedDisk {
    PlannedDisk {
        name: "root".to_owned(),
        path: "/images/root".to_owned(),
        format: ImageFormat::Qcow2,
        backing: Some(("/images/debian-12.qcow2".to_owned(), ImageFormat::Qcow2)),
        bus: DiskBus::Virtio,
    }
}

fn plan<'a>(mark: &'a Mark, spec: &'a LibvirtMachineSpec, capabilities: &'a Capabilities) -> DomainPlan<'a> {
    DomainPlan {
        mark,
        uuid: UID,
        spec,
        is_control_plane: false,
        capabilities,
        disks: vec![root()],
        bootstrap: PlannedBootstrap::Seed("/images/seed".to_owned()),
        console: Some("/images/console.log".to_owned()),
    }
}

#[test]
fn a_small_machine() {
    let (mark, spec, host) = (mark(), spec(&json!({})), host(true));
    let xml = plan(&mark, &spec, &host).xml().expect("valid");
    assert_eq!(
        xml,
        "\
<domain type='kvm'>
  <name>default-node-1-kvvaowjlr5hv</name>
  <uuid>5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10</uuid>
  <metadata>
    <ccm:instance xmlns:ccm='urn:cloud-controller-manager:libvirt:1' cluster='prod'>
      <ccm:mark uid='5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10' namespace='default' cluster='prod' machine='node-1'/>
    </ccm:instance>
  </metadata>
  <memory unit='MiB'>2048</memory>
  <currentMemory unit='MiB'>2048</currentMemory>
  <vcpu placement='static'>2</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
  </os>
  <features>
    <acpi/>
    <apic/>
  </features>
  <cpu mode='host-passthrough'/>
  <clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>restart</on_crash>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' discard='unmap'/>
      <source file='/images/root'/>
      <backingStore type='file'>
        <format type='qcow2'/>
        <source file='/images/debian-12.qcow2'/>
        <backingStore/>
      </backingStore>
      <target dev='vda' bus='virtio'/>
      <serial>root</serial>
      <boot order='1'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='/images/seed'/>
      <target dev='vdb' bus='virtio'/>
      <readonly/>
      <serial>seed</serial>
    </disk>
    <interface type='network'>
      <mac address='02:01:55:ec:95:d9'/>
      <source network='default'/>
      <model type='virtio'/>
    </interface>
    <serial type='file'>
      <source path='/images/console.log' append='on'/>
      <target port='0'/>
    </serial>
    <console type='file'>
      <source path='/images/console.log' append='on'/>
      <target type='serial' port='0'/>
    </console>
    <channel type='unix'>
      <target type='virtio' name='org.qemu.guest_agent.0'/>
    </channel>
    <rng model='virtio'>
      <backend model='random'>/dev/urandom</backend>
    </rng>
    <memballoon model='virtio'/>
    <panic model='isa'/>
  </devices>
</domain>
"
    );
}

#[test]
fn what_is_written_is_read_back() {
    let mark = Mark::machine(UID.to_string(), "team-a", "a&b", "node<1>");
    let (spec, host) = (spec(&json!({})), host(false));
    let xml = DomainPlan { is_control_plane: true, ..plan(&mark, &spec, &host) }.xml().expect("valid");
    let state = Ok(DomainState { power: PowerState::Running });
    let domain = Domain::parse(&xml, state).expect("it is a domain");
    assert!(mark.owns(domain.mark()), "{domain:?}");
    assert_eq!(
        (domain.uuid, domain.name.as_str(), domain.agent),
        (UID, names::domain(&mark).as_str(), AgentChannel::Disconnected)
    );
    assert_eq!((domain.vcpus, domain.memory_mib, domain.nics.len()), (2, 2048, 1));
    let metadata = domain.metadata.as_deref().expect("there");
    assert_eq!((metadata.cluster.as_deref(), metadata.role.as_deref()), (Some("a&b"), Some("control-plane")));
    assert_eq!(
        crate::inventory::reference(&domain).machine,
        Some(UID.to_string()),
        "changes wake the object"
    );
}

#[test]
fn everything_at_once() {
    let spec = spec(&json!({
        "firmware": "uefiSecureBoot", "cpu": { "model": "Haswell" }, "machineType": "pc-q35-7.2",
        "guestAgent": false,
        "interfaces": [
            { "bridge": "br0", "model": "e1000e", "mac": "52:54:00:AA:BB:0C" },
            { "macvtap": { "device": "eth1", "mode": "private" } },
        ],
    }));
    let (mark, host) = (mark(), host(true));
    let disk = |name: &str, path: &str, bus| PlannedDisk {
        name: name.to_owned(),
        path: path.to_owned(),
        format: ImageFormat::Raw,
        backing: None,
        bus,
    };
    let disks = vec![
        disk("root", "/dev/vg/root", DiskBus::Scsi),
        disk("disk1", "/images/1", DiskBus::Virtio),
        disk("etcd", "/images/2", DiskBus::Sata),
    ];
    let ignition = PlannedBootstrap::Ignition("/images/ignition".to_owned());
    let plan = DomainPlan { disks, bootstrap: ignition, console: None, ..plan(&mark, &spec, &host) };
    let xml = plan.xml().expect("valid");
    for part in [
        "<entry name='opt/com.coreos/config' file='/images/ignition'/>",
        "<os firmware='efi'>",
        "<type arch='x86_64' machine='pc-q35-7.2'>hvm</type>",
        "<feature enabled='yes' name='secure-boot'/>",
        "<smm state='on'/>",
        "<cpu mode='custom' match='exact'>",
        "<model fallback='forbid'>Haswell</model>",
        "<disk type='block' device='disk'>",
        "<source dev='/dev/vg/root'/>",
        "<target dev='sda' bus='scsi'/>",
        "<target dev='vda' bus='virtio'/>",
        "<target dev='sdb' bus='sata'/>",
        "<controller type='scsi' index='0' model='virtio-scsi'/>",
        "<mac address='52:54:00:aa:bb:0c'/>",
        "<model type='e1000e'/>",
        "<mac address='02:11:55:ec:95:d9'/>",
        "<source dev='eth1' mode='private'/>",
        "<serial type='pty'>",
    ] {
        assert!(xml.contains(part), "{part} is missing in {xml}");
    }
    assert!(!xml.contains("<readonly/>") && !xml.contains("<channel"), "{xml}");
}

#[test]
fn the_cpu_is_what_the_hypervisor_can_do() {
    let mark = mark();
    for (cpu, has_kvm, expected) in [
        (Value::Null, true, Ok("<cpu mode='host-passthrough'/>")),
        (Value::Null, false, Ok("<cpu mode='maximum'/>")),
        (json!({ "mode": "host-model" }), false, Ok("<cpu mode='host-model'/>")),
        (json!({ "mode": "maximum" }), true, Ok("<cpu mode='maximum'/>")),
        (json!({ "mode": "host-passthrough" }), false, Err(ErrorKind::Unsupported)),
        (json!({}), true, Err(ErrorKind::InvalidInput)),
        (json!({ "mode": "maximum", "model": "Haswell" }), true, Err(ErrorKind::InvalidInput)),
    ] {
        let (spec, host) = (spec(&json!({ "cpu": cpu })), host(has_kvm));
        match (plan(&mark, &spec, &host).xml(), expected) {
            (Ok(xml), Ok(part)) => assert!(xml.contains(part), "{cpu}: {xml}"),
            (Err(error), Err(kind)) => {
                assert_eq!(error.kind(), kind, "{cpu}");
                assert!(error.report().starts_with("spec.cpu"), "{}", error.report());
            }
            (answer, _) => panic!("{cpu}: {answer:?}"),
        }
    }
}

#[test]
fn a_guest_is_emulated_where_that_is_asked_for() {
    let (mark, with, without) = (mark(), host(true), host(false));
    let emulated = spec(&json!({ "domainType": "qemu" }));
    let xml = plan(&mark, &emulated, &with).xml().expect("XML");
    assert!(xml.contains("<domain type='qemu'>") && xml.contains("<cpu mode='maximum'/>"), "{xml}");
    let error = plan(&mark, &spec(&json!({ "domainType": "kvm" })), &without).xml().expect_err("no KVM");
    assert_eq!((error.kind(), error.report().starts_with("spec.domainType")), (ErrorKind::Unsupported, true));
}

#[test]
fn a_wrong_mac_address_is_named() {
    let spec = spec(&json!({ "interfaces": [{ "network": "default", "mac": "nonsense" }] }));
    let (mark, host) = (mark(), host(true));
    let error = plan(&mark, &spec, &host).xml().expect_err("no MAC address");
    assert!(error.report().starts_with("spec.interfaces[0].mac: \"nonsense\""), "{}", error.report());
}

#[test]
fn libvirt_accepts_it() {
    let mark = mark();
    let connect = crate::sys::open("test:///default", None).expect("the test driver");
    for more in [
        json!({}),
        json!({ "firmware": "uefiSecureBoot", "interfaces": [{ "bridge": "br0" }, { "macvtap": { "device": "eth0" } }] }),
    ] {
        for has_kvm in [true, false] {
            let (spec, host) = (spec(&more), host(has_kvm));
            let xml = plan(&mark, &spec, &host).xml().expect("valid");
            let domain = connect.define_domain_xml(&xml).expect("libvirt accepts it");
            assert_eq!(domain.uuid().expect("a UUID"), UID);
            let read = Domain::parse(&domain.xml_desc(0).expect("readable"), Err(String::new()));
            assert!(mark.owns(read.expect("a domain").mark()), "libvirt keeps the mark");
            // The driver is shared with other tests.
            domain.undefine().expect("it is off");
        }
    }
}
