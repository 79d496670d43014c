mod abandoned;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::*;
use crate::{
    ControlPlaneEndpoint, Instance, PowerState, ProviderId,
    machines::{
        BootstrapData, BootstrapFormat, Condition, ConditionStatus, Kind, MachineDeletionRequest, Mark,
        ObjectLocks, PresentMachine, Wait,
    },
};

/// What a user says about a machine.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MachineSpec {
    #[serde(rename = "vcpus")]
    #[schemars(range(min = 1))]
    cpus: u32,
    #[serde(default)]
    disks: Vec<Disk>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self.sizeGiB > 0"}]))]
struct Disk {
    #[serde(rename = "sizeGiB")]
    size: u32,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MachineStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    task_ref: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClusterSpec {
    pool: String,
}

#[derive(Debug, Default)]
struct Cloud {
    /// What the steps got, as text.
    seen: Mutex<Vec<String>>,
    object_locks: ObjectLocks,
}

impl Cloud {
    fn see(&self, what: impl std::fmt::Debug) {
        self.seen.lock().push(format!("{what:?}"));
    }
}

#[async_trait]
impl Machines for Cloud {
    type MachineSpec = MachineSpec;
    type MachineStatus = MachineStatus;
    type ClusterSpec = ClusterSpec;
    type ClusterStatus = ();

    const KINDS: Kinds =
        Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));

    fn object_locks(&self) -> &ObjectLocks {
        &self.object_locks
    }

    async fn ensure_machine(
        &self,
        request: &MachineRequest<MachineSpec, ClusterSpec>,
        record: &mut Record<MachineStatus>,
    ) -> Result<MachineReport> {
        self.see(&request.cluster.spec.pool);
        if record.status.task_ref.take().is_some() {
            record.set(Condition::new("Cloned", ConditionStatus::False, "TaskFailed"));
            return Err(Error::new(ErrorKind::Unavailable, "the task failed"));
        }
        if request.provider_id.is_none() {
            record.status.task_ref = Some("task-1".to_owned());
            return Ok(MachineReport::Creating(Wait::task("clone")));
        }
        let instance = Instance::new(ProviderId::new("my", "/1"), PowerState::Running);
        Ok(PresentMachine::new(instance).into())
    }

    async fn delete_machine(
        &self,
        request: &MachineDeletionRequest<MachineSpec, ClusterSpec>,
        _: &mut Record<MachineStatus>,
    ) -> Result<Deletion> {
        self.see(request);
        Ok(Deletion::Gone)
    }

    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<ClusterSpec>,
        _: &mut Record<()>,
    ) -> Result<ClusterReport> {
        self.see(request);
        Ok(ClusterReport::done().with_control_plane_endpoint(request.control_plane_endpoint.clone()))
    }

    async fn delete_cluster(&self, _: &ClusterRequest<ClusterSpec>, _: &mut Record<()>) -> Result<Deletion> {
        Ok(Deletion::Gone)
    }

    async fn capacity(&self, spec: &MachineSpec) -> Result<Capacity> {
        let disk: u32 = spec.disks.iter().map(|disk| disk.size).sum();
        let capacity = Capacity::default().with_resource("cpu", spec.cpus.to_string());
        Ok(capacity.with_resource("ephemeral-storage", format!("{disk}Gi")))
    }
}

fn request(spec: Value, cluster: Value) -> MachineRequest<Value, Value> {
    MachineRequest::new(Mark::machine("u", "default", "prod", "one"), spec, ClusterContext::new(cluster))
}

fn held(cloud: &Cloud) -> &dyn DynMachines {
    cloud
}

#[tokio::test]
async fn the_status_of_a_step_is_kept_also_if_it_fails() {
    let cloud = Cloud::default();
    let (cloud, mut record) = (held(&cloud), Record::new(Value::Null));
    let request = request(json!({"vcpus": 2}), json!({"pool": "fast"}));
    let report = cloud.ensure_machine(&request, &mut record).await.expect("a report");
    assert!(matches!(report, MachineReport::Creating(_)));
    assert_eq!(record, Record::new(json!({"taskRef": "task-1"})));

    let error = cloud.ensure_machine(&request, &mut record).await.expect_err("the task failed");
    assert_eq!(error.report(), "the task failed");
    assert_eq!(record.status, json!({}));
    assert_eq!(record.conditions.len(), 1);
}

#[tokio::test]
async fn a_status_that_cannot_be_read_is_empty() {
    let cloud = Cloud::default();
    let mut record = Record::new(json!({"taskRef": 7}));
    let request =
        request(json!({"vcpus": 2}), json!({"pool": "fast"})).with_provider_id("my:///1".to_owned());
    let report = held(&cloud).ensure_machine(&request, &mut record).await.expect("a report");
    assert!(report.is_done());
    assert_eq!(record.status, json!({}));
}

#[tokio::test]
async fn everything_of_a_request_arrives_except_what_is_secret() {
    let cloud = Cloud::default();
    let endpoint = ControlPlaneEndpoint { host: "10.0.0.9".into(), port: 6443 };
    let cluster = ClusterContext::new(json!({"pool": "fast", "controlPlaneEndpoint": {"host": "10.0.0.9"}}))
        .with_control_plane_endpoint(endpoint.clone())
        .reconciled(false);
    let mark = Mark::machine("u", "default", "prod", "one");
    let spec = json!({"vcpus": 2, "providerID": "my:///1"});
    let request = MachineRequest::new(mark, spec, cluster)
        .with_object_uid("u-2")
        .with_machine_name("one-a")
        .with_provider_id("my:///1".to_owned())
        .provisioned(true)
        .with_node(true)
        .with_failure_domain("rack-a".to_owned())
        .control_plane(true)
        .with_group("prod-masters".to_owned())
        .with_bootstrap(BootstrapData::new(BootstrapFormat::CloudConfig, "hunter2"));
    held(&cloud).delete_machine(&request, &mut Record::default()).await.expect("gone");
    let seen = cloud.seen.lock().remove(0);
    let expected = "MachineRequest { \
         mark: Mark { uid: \"u\", namespace: \"default\", cluster: \"prod\", machine: Some(\"one\") }, object_uid: \"u-2\", \
         machine_name: \"one-a\", spec: MachineSpec { cpus: 2, disks: [] }, \
         cluster: ClusterContext { spec: Some(ClusterSpec { pool: \"fast\" }), \
         control_plane_endpoint: Some(ControlPlaneEndpoint { host: \"10.0.0.9\", port: 6443 }), is_reconciled: false }, \
         provider_id: Some(\"my:///1\"), is_provisioned: true, has_node: true, failure_domain: Some(\"rack-a\"), \
         is_control_plane: true, group: Some(\"prod-masters\"), bootstrap: Some(BootstrapData { format: CloudConfig, length: 7, .. }), \
         objects: Objects { .. } }";
    assert_eq!(seen, expected);

    let request = ClusterRequest::new(Mark::cluster("c", "default", "prod"), json!({"pool": "fast"}))
        .with_object_uid("c-2")
        .with_control_plane_endpoint(endpoint.clone());
    let mut record = Record::default();
    let report = held(&cloud).ensure_cluster(&request, &mut record).await.expect("a report");
    assert_eq!(report.control_plane_endpoint, Some(endpoint));
    let seen = cloud.seen.lock().remove(0);
    assert!(seen.contains("object_uid: \"c-2\""), "{seen}");
    assert_eq!(record.status, Value::Null, "a status without content");
    assert_eq!(held(&cloud).delete_cluster(&request, &mut record).await.expect("gone"), Deletion::Gone);
}

/// A mark has the UID that an annotation names. One that is taken for the object's own would prove what is
/// another object's.
#[test]
fn a_request_does_not_take_the_uid_of_the_mark_for_that_of_the_object() {
    assert_eq!(request(json!({}), json!({})).object_uid, "");
    assert_eq!(ClusterRequest::new(Mark::cluster("c", "default", "prod"), json!({})).object_uid, "");
}

#[tokio::test]
async fn a_machine_is_deleted_also_without_the_spec_of_its_cluster() {
    let cloud = Cloud::default();
    for (cluster_spec, expected) in [
        (Value::Null, "spec: None"),
        (json!({"pool": "fast"}), "spec: Some(ClusterSpec { pool: \"fast\" })"),
        // One that cannot be read.
        (json!({"controlPlaneEndpoint": {}}), "spec: None"),
    ] {
        let request = request(json!({"vcpus": 2}), cluster_spec);
        let answer = held(&cloud).delete_machine(&request, &mut Record::default()).await;
        assert_eq!(answer.expect("gone"), Deletion::Gone);
        let seen = cloud.seen.lock().remove(0);
        assert!(seen.contains(expected), "{seen}");
    }
}

#[test]
fn an_object_without_a_spec_is_one_whose_spec_says_nothing() {
    let spec = read::<serde_json::Map<String, Value>>("spec", &Value::Null, OF_THE_MACHINE);
    assert!(spec.expect("a spec").is_empty());
}

#[tokio::test]
async fn a_spec_that_cannot_be_read_names_its_field() {
    let cloud = Cloud::default();
    for (spec, cluster, words) in [
        (
            json!({"vcpus": "two"}),
            json!({"pool": "fast"}),
            "spec.vcpus: invalid type: string \"two\", expected u32",
        ),
        (
            json!({"vcpus": 1, "disks": [{}]}),
            json!({"pool": "fast"}),
            "spec.disks[0]: missing field `sizeGiB`",
        ),
        (json!({}), json!({"pool": "fast"}), "spec: missing field `vcpus`"),
        (json!({"vcpus": 1}), json!({"pool": 1}), "spec of the cluster.pool: invalid type: integer `1`"),
        (json!({"vcpus": 1}), Value::Null, "spec of the cluster: missing field `pool`"),
    ] {
        let mut record = Record::new(json!({"taskRef": "task-1"}));
        let request = request(spec, cluster);
        let error = held(&cloud).ensure_machine(&request, &mut record).await.expect_err("a bad spec");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.report().starts_with(words), "{error}");
        assert_eq!(record.status, json!({"taskRef": "task-1"}), "as it was");
    }
}

#[tokio::test]
async fn the_kinds_their_schemas_and_a_capacity() {
    let cloud = Cloud::default();
    let cloud = held(&cloud);
    let kinds = cloud.kinds();
    assert_eq!((kinds.group, kinds.machine.plural), ("infrastructure.cluster.x-k8s.io", "mymachines"));
    let schemas = cloud.schemas();
    let disk = &schemas.machine_spec["properties"]["disks"]["items"];
    assert_eq!(disk["properties"]["sizeGiB"]["type"], "integer");
    assert_eq!(disk["x-kubernetes-validations"], json!([{"rule": "self.sizeGiB > 0"}]));
    assert_eq!(schemas.machine_spec["required"], json!(["vcpus"]));
    assert_eq!(schemas.machine_status["properties"]["taskRef"]["type"], "string");
    assert!(!schemas.machine_spec.to_string().contains('$'), "neither $ref nor $schema");
    assert_eq!(schemas.cluster_status, json!({"type": "object"}));

    let capacity = cloud.capacity(&json!({"vcpus": 4, "disks": [{"sizeGiB": 20}]})).await.expect("known");
    let resources: Vec<_> = capacity.resources.iter().map(|(name, much)| (&**name, &**much)).collect();
    assert_eq!(resources, [("cpu", "4"), ("ephemeral-storage", "20Gi")]);
}
