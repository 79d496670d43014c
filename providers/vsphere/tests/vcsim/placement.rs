//! Where machines go: hosts that DRS chooses, and datastores that Storage DRS recommends. The simulator chooses the host of the template,
//! and recommends each datastore of the datastore cluster.

use cloudprovider::ErrorKind;
use futures::future::join_all;
use serde_json::{Value, json};
use test_env::{Vcsim, VcsimOptions};

use crate::{controller::*, support::*, zones};

const BY_DRS: &str = "soap:PowerOnMultiVM_Task";
const PLAIN: &str = "soap:PowerOnVM_Task";
const RECOMMEND: &str = "soap:RecommendDatastores";

/// The datastore cluster. It has `LocalDS_1` and `LocalDS_2`.
pub(crate) const POD: &str = "DC0_POD0";

/// A simulator with a datastore cluster.
pub(crate) fn with_pod() -> VcsimOptions {
    VcsimOptions { datastores: 3, pods: 1, ..factory_options() }
}

fn count(vcsim: &Vcsim, method: &str) -> u64 {
    calls(vcsim).get(method).copied().unwrap_or_default()
}

/// The datastores with files of a machine.
fn datastores(vcsim: &Vcsim, machine: &str) -> Vec<String> {
    let files = vcsim.files().expect("files");
    let of_machine = files.iter().filter(|file| file.contains(&format!("/{machine}/")));
    let mut found: Vec<_> = of_machine.filter_map(|file| Some(file.split_once('/')?.0.to_owned())).collect();
    found.dedup();
    found
}

#[tokio::test]
async fn drs_powers_on_where_it_is_switched_on() {
    let options = VcsimOptions { task_delays: "PowerOn:300", ..factory_options() };
    let Some(vcsim) = simulator(&options) else { return };
    for (number, is_on) in [true, true, false].into_iter().enumerate() {
        vcsim.set_drs("ClusterComputeResource", "DC0_C0", is_on).expect("switched");
        // what is known of a cluster is known for a minute
        let running = started(&vcsim).await;
        let mut controller = Controller::new(&running);
        vcsim.reset_counts().expect("reset");
        let mut object = Object::new(&vcsim, number, &json!({}));
        controller.make(&mut object).await;
        assert_eq!((count(&vcsim, BY_DRS), count(&vcsim, PLAIN)), if is_on { (1, 0) } else { (0, 1) });
        if is_on {
            let sent = vcsim.last_requests().expect("requests").remove(BY_DRS).expect("a request");
            assert!(
                sent.contains("<key>OverrideAutomationLevel</key>") && sent.contains(">fullyAutomated<"),
                "{sent}"
            );
        }
        controller.delete(&mut object).await;
        assert!(controller.errors.is_empty(), "{:?}", controller.errors);
        running.stop().await;
    }
}

#[tokio::test]
async fn many_machines_start_at_once() {
    const MANY: usize = 20;
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let one = |number| (Controller::new(&running), Object::new(&vcsim, number, &json!({})));
    let mut all: Vec<_> = (1..=MANY).map(one).collect();
    join_all(all.iter_mut().map(|(controller, object)| controller.make(object))).await;
    let made = calls(&vcsim);
    let many = u64::try_from(MANY).expect("few");
    assert_eq!((made["soap:CloneVM_Task"], made[BY_DRS]), (many, many), "{made:?}");
    for (controller, _) in &all {
        assert!(controller.errors.is_empty(), "{:?}", controller.errors);
    }
    join_all(all.iter_mut().map(|(controller, object)| controller.delete(object))).await;
    assert_eq!(names(&vcsim), [machine(0)]);
    running.stop().await;
}

/// The simulator lets everybody do everything: the refusal is injected.
#[tokio::test]
async fn whom_vcenter_refuses_drs_powers_on_without_it() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    vcsim.set_rules(&json!([{"methods": [BY_DRS], "fault": "NoPermission"}])).expect("a rule");
    let mut controller = Controller::new(&running);
    for (number, by_drs) in [1, 0].into_iter().enumerate() {
        vcsim.reset_counts().expect("reset");
        let mut object = Object::new(&vcsim, number, &json!({}));
        controller.make(&mut object).await;
        assert_eq!((count(&vcsim, BY_DRS), count(&vcsim, PLAIN)), (by_drs, 1));
        controller.delete(&mut object).await;
    }
    vcsim.set_rules(&json!([])).expect("no rule");
    // or the task is what refuses
    let running_again = started(&vcsim).await;
    let mut again = Controller::new(&running_again);
    vcsim.fail_next_task("PowerOnMultiVM_Task", "NotSupported").expect("a fault");
    vcsim.reset_counts().expect("reset");
    let mut object = Object::new(&vcsim, 5, &json!({}));
    again.make(&mut object).await;
    assert_eq!((count(&vcsim, BY_DRS), count(&vcsim, PLAIN)), (1, 1));
    again.delete(&mut object).await;
    assert!(
        controller.errors.is_empty() && again.errors.is_empty(),
        "{:?} {:?}",
        controller.errors,
        again.errors
    );
    running_again.stop().await;
    running.stop().await;
}

#[tokio::test]
async fn storage_drs_recommends_a_datastore_of_a_datastore_cluster() {
    let Some(vcsim) = simulator(&with_pod()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut words = vec![POD.to_owned(), format!("/DC0/datastore/{POD}")];
    for number in 0..3 {
        vcsim.reset_counts().expect("reset");
        let mut object = Object::new(&vcsim, number, &json!({"datastore": words[number]}));
        controller.make(&mut object).await;
        assert_eq!(datastores(&vcsim, &object.name()), ["DC0-LocalDS_1"], "{words:?}");
        let made = calls(&vcsim);
        assert_eq!(made[RECOMMEND], 1);
        assert!(number == 0 || made.values().sum::<u64>() <= 4, "{made:?}");
        let sent = vcsim.last_requests().expect("requests").remove(RECOMMEND).expect("a request");
        assert!(!sent.contains("guestinfo"), "{sent}");
        let (_, id) = sent.split_once("<storagePod type=\"StoragePod\">").expect("a datastore cluster");
        words.push(id.split_once('<').expect("its end").0.to_owned());
        controller.delete(&mut object).await;
    }
    // a datastore in it may still be named
    vcsim.reset_counts().expect("reset");
    let mut object = Object::new(&vcsim, 4, &json!({"datastore": format!("/DC0/datastore/{POD}/LocalDS_2")}));
    controller.make(&mut object).await;
    assert_eq!(
        (datastores(&vcsim, &object.name()), count(&vcsim, RECOMMEND)),
        (vec!["DC0-LocalDS_2".to_owned()], 0)
    );
    controller.delete(&mut object).await;
    assert!(controller.errors.is_empty(), "{:?}", controller.errors);
    running.stop().await;
}

#[tokio::test]
async fn a_datastore_cluster_without_a_recommendation_is_told() {
    let Some(vcsim) = simulator(&with_pod()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({"datastore": POD}));
    vcsim.set_drs("StoragePod", POD, false).expect("switched off");
    let error = controller.step(&mut object).await.expect_err("none");
    let words = "spec.datastore: the datastore cluster \"DC0_POD0\": vCenter \"vc0\": RecommendDatastores: vCenter answers InvalidArgument";
    assert!(error.report().contains(words), "{}", error.report());
    vcsim.set_drs("StoragePod", POD, true).expect("switched on");
    vcsim.set_rules(&json!([{"methods": [RECOMMEND], "fault": "NoPermission", "times": 1}])).expect("a rule");
    let error = controller.step(&mut object).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", error.report());
    let mut other = Object::new(&vcsim, 2, &json!({"datastore": "DC0_POD1"}));
    let error = controller.step(&mut other).await.expect_err("no such datastore cluster");
    assert!(error.report().contains("no datastore or datastore cluster \"DC0_POD1\""), "{}", error.report());
    assert!(!error.report().contains("LocalDS_0"), "{}", error.report());
    assert_eq!(count(&vcsim, "soap:CloneVM_Task"), 0);
    controller.make(&mut object).await;
    controller.delete(&mut object).await;
    running.stop().await;
}

/// The simulator says of every datastore that it fulfils every policy: what a policy forbids is seen in the tests of the rules.
#[tokio::test]
async fn a_recommended_datastore_fulfils_the_storage_policy() {
    let Some(vcsim) = simulator(&with_pod()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let more = json!({"datastore": POD, "storagePolicyName": "vSAN Default Storage Policy"});
    let mut object = Object::new(&vcsim, 1, &more);
    controller.make(&mut object).await;
    assert_eq!(datastores(&vcsim, &object.name()), ["DC0-LocalDS_1"]);
    let mut sent = vcsim.last_requests().expect("requests");
    let profiles = |request: &str| request.matches("<profileId>").count();
    // of the files, and in the clone that of the disk too
    assert_eq!(profiles(&sent.remove(RECOMMEND).expect("a request")), 1);
    assert_eq!(profiles(&sent.remove("soap:CloneVM_Task").expect("a clone")), 2);
    controller.delete(&mut object).await;
    running.stop().await;
}

#[tokio::test]
async fn a_failure_domain_may_name_a_datastore_cluster() {
    let Some(vcsim) = simulator(&with_pod()) else { return };
    zones::tag(&vcsim, 1);
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let domain = |datastore: &str| -> Value {
        let mut domain = zones::domain(0);
        domain["topology"]["datastore"] = datastore.into();
        domain
    };
    let objects = zones::objects(&vcsim, &[("a", domain(POD)), ("b", domain("DC0_POD1"))]);
    let mut object = Object::new(&vcsim, 1, &json!({}));
    object.request.objects = objects;
    object.request.failure_domain = Some("b".to_owned());
    let error = controller.step(&mut object).await.expect_err("no such datastore cluster").report();
    assert!(error.contains("spec.topology.datastore: ") && error.contains("\"DC0_POD1\""), "{error}");
    object.request.failure_domain = Some("a".to_owned());
    controller.make(&mut object).await;
    assert_eq!(datastores(&vcsim, &object.name()), ["DC0-LocalDS_1"]);
    controller.delete(&mut object).await;
    running.stop().await;
}

/// What is called alike somewhere else is another object.
#[tokio::test]
async fn words_for_places_mean_what_they_mean_to_the_tools_of_vsphere() {
    let Some(vcsim) = simulator(&VcsimOptions { datacenters: 2, ..factory_options() }) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let network = |word: &str| json!({"datacenter": "DC0", "network": {"devices": [{"networkName": word, "dhcp4": true}]}});
    let place = |field: &str, word: &str| {
        let mut more = json!({"datacenter": "DC0"});
        more[field] = word.into();
        more
    };
    for (number, more) in [
        network("/DC1/network/VM Network"),
        network("/nowhere/at/all/VM Network"),
        network("/DC0/VM Network"),
        place("resourcePool", "/DC1/host/DC1_C0"),
        place("resourcePool", "/DC0/DC0_C0"),
        place("folder", "/DC1/vm"),
        place("datastore", "/DC1/datastore/LocalDS_0"),
        place("datastore", "/DC0/LocalDS_0"),
        place("template", "/DC1/vm/DC0_C0_RP0_VM0"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut object = Object::new(&vcsim, number, &more);
        let error = controller.step(&mut object).await.expect_err("another one").report();
        assert!(error.starts_with("spec."), "{more}: {error}");
    }
    controller.errors.clear();
    for (number, more) in [
        network("/DC0/network/VM Network"),
        network("VM Net*"),
        network("/*/network/VM?Network"),
        place("resourcePool", "/DC0/host/DC0_C0"),
        place("resourcePool", "DC0_C0/Resources"),
        place("folder", "/DC0/vm"),
        place("datastore", "/DC0/datastore/Local*_0"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut object = Object::new(&vcsim, 20 + number, &more);
        controller.make(&mut object).await;
        controller.delete(&mut object).await;
    }
    assert!(controller.errors.is_empty(), "{:?}", controller.errors);
    running.stop().await;
}
