mod random;

use serde_json::json;

use super::*;
use crate::machines::{spec::VSphereMachineSpec, v1beta1::v1beta1 as v1beta1_kinds};

/// An object of the API.
fn object(version: &str, kind: &str, body: &Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/{version}"),
        "kind": kind,
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "labels": {"l": "1"}},
    });
    for (name, value) in body.as_object().into_iter().flatten() {
        object[name] = value.clone();
    }
    object
}

/// Both are the same object, and neither needs the annotation.
fn same(kind: &str, v1beta1: &Value, v1beta2: &Value) {
    let (old, new) = (object("v1beta1", kind, v1beta1), object("v1beta2", kind, v1beta2));
    assert_eq!(convert(old.clone(), "v1beta2").expect("converted"), new);
    assert_eq!(convert(new.clone(), "v1beta1").expect("converted"), old);
}

fn there_and_back(object: &Value, there: &str, back: &str) -> Value {
    convert(convert(object.clone(), there).expect("converted"), back).expect("converted")
}

const OLD_CONDITION: &str = r#"{"type": "VMProvisioned", "status": "False", "severity": "Warning", "reason": "NotFound",
    "lastTransitionTime": "2026-01-01T00:00:00Z"}"#;
const NEW_CONDITION: &str = r#"{"type": "Ready", "status": "False", "reason": "NotReady", "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 2}"#;

fn condition(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn machines() {
    let device = json!({"networkName": "n", "dhcp4": true, "routes": [{"to": "a", "via": "b", "metric": 0}]});
    same(
        "VSphereMachine",
        &json!({
            "spec": {
                "template": "t", "network": {"devices": [device]}, "providerID": "vsphere://1", "failureDomain": "fd",
                "datacenter": "*", "powerOffMode": "trySoft", "guestSoftPowerOffTimeout": "5m0s",
                "namingStrategy": {"template": "{{ .machine.name }}"},
            },
            "status": {
                "ready": true, "addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}],
                "network": [{"macAddr": "m", "connected": true}], "failureReason": "r", "failureMessage": "m",
                "conditions": [condition(OLD_CONDITION)], "v1beta2": {"conditions": [condition(NEW_CONDITION)]},
            },
        }),
        &json!({
            "spec": {
                "template": "t", "network": {"devices": [device]}, "providerID": "vsphere://1", "failureDomain": "fd",
                "datacenter": "*", "powerOffMode": "trySoft", "guestSoftPowerOffTimeoutSeconds": 300,
                "naming": {"template": "{{ .machine.name }}"},
            },
            "status": {
                "ready": true, "initialization": {"provisioned": true},
                "addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}],
                "network": [{"macAddr": "m", "connected": true}],
                "conditions": [condition(NEW_CONDITION)],
                "deprecated": {"v1beta1": {
                    "conditions": [condition(OLD_CONDITION)], "failureReason": "r", "failureMessage": "m",
                }},
            },
        }),
    );
}

#[test]
fn templates_are_converted_inside() {
    let old = json!({"template": "t", "powerOffMode": "hard", "guestSoftPowerOffTimeout": "1m0s", "namingStrategy": {}});
    let new =
        json!({"template": "t", "powerOffMode": "hard", "guestSoftPowerOffTimeoutSeconds": 60, "naming": {}});
    same(
        "VSphereMachineTemplate",
        &json!({"spec": {"template": {"spec": old}}}),
        &json!({"spec": {"template": {"spec": new}}}),
    );
    let cluster = json!({"spec": {"template": {"spec": {"server": "v", "clusterModules": []}}}});
    same("VSphereClusterTemplate", &cluster, &cluster);
}

#[test]
fn virtual_machines() {
    same(
        "VSphereVM",
        &json!({
            "spec": {
                "template": "t", "biosUUID": "b", "os": "Linux", "powerOffMode": "hard",
                "bootstrapRef": {"apiVersion": "v1", "kind": "Secret", "name": "data", "namespace": "ns"},
            },
            "status": {"ready": false, "taskRef": "task-1", "conditions": [condition(OLD_CONDITION)]},
        }),
        &json!({
            "spec": {"template": "t", "biosUUID": "b", "os": "Linux", "powerOffMode": "hard", "bootstrapRef": {"name": "data"}},
            "status": {
                "ready": false, "taskRef": "task-1",
                "deprecated": {"v1beta1": {"conditions": [condition(OLD_CONDITION)]}},
            },
        }),
    );
}

#[test]
fn clusters() {
    same(
        "VSphereCluster",
        &json!({
            "spec": {
                "server": "v", "controlPlaneEndpoint": {"host": "h", "port": 6443},
                "identityRef": {"kind": "Secret", "name": "s"},
                "clusterModules": [{"controlPlane": true, "targetObjectName": "o", "moduleUUID": "m"}],
            },
            "status": {
                "ready": true, "vCenterVersion": "8.0.3.0",
                "failureDomains": {"a": {"controlPlane": true}, "b": {"attributes": {"x": "y"}}},
            },
        }),
        &json!({
            "spec": {
                "server": "v", "controlPlaneEndpoint": {"host": "h", "port": 6443},
                "identityRef": {"kind": "Secret", "name": "s"},
                "clusterModules": [{"controlPlane": true, "targetObjectName": "o", "moduleUUID": "m"}],
            },
            "status": {
                "ready": true, "initialization": {"provisioned": true}, "vCenterVersion": "8.0.3.0",
                "failureDomains": [{"name": "a", "controlPlane": true}, {"name": "b", "attributes": {"x": "y"}}],
            },
        }),
    );
}

#[test]
fn the_steps_can_read_what_was_converted() {
    let spec = json!({
        "template": "t", "network": {"devices": [{"networkName": "n", "routes": [{"to": "a", "via": "b", "metric": 0}]}]},
        "guestSoftPowerOffTimeout": "1h0m0s", "powerOffMode": "trySoft", "namingStrategy": {"template": "x"},
    });
    let old = object("v1beta1", "VSphereMachine", &json!({ "spec": spec }));
    let new = convert(old.clone(), "v1beta2").expect("converted");
    let read: VSphereMachineSpec = serde_json::from_value(new["spec"].clone()).expect("a good spec");
    assert_eq!(read.guest_soft_power_off_timeout_seconds, Some(3600));
    assert_eq!(read.naming.and_then(|naming| naming.template).as_deref(), Some("x"));
    assert_eq!(serde_json::to_value(&read.clone).expect("JSON")["network"], spec["network"]);
}

#[test]
fn every_kind_is_converted() {
    for kind in v1beta1_kinds().kinds {
        let name = kind.kind.kind;
        convert(object("v1beta1", name, &json!({})), "v1beta2").expect(name);
    }
}

#[test]
fn an_endpoint_that_is_not_set_is_none() {
    let old = object(
        "v1beta1",
        "VSphereCluster",
        &json!({"spec": {"controlPlaneEndpoint": {"host": "", "port": 0}}}),
    );
    let new = convert(old.clone(), "v1beta2").expect("converted");
    assert_eq!(new["spec"], json!({}));
    assert_eq!(convert(new.clone(), "v1beta1").expect("converted"), old);
}

#[test]
fn half_an_endpoint_is_half_an_endpoint() {
    let whole = json!({"spec": {"controlPlaneEndpoint": {"host": "h", "port": 0}}});
    same("VSphereCluster", &whole, &json!({"spec": {"controlPlaneEndpoint": {"host": "h"}}}));
}

#[test]
fn the_others() {
    for kind in ["VSphereClusterIdentity", "VSphereDeploymentZone"] {
        let spec = json!({"server": "v", "controlPlane": true, "placementConstraint": {}});
        same(
            kind,
            &json!({"spec": spec, "status": {"ready": true, "conditions": [], "v1beta2": {"conditions": []}}}),
            &json!({"spec": spec, "status": {
                "ready": true, "conditions": [], "deprecated": {"v1beta1": {"conditions": []}},
            }}),
        );
    }
    same(
        "VSphereFailureDomain",
        &json!({"spec": {"region": {"name": "r", "autoConfigure": false}, "topology": {"datacenter": "d"}}}),
        &json!({"spec": {"region": {"name": "r"}, "topology": {"datacenter": "d"}}}),
    );
}

#[test]
fn what_the_other_version_lacks_comes_back() {
    let old = object(
        "v1beta1",
        "VSphereVM",
        &json!({"spec": {
            "guestSoftPowerOffTimeout": "1500ms",
            "network": {"devices": [], "preferredAPIServerCidr": "10.0.0.0/8"},
            "bootstrapRef": {"kind": "Secret", "name": "data", "uid": "u"},
        }}),
    );
    let new = convert(old.clone(), "v1beta2").expect("converted");
    assert_eq!(new["spec"], json!({"network": {"devices": []}, "bootstrapRef": {"name": "data"}}));
    assert!(new["metadata"]["annotations"][ANNOTATION].is_string());
    assert_eq!(convert(new.clone(), "v1beta1").expect("converted"), old);

    let new = object(
        "v1beta2",
        "VSphereMachine",
        &json!({"spec": {
            "resources": {"shares": {"cpu": 1}}, "nestedHV": true,
            "network": {"devices": [{"routes": [{"to": "a", "via": "b"}]}]},
        }}),
    );
    let old = convert(new.clone(), "v1beta1").expect("converted");
    let routes = json!([{"to": "a", "via": "b", "metric": 0}]);
    assert_eq!(
        old["spec"],
        json!({
            "network": {"devices": [{"routes": routes}]},
            "resources": {"shares": {"cpu": 1}}, "nestedHV": true,
            "datacenter": "*", "powerOffMode": "hard",
        })
    );
    assert_eq!(convert(old.clone(), "v1beta2").expect("converted"), new);
}

/// All that is in the spec of a machine of which the annotation says what its spec was.
fn kept_earlier(spec: &Value, kept: &Value) -> Value {
    let mut old = object("v1beta1", "VSphereMachine", &json!({ "spec": spec }));
    let kept = json!({ "spec": kept }).to_string();
    old["metadata"]["annotations"] = json!({ ANNOTATION: kept });
    convert(old, "v1beta2").expect("converted")["spec"].clone()
}

#[test]
fn what_v1beta1_had_no_place_for_earlier_is_not_lost() {
    let spec = json!({"template": "t", "datacenter": "*", "powerOffMode": "hard"});
    let kept = json!({"template": "t", "nestedHV": true, "resources": {"requests": {"memory": "1Gi"}}});
    assert_eq!(kept_earlier(&spec, &kept), kept);
    // What is in the object is newer.
    let spec = json!({"template": "t", "datacenter": "*", "powerOffMode": "hard", "nestedHV": false});
    assert_eq!(kept_earlier(&spec, &kept)["nestedHV"], json!(false));
}

#[test]
fn what_is_taken_out_of_v1beta1_stays_out() {
    // A route without a metric has to be kept.
    let spec = json!({"template": "t", "nestedHV": true, "network": {"routes": [{"to": "a", "via": "b"}]}});
    let new = object("v1beta2", "VSphereMachine", &json!({ "spec": spec }));
    let mut old = convert(new, "v1beta1").expect("converted");
    assert!(old["metadata"]["annotations"][ANNOTATION].is_string());
    old["spec"].as_object_mut().expect("a spec").remove("nestedHV");
    let new = convert(old, "v1beta2").expect("converted");
    assert_eq!(new["spec"], json!({"template": "t", "network": {"routes": [{"to": "a", "via": "b"}]}}));
}

#[test]
fn what_means_the_same_as_nothing_is_nothing_where_it_is_not_allowed() {
    let spec = json!({"template": "t", "cloneMode": "", "numCPUs": 0, "memoryMiB": 0, "diskGiB": 0});
    let old = object("v1beta1", "VSphereMachine", &json!({ "spec": spec }));
    let new = convert(old.clone(), "v1beta2").expect("converted");
    assert_eq!(new["spec"], json!({"template": "t"}));
    assert_eq!(there_and_back(&old, "v1beta2", "v1beta1"), old);
    let spec = json!({"template": "t", "cloneMode": "x", "numCPUs": 1, "memoryMiB": -1, "diskGiB": 1});
    let old = object("v1beta1", "VSphereMachine", &json!({ "spec": spec }));
    assert_eq!(convert(old, "v1beta2").expect("converted")["spec"], spec, "what is wrong is not hidden");
}

#[test]
fn what_may_be_missing_later_is_there_before() {
    let new = object("v1beta2", "VSphereDeploymentZone", &json!({"spec": {"failureDomain": "x"}}));
    let old = convert(new.clone(), "v1beta1").expect("converted");
    assert_eq!(old["spec"]["placementConstraint"], json!({}));
    assert_eq!(convert(old, "v1beta2").expect("converted"), new);
}

/// As the API server does when it reads an object from where it is stored.
fn add_defaults(schema: &Value, value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(default) = field.get("default") {
            fields.entry(name).or_insert_with(|| default.clone());
        }
        if let Some(value) = fields.get_mut(name) {
            add_defaults(field, value);
        }
    }
}

#[test]
fn what_the_api_server_adds_in_one_version_is_not_in_the_other() {
    const KINDS: [&str; 5] = [
        "VSphereMachine",
        "VSphereMachineTemplate",
        "VSphereVM",
        "VSphereDeploymentZone",
        "VSphereFailureDomain",
    ];
    let mut with_defaults = 0;
    for kind in v1beta1_kinds().kinds.into_iter().filter(|kind| KINDS.contains(&kind.kind.kind)) {
        let spec = match kind.kind.kind {
            "VSphereFailureDomain" => json!({"region": {}, "zone": {}}),
            _ if kind.is_template => json!({"template": {"spec": {}}}),
            _ => json!({}),
        };
        let mut bare = spec.clone();
        add_defaults(&kind.spec, &mut bare);
        with_defaults += usize::from(bare != spec);
        let new = object("v1beta2", kind.kind.kind, &json!({ "spec": spec }));
        let stored = convert(new.clone(), "v1beta1").expect("converted");
        let mut read = stored.clone();
        add_defaults(&kind.spec, &mut read["spec"]);
        assert_eq!(read, stored, "the conversion adds what the API server would add");
        assert_eq!(convert(read.clone(), "v1beta2").expect("converted"), new);
        // What somebody sets is no default.
        if kind.kind.kind == "VSphereMachine" {
            read["spec"]["powerOffMode"] = json!("soft");
            let changed = convert(read.clone(), "v1beta2").expect("converted");
            assert_eq!(changed["spec"], json!({"powerOffMode": "soft"}));
        }
    }
    assert_eq!(with_defaults, KINDS.len());
}

#[test]
fn what_somebody_changed_meanwhile_stays_changed() {
    let new = object(
        "v1beta2",
        "VSphereMachine",
        &json!({
            "spec": {"nestedHV": true, "network": {"routes": [{"to": "a", "via": "b"}]}},
            "status": {"ready": true, "initialization": {"provisioned": true}},
        }),
    );
    let mut old = convert(new.clone(), "v1beta1").expect("converted");
    old["spec"]["network"]["routes"][0]["to"] = json!("c");
    old["status"]["ready"] = json!(false);
    let new = convert(old.clone(), "v1beta2").expect("converted");
    assert_eq!(new["spec"]["nestedHV"], json!(true));
    assert_eq!(new["spec"]["network"]["routes"], json!([{"to": "c", "via": "b", "metric": 0}]));
    assert_eq!(new["status"]["initialization"]["provisioned"], json!(false));

    let old =
        object("v1beta1", "VSphereVM", &json!({"spec": {"bootstrapRef": {"name": "data", "uid": "u"}}}));
    let mut new = convert(old.clone(), "v1beta2").expect("converted");
    new["spec"]["bootstrapRef"]["name"] = json!("other");
    let old = convert(new.clone(), "v1beta1").expect("converted");
    let whole = json!({"apiVersion": "v1", "kind": "Secret", "name": "other", "namespace": "ns"});
    assert_eq!(old["spec"]["bootstrapRef"], whole, "the UID was that of another one");
}

#[test]
fn an_annotation_of_somebody_else_does_no_harm() {
    for text in ["", "[]", "{", "null", r#"{"spec": 1}"#, r#"{"kind": "Secret", "metadata": {"name": "x"}}"#]
    {
        let spec = json!({"template": "t", "datacenter": "*", "powerOffMode": "hard"});
        let mut object = object("v1beta1", "VSphereMachine", &json!({ "spec": spec }));
        object["metadata"]["annotations"] = json!({ ANNOTATION: text, "mine": "1" });
        let converted = convert(object.clone(), "v1beta2").expect("converted");
        assert_eq!(converted["spec"], spec, "{text}");
        assert_eq!(converted["kind"], "VSphereMachine");
        assert_eq!(converted["metadata"]["annotations"], json!({"mine": "1"}), "{text}");
        assert_eq!(converted["metadata"]["name"], "a");
    }
}

#[test]
fn the_same_version_is_the_same_object() {
    let object = object("v1beta1", "VSphereMachine", &json!({"spec": {"template": "t"}}));
    assert_eq!(convert(object.clone(), "v1beta1").expect("converted"), object);
}

#[test]
fn what_is_not_an_object_of_these_kinds_is_refused_by_name() {
    let good = object("v1beta1", "VSphereMachine", &json!({}));
    let with = |field: &str, value: Value| {
        let mut object = good.clone();
        object[field] = value;
        object
    };
    for (object, to, words) in [
        (json!([]), "v1beta2", "not a JSON object"),
        (with("kind", json!("Pod")), "v1beta2", "kind: \"Pod\""),
        (with("kind", json!(1)), "v1beta2", "kind: \"\""),
        (with("apiVersion", json!("v1")), "v1beta2", "apiVersion: \"v1\""),
        (with("apiVersion", json!(format!("{GROUP}/v1alpha3"))), "v1beta2", "v1alpha3"),
        (with("metadata", json!(1)), "v1beta2", "metadata: a JSON object"),
        (good.clone(), "v2", "the version \"v2\""),
    ] {
        let error = convert(object.clone(), to).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn an_annotation_that_would_take_much_memory_is_not_read() {
    let text = format!(r#"{{"spec": {{"x": [0{}]}}}}"#, ",0".repeat(1_000_000));
    // With what the API server adds.
    let spec = json!({"template": "t", "datacenter": "*", "powerOffMode": "hard"});
    let mut object = object("v1beta1", "VSphereMachine", &json!({ "spec": spec }));
    object["metadata"]["annotations"] = json!({ ANNOTATION: text });
    let converted = convert(object, "v1beta2").expect("converted");
    assert_eq!(converted["spec"], spec);
    assert_eq!(converted["metadata"]["annotations"], Value::Null);
}

/// Each text that v1beta1 allows to be empty and v1beta2 does not, at its place.
#[test]
fn an_empty_text_is_none_where_it_is_not_allowed() {
    let pools = json!([{"apiGroup": "", "kind": "P", "name": "p"}]);
    let device = json!({
        "networkName": "n", "deviceName": "", "gateway4": "", "gateway6": "", "macAddr": "",
        "addressesFromPools": pools, "nameservers": [""],
    });
    let mut machine = json!({
        "template": "t", "network": {"devices": [device]}, "namingStrategy": {"template": ""}, "powerOffMode": "hard",
        "pciDevices": [{"vGPUProfile": "", "customLabel": "", "vendorId": 1, "deviceId": 2}], "customVMXKeys": {"folder": ""},
    });
    for text in [
        "cloneMode",
        "snapshot",
        "server",
        "thumbprint",
        "datacenter",
        "folder",
        "datastore",
        "storagePolicyName",
    ]
    .into_iter()
    .chain(["resourcePool", "os", "hardwareVersion", "biosUUID", "providerID"])
    {
        machine[text] = json!("");
    }
    let pools = json!([{"kind": "P", "name": "p"}]);
    let device = json!({
        "networkName": "n", "addressesFromPools": pools, "nameservers": [""],
    });
    let of_machine = json!({
        "template": "t", "network": {"devices": [device]}, "naming": {}, "powerOffMode": "hard",
        "pciDevices": [{"vendorId": 1, "deviceId": 2}], "customVMXKeys": {"folder": ""},
    });
    let network = json!({"networkName": "n", "addressesFromPools": [{"apiGroup": ""}]});
    let network_later = json!({"networkName": "n", "addressesFromPools": [{}]});
    for (kind, old, new) in [
        ("VSphereMachine", machine.clone(), of_machine.clone()),
        ("VSphereVM", machine.clone(), of_machine.clone()),
        (
            "VSphereMachineTemplate",
            json!({"template": {"spec": machine}}),
            json!({"template": {"spec": of_machine}}),
        ),
        ("VSphereCluster", json!({"server": "", "thumbprint": ""}), json!({})),
        (
            "VSphereDeploymentZone",
            json!({"server": "", "failureDomain": "", "placementConstraint": {"resourcePool": "", "folder": ""}}),
            json!({"failureDomain": "", "placementConstraint": {}}),
        ),
        (
            "VSphereFailureDomain",
            json!({"topology": {
                "datacenter": "", "computeCluster": "", "datastore": "", "networkConfigurations": [network],
            }}),
            json!({"topology": {"datacenter": "", "networkConfigurations": [network_later]}}),
        ),
    ] {
        let old = object("v1beta1", kind, &json!({ "spec": old }));
        let converted = convert(old.clone(), "v1beta2").expect("converted");
        assert_eq!(converted["spec"], new, "{kind}");
        assert_eq!(convert(converted, "v1beta1").expect("converted"), old, "{kind}");
    }
}
