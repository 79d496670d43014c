use serde_json::{Value, json};

use super::{interface::MacvtapSpec, *};

fn spec(value: Value) -> Result<LibvirtMachineSpec, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn small() -> Value {
    json!({
        "vcpus": 2, "memoryMiB": 2048,
        "image": { "volume": { "name": "debian-12.qcow2" } },
        "disks": [{ "sizeGiB": 20 }],
    })
}

#[test]
fn defaults() {
    let spec = spec(small()).expect("valid");
    assert_eq!((spec.firmware, spec.root_disk_mode), (Firmware::Bios, RootDiskMode::Overlay));
    assert_eq!(spec.interfaces, [InterfaceSpec::on_network("default")]);
    assert!(spec.autostart && spec.serial_log && spec.guest_agent);
    assert!(!spec.quote_serial_log && !spec.remove_bootstrap_data);
    assert_eq!((spec.power_off_mode, spec.soft_power_off_timeout_seconds), (PowerOffMode::Hard, 300));
    assert_eq!((spec.pool(), spec.pools()), ("default", vec!["default"]));
}

#[test]
fn words_are_those_of_libvirt_and_cluster_api() {
    let mut value = small();
    let more = json!({
        "cpu": { "mode": "host-passthrough" }, "firmware": "uefiSecureBoot", "rootDiskMode": "copy",
        "powerOffMode": "trySoft", "softPowerOffTimeoutSeconds": 60,
        "interfaces": [
            { "network": "default", "reservation": {} }, { "bridge": "br0", "model": "e1000e" },
            { "macvtap": { "device": "eth0", "mode": "vepa" } },
        ],
        "disks": [{ "sizeGiB": 8 }, { "sizeGiB": 1, "pool": "fast", "bus": "scsi", "format": "raw" },
            { "sizeGiB": 1, "name": "etcd" }],
    });
    for (name, field) in more.as_object().expect("an object") {
        value[name] = field.clone();
    }
    let spec = spec(value).expect("valid");
    assert_eq!(spec.cpu.as_ref().and_then(|cpu| cpu.mode), Some(CpuMode::HostPassthrough));
    assert_eq!((spec.firmware, spec.power_off_mode), (Firmware::UefiSecureBoot, PowerOffMode::TrySoft));
    let names: Vec<_> = spec.named_disks().map(|(name, _)| name).collect();
    assert_eq!(names, ["root", "disk1", "etcd"]);
    assert_eq!(spec.pools(), ["default", "fast"]);
    let sources: Vec<_> =
        spec.interfaces.iter().enumerate().map(|(i, one)| one.source(i).expect("one")).collect();
    assert_eq!(sources[..2], [InterfaceSource::Network("default"), InterfaceSource::Bridge("br0")]);
    assert!(matches!(sources[2], InterfaceSource::Macvtap(MacvtapSpec { mode: MacvtapMode::Vepa, .. })));
}

#[test]
fn an_unknown_field_is_named() {
    let mut value = small();
    value["memory"] = json!(4);
    assert!(spec(value).expect_err("unknown").contains("unknown field `memory`"));
}

#[test]
fn an_image_is_exactly_one_thing() {
    let image = |value: Value| serde_json::from_value::<ImageSpec>(value).expect("it can be read");
    let sum = format!("sha256:{}", "a".repeat(64));
    let url = image(json!({ "url": "https://example.org/a.qcow2", "checksum": sum }));
    assert_eq!(url.source().expect("one"), ImageSource::Url("https://example.org/a.qcow2", &sum));
    for (value, words) in [
        (json!({}), "spec.image: give one of"),
        (json!({ "url": "https://example.org/a" }), "spec.image.checksum: is missing"),
        (json!({ "file": "/a" }), "spec.image.checksum: is missing"),
        (json!({ "volume": { "name": "a" }, "checksum": sum }), "spec.image: give one of"),
        (json!({ "volume": { "name": "a" }, "file": "/a", "checksum": sum }), "spec.image: give one of"),
    ] {
        let error = image(value).source().expect_err("not one");
        assert!(error.report().starts_with(words), "{}", error.report());
    }
}

#[test]
fn an_interface_is_connected_to_one_thing() {
    let both = InterfaceSpec { bridge: Some("br0".into()), ..InterfaceSpec::on_network("default") };
    for one in [InterfaceSpec::default(), both] {
        assert!(one.source(3).expect_err("not one").report().starts_with("spec.interfaces[3]: give one of"));
    }
}
