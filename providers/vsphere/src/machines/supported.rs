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
pub(crate) fn ignored_of_cluster(spec: &VSphereClusterSpec, options: MachineOptions) -> Option<String> {
    let has_unused_modules = !spec.cluster_modules.is_empty() && !options.node_anti_affinity;
    let of_modules = has_unused_modules.then(|| {
        "clusterModules: no machines are put into them, and they are not deleted with the cluster; machines.nodeAntiAffinity in the \
         configuration of the controller is not true"
            .to_owned()
    });
    let all: Vec<_> = ignored(None, spec).into_iter().chain(of_modules).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The fields that are set and mean nothing here, with the reason.
pub(crate) fn ignored(machine: Option<&VSphereMachineSpec>, cluster: &VSphereClusterSpec) -> Option<String> {
    if cluster.identity_ref.is_some() {
        return None;
    }
    let of_machine = machine.is_some_and(|machine| is_set(machine.clone.thumbprint.as_ref()));
    (of_machine || (machine.is_none() && is_set(cluster.thumbprint.as_ref())))
        .then(|| "thumbprint: the vCenter is trusted as the configuration of the controller says".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
            ignored_of_cluster(&cluster, options).unwrap_or_default()
        };
        assert!(words(false).starts_with("thumbprint: ") && words(false).contains("; clusterModules: "));
        assert!(!words(true).contains("clusterModules"), "{}", words(true));
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
        assert_eq!(ignored_of_cluster(&cluster, MachineOptions::default()), None);
        let cluster = VSphereClusterSpec { thumbprint: Some("AA".to_owned()), ..cluster };
        assert!(ignored(None, &cluster).is_some_and(|words| words.starts_with("thumbprint: ")));
        let more = json!({"thumbprint": "AA", "identityRef": {"kind": "Secret", "name": "s"}});
        let cluster: VSphereClusterSpec = serde_json::from_value(more).expect("a spec");
        assert_eq!(ignored(None, &cluster), None, "it counts for the session of the cluster");
    }
}
