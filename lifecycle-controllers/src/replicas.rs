//! Machines as the decisions about `MachineSet`s and `MachineDeployment`s see them.

use std::{collections::BTreeMap, sync::Arc};

use cluster_api::{
    Machine, StatusVersion,
    names::{annotations, conditions as types},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    ResourceExt as _,
    core::{Selector, SelectorExt as _},
};
use lifecycle::{
    conditions::{Condition, Status},
    machine::Deletion,
    replicas::{Replica, versions},
};

use crate::engine::{
    conditions::{read, read_without_words},
    control::Failure,
    object::{Meta as _, Stored},
};

/// How many versions `status.versions` of a `MachineSet` or a `MachineDeployment` takes.
const MOST_VERSIONS: usize = 100;

/// The longest version in `status.versions`, in characters.
const LONGEST_VERSION: usize = 256;

/// The conditions that Machines are counted by.
const COUNTED: [&str; 3] = [types::READY, types::AVAILABLE, types::UP_TO_DATE];

/// Some Machines with their conditions.
#[derive(Debug)]
pub struct Machines {
    all: Vec<(Arc<Stored<Machine>>, Vec<Condition>)>,
}

impl Machines {
    /// These Machines.
    pub fn new(machines: impl IntoIterator<Item = Arc<Stored<Machine>>>) -> Self {
        let with_conditions = |machine: Arc<Stored<Machine>>| {
            let status = machine.status.as_ref();
            let conditions = status.map(|status| read(&status.conditions)).unwrap_or_default();
            (machine, conditions)
        };
        Self { all: machines.into_iter().map(with_conditions).collect() }
    }

    /// The same to be counted alone: without the conditions and the words that no number is made of.
    pub fn counted(machines: impl IntoIterator<Item = Arc<Stored<Machine>>>) -> Self {
        let with_conditions = |machine: Arc<Stored<Machine>>| {
            let all = machine.status.iter().flat_map(|status| &status.conditions);
            let counted = all.filter(|one| COUNTED.contains(&one.type_.as_str()));
            let conditions = counted.map(read_without_words).collect();
            (machine, conditions)
        };
        Self { all: machines.into_iter().map(with_conditions).collect() }
    }

    /// As the decisions see them.
    pub fn replicas(&self) -> Vec<Replica<'_>> {
        self.all.iter().map(|(machine, conditions)| replica(machine, conditions)).collect()
    }

    /// `status.versions` of a `MachineSet` or a `MachineDeployment`: those that their Nodes report, or else that they shall have.
    pub fn versions(&self) -> Vec<StatusVersion> {
        let all = self.all.iter().map(|(machine, _)| (version_of(machine), 1));
        permitted(status_versions(all), MOST_VERSIONS)
    }
}

/// `status.versions` of these.
pub(crate) fn status_versions<'a>(all: impl IntoIterator<Item = (&'a str, i64)>) -> Vec<StatusVersion> {
    let counted = versions(all).into_iter().map(|(version, replicas)| StatusVersion {
        version: version.to_owned(),
        replicas: i32::try_from(replicas).ok(),
    });
    counted.collect()
}

/// The versions that a definition permits, which takes `most` of them. A kubelet of a workload cluster reports what it likes, and a status
/// that the API server refuses would stay as it was for ever.
pub(crate) fn permitted(versions: Vec<StatusVersion>, most: usize) -> Vec<StatusVersion> {
    let of_length = versions.into_iter().filter(|one| one.version.chars().count() <= LONGEST_VERSION);
    let counted =
        of_length.map(|one| StatusVersion { replicas: one.replicas.filter(|replicas| *replicas > 0), ..one });
    counted.take(most).collect()
}

fn version_of(machine: &Machine) -> &str {
    let info = machine.status.as_ref().and_then(|status| status.node_info.as_ref());
    let kubelet = info.map(|info| info.kubelet_version.as_str()).filter(|version| !version.is_empty());
    kubelet.or(machine.spec.version.as_deref()).unwrap_or_default()
}

fn replica<'a>(machine: &'a Machine, conditions: &'a [Condition]) -> Replica<'a> {
    let stage = conditions.iter().find(|one| one.kind == types::DELETING && one.status == Status::True);
    let drain_since = machine
        .status
        .as_ref()
        .and_then(|status| status.deletion.node_drain_start_time.as_ref().map(|time| time.0.as_second()));
    let deletion = machine.deleted_at().map(|at| Deletion {
        since: at.as_second(),
        stage: stage.map_or("", |stage| stage.reason.as_str()),
        message: stage.map_or("", |stage| stage.message.as_str()),
        drain_since,
    });
    Replica {
        name: machine.name_or_empty(),
        created: machine.created(),
        conditions,
        deletion,
        is_updating: machine.annotations().contains_key(annotations::UPDATE_IN_PROGRESS),
        is_moving: machine.annotations().contains_key(annotations::PENDING_ACKNOWLEDGE_MOVE),
    }
}

/// A selector of labels. One that selects everything is refused: a `MachineSet` would take the Machines of others.
pub fn selector(of: &LabelSelector) -> Result<Selector, Failure> {
    let is_empty = of.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && of.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if is_empty {
        return Err(Failure::Failed("spec.selector is empty, and would select all Machines".to_owned()));
    }
    Selector::try_from(of.clone()).map_err(|error| Failure::Failed(format!("spec.selector: {error}")))
}

/// Whether labels are selected.
pub fn selects(selector: &Selector, labels: &BTreeMap<String, String>) -> bool {
    selector.matches(labels)
}

#[cfg(test)]
mod tests {
    use cluster_api::MachineStatus;
    use k8s_openapi::api::core::v1::NodeSystemInfo;
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_that_no_status_takes_are_left_out() {
        let machine = |kubelet: String| {
            let machine: Machine = serde_json::from_value(json!({
                "metadata": {},
                "spec": {
                    "clusterName": "c", "version": "v1.37.1", "bootstrap": {},
                    "infrastructureRef": {"apiGroup": "g", "kind": "K", "name": "n"},
                },
            }))
            .expect("a Machine");
            let info = NodeSystemInfo { kubelet_version: kubelet, ..NodeSystemInfo::default() };
            let status = MachineStatus { node_info: Some(info), ..MachineStatus::default() };
            Arc::new(Stored::new(Machine { status: Some(status), ..machine }))
        };
        let of = |kubelets: Vec<String>| Machines::new(kubelets.into_iter().map(machine)).versions();
        let long = "v".repeat(257);
        let found = of(vec![String::new(), "v1.37.1".to_owned(), long]);
        assert_eq!(found, [StatusVersion { version: "v1.37.1".to_owned(), replicas: Some(2) }]);
        assert_eq!(of((0..101).map(|number| format!("v1.{number}.0")).collect()).len(), 100);
    }
}
