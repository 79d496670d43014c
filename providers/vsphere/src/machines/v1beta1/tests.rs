use std::collections::BTreeMap;

use super::*;

/// The fields of a kind's spec and status, by the kind.
fn fields() -> BTreeMap<&'static str, (Vec<String>, Vec<String>)> {
    let names = |schema: &Value| {
        let fields = schema["properties"].as_object().into_iter().flatten();
        fields.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let kinds = v1beta1().kinds.into_iter();
    kinds
        .map(|kind| {
            (kind.kind.kind, (names(&kind.spec), kind.status.as_ref().map(names).unwrap_or_default()))
        })
        .collect()
}

#[test]
fn there_are_all_kinds() {
    let kinds: Vec<&str> = fields().into_keys().collect();
    assert_eq!(
        kinds,
        [
            "VSphereCluster",
            "VSphereClusterIdentity",
            "VSphereClusterTemplate",
            "VSphereDeploymentZone",
            "VSphereFailureDomain",
            "VSphereMachine",
            "VSphereMachineTemplate",
            "VSphereVM",
        ]
    );
}

#[test]
fn fields_of_v1beta2_are_not_there() {
    let fields = fields();
    for kind in ["VSphereMachine", "VSphereVM"] {
        let (spec, status) = &fields[kind];
        for later in ["naming", "guestSoftPowerOffTimeoutSeconds"] {
            assert!(!spec.iter().any(|field| field == later), "{kind} {later}");
        }
        for older in ["conditions", "v1beta2", "ready", "failureReason", "failureMessage", "network"] {
            assert!(status.iter().any(|field| field == older), "{kind} {older}");
        }
        assert!(!status.iter().any(|field| field == "deprecated"), "{kind}");
    }
}

#[test]
fn what_is_different_is_changed_at_every_depth() {
    let kinds = v1beta1().kinds;
    let of = |name: &str| kinds.iter().find(|kind| kind.kind.kind == name).expect("a kind").spec.clone();
    let machine = of("VSphereMachine")["properties"].clone();
    assert_eq!(machine["powerOffMode"]["default"], "hard");
    assert!(machine["namingStrategy"].is_object());
    let network = &machine["network"]["properties"];
    assert!(network["preferredAPIServerCidr"].is_object());
    for routes in [&network["routes"], &network["devices"]["items"]["properties"]["routes"]] {
        assert_eq!(routes["items"]["required"], json!(["to", "via", "metric"]));
    }
    let modules = &of("VSphereCluster")["properties"]["clusterModules"];
    assert!(modules["items"]["required"].as_array().expect("a list").contains(&json!("controlPlane")));
    assert!(of("VSphereFailureDomain")["properties"]["zone"]["properties"]["autoConfigure"].is_object());
}

#[test]
fn fields_of_both_versions_have_their_limits_in_both() {
    for kind in v1beta1().kinds {
        let spec = match kind.kind.kind {
            "VSphereMachine" | "VSphereVM" => &kind.spec,
            "VSphereMachineTemplate" => &kind.spec["properties"]["template"]["properties"]["spec"],
            _ => continue,
        };
        let of_v1beta2 = schema_of::<VSphereMachineSpec>();
        for field in LATER_FIELDS {
            let limited = &of_v1beta2["properties"][field];
            assert!(limited.is_object(), "{field}");
            assert_eq!(&spec["properties"][field], limited, "{} {field}", kind.kind.kind);
        }
    }
}
