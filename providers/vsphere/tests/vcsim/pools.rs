//! Machines whose addresses come from pools. Who fulfils the claims is the test itself.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cloudprovider::{
    CloudProvider as _,
    machines::{AuxiliaryKind, AuxiliaryObject, MachineReport, Objects},
};
use serde_json::{Value, json};

use crate::{controller::*, support::*};

fn kind_of(running: &Running, kind: &str) -> AuxiliaryKind {
    let kinds = running.provider.machines().expect("machines").kinds();
    *kinds.auxiliary.iter().find(|one| one.kind == kind).expect("a kind")
}

/// The claim of the only network device, and what it got.
fn fulfilled(running: &Running, owner: &str, address: &str) -> Objects {
    let name = "worker-1-0-0";
    let object = |name: &str| AuxiliaryObject::new(name).in_namespace("default");
    let pool = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "workers"});
    let claim = object(name)
        .with_owners([owner.to_owned()])
        .with_spec(json!({ "poolRef": pool }))
        .with_status(json!({"addressRef": {"name": "address-1"}}));
    let spec = json!({"address": address, "prefix": 24, "gateway": "192.0.2.1", "claimRef": {"name": name}});
    Objects::of([
        (kind_of(running, "IPAddressClaim"), claim),
        (kind_of(running, "IPAddress"), object("address-1").with_spec(spec)),
    ])
}

#[tokio::test]
async fn a_machine_is_made_when_its_claims_are_fulfilled() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let pool = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "workers"});
    let devices = json!({"devices": [{"networkName": "VM Network", "addressesFromPools": [pool]}]});
    let mut object = Object::new(&vcsim, 1, &json!({ "network": devices }));
    vcsim.reset_counts().expect("reset");
    for _ in 0..2 {
        let report = controller.step(&mut object).await.expect("a step");
        let MachineReport::Creating(wait) = &report else { panic!("{report:?}") };
        assert_eq!(wait.reason, "WaitingForIPAddressClaims");
        assert!(wait.needs_bootstrap_data, "the clone comes next");
        assert!(
            wait.message.contains("IPAddressClaim worker-1-0-0 of InClusterIPPool \"workers\""),
            "{wait:?}"
        );
    }
    let wanted = object.record.wanted();
    assert_eq!((wanted.len(), &*wanted[0].name), (1, "worker-1-0-0"));
    assert_eq!(wanted[0].spec, json!({ "poolRef": pool }));
    assert_eq!(calls(&vcsim), [].into(), "vCenter is not asked for anything");

    object.request.objects = fulfilled(&running, &object.request.object_uid, "192.0.2.77");
    let instance = controller.make(&mut object).await;
    assert!(instance.metadata.addresses.iter().any(|one| one.address == "192.0.2.77"), "{instance:?}");
    let sent = vcsim.last_requests().expect("requests").remove("soap:CloneVM_Task").expect("a clone");
    let value =
        sent.split("<key>guestinfo.metadata</key>").nth(1).and_then(|rest| rest.split(['<', '>']).nth(2));
    let metadata: Value =
        serde_json::from_slice(&STANDARD.decode(value.expect("a value")).expect("base64")).expect("JSON");
    let card = &metadata["network"]["ethernets"]["id0"];
    assert_eq!(card["addresses"], json!(["192.0.2.77/24"]));
    assert_eq!(card["gateway4"], "192.0.2.1");

    // What becomes of the claims afterwards does not matter to the machine.
    object.request.objects = Objects::default();
    let report = controller.step(&mut object).await.expect("a step");
    assert!(report.is_done(), "{report:?}");
    controller.delete(&mut object).await;
    running.stop().await;
}
