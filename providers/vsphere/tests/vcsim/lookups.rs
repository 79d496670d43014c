//! What look-ups return for a Node's machine, and what happens when it changes or something fails.

use std::time::{Duration, Instant};

use cloudprovider::{CloudProvider as _, ErrorKind, InstanceLookup, NodeIdentity, PowerState};
use serde_json::json;
use test_env::{Vcsim, VcsimOptions};

use crate::support::*;

fn tagged(options: &VcsimOptions) -> Option<Vcsim> {
    let vcsim = simulator(options)?;
    vcsim.attach_tag("k8s-zone", "z0", "ClusterComputeResource", "DC0_C0").expect("a tag");
    vcsim.attach_tag("k8s-region", "r0", "Datacenter", "DC0").expect("a tag");
    Some(vcsim)
}

#[tokio::test]
async fn everything_about_a_machine_in_either_dialect() {
    for rest in ["legacy", "modern"] {
        let Some(vcsim) = tagged(&VcsimOptions { rest, ..VcsimOptions::default() }) else { return };
        let running = Running::start(&with_zones(&config(&[&vcsim]))).await;
        let complete = |answer: &InstanceLookup| present(answer).is_some_and(|one| one.incomplete.is_none());
        let answer = running.eventually(&node(1), "complete", complete).await;
        let instance = present(&answer).expect("present");
        assert_eq!(instance.provider_id.as_ref().expect("an ID").as_str(), format!("vsphere://{}", uuid(1)));
        assert_eq!(instance.power_state, PowerState::Running);
        let metadata = &instance.metadata;
        assert_eq!((metadata.zone.as_deref(), metadata.region.as_deref()), (Some("z0"), Some("r0")));
        assert_eq!(metadata.instance_type.as_deref(), Some("vsphere-vm.cpu-1.mem-0gb.os-other"));
        let addresses: Vec<_> =
            metadata.addresses.iter().map(|a| format!("{} {}", a.address_type, a.address)).collect();
        assert_eq!(addresses, ["Hostname node-1", "InternalIP 10.20.0.2", "ExternalIP 10.20.0.2"]);
        // the guest of old firmware shows the first three groups byte-reversed
        let mut swapped = node(1);
        swapped.system_uuid = Some("E00D3C5A-0000-0040-8000-000000000001".to_owned());
        assert!(present(&running.look_up(&swapped).await).is_some());
        assert!(running.provider.zones().is_none(), "a second look-up would say the same");
        running.stop().await;
        assert_eq!(vcsim.sessions().expect("sessions"), (0, 1, 0), "logged out twice");
    }
}

/// There are more tags of other categories than the client asks about by name. The tag that matters is on the
/// machine itself.
#[tokio::test]
async fn tags_of_others_are_not_asked_for() {
    for rest in ["legacy", "modern"] {
        let Some(vcsim) = tagged(&VcsimOptions { rest, ..VcsimOptions::default() }) else { return };
        for number in 0..40 {
            vcsim.attach_tag("other", &format!("o{number}"), "Datacenter", "DC0").expect("a tag");
        }
        vcsim.attach_tag("k8s-zone", "own", "VirtualMachine", &machine(1)).expect("a tag");
        vcsim.detach_tag("k8s-zone", "z0", "ClusterComputeResource", "DC0_C0").expect("detached");
        let running = Running::start(&with_zones(&config(&[&vcsim]))).await;
        let place = |answer: &InstanceLookup| {
            let metadata = present(answer)?.metadata.clone();
            Some((metadata.zone?, metadata.region?))
        };
        let answer = running.eventually(&node(1), "a zone", |answer| place(answer).is_some()).await;
        assert_eq!(place(&answer), Some(("own".to_owned(), "r0".to_owned())));
        let counts = vcsim.counts().expect("counts");
        assert_eq!(counts["rest:GET /tagging/tag/ID"], 3, "{counts:?}");
        running.stop().await;
    }
}

#[tokio::test]
async fn changes_are_seen_at_once() {
    let Some(vcsim) = tagged(&VcsimOptions::default()) else { return };
    vcsim.attach_tag("k8s-zone", "z1", "HostSystem", "DC0_C0_H1").expect("a tag");
    let running = Running::start(&with_zones(&config(&[&vcsim]))).await;
    running.eventually(&known(0), "present", |answer| present(answer).is_some()).await;

    let began = Instant::now();
    vcsim.act(&machine(0), "power-off", "").expect("off");
    let off = |answer: &InstanceLookup| present(answer).is_some_and(|one| one.power_state == PowerState::Off);
    running.eventually(&known(0), "off", off).await;
    println!("off is seen after {:?}", began.elapsed());

    let zone_of = |answer: &InstanceLookup| present(answer).and_then(|one| one.metadata.zone.clone());
    let (host, zone) = match zone_of(&running.eventually(&known(1), "a zone", |a| zone_of(a).is_some()).await)
    {
        Some(zone) if zone == "z1" => ("DC0_C0_H0", "z0"),
        _ => ("DC0_C0_H1", "z1"),
    };
    vcsim.act(&machine(1), "move", host).expect("moved");
    running.eventually(&known(1), "moved", |answer| zone_of(answer).as_deref() == Some(zone)).await;

    vcsim.detach_tag("k8s-region", "r0", "Datacenter", "DC0").expect("detached");
    vcsim.attach_tag("k8s-region", "r1", "Datacenter", "DC0").expect("attached");
    let region = |answer: &InstanceLookup| {
        present(answer).is_some_and(|one| one.metadata.region.as_deref() == Some("r1"))
    };
    running.eventually(&known(1), "another tag", region).await;

    // encoded metadata, whose encoding is set after it
    let nics = json!([{"network": "VM Network", "ips": ["10.20.0.200/16", "10.20.0.3/16"]}]);
    vcsim.set_guest(&machine(2), json!({ "nics": nics })).expect("guest");
    let first = |ip: &'static str| {
        move |answer: &InstanceLookup| {
            present(answer).is_some_and(|one| one.metadata.addresses.iter().any(|a| a.address == ip))
        }
    };
    running.eventually(&known(2), "the virtual address", first("10.20.0.200")).await;
    // network: {ethernets: {a: {addresses: [10.20.0.3/16]}}}
    let metadata = "bmV0d29yazoge2V0aGVybmV0czoge2E6IHthZGRyZXNzZXM6IFsxMC4yMC4wLjMvMTZdfX19Cg==";
    for (key, value) in [("guestinfo.metadata", metadata), ("guestinfo.metadata.encoding", "base64")] {
        vcsim.act(&machine(2), "reconfigure", &format!("{key}={value}")).expect("reconfigured");
    }
    running.eventually(&known(2), "its own address first", first("10.20.0.3")).await;

    vcsim.set_guest(&machine(3), json!({"connection": "inaccessible"})).expect("guest");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(present(&running.look_up(&known(3)).await).is_some(), "inaccessible is not gone");
    vcsim.act(&machine(3), "destroy", "").expect("destroyed");
    let absent = |answer: &InstanceLookup| matches!(answer, InstanceLookup::Absent);
    running.eventually(&known(3), "absent", absent).await;
    running.stop().await;
}

#[tokio::test]
async fn copies_silent_guests_and_both_families() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let nics = |last: &str| json!([{"network": "VM Network", "ips": [format!("10.20.0.{last}/16"), format!("fd00::{last}/64")]}]);
    vcsim.set_guest(&machine(0), json!({"nics": nics("1")})).expect("guest");
    let same = json!({"uuid": uuid(0), "hostName": "node-0", "nics": nics("99")});
    vcsim.set_guest(&machine(1), same).expect("guest");
    let silent = json!({"tools": "guestToolsNotRunning", "hostName": "", "nics": []});
    vcsim.set_guest(&machine(2), silent).expect("guest");
    let nics = json!([
        {"network": "VM Network", "ips": ["10.20.0.4/16", "fe80::1/64", "fd00::4/64"]},
        {"network": "", "deviceConfigId": -1, "ips": ["10.244.0.1/24", "fd01::1/64"]},
    ]);
    vcsim.set_guest(&machine(3), json!({ "nics": nics })).expect("guest");
    let text = config(&[&vcsim]).replace("    server:", "    ipFamily: [ipv4, ipv6]\n    server:");
    let running = Running::start_in(&text, &[("ENABLE_ALPHA_DUAL_STACK", "true")]).await;

    let is_ambiguous =
        |answer: &InstanceLookup| unknown(answer).is_some_and(|e| e.kind() == ErrorKind::Ambiguous);
    let answer = running.eventually(&node(0), "two machines", is_ambiguous).await;
    let words = unknown(&answer).expect("unknown").to_string();
    assert!(words.contains(&machine(0)) && words.contains(&machine(1)), "{words}");

    // each of these tells which one is the Node's
    let is_its_own = |answer: &InstanceLookup| {
        present(answer).is_some_and(|one| one.metadata.addresses.iter().any(|one| one.address == "10.20.0.1"))
    };
    let mut addressed = node(0);
    addressed.addresses = vec![cloudprovider::NodeAddress::internal_ip("10.20.0.1")];
    running.eventually(&addressed, "the one with its address", is_its_own).await;
    let fresh = |name: &str| NodeIdentity { name: name.to_owned(), ..node(0) };
    vcsim.set_guest(&machine(1), json!({"hostName": "copy"})).expect("guest");
    running.eventually(&node(0), "the one with its name", is_its_own).await;
    running.eventually(&fresh("x"), "no name", is_ambiguous).await;
    vcsim.set_guest(&machine(1), json!({"connection": "orphaned"})).expect("guest");
    running.eventually(&fresh("x"), "the one that is connected", is_its_own).await;
    vcsim.set_guest(&machine(1), json!({"connection": "connected"})).expect("guest");
    vcsim.act(&machine(1), "power-off", "").expect("off");
    running.eventually(&fresh("y"), "the one that runs", is_its_own).await;
    running.eventually(&known(0), "an initialised Node", is_its_own).await;

    let answer = running.eventually(&node(2), "present", |answer| present(answer).is_some()).await;
    let why = present(&answer).and_then(|one| one.incomplete.as_ref()).map(ToString::to_string);
    assert!(why.as_deref().is_some_and(|why| why.contains("VMware Tools")), "{why:?}");

    let answer = running.eventually(&node(3), "present", |answer| present(answer).is_some()).await;
    let metadata = &present(&answer).expect("present").metadata;
    let found: Vec<_> = metadata.addresses.iter().map(|a| a.address.as_str()).collect();
    assert_eq!(found, ["node-3", "10.20.0.4", "10.20.0.4", "fd00::4", "fd00::4"]);
    running.stop().await;
}

#[tokio::test]
async fn a_machine_with_the_nodes_name_and_another_uuid_is_another_one() {
    let Some(vcsim) = simulator(&VcsimOptions { datacenters: 2, ..VcsimOptions::default() }) else { return };
    let listed = config(&[&vcsim]).replace("    server:", "    datacenters: [DC0]\n    server:");
    let running = Running::start(&listed).await;
    let named = |number| NodeIdentity { name: "node-0".to_owned(), ..node(number) };
    let names_both = |answer: &InstanceLookup| {
        unknown(answer).is_some_and(|error| {
            let words = error.to_string();
            words.contains(&uuid(999)) && words.contains(&uuid(0)) && words.contains(&machine(0))
        })
    };
    running.eventually(&named(999), "another machine", names_both).await;
    // its own machine is in the other datacenter
    let elsewhere = |answer: &InstanceLookup| {
        unknown(answer).is_some_and(|error| error.to_string().contains("in datacenter \"DC1\""))
    };
    running.eventually(&named(4), "its own machine is elsewhere", elsewhere).await;
    assert!(present(&running.look_up(&named(0)).await).is_some());
    running.stop().await;
}

#[tokio::test]
async fn absent_needs_every_vcenter_and_every_datacenter() {
    let Some(vc0) = simulator(&VcsimOptions::default()) else { return };
    let Some(mut vc1) = simulator(&VcsimOptions::default()) else { return };
    for number in 0..4 {
        let other = json!({"uuid": uuid(100 + number), "hostName": format!("node-{}", 100 + number)});
        vc1.set_guest(&machine(number), other).expect("guest");
    }
    let is_absent = |answer: &InstanceLookup| matches!(answer, InstanceLookup::Absent);
    let running = Running::start(&config(&[&vc0, &vc1])).await;
    running.eventually(&known(0), "present", |answer| present(answer).is_some()).await;
    running.eventually(&known(100), "present", |answer| present(answer).is_some()).await;
    running.eventually(&known(999), "absent", is_absent).await;
    vc1.kill().expect("killed");
    let names_it = |answer: &InstanceLookup| unknown(answer).is_some_and(|e| e.to_string().contains("vc1"));
    running.eventually(&known(998), "unknown while one is away", names_it).await;
    running.eventually(&known(100), "its own nodes are unknown", names_it).await;
    assert!(present(&running.look_up(&known(0)).await).is_some(), "the rest works");
    vc1.restart().expect("restarted");
    running.eventually(&known(998), "absent", is_absent).await;
    running.stop().await;

    let missing = config(&[&vc0]).replace("    server:", "    datacenters: [DC0, DC7]\n    server:");
    let running = Running::start(&missing).await;
    running.eventually(&known(0), "present", |answer| present(answer).is_some()).await;
    let names_it = |answer: &InstanceLookup| unknown(answer).is_some_and(|e| e.to_string().contains("DC7"));
    running.eventually(&known(999), "a datacenter that is not there", names_it).await;
    running.stop().await;

    let running = Running::start_in(&config(&[&vc0]), &[("SKIP_NODE_DELETION", "true")]).await;
    let kept = |answer: &InstanceLookup| {
        unknown(answer).is_some_and(|e| e.to_string().contains("SKIP_NODE_DELETION"))
    };
    running.eventually(&known(999), "kept", kept).await;
    running.stop().await;
}

#[tokio::test]
async fn a_failing_vcenter_is_not_stormed() {
    let Some(mut vcsim) = tagged(&VcsimOptions { machines: 8, ..VcsimOptions::default() }) else { return };
    let running = Running::start(&with_zones(&config(&[&vcsim]))).await;
    let is_present = |answer: &InstanceLookup| present(answer).is_some();
    running.eventually(&known(0), "present", is_present).await;
    vcsim.reset_counts().expect("reset");
    vcsim
        .set_rules(&json!([
            {"methods": ["*"], "fault": "HostCommunication", "probability": 0.1},
            {"methods": ["*"], "status": 503, "probability": 0.11},
            {"methods": ["*"], "drop": true, "probability": 0.12},
        ]))
        .expect("rules");
    for _ in 0..3 {
        vcsim.expire_sessions().expect("expired");
        for _ in 0..20 {
            let answer = running.look_up(&known(0)).await;
            assert!(!matches!(answer, InstanceLookup::Absent), "never absent");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    vcsim.act(&machine(1), "power-off", "").expect("off");
    let off = |answer: &InstanceLookup| present(answer).is_some_and(|one| one.power_state == PowerState::Off);
    running.eventually(&known(1), "off", off).await;
    let counts = vcsim.counts().expect("counts");
    let calls: u64 =
        counts.iter().filter(|(name, _)| !name.starts_with("hit:")).map(|(_, count)| count).sum();
    println!("{calls} calls while 30 % fail: {counts:?}");
    assert!(calls < 1000, "{counts:?}");

    vcsim.set_rules(&json!([{"methods": ["*"], "delayMillis": 2000}])).expect("rules");
    vcsim.expire_sessions().expect("expired");
    vcsim.act(&machine(2), "power-off", "").expect("off");
    running.eventually(&known(2), "off", off).await;

    vcsim.kill().expect("killed");
    vcsim.restart().expect("restarted");
    let on =
        |answer: &InstanceLookup| present(answer).is_some_and(|one| one.power_state == PowerState::Running);
    running.eventually(&known(2), "on again, as in the beginning", on).await;
    running.stop().await;
}

#[tokio::test]
async fn only_the_datacenters_that_are_listed_are_read() {
    let options = VcsimOptions { datacenters: 2, ..VcsimOptions::default() };
    let Some(vcsim) = tagged(&options) else { return };
    let listed = config(&[&vcsim]).replace("    server:", "    datacenters: [DC0]\n    server:");
    let running = Running::start(&with_zones(&listed)).await;
    let complete = |answer: &InstanceLookup| present(answer).is_some_and(|one| one.incomplete.is_none());
    let is_absent = |answer: &InstanceLookup| matches!(answer, InstanceLookup::Absent);
    running.eventually(&known(0), "its zone is found", complete).await;
    // a machine in the other datacenter does not become a Node, and an existing Node of it is not absent
    let elsewhere = |answer: &InstanceLookup| {
        unknown(answer).is_some_and(|error| error.to_string().contains("in datacenter \"DC1\""))
    };
    running.eventually(&known(4), "of the other datacenter", elsewhere).await;
    vcsim.act(&machine(0), "move", "DC1_C0_H0").expect("moved");
    running.eventually(&known(0), "moved away", elsewhere).await;
    vcsim.act(&machine(0), "move", "DC0_C0_H0").expect("moved");
    running.eventually(&known(0), "moved back", complete).await;
    running.eventually(&known(999), "absent", is_absent).await;
    running.stop().await;
    assert_eq!(vcsim.sessions().expect("sessions").0, 0, "logged out");
}

#[tokio::test]
async fn one_vcenter_under_two_names_has_its_machines_once() {
    let Some(vcsim) = simulator(&VcsimOptions::default()) else { return };
    let once = config(&[&vcsim]);
    let again = once.replace("vcenter:\n", "").replace("vc0:", "vc1:").replace("127.0.0.1", "localhost");
    let running = Running::start(&format!("{once}{again}")).await;
    for number in 0..4 {
        running.eventually(&node(number), "present", |answer| present(answer).is_some()).await;
    }
    let is_absent = |answer: &InstanceLookup| matches!(answer, InstanceLookup::Absent);
    running.eventually(&known(999), "absent", is_absent).await;
    // with both datacenters configured, each Node still has the same machine
    for number in 0..4 {
        assert!(present(&running.look_up(&node(number)).await).is_some());
    }
    running.stop().await;
}
