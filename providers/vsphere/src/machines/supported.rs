//! What a spec may say that is not supported. It is refused by name, and never left out. Pure.

use cloudprovider::{Error, ErrorKind, Result};

use super::spec::{VSphereClusterSpec, VSphereMachineSpec};
use crate::config::MachineOptions;

fn is_set(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

fn refuse(field: &str, why: &str) -> Result<()> {
    Err(Error::new(ErrorKind::Unsupported, format!("{field}: {why}")))
}

/// Refuses what cannot be made.
///
/// # Errors
/// [`ErrorKind::Unsupported`] with the name of the field; [`ErrorKind::InvalidInput`] for a template that is missing.
pub(crate) fn check_machine(spec: &VSphereMachineSpec) -> Result<()> {
    let clone = &spec.clone;
    if clone.template.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "spec.template: missing; name a template"));
    }
    let checks: [(bool, &str, &str); 2] = [
        (is_set(clone.crypto_key_id.as_ref()), "spec.cryptoKeyID", "encryption keys are not supported"),
        (
            is_set(clone.crypto_profile.as_ref()),
            "spec.cryptoProfile",
            "encryption profiles are not supported",
        ),
    ];
    for (is_wrong, field, why) in checks {
        if is_wrong {
            return refuse(field, why);
        }
    }
    Ok(())
}

/// The fields of a cluster that are set and mean nothing here, with the reasons.
pub(crate) fn ignored_of_cluster(spec: &VSphereClusterSpec, options: &MachineOptions) -> Option<String> {
    let has_unused_modules = !spec.cluster_modules.is_empty() && !options.node_anti_affinity;
    let of_modules = has_unused_modules.then(|| {
        "clusterModules: no machines are put into them, and they are not deleted with the cluster; machines.nodeAntiAffinity in the \
         configuration of the controller is not true"
            .to_owned()
    });
    let all: Vec<_> = thumbprint(spec.thumbprint.as_ref(), spec).into_iter().chain(of_modules).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The fields of a machine that are set and mean nothing here, with the reasons.
pub(crate) fn ignored_of_machine(spec: &VSphereMachineSpec, cluster: &VSphereClusterSpec) -> Option<String> {
    let all: Vec<_> =
        thumbprint(spec.clone.thumbprint.as_ref(), cluster).into_iter().chain(custom_labels(spec)).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn thumbprint(thumbprint: Option<&String>, cluster: &VSphereClusterSpec) -> Option<String> {
    (is_set(thumbprint) && cluster.identity_ref.is_none())
        .then(|| "thumbprint: the vCenter is trusted as the configuration of the controller says".to_owned())
}

/// Labels are for devices that vCenter chooses by them, and a virtual GPU is chosen by its profile.
fn custom_labels(spec: &VSphereMachineSpec) -> impl Iterator<Item = String> {
    let devices = spec.clone.pci_devices.iter().enumerate();
    let labelled = devices
        .filter(|(_, device)| is_set(device.vgpu_profile.as_ref()) && is_set(device.custom_label.as_ref()));
    labelled.map(|(number, _)| format!("pciDevices[{number}].customLabel: a virtual GPU has no label"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::machines::spec::{IdentityKind, VSphereIdentityReference};

    fn machine(more: Value) -> VSphereMachineSpec {
        let mut spec = json!({"template": "t", "network": {"devices": [{"networkName": "n"}]}});
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        serde_json::from_value(spec).expect("a spec")
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (more, field) in [
            (json!({"cryptoKeyID": "k"}), "spec.cryptoKeyID"),
            (json!({"cryptoProfile": "k"}), "spec.cryptoProfile"),
            (json!({"template": ""}), "spec.template"),
        ] {
            let error = check_machine(&machine(more)).expect_err(field);
            assert!(error.to_string().starts_with(&format!("{field}: ")), "{error}");
        }
    }

    #[test]
    fn modules_of_others_are_named_where_nobody_asks_for_modules() {
        let modules = json!({"thumbprint": "AA", "clusterModules": [{"targetObjectName": "workers", "moduleUUID": "m"}]});
        let cluster: VSphereClusterSpec = serde_json::from_value(modules).expect("a spec");
        let words = |node_anti_affinity| {
            let options = MachineOptions { node_anti_affinity, ..MachineOptions::default() };
            ignored_of_cluster(&cluster, &options).unwrap_or_default()
        };
        assert!(words(false).starts_with("thumbprint: ") && words(false).contains("; clusterModules: "));
        assert!(!words(true).contains("clusterModules"), "{}", words(true));
    }

    #[test]
    fn a_label_that_a_virtual_gpu_cannot_have_is_named() {
        let devices = json!({"pciDevices": [
            {"deviceId": 1, "vendorId": 2, "customLabel": "a"}, {"vGPUProfile": "p"}, {"vGPUProfile": "p", "customLabel": ""},
            {"vGPUProfile": "p", "customLabel": "a"},
        ]});
        let spec = machine(devices);
        check_machine(&spec).expect("supported");
        let mut cluster = VSphereClusterSpec::default();
        let words = ignored_of_machine(&spec, &cluster);
        assert_eq!(words.as_deref(), Some("pciDevices[3].customLabel: a virtual GPU has no label"));
        let mut spec = spec;
        spec.clone.thumbprint = Some("AA".to_owned());
        let both = ignored_of_machine(&spec, &cluster).unwrap_or_default();
        assert!(both.starts_with("thumbprint: ") && both.contains("; pciDevices[3].customLabel: "), "{both}");
        cluster.identity_ref =
            Some(VSphereIdentityReference { kind: IdentityKind::Secret, name: "s".to_owned() });
        assert_eq!(ignored_of_machine(&spec, &cluster), words);
    }

    #[test]
    fn what_is_empty_is_not_set() {
        for more in [
            json!({}),
            json!({"storagePolicyName": "gold", "tagIDs": ["urn:1"], "pciDevices": [{"vGPUProfile": "p"}]}),
            json!({"storagePolicyName": "", "cryptoKeyID": "", "pciDevices": [], "os": "Linux", "failureDomain": "a"}),
            json!({"naming": {"template": "x-{{ .machine.name }}"}, "os": "Windows"}),
            json!({"network": {"devices": [{"networkName": "n", "addressesFromPools": [{"kind": "P", "name": "p"}]}]}}),
        ] {
            check_machine(&machine(more)).expect("supported");
        }
        let cluster: VSphereClusterSpec =
            serde_json::from_value(json!({"server": "vc", "failureDomainSelector": {}})).expect("a spec");
        assert_eq!(ignored_of_cluster(&cluster, &MachineOptions::default()), None);
        let cluster = VSphereClusterSpec { thumbprint: Some("AA".to_owned()), ..cluster };
        let words = |cluster| ignored_of_cluster(cluster, &MachineOptions::default());
        assert!(words(&cluster).is_some_and(|words| words.starts_with("thumbprint: ")));
        let more = json!({"thumbprint": "AA", "identityRef": {"kind": "Secret", "name": "s"}});
        let cluster: VSphereClusterSpec = serde_json::from_value(more).expect("a spec");
        assert_eq!(words(&cluster), None, "it counts for the session of the cluster");
    }
}
