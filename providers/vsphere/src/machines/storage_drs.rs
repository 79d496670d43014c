//! Asks Storage DRS for a datastore, where a spec names a datastore cluster. Pure, but for [`recommend`].
//!
//! The recommendation itself is not applied: vCenter would make the machine then, in a call of its own. The clone is made onto the
//! recommended datastore instead, so that the mark, the name and the instance UUID are in the one call that makes the machine.

use cloudprovider::{Error, ErrorKind, Result};

use super::{clone::Clone, storage::StoragePolicy, vcenter_handle::VCenterHandle};
use crate::{
    moref::MoRef,
    tasks::TaskFault,
    vim::{
        CallError,
        element::Element,
        storage_drs::{PodSelectionSpec, RecommendDatastores, StoragePlacementSpec},
    },
};

const FIELD: &str = "spec.datastore";

/// What Storage DRS recommends for a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recommended {
    /// The best one first.
    datastores: Vec<MoRef>,
    /// Why it does not recommend others.
    faults: Vec<TaskFault>,
}

/// Asks for the datastores of a datastore cluster onto which a machine may be cloned. `word` is what the spec calls the cluster.
///
/// # Errors
/// Those of the call.
pub(crate) async fn recommend(
    vcenter: &VCenterHandle,
    pod: &MoRef,
    word: &str,
    template: &MoRef,
    clone: &Clone,
) -> Result<Recommended> {
    let content = vcenter.content()?;
    let Some(manager) = &content.storage_resource_manager else {
        return Err(vcenter.error(ErrorKind::Unsupported, "it has no Storage DRS"));
    };
    let answer = vcenter.call(&request(pod, template, clone).of(manager)).await.map_err(|error| {
        let told = vcenter.error_of(&error);
        match error {
            CallError::Fault { .. } => {
                Error::new(told.kind(), format!("{FIELD}: the datastore cluster {word:?}: {told}"))
            }
            _ => told,
        }
    })?;
    Ok(read(&answer))
}

/// The request is about the clone that will be made, but for its extra configuration, which takes no space and has secrets.
fn request(pod: &MoRef, template: &MoRef, clone: &Clone) -> RecommendDatastores {
    let mut spec = clone.call.spec.clone();
    if let Some(config) = &mut spec.config {
        config.extra_config.clear();
    }
    let spec = StoragePlacementSpec {
        kind: "clone",
        machine: Some(template.clone()),
        pod_selection: PodSelectionSpec { storage_pod: Some(pod.clone()) },
        clone_spec: Some(spec),
        clone_name: Some(clone.call.name.clone()),
        folder: Some(clone.call.folder.clone()),
        // vCenter makes such moves only where a recommendation is applied
        disallow_prerequisite_moves: Some(true),
    };
    RecommendDatastores { spec }
}

/// Reads a `StoragePlacementResult`.
fn read(answer: &Element) -> Recommended {
    let destination = |recommendation: &Element| {
        recommendation.all("action").find_map(|action| action.moref_of("destination"))
    };
    let by_machine = answer.child("drsFault").into_iter().flat_map(|all| all.all("faultsByVm"));
    Recommended {
        datastores: answer.all("recommendations").filter_map(destination).collect(),
        faults: by_machine.flat_map(|one| one.all("fault")).map(TaskFault::read).collect(),
    }
}

impl Recommended {
    /// The first recommended datastore, or the first one that a storage policy allows. `word` is what the spec calls the datastore cluster.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none, with vCenter's reasons.
    pub(crate) fn choose(&self, word: &str, policy: Option<&StoragePolicy>) -> Result<&MoRef> {
        let is_allowed = |one: &&MoRef| policy.is_none_or(|policy| policy.allows(one));
        self.datastores.iter().find(is_allowed).ok_or_else(|| {
            let why = match (policy, &self.datastores[..], &self.faults[..]) {
                (Some(policy), [_, ..], _) => {
                    let all: Vec<_> = self.datastores.iter().map(MoRef::id).collect();
                    format!(
                        "the storage policy {:?} allows none of those that it recommends ({}), or the resource pool has not got them",
                        policy.name(),
                        all.join(", ")
                    )
                }
                (_, _, []) => "it gives no reason; see whether Storage DRS is on, and the datastores are in use".to_owned(),
                (_, _, faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            };
            let words = format!("{FIELD}: vCenter recommends no datastore of the datastore cluster {word:?}: {why}");
            Error::new(ErrorKind::NotFound, words)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        machines::{
            clone::tests::{planned_on, spec, template},
            storage::tests::{datastore, policy},
        },
        testing::scripted::{node, reference, text},
    };

    fn recommendation(number: usize) -> Element {
        let action = vec![text("type", "StoragePlacementV1"), reference("destination", &datastore(number))];
        node("recommendations", vec![text("key", "1"), node("action", action)])
    }

    fn faults(kinds: &[(&str, &str)]) -> Element {
        let fault = |(kind, words): &(&str, &str)| {
            let mut fault = node("fault", Vec::new());
            fault.kind = Some((*kind).into());
            node("fault", vec![fault, text("localizedMessage", words)])
        };
        let by_machine = kinds.iter().map(fault).collect();
        node("drsFault", vec![text("reason", "storagePlacement"), node("faultsByVm", by_machine)])
    }

    #[test]
    fn the_request_is_about_the_clone_without_its_secrets() {
        let more = json!({"dataDisks": [{"name": "etcd", "sizeGiB": 10}]});
        let clone = planned_on(&spec(more), &template(), Some("policy-1"), None).expect("a plan");
        let (pod, of) = (MoRef::new("StoragePod", "group-p1"), MoRef::new("VirtualMachine", "vm-1"));
        let manager = MoRef::new("StorageResourceManager", "StorageResourceManager");
        let sent = crate::soap::written(&request(&pod, &of, &clone).of(&manager));
        let (_, spec) = sent.split_once("</_this>").expect("arguments");
        assert!(
            spec.starts_with(
                "<storageSpec><type>clone</type><vm type=\"VirtualMachine\">vm-1</vm>\
                 <podSelectionSpec><storagePod type=\"StoragePod\">group-p1</storagePod></podSelectionSpec>\
                 <cloneSpec><location><folder type=\"Folder\">group-v1</folder><diskMoveType>"
            ),
            "{spec}"
        );
        let end = "</cloneSpec><cloneName>node-1</cloneName><folder type=\"Folder\">group-v1</folder>\
                   <disallowPrerequisiteMoves>true</disallowPrerequisiteMoves></storageSpec>";
        assert!(spec.contains(end), "{spec}");
        assert!(spec.contains("<profileId>policy-1</profileId>"), "{spec}");
        assert!(spec.contains("<capacityInKB>10485760</capacityInKB>"), "{spec}");
        assert!(!spec.contains("extraConfig") && !spec.contains("<datastore"), "{spec}");
    }

    #[test]
    fn the_first_one_that_is_allowed_is_chosen() {
        let recommended = read(&node("returnval", vec![recommendation(2), recommendation(1)]));
        let chosen = |policy: Option<&StoragePolicy>| recommended.choose("pod-1", policy).ok().cloned();
        assert_eq!(chosen(None), Some(datastore(2)));
        assert_eq!(chosen(Some(&policy(&[1, 3]))), Some(datastore(1)));
        let error = recommended.choose("pod-1", Some(&policy(&[3]))).expect_err("not allowed");
        assert_eq!(
            error.to_string(),
            "spec.datastore: vCenter recommends no datastore of the datastore cluster \"pod-1\": the storage policy \
             \"gold\" allows none of those that it recommends (datastore-2, datastore-1), or the resource pool has \
             not got them"
        );
    }

    #[test]
    fn why_there_is_none_is_told() {
        for (answer, why) in [
            (
                vec![faults(&[("InsufficientStorageSpace", "no space"), ("NotSupported", "")])],
                "InsufficientStorageSpace (no space); NotSupported",
            ),
            (Vec::new(), "it gives no reason; see whether Storage DRS is on"),
        ] {
            for policy in [None, Some(policy(&[1]))] {
                let recommended = read(&node("returnval", answer.clone()));
                let error = recommended.choose("pod-1", policy.as_ref()).expect_err("none");
                assert_eq!(error.kind(), ErrorKind::NotFound);
                let begin =
                    "spec.datastore: vCenter recommends no datastore of the datastore cluster \"pod-1\": ";
                assert!(error.to_string().starts_with(&format!("{begin}{why}")), "{error}");
            }
        }
    }
}
