//! Tests of how objects are put together. They are shaped as a real server has them.

use serde_json::{Value, json};

use super::*;

/// A machine that registered itself, as Rancher makes it.
fn custom(name: &str, node: Option<&str>) -> MachineObject {
    let status = node.map_or(json!({"phase": "Provisioning"}), |node| json!({"nodeRef": {"name": node}}));
    read(json!({
        "metadata": {
            "name": name, "namespace": "fleet-default", "uid": format!("uid-of-{name}"),
            "labels": {"rke.cattle.io/machine-id": "5f", "topology.kubernetes.io/zone": "a"},
        },
        "spec": {
            "clusterName": "prod",
            "bootstrap": {"configRef": {"apiVersion": "rke.cattle.io/v1", "kind": "RKEBootstrap", "name": name}},
            "infrastructureRef": {"apiVersion": "rke.cattle.io/v1", "kind": "CustomMachine", "name": name},
        },
        "status": status,
    }))
}

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}

fn bootstrap(name: &str, internal: &str, external: &str) -> ObjectMeta {
    read(json!({"name": name, "annotations": {
        "rke.cattle.io/internal-address": internal, "rke.cattle.io/address": external,
    }}))
}

#[test]
fn the_addresses_of_a_custom_machine_are_on_its_bootstrap() {
    // Whatever arrives first.
    for bootstrap_first in [true, false] {
        let mut objects = Objects::default();
        let bootstrap = bootstrap("custom-1", "10.0.0.1, fd00::1", "203.0.113.1");
        let machine = if bootstrap_first {
            assert_eq!(objects.put_bootstrap(&bootstrap), None);
            objects.put_machine(custom("custom-1", None))
        } else {
            objects.put_machine(custom("custom-1", None));
            objects.put_bootstrap(&bootstrap)
        };
        let machine = machine.expect("a machine");
        assert_eq!(machine.key, "uid-of-custom-1");
        assert_eq!((machine.addresses.internal.len(), machine.addresses.external.len()), (2, 1));
        assert_eq!(machine.instance_type.as_deref(), Some("CustomMachine"));
        let without = objects.remove_bootstrap(&bootstrap).expect("the machine");
        assert_eq!(without.addresses, KnownAddresses::default());
    }
}

#[test]
fn an_address_alone_is_the_internal_one() {
    let mut objects = Objects::default();
    objects.put_bootstrap(&bootstrap("custom-1", "", "10.0.0.1"));
    let machine = objects.put_machine(custom("custom-1", None)).expect("a machine");
    assert_eq!((machine.addresses.internal.len(), machine.addresses.external.len()), (1, 0));
}

/// Rancher copies these addresses from the Node. Another group's controller knows them from its cloud.
#[test]
fn addresses_that_come_from_the_node_do_not_go_back_to_it() {
    for (group, known) in
        [("rke-machine.cattle.io", 0), ("rke.cattle.io", 0), ("infrastructure.cluster.x-k8s.io", 1)]
    {
        for reference in [json!({"apiVersion": format!("{group}/v1")}), json!({"apiGroup": group})] {
            let mut reference = reference;
            reference["kind"] = json!("XMachine");
            reference["name"] = json!("x");
            let object = read(json!({
                "metadata": {"name": "m", "uid": "u"},
                "spec": {"infrastructureRef": reference, "providerID": ""},
                "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"},
                                         {"type": "Hostname", "address": "x"}]},
            }));
            let machine = Objects::default().put_machine(object).expect("a machine");
            assert_eq!(machine.addresses.internal.len(), known, "{group}");
            assert_eq!(machine.provider_id, None);
        }
    }
}

#[test]
fn the_node_is_that_of_the_status_or_of_the_label() {
    let mut objects = Objects::default();
    let node = |machine: Option<Machine>| machine.and_then(|machine| machine.node);
    assert_eq!(node(objects.put_machine(custom("custom-1", None))), None);
    let mut labelled = custom("custom-1", None);
    labelled.metadata.labels.get_or_insert_default().insert(NODE_NAME_LABEL.to_owned(), "node-1".to_owned());
    assert_eq!(node(objects.put_machine(labelled)).as_deref(), Some("node-1"));
    assert_eq!(node(objects.put_machine(custom("custom-1", Some("node-2")))).as_deref(), Some("node-2"));
}

#[test]
fn infrastructure_outlives_its_machine() {
    let mut objects = Objects::default();
    let machine = custom("custom-1", None);
    objects.put_machine(machine.clone());
    let infrastructure: ObjectMeta = read(json!({"name": "custom-1", "ownerReferences": [
        {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "name": "custom-1", "uid": "uid-of-custom-1"},
    ]}));
    objects.set_infrastructure(&infrastructure, true);
    assert_eq!(objects.remove_machine(&machine).as_deref(), Some("uid-of-custom-1"));
    assert_eq!(objects.owners.get("uid-of-custom-1").map(String::as_str), Some("custom-1"));
    objects.set_infrastructure(&infrastructure, false);
    assert!(objects.owners.is_empty() && objects.machines().is_empty());
}
