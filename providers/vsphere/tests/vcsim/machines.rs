//! Steps of machines.

use std::time::{Duration, Instant};

use cloudprovider::{
    ErrorKind, PowerState,
    machines::{AuxiliaryObject, MachineReport, Objects, Record},
};
use futures::future::join_all;
use serde_json::json;
use test_env::VcsimOptions;

use crate::{controller::*, support::*, take_over};

#[tokio::test]
async fn a_machine_takes_few_calls() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    // the first machine finds out about the template, the networks, the cluster and the tasks
    for number in 0..2 {
        vcsim.reset_counts().expect("reset");
        let mut object = Object::new(&vcsim, number, &json!({}));
        let instance = controller.make(&mut object).await;
        assert_eq!(instance.power_state, PowerState::Running);
        assert!(
            instance.metadata.addresses.iter().any(|one| one.address.starts_with("10.64.")),
            "{instance:?}"
        );
        let made = calls(&vcsim);
        let total: u64 = made.values().sum();
        assert!(total <= if number == 0 { 9 } else { 3 }, "{made:?}");
        assert_eq!(made["soap:CloneVM_Task"], 1);

        vcsim.reset_counts().expect("reset");
        controller.delete(&mut object).await;
        let gone = calls(&vcsim);
        assert!(gone.values().sum::<u64>() <= 4, "{gone:?}");
        assert_eq!(names(&vcsim), [machine(0)]);
    }
    running.stop().await;
    assert_eq!(vcsim.sessions().expect("sessions").0, 0, "logged out");
}

/// As many as a `MachineDeployment` that is scaled down.
const MANY: usize = 20;

#[tokio::test]
async fn many_deletions_at_once_take_few_calls_each() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let one = |number| (Controller::new(&running), Object::new(&vcsim, number, &json!({})));
    let mut all: Vec<_> = (1..=MANY).map(one).collect();
    join_all(all.iter_mut().map(|(controller, object)| controller.make(object))).await;
    vcsim.reset_counts().expect("reset");
    join_all(all.iter_mut().map(|(controller, object)| controller.delete(object))).await;
    assert_eq!(names(&vcsim), [machine(0)]);
    let gone = calls(&vcsim);
    let many = u64::try_from(MANY).expect("few");
    assert_eq!((gone["soap:PowerOffVM_Task"], gone["soap:Destroy_Task"]), (many, many), "{gone:?}");
    // the disks of each, and the tasks of all while a busy simulator does not tell of them
    assert!(gone["soap:RetrievePropertiesEx"] <= 2 * many, "{gone:?}");
    assert_eq!(gone.len(), 3, "{gone:?}");
    // The objects may stay for a while, with further steps: those of others may have to go first.
    join_all(all.iter_mut().map(|(controller, object)| controller.delete(object))).await;
    assert_eq!(calls(&vcsim), gone);
    for (controller, _) in &all {
        assert!(controller.errors.is_empty(), "{:?}", controller.errors);
    }
    running.stop().await;
}

#[tokio::test]
async fn a_machine_is_what_its_spec_says() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let more = json!({
        "numCPUs": 4, "memoryMiB": 4096, "customVMXKeys": {"disk.enableUUID": "TRUE"},
        "dataDisks": [{"name": "etcd", "sizeGiB": 3}], "nestedHV": true,
        "resources": {
            "requests": {"cpu": "2.3G", "memory": "1Gi"}, "limits": {"cpu": "4G", "memory": "4096Mi"}, "shares": {"cpu": 4000},
        },
        "network": {"devices": [
            {"networkName": "VM Network", "dhcp4": true, "macAddr": "00:50:56:01:02:03"},
            {"networkName": "DC0_DVPG0", "ipAddrs": ["192.0.2.10/24"], "gateway4": "192.0.2.1"},
        ]},
    });
    let mut object = Object::new(&vcsim, 1, &more);
    let instance = controller.make(&mut object).await;
    assert_eq!(
        instance.metadata.instance_type.as_deref().map(|one| one.contains("cpu-4.mem-4gb")),
        Some(true)
    );
    let sent = vcsim.last_requests().expect("requests").remove("soap:CloneVM_Task").expect("a clone");
    for part in [
        "<macAddress>00:50:56:01:02:03</macAddress>",
        "VirtualEthernetCardDistributedVirtualPortBackingInfo",
        "<capacityInKB>3145728</capacityInKB>",
        "<key>disk.enableUUID</key>",
        "<cpuAllocation><reservation>2300</reservation><limit>4000</limit>\
         <shares><shares>4000</shares><level>custom</level></shares></cpuAllocation>",
        "<memoryAllocation><reservation>1024</reservation><limit>4096</limit></memoryAllocation>",
        "<nestedHVEnabled>true</nestedHVEnabled>",
    ] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    let network = object.record.status["network"].as_array().expect("networks").clone();
    assert_eq!(network.len(), 2, "{network:?}");
    assert_eq!(object.record.status["cloneMode"], "fullClone");
    controller.delete(&mut object).await;
    running.stop().await;
}

#[tokio::test]
async fn what_a_spec_names_wrongly_is_told() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    for (more, kind, part) in [
        (json!({"template": "debian"}), ErrorKind::NotFound, "spec.template: there is no \"debian\""),
        (json!({"folder": "k8s"}), ErrorKind::NotFound, "spec.folder: there is no \"k8s\""),
        (
            json!({"datastore": "fast"}),
            ErrorKind::NotFound,
            "spec.datastore: the datacenter has no datastore or datastore cluster \"fast\"",
        ),
        (
            json!({"server": "vc9.example.org"}),
            ErrorKind::NotFound,
            "spec.server: the configuration of the controller",
        ),
        (json!({"diskGiB": 1}), ErrorKind::InvalidInput, "spec.diskGiB: 1 GiB are less than"),
        (json!({"pciDevices": [{"deviceId": 1}]}), ErrorKind::InvalidInput, "spec.pciDevices[0]: "),
        (json!({"hardwareVersion": "19"}), ErrorKind::InvalidInput, "spec.hardwareVersion: "),
        (json!({"cryptoKeyID": "key"}), ErrorKind::Unsupported, "spec.cryptoKeyID: "),
        (json!({"cryptoProfile": "gold"}), ErrorKind::Unsupported, "spec.cryptoProfile: "),
        (
            json!({"resources": {"limits": {"memory": "4 GB"}}}),
            ErrorKind::InvalidInput,
            "spec.resources.limits.memory: \"4 GB\" is no quantity",
        ),
        (
            json!({"resources": {"requests": {"cpu": "2G"}, "limits": {"cpu": "1G"}}}),
            ErrorKind::InvalidInput,
            "spec.resources.requests.cpu: more than spec.resources.limits.cpu",
        ),
    ] {
        let mut object = Object::new(&vcsim, 1, &more);
        let error = controller.step(&mut object).await.expect_err(part);
        assert_eq!(error.kind(), kind, "{}", error.report());
        assert!(error.report().contains(part), "{}", error.report());
    }
    assert_eq!(names(&vcsim), [machine(0)]);
    running.stop().await;
}

#[tokio::test]
async fn a_clone_that_fails_says_the_fault() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    vcsim.fail_next_task("CloneVM_Task", "NoDiskSpace").expect("a fault");
    let mut object = Object::new(&vcsim, 1, &json!({}));
    let error = loop {
        match controller.step(&mut object).await {
            Ok(report) => controller.wait(&object, report.wait()).await,
            Err(error) => break error,
        }
    };
    let words = error.report();
    assert!(words.contains("the clone of \"worker-1\" has failed (task-"), "{words}");
    assert!(words.contains("NoDiskSpace"), "{words}");
    assert!(object.record.status.get("taskRef").is_none(), "{:?}", object.record.status);
    controller.make(&mut object).await;
    controller.delete(&mut object).await;
    running.stop().await;
}

/// The daemon ends while the clone is under way, and its status is lost.
#[tokio::test]
async fn a_clone_under_way_is_not_left_behind() {
    let options = VcsimOptions { task_delays: "CloneVm:2000", ..factory_options() };
    let Some(vcsim) = simulator(&options) else { return };
    for is_lost in [false, true] {
        let running = started(&vcsim).await;
        let mut object = Object::new(&vcsim, 1, &json!({}));
        let mut controller = Controller::new(&running);
        let begun = controller.step(&mut object).await.expect("begun");
        assert!(begun.wait().is_some_and(|wait| !wait.needs_bootstrap_data), "the clone has them: {begun:?}");
        running.stop().await;
        if is_lost {
            object.record = Record::default();
        }
        let running = started(&vcsim).await;
        let mut controller = Controller::new(&running);
        controller.delete(&mut object).await;
        assert_eq!(names(&vcsim), [machine(0)], "status lost: {is_lost}");
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(names(&vcsim), [machine(0)], "status lost: {is_lost}");
        running.stop().await;
    }
}

#[tokio::test]
async fn a_guest_is_asked_to_shut_down() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    for (mode, can, asked) in [("trySoft", true, 1), ("trySoft", false, 0), ("hard", true, 0)] {
        let more = json!({"powerOffMode": mode, "guestSoftPowerOffTimeoutSeconds": 60});
        let mut object = Object::new(&vcsim, 1, &more);
        controller.make(&mut object).await;
        if can {
            // An address that comes with it shows that it is seen.
            let nics = json!([{"network": "VM Network", "ips": ["10.20.9.9/16"]}]);
            vcsim.set_guest(&object.name(), json!({"canShutDown": true, "nics": nics})).expect("set");
            let began = Instant::now();
            loop {
                let report = controller.step(&mut object).await.expect("a step");
                let mut addresses =
                    report.present().into_iter().flat_map(|one| &one.instance.metadata.addresses);
                if addresses.any(|one| one.address == "10.20.9.9") {
                    break;
                }
                assert!(began.elapsed() < LIMIT, "{report:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        vcsim.reset_counts().expect("reset");
        controller.delete(&mut object).await;
        let counts = calls(&vcsim);
        let count = counts.get("soap:ShutdownGuest").copied().unwrap_or_default();
        assert_eq!(count, asked, "{mode} {can}: {counts:?}");
        assert_eq!(counts.get("soap:PowerOffVM_Task").copied().unwrap_or_default(), 1 - asked);
    }
    running.stop().await;
}

#[tokio::test]
async fn the_bootstrap_data_are_nowhere_but_in_the_call() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({}));
    controller.make(&mut object).await;
    let sent = vcsim.last_requests().expect("requests").remove("soap:CloneVM_Task").expect("a clone");
    assert!(sent.contains("guestinfo.userdata"));
    assert!(!format!("{:?}", object.record).contains("hunter2"));
    controller.delete(&mut object).await;
    running.stop().await;
}

#[tokio::test]
async fn a_machine_that_is_made_again_gets_its_tags_again() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let tag = vcsim.attach_tag_with_id("cost", "a", "Datacenter", "DC0").expect("a tag");
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({"tagIDs": [tag]}));
    vcsim.set_drs("ClusterComputeResource", "DC0_C0", false).expect("switched off");
    vcsim.fail_next_task("PowerOnVM_Task", "InsufficientResourcesFault").expect("a fault");
    while controller.errors.is_empty() {
        if let Ok(report) = controller.step(&mut object).await {
            controller.wait(&object, report.wait()).await;
        }
    }
    assert!(controller.errors[0].contains("InsufficientResourcesFault"), "{:?}", controller.errors);
    vcsim.act("worker-1", "destroy", "").expect("destroyed");
    object.request.provider_id = None;
    controller.make(&mut object).await;
    assert_eq!(calls(&vcsim)[ATTACH], 2, "{:?}", calls(&vcsim));
    controller.delete(&mut object).await;
    running.stop().await;
}

const ATTACH: &str = "rest:POST /tagging/tag-association?attach-multiple-tags-to-object";

#[tokio::test]
async fn tags_are_attached_once_before_the_first_boot() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let tag = |name| vcsim.attach_tag_with_id("cost", name, "Datacenter", "DC0").expect("a tag");
    let ids = ["a", "b"].map(tag);
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    for number in 0..2 {
        vcsim.reset_counts().expect("reset");
        let mut object = Object::new(&vcsim, number, &json!({"tagIDs": ids}));
        controller.make(&mut object).await;
        let made = calls(&vcsim);
        assert_eq!(made[ATTACH], 1, "{made:?}");
        let total: u64 = made.values().sum();
        assert!(number == 0 || total <= 4, "{made:?}");
        let sent = vcsim.last_requests().expect("requests").remove(ATTACH).expect("a request");
        let machines = vcsim.inventory().expect("an inventory");
        let id = machines[1]["ref"].as_str().expect("a reference");
        assert!(sent.contains(id) && ids.iter().all(|id| sent.contains(id)), "{sent}");
        controller.delete(&mut object).await;
    }
    // the machine is not started without them
    let mut object =
        Object::new(&vcsim, 2, &json!({"tagIDs": ["urn:vmomi:InventoryServiceTag:none:GLOBAL"]}));
    let error = loop {
        match controller.step(&mut object).await {
            Ok(report) => controller.wait(&object, report.wait()).await,
            Err(error) => break error,
        }
    };
    assert!(
        error.report().contains("spec.tagIDs: vCenter does not attach all of them"),
        "{}",
        error.report()
    );
    assert_eq!(vcsim.inventory().expect("an inventory")[1]["power"], "poweredOff");
    controller.delete(&mut object).await;
    running.stop().await;
}

/// The simulator says of every datastore that it fulfils every policy.
#[tokio::test]
async fn a_storage_policy_chooses_the_datastore() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let policy = "vSAN Default Storage Policy";
    for (number, datastore) in ["", "LocalDS_0"].into_iter().enumerate() {
        vcsim.reset_counts().expect("reset");
        let more = json!({
            "storagePolicyName": policy, "datastore": datastore, "dataDisks": [{"name": "etcd", "sizeGiB": 1}],
        });
        let mut object = Object::new(&vcsim, number, &more);
        controller.make(&mut object).await;
        let made = calls(&vcsim);
        // what it allows is known for a minute
        let asked = made.iter().filter(|(method, _)| method.starts_with("pbm:")).count();
        assert_eq!(asked, if number == 0 { 4 } else { 0 }, "{made:?}");
        let sent = vcsim.last_requests().expect("requests").remove("soap:CloneVM_Task").expect("a clone");
        let profile = "<profile xsi:type=\"VirtualMachineDefinedProfileSpec\"><profileId>";
        // of its files, of the disk of the template, and of the new one
        assert_eq!(sent.matches(profile).count(), 3, "{sent}");
        assert!(sent.contains("<datastore type=\"Datastore\">datastore-"), "{sent}");
        controller.delete(&mut object).await;
    }
    let mut object = Object::new(&vcsim, 3, &json!({"storagePolicyName": "gold"}));
    let error = controller.step(&mut object).await.expect_err("no such policy");
    let words = error.report();
    assert!(words.contains("there is no storage policy \"gold\"") && !words.contains(policy), "{words}");
    running.stop().await;
}

#[tokio::test]
async fn devices_of_the_host_are_asked_for() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let more = json!({"pciDevices": [
        {"vendorId": 4318, "deviceId": 7864, "customLabel": "fast"}, {"vGPUProfile": "grid_t4-4q"},
    ]});
    let mut object = Object::new(&vcsim, 1, &more);
    controller.make(&mut object).await;
    let sent = vcsim.last_requests().expect("requests").remove("soap:CloneVM_Task").expect("a clone");
    for part in [
        "<allowedDevice><vendorId>4318</vendorId><deviceId>7864</deviceId></allowedDevice><customLabel>fast<",
        "<vgpu>grid_t4-4q</vgpu>",
        "<memoryReservationLockedToMax>true<",
    ] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    controller.delete(&mut object).await;
    running.stop().await;
}

/// As one that another program made: its instance UUID is not that of our object.
#[tokio::test]
async fn a_machine_of_others_with_the_provider_id_is_neither_lost_nor_gone() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    vcsim.act(&machine(0), "clone", "theirs").expect("cloned");
    vcsim.set_guest("theirs", json!({"uuid": uuid(7)})).expect("set");
    running.eventually(&node(7), "present", |answer| present(answer).is_some()).await;
    let mut object = Object::new(&vcsim, 1, &json!({}));
    object.request.provider_id = Some(format!("vsphere://{}", uuid(7)));
    object.request.is_provisioned = true;
    let error = controller.step(&mut object).await.expect_err("not ours");
    // who reads the object need not know what else there is
    let is_told = |words: &str| words.contains("carries no mark") && !words.contains("theirs");
    assert!(is_told(&error.report()), "{}", error.report());
    let deleted = tokio::time::timeout(Duration::from_secs(2), controller.delete(&mut object)).await;
    assert!(deleted.is_err(), "it is not gone");
    assert!(controller.errors.iter().all(|error| is_told(error)), "{:?}", controller.errors);
    assert_eq!(names(&vcsim), [machine(0), "theirs".to_owned()]);
    running.stop().await;
}

/// As a replica of a backup tool: it has the BIOS UUID, and the mark, if that was copied too.
#[tokio::test]
async fn a_copy_of_a_machine_keeps_nothing() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    for (number, source) in ["worker-0", &machine(0), "worker-2", &machine(0)].into_iter().enumerate() {
        let mut object = Object::new(&vcsim, number, &json!({}));
        let instance = controller.make(&mut object).await;
        let id = instance.provider_id.expect("an ID").as_str().to_owned();
        let copy = format!("copy-{number}");
        vcsim.act(source, "clone", &copy).expect("cloned");
        let bios_uuid = id.trim_start_matches("vsphere://");
        vcsim.set_guest(&copy, json!({"uuid": bios_uuid, "hostName": "copy"})).expect("set");
        // it is followed as before
        let report = controller.step(&mut object).await.expect("a step");
        assert!(report.present().is_some_and(|machine| machine.wait.is_none()), "{report:?}");
        if number >= 2 {
            // one that others destroy is lost, also to a daemon that has never seen it
            vcsim.act(&object.name(), "destroy", "").expect("destroyed");
            let again = started(&vcsim).await;
            let mut later = Controller::new(&again);
            is_lost(&mut controller, &mut object).await;
            is_lost(&mut later, &mut object).await;
            later.delete(&mut object).await;
            again.stop().await;
        } else {
            controller.delete(&mut object).await;
        }
        assert_eq!(names(&vcsim), [machine(0), copy.clone()], "the copy stays");
        vcsim.act(&copy, "destroy", "").expect("destroyed");
    }
    running.stop().await;
}

/// Steps until the machine is lost.
async fn is_lost(controller: &mut Controller<'_>, object: &mut Object) {
    let began = Instant::now();
    loop {
        match controller.step(object).await {
            Ok(MachineReport::Lost { .. }) => return,
            answer => assert!(began.elapsed() < LIMIT, "{answer:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The rules for the Nodes of the own cluster are for those alone.
#[tokio::test]
async fn a_machine_of_any_cluster_is_complete_with_any_address() {
    let Some(vcsim) = simulator(&VcsimOptions { boots_guests: false, ..factory_options() }) else { return };
    let more = "nodes: {internalVmNetworkName: lan, externalVmNetworkName: wan, excludeInternalNetworkSubnetCidr: 'fd00::/8', \
                excludeExternalNetworkSubnetCidr: 'fd00::/8'}\nlabels: {zone: k8s-zone, region: k8s-region}\n";
    let text = format!("{}{more}", config(&[&vcsim]))
        .replace("    server:", "    ipFamily: [ipv4, ipv6]\n    server:");
    let running = Running::start_in(&text, &[("ENABLE_ALPHA_DUAL_STACK", "true")]).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({}));
    let began = Instant::now();
    while controller.step(&mut object).await.ok().and_then(|report| report.present().map(|_| ())).is_none() {
        assert!(began.elapsed() < LIMIT, "{:?}", controller.errors.last());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let local = json!({"nics": [{"network": "VM Network", "ips": ["fe80::1/64"]}]});
    vcsim.set_guest(&object.name(), local).expect("guest");
    let report = controller.step(&mut object).await.expect("a step");
    assert!(report.wait().is_some(), "{report:?}");
    let reached = json!({"nics": [{"network": "VM Network", "ips": ["fe80::1/64", "fd00::1/64"]}]});
    vcsim.set_guest(&object.name(), reached).expect("guest");
    let instance = controller.make(&mut object).await;
    let addresses = &instance.metadata.addresses;
    assert!(addresses.iter().any(|one| one.address == "fd00::1"), "{addresses:?}");
    controller.delete(&mut object).await;
    running.stop().await;
}

/// Its user may see less than the one that made it. The simulator has no permissions: the answer is injected.
#[tokio::test]
async fn a_machine_that_may_only_be_hidden_is_neither_lost_nor_gone() {
    use cloudprovider::CloudProvider as _;
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let part = running.provider.machines().expect("machines");
    let mut object = Object::new(&vcsim, 1, &json!({}));
    object.request.provider_id = Some(format!("vsphere://{}", uuid(7)));
    object.request.is_provisioned = true;
    let vm = AuxiliaryObject::new("worker-1").in_namespace(object.request.mark.namespace.clone());
    let vm = vm.with_owners([object.request.object_uid.clone()]).with_status(json!({"vmRef": "vm-999999"}));
    object.request.objects = Objects::of([(take_over::kind(&running), vm)]);
    let mut controller = Controller::new(&running);
    vcsim
        .set_rules(&json!([{"methods": ["soap:RetrievePropertiesEx"], "fault": "NoPermission"}]))
        .expect("a rule");
    let error = controller.step(&mut object).await.expect_err("it may be running");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", error.report());
    let answer = part.delete_machine(&object.request, &mut object.record).await;
    assert_eq!(answer.expect_err("it may be running").kind(), ErrorKind::PermissionDenied);
    vcsim.set_rules(&json!([])).expect("no rule");
    let report = controller.step(&mut object).await.expect("a step");
    assert!(matches!(report, MachineReport::Lost { .. }), "{report:?}");
    controller.delete(&mut object).await;
    running.stop().await;
}
