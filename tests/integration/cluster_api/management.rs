//! The management cluster: an API server with Cluster API's own managers and the kinds of the fake cloud.

use std::{fs, sync::Arc};

use anyhow::{Context, ensure};
use kube::Client;
use machine_controller::crds::Definitions;
use parking_lot::Mutex;
use serde_json::{Value, json};
use test_env::{
    ClusterApi, ClusterApiManager, ClusterApiPrograms, ControlPlane, ControlPlaneOptions,
    ControlPlanePrograms, StartError,
};

use super::objects::Objects;
use crate::{api, daemon::InProcess, fake_cloud::FakeCloud, support::tail};

/// A kind of control planes that run elsewhere.
pub(crate) const HOSTED_CONTROL_PLANES: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: hostedcontrolplanes.controlplane.cluster.x-k8s.io
  labels: {cluster.x-k8s.io/v1beta2: v1alpha1, cluster.x-k8s.io/v1beta1: v1alpha1, clusterctl.cluster.x-k8s.io: ''}
spec:
  group: controlplane.cluster.x-k8s.io
  names: {kind: HostedControlPlane, plural: hostedcontrolplanes}
  scope: Namespaced
  versions:
    - name: v1alpha1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
# The bootstrap manager's own role is for control planes of kubeadm.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: hosted-control-planes}
rules:
  - apiGroups: [controlplane.cluster.x-k8s.io]
    resources: [hostedcontrolplanes]
    verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: hosted-control-planes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: hosted-control-planes}
subjects:
  - {kind: ServiceAccount, name: capi-kubeadm-bootstrap-manager, namespace: capi-kubeadm-bootstrap-system}
";

/// The managers of a management cluster: its control planes run elsewhere.
pub(crate) const MANAGERS: [ClusterApiManager; 2] =
    [ClusterApiManager::Core, ClusterApiManager::KubeadmBootstrap];

/// Core and kubeadm bootstrap manager on a real API server. Its own API server is also that of the workload
/// clusters: their Nodes are there.
pub(crate) struct Management {
    pub(super) control_plane: ControlPlane,
    pub(super) managers: ClusterApi,
}

static SHARED: Mutex<Option<Arc<Management>>> = Mutex::new(None);

/// Stops the management cluster that trials have shared.
pub(crate) fn stop() {
    SHARED.lock().take();
}

impl Management {
    /// The one that trials share, each with namespaces of its own. The first call starts it.
    pub(super) fn shared() -> Result<Arc<Self>, StartError> {
        // A trial that waits for a build may hold no lock.
        ControlPlanePrograms::find()?;
        ClusterApiPrograms::find()?;
        let mut shared = SHARED.lock();
        if let Some(started) = &*shared {
            return Ok(started.clone());
        }
        let started = Arc::new(Self::start()?);
        apply_kinds_of_the_fake_cloud(&started.control_plane)?;
        Ok(shared.insert(started).clone())
    }

    /// One of its own, with a kind of control planes and no kinds of infrastructure.
    pub(super) fn start() -> Result<Self, StartError> {
        let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
        let managers = ClusterApi::start(&control_plane, &MANAGERS)?;
        apply(&control_plane, "control-planes.yaml", HOSTED_CONTROL_PLANES)?;
        Ok(Self { control_plane, managers })
    }

    /// A client of its administrator.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        api::client(self.control_plane.kubeconfig()).await
    }

    /// A new namespace.
    pub(super) async fn namespace(&self, name: &str) -> anyhow::Result<Objects> {
        self.control_plane.kubectl_output(&["create", "namespace", name])?;
        Ok(Objects::new(self.client().await?, name))
    }

    /// What the managers said about objects of this name, for a failure's message.
    pub(super) fn words_about(&self, name: &str) -> String {
        let logs = MANAGERS.map(|manager| self.managers.log(manager)).join("\n");
        let lines: Vec<_> = logs.lines().filter(|line| line.contains(name)).collect();
        tail(&lines.join("\n"))
    }
}

/// The kinds of the fake cloud.
pub(crate) fn apply_kinds_of_the_fake_cloud(control_plane: &ControlPlane) -> anyhow::Result<()> {
    let provider = FakeCloud::new().with_machines().provider();
    let machines = provider.machines().context("machines")?;
    let definitions = Definitions::new("fake", &machines.kinds(), &machines.schemas())?;
    let mut items: Vec<Value> =
        definitions.crds().into_iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    items.push(serde_json::to_value(&definitions.template_policy)?);
    items.push(serde_json::to_value(&definitions.template_policy_binding)?);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    apply(control_plane, "fake.json", &list)
}

/// Applies objects, and waits until the kinds that are served are in force.
pub(crate) fn apply(control_plane: &ControlPlane, file: &str, text: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join(file);
    fs::write(&file, text)?;
    let file = file.display().to_string();
    control_plane.kubectl_output(&["apply", "--server-side", "--filename", &file])?;
    let wait = ["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"];
    control_plane.kubectl_output(&wait).map(drop)
}

/// A daemon with the machine controller alone, for the machines of one namespace.
pub(super) fn machine_daemon(
    client: &Client,
    cloud: &FakeCloud,
    namespace: &str,
    more: &[&str],
) -> anyhow::Result<InProcess> {
    let namespace = format!("--namespace={namespace}");
    let flags = [&["--controllers=machine-controller", namespace.as_str()], more].concat();
    InProcess::start(client, cloud.provider(), &flags)
}

/// That RBAC refused nothing to users whose names contain this text.
pub(crate) fn nothing_was_refused(control_plane: &ControlPlane, users: &str) -> anyhow::Result<()> {
    let mut refused = control_plane.refusals_after(0)?;
    refused.retain(|refusal| refusal.user.contains(users));
    ensure!(refused.is_empty(), "refused by the roles: {refused:?}");
    Ok(())
}
