//! Random objects: whatever they say comes back as it was.

use proptest::prelude::*;

use super::*;

const KINDS: [&str; 8] = [
    "VSphereMachine",
    "VSphereMachineTemplate",
    "VSphereVM",
    "VSphereCluster",
    "VSphereClusterTemplate",
    "VSphereClusterIdentity",
    "VSphereDeploymentZone",
    "VSphereFailureDomain",
];

/// Names that mean something in one of the versions, and two that do not.
const NAMES: [&str; 45] = [
    "spec",
    "template",
    "network",
    "devices",
    "routes",
    "metric",
    "to",
    "name",
    "namespace",
    "uid",
    "bootstrapRef",
    "naming",
    "namingStrategy",
    "guestSoftPowerOffTimeout",
    "guestSoftPowerOffTimeoutSeconds",
    "resources",
    "nestedHV",
    "preferredAPIServerCidr",
    "controlPlaneEndpoint",
    "host",
    "port",
    "clusterModules",
    "controlPlane",
    "region",
    "autoConfigure",
    "numCPUs",
    "cloneMode",
    "placementConstraint",
    "conditions",
    "v1beta2",
    "v1beta1",
    "deprecated",
    "failureReason",
    "ready",
    "initialization",
    "provisioned",
    "failureDomains",
    "datacenter",
    "deviceName",
    "pciDevices",
    "vGPUProfile",
    "addressesFromPools",
    "apiGroup",
    "x",
    "y",
];

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..400).prop_map(Value::from),
        prop::sample::select(vec!["", "a", "5m0s", "300s", "1.5s", "0"]).prop_map(Value::from),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 48, 6, |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from), fields(inner),]
    })
}

fn fields(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let name = prop::sample::select(NAMES.to_vec());
    prop::collection::btree_map(name, inner, 0..7)
        .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn of_the_form(form: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let all: Vec<_> = form
        .iter()
        .map(|name| prop::option::weighted(0.7, anything()).prop_map(move |value| (*name, value)))
        .collect();
    all.prop_map(|fields| {
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Value>()
    })
}

/// Fields at their places, each with anything in it.
fn body() -> impl Strategy<Value = Value> {
    let spec = of_the_form(&[
        "network",
        "bootstrapRef",
        "numCPUs",
        "cloneMode",
        "datacenter",
        "pciDevices",
        "naming",
        "namingStrategy",
        "guestSoftPowerOffTimeout",
        "guestSoftPowerOffTimeoutSeconds",
        "resources",
        "controlPlaneEndpoint",
        "clusterModules",
        "region",
        "zone",
    ]);
    let status = of_the_form(&[
        "conditions",
        "v1beta2",
        "deprecated",
        "failureReason",
        "ready",
        "initialization",
        "failureDomains",
    ]);
    let spec = (spec, anything(), any::<bool>()).prop_map(|(spec, other, is_template)| {
        if is_template { json!({"template": {"spec": spec, "metadata": other}}) } else { spec }
    });
    let spec = prop_oneof![8 => spec, 1 => anything()];
    let status = prop_oneof![8 => status, 1 => anything()];
    (spec, prop::option::of(status)).prop_map(|(spec, status)| match status {
        Some(status) => json!({"spec": spec, "status": status}),
        None => json!({ "spec": spec }),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn old_objects_come_back(kind in prop::sample::select(KINDS.to_vec()), body in body()) {
        let old = object("v1beta1", kind, &body);
        prop_assert_eq!(there_and_back(&old, "v1beta2", "v1beta1"), old);
    }

    #[test]
    fn new_objects_come_back(kind in prop::sample::select(KINDS.to_vec()), body in body()) {
        let mut new = object("v1beta2", kind, &body);
        // What is said twice is said alike.
        let shape = Shape::of(kind).expect("a kind");
        v1beta2::repeat_ready(shape, new.as_object_mut().expect("an object"));
        prop_assert_eq!(there_and_back(&new, "v1beta1", "v1beta2"), new);
    }

    #[test]
    fn a_third_conversion_is_as_the_first(kind in prop::sample::select(KINDS.to_vec()), body in body()) {
        let old = object("v1beta1", kind, &body);
        let new = convert(old, "v1beta2").expect("converted");
        let again = convert(convert(new.clone(), "v1beta1").expect("converted"), "v1beta2").expect("converted");
        prop_assert_eq!(again, new);
    }
}
