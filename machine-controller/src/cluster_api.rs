//! What Cluster API's core says about a machine: its Machine, its Cluster and its bootstrap data. Both
//! versions are read, v1beta2 and v1beta1.

use std::str::FromStr as _;

use cloudprovider::{
    ControlPlaneEndpoint,
    machines::{BootstrapData, BootstrapFormat},
};
use serde_json::Value;

use super::{
    names::{CONTROL_PLANE_LABEL, DEPLOYMENT_LABEL, HEALTH_CHECK_SUCCEEDED, REMOTE_CONNECTION_PROBE},
    object::read_endpoint,
};

/// What the controller reads of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The failure domain that its machine must be in.
    pub failure_domain: Option<String>,
    /// The name of the Secret with its bootstrap data, once they are made.
    pub bootstrap_secret: Option<String>,
    /// Whether it is one of the control plane.
    pub is_control_plane: bool,
    /// The name of its control plane, or of its `MachineDeployment`.
    pub group: Option<String>,
    /// Whether its Node is known.
    pub has_node: bool,
    /// The name of its Cluster.
    pub cluster: Option<String>,
    /// The name of its infrastructure.
    pub infrastructure: Option<String>,
    /// The reason for which a health check has found it unhealthy.
    pub failed_check: Option<String>,
}

impl Machine {
    /// Reads a Machine.
    pub fn from_json(object: &Value) -> Self {
        let (spec, labels) = (&object["spec"], &object["metadata"]["labels"]);
        let is_control_plane = labels.get(CONTROL_PLANE_LABEL).is_some();
        // A label holds 63 characters, and a control plane's name may be longer.
        let group = if is_control_plane { controller_of(object) } else { text(&labels[DEPLOYMENT_LABEL]) };
        Self {
            failure_domain: text(&spec["failureDomain"]),
            bootstrap_secret: text(&spec["bootstrap"]["dataSecretName"]),
            is_control_plane,
            group,
            has_node: text(&object["status"]["nodeRef"]["name"]).is_some(),
            cluster: text(&spec["clusterName"]),
            infrastructure: text(&spec["infrastructureRef"]["name"]),
            failed_check: failed_check(&object["status"]["conditions"]),
        }
    }

    /// What a step gets of it: nothing that is only about reboots.
    pub(crate) fn for_steps(&self) -> Self {
        Self { infrastructure: None, failed_check: None, ..self.clone() }
    }
}

/// What the controller reads of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Whether nothing is to be done about all of its objects.
    pub is_paused: bool,
    /// Whether its infrastructure is there.
    pub is_infrastructure_provisioned: bool,
    /// Where its API server is reached.
    pub endpoint: Option<ControlPlaneEndpoint>,
    /// Kind and name of its infrastructure.
    pub infrastructure: Option<(String, String)>,
    /// Whether the core says that it reaches the API server of the workload cluster.
    pub is_connected: bool,
}

impl Cluster {
    /// Reads a Cluster.
    pub fn from_json(object: &Value) -> Self {
        let status = &object["status"];
        let is_provisioned = |value: &Value| value.as_bool().unwrap_or_default();
        Self {
            is_paused: object["spec"]["paused"].as_bool().unwrap_or_default(),
            is_infrastructure_provisioned: is_provisioned(
                &status["initialization"]["infrastructureProvisioned"],
            ) || is_provisioned(&status["infrastructureReady"]),
            endpoint: read_endpoint(&object["spec"]["controlPlaneEndpoint"]),
            infrastructure: text(&object["spec"]["infrastructureRef"]["kind"])
                .zip(text(&object["spec"]["infrastructureRef"]["name"])),
            is_connected: is_connected(&status["conditions"])
                || is_connected(&status["v1beta2"]["conditions"]),
        }
    }

    /// What a step gets of it: nothing that is only about reboots.
    pub(crate) fn for_steps(&self) -> Self {
        Self { is_connected: false, ..self.clone() }
    }
}

fn is_connected(conditions: &Value) -> bool {
    let mut conditions = conditions.as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == REMOTE_CONNECTION_PROBE && one["status"] == "True")
}

fn failed_check(conditions: &Value) -> Option<String> {
    let mut conditions = conditions.as_array()?.iter();
    let check = conditions.find(|one| one["type"] == HEALTH_CHECK_SUCCEEDED)?;
    (check["status"] == "False").then(|| check["reason"].as_str().unwrap_or_default().to_owned())
}

/// The name of the owner that controls an object.
fn controller_of(object: &Value) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    text(&owners.iter().find(|owner| owner["controller"] == true)?["name"])
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The bootstrap data of a machine, as far as they can be read.
#[derive(Clone, Debug)]
pub enum Bootstrap {
    /// The Machine names a Secret that is not read yet.
    Unread,
    /// There is no Secret of this name.
    Missing,
    /// The Secret is not one of bootstrap data: why, without its content.
    Unusable(String),
    /// The data.
    Data(BootstrapData),
}

impl Bootstrap {
    /// Reads the Secret: `key` gives the content of one of its keys.
    pub fn from_secret<'a>(key: impl Fn(&str) -> Option<&'a [u8]>) -> Self {
        let format = match key("format") {
            None | Some([]) => BootstrapFormat::default(),
            Some(format) => match BootstrapFormat::from_str(&String::from_utf8_lossy(format)) {
                Ok(format) => format,
                Err(_) => return Self::Unusable(unknown_format()),
            },
        };
        match key("value") {
            None | Some([]) => Self::Unusable("it has no content under the key \"value\"".to_owned()),
            Some(value) => Self::Data(BootstrapData::new(format, value)),
        }
    }

    /// The data, if they can be read.
    pub fn data(&self) -> Option<&BootstrapData> {
        match self {
            Self::Data(data) => Some(data),
            Self::Unread | Self::Missing | Self::Unusable(_) => None,
        }
    }
}

/// What is wrong with a Secret of another format. It may be any Secret of the namespace, so the message does
/// not quote it.
fn unknown_format() -> String {
    let known = BootstrapFormat::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("the content under the key \"format\" is none of: {known}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_versions_are_read() {
        for (cluster, expected) in [
            (json!({}), Cluster::default()),
            (json!({"spec": {"paused": true}}), Cluster { is_paused: true, ..Cluster::default() }),
            (
                json!({"status": {"initialization": {"infrastructureProvisioned": true}}}),
                Cluster { is_infrastructure_provisioned: true, ..Cluster::default() },
            ),
            (
                json!({"status": {"infrastructureReady": true}}),
                Cluster { is_infrastructure_provisioned: true, ..Cluster::default() },
            ),
            (json!({"spec": {"controlPlaneEndpoint": {"host": "", "port": 0}}}), Cluster::default()),
            (
                json!({"spec": {"infrastructureRef": {"kind": "MyCluster", "name": "prod"}}}),
                Cluster { infrastructure: Some(("MyCluster".into(), "prod".into())), ..Cluster::default() },
            ),
        ] {
            assert_eq!(Cluster::from_json(&cluster), expected, "{cluster}");
        }
        for (status, is_connected) in [("True", true), ("False", false), ("Unknown", false)] {
            let conditions = json!({"conditions": [{"type": "RemoteConnectionProbe", "status": status}]});
            for status in [conditions.clone(), json!({"v1beta2": conditions})] {
                let read = Cluster::from_json(&json!({"status": status}));
                assert_eq!(read, Cluster { is_connected, ..Cluster::default() }, "{status}");
                assert_eq!(read.for_steps(), Cluster::default());
            }
        }
        let machine = json!({
            "metadata": {
                "labels": {"cluster.x-k8s.io/control-plane": ""},
                "ownerReferences": [{"kind": "Other", "name": "a"}, {"kind": "KubeadmControlPlane", "name": "masters", "controller": true}],
            },
            "spec": {
                "clusterName": "prod", "failureDomain": "rack-a", "bootstrap": {"dataSecretName": "one"},
                "infrastructureRef": {"kind": "MyMachine", "name": "infra-1"},
            },
            "status": {
                "nodeRef": {"name": "node-1"},
                "conditions": [{"type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode"}],
            },
        });
        let expected = Machine {
            failure_domain: Some("rack-a".into()),
            bootstrap_secret: Some("one".into()),
            is_control_plane: true,
            group: Some("masters".into()),
            has_node: true,
            cluster: Some("prod".into()),
            infrastructure: Some("infra-1".into()),
            failed_check: Some("UnhealthyNode".into()),
        };
        let read = Machine::from_json(&machine);
        assert_eq!(read, expected);
        assert_eq!(read.for_steps(), Machine { infrastructure: None, failed_check: None, ..expected });
        assert_eq!(Machine::from_json(&json!({"spec": {"failureDomain": ""}})), Machine::default());
        let worker = json!({"metadata": {
            "labels": {"cluster.x-k8s.io/deployment-name": "workers"},
            "ownerReferences": [{"kind": "MachineSet", "name": "workers-x7k2f", "controller": true}],
        }});
        assert_eq!(Machine::from_json(&worker).group.as_deref(), Some("workers"));
        let lone = json!({"metadata": {"ownerReferences": [{"kind": "MachineSet", "name": "a", "controller": true}]}});
        assert_eq!(Machine::from_json(&lone).group, None);
    }

    #[test]
    fn a_secret_says_its_format() {
        let read = |format: Option<&'static str>, value: Option<&'static str>| {
            Bootstrap::from_secret(|key| if key == "format" { format } else { value }.map(str::as_bytes))
        };
        for (format, expected) in [
            (None, BootstrapFormat::CloudConfig),
            (Some("cloud-config"), BootstrapFormat::CloudConfig),
            (Some("ignition"), BootstrapFormat::Ignition),
        ] {
            assert_eq!(read(format, Some("x")).data().map(BootstrapData::format), Some(expected));
        }
        for (secret, words) in [
            (
                read(Some("hunter2"), Some("x")),
                "the content under the key \"format\" is none of: cloud-config, ignition",
            ),
            (read(None, None), "it has no content under the key \"value\""),
        ] {
            assert!(matches!(&secret, Bootstrap::Unusable(why) if why == words), "{secret:?}");
        }
    }
}
