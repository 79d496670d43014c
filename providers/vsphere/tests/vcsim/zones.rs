//! Failure domains: two clusters of hosts in one datacenter.

use std::collections::BTreeMap;

use cloudprovider::{
    CloudProvider as _, ErrorKind,
    machines::{
        AuxiliaryKind, AuxiliaryObject, ClusterReport, ClusterRequest, MachineReport, Mark, Objects,
        ObserveRequest, Record,
    },
};
use cloudprovider_vsphere::machine_types;
use futures::future::join_all;
use serde_json::{Value, json};
use test_env::{Vcsim, VcsimOptions};

use crate::{controller::*, support::*};

/// Two clusters, `DC0_C0` and `DC0_C1`. The first has the template.
fn two_clusters() -> VcsimOptions {
    VcsimOptions { clusters: 2, ..factory_options() }
}

/// The machines that there are from the start.
fn from_the_start() -> [String; 2] {
    [machine(0), "DC0_C1_RP0_VM0".to_owned()]
}

fn kind(name: &str) -> AuxiliaryKind {
    let kinds = machine_types().kinds;
    *kinds.auxiliary.iter().find(|kind| kind.kind == name).expect("a kind")
}

/// The spec of a failure domain that is one of the clusters.
pub(crate) fn domain(number: usize) -> Value {
    json!({
        "region": {"name": "region-1", "type": "Datacenter", "tagCategory": "k8s-region"},
        "zone": {"name": format!("zone-{number}"), "type": "ComputeCluster", "tagCategory": "k8s-zone"},
        "topology": {"datacenter": "DC0", "computeCluster": format!("DC0_C{number}")},
    })
}

/// An API with zones, each with the failure domain of the same name.
pub(crate) fn objects(vcsim: &Vcsim, domains: &[(&str, Value)]) -> Objects {
    let (zone_kind, domain_kind) = (kind("VSphereDeploymentZone"), kind("VSphereFailureDomain"));
    let all = domains.iter().flat_map(|(name, domain)| {
        let zone = json!({
            "server": format!("127.0.0.1:{}", vcsim.port()), "failureDomain": name, "placementConstraint": {},
        });
        let labels = BTreeMap::from([("site".to_owned(), "east".to_owned())]);
        [
            (zone_kind, AuxiliaryObject::new(*name).with_labels(labels).with_spec(zone)),
            (domain_kind, AuxiliaryObject::new(*name).with_spec(domain.clone())),
        ]
    });
    Objects::of(all)
}

/// An API with the zone `a`, whose failure domain was written in v1beta1 and asks for the tag of its zone.
fn with_auto_configure(vcsim: &Vcsim, mut domain: Value) -> Objects {
    domain["zone"]["autoConfigure"] = json!(true);
    let old = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereFailureDomain", "metadata": {"name": "a"},
        "spec": domain,
    });
    let new = cloudprovider_vsphere::convert(old, "v1beta2").expect("converted");
    let annotations = serde_json::from_value(new["metadata"]["annotations"].clone()).expect("annotations");
    let domain = AuxiliaryObject::new("a").with_spec(new["spec"].clone()).with_annotations(annotations);
    let zone = kind("VSphereDeploymentZone");
    let one =
        objects(vcsim, &[("a", Value::Null)]).get(&zone, None, "a").expect("an answer").expect("a zone");
    Objects::of([(zone, (*one).clone()), (kind("VSphereFailureDomain"), domain)])
}

pub(crate) fn tag(vcsim: &Vcsim, clusters: usize) {
    vcsim.attach_tag("k8s-region", "region-1", "Datacenter", "DC0").expect("a tag");
    for number in 0..clusters {
        let (zone, cluster) = (format!("zone-{number}"), format!("DC0_C{number}"));
        vcsim.attach_tag("k8s-zone", &zone, "ClusterComputeResource", &cluster).expect("a tag");
    }
}

/// A machine in a failure domain. Its own spec says nothing of where it is.
fn in_zone(vcsim: &Vcsim, objects: &Objects, number: usize, zone: &str) -> Object {
    let mut object = Object::new(vcsim, number, &json!({}));
    object.request.spec.as_object_mut().expect("a spec").remove("resourcePool");
    object.request.failure_domain = Some(zone.to_owned());
    object.request.objects = objects.clone();
    object
}

/// The cluster of hosts of each machine that was made.
fn clusters(vcsim: &Vcsim) -> BTreeMap<String, String> {
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let all = vcsim.inventory().expect("an inventory");
    let all = all.iter().map(|one| (text(one, "name"), text(one, "cluster")));
    all.filter(|(name, _)| !from_the_start().contains(name)).collect()
}

async fn cluster_step(
    running: &Running,
    vcsim: &Vcsim,
    objects: &Objects,
    selector: Value,
) -> (cloudprovider::Result<ClusterReport>, Record<Value>) {
    let mut spec = cluster_spec(vcsim);
    spec["failureDomainSelector"] = selector;
    let mark = Mark::cluster("4d3c2b1a-0000-4000-8000-00000000ffff", "default", "prod");
    let request = ClusterRequest::new(mark, spec).with_objects(objects.clone());
    let mut record = Record::default();
    let part = running.provider.machines().expect("machines");
    (part.ensure_cluster(&request, &mut record).await, record)
}

#[tokio::test]
async fn machines_are_made_where_their_zone_is() {
    let Some(vcsim) = simulator(&two_clusters()) else { return };
    tag(&vcsim, 2);
    let running = started(&vcsim).await;
    let objects = objects(&vcsim, &[("a", domain(0)), ("b", domain(1))]);
    let mut controller = Controller::new(&running);
    let mut all = Vec::new();
    for (number, zone) in ["a", "b", "b"].into_iter().enumerate() {
        vcsim.reset_counts().expect("reset");
        let mut object = in_zone(&vcsim, &objects, number, zone);
        controller.make(&mut object).await;
        let MachineReport::Present(report) = controller.step(&mut object).await.expect("a report") else {
            panic!("it is there")
        };
        assert_eq!(report.failure_domain.as_deref(), Some(zone));
        let made = calls(&vcsim);
        // what is known of a zone is known for a minute
        assert!(number < 2 || made.values().sum::<u64>() <= 3, "{made:?}");
        all.push(object);
    }
    let clusters = clusters(&vcsim);
    for (name, cluster) in [("worker-0", "DC0_C0"), ("worker-1", "DC0_C1"), ("worker-2", "DC0_C1")] {
        assert_eq!(clusters[name], cluster, "{clusters:?}");
    }

    // a machine that is there stays there, and goes, whatever becomes of its zone
    let moved = crate::zones::objects(&vcsim, &[("b", domain(0))]);
    for (object, objects) in all.iter_mut().zip([Objects::default(), moved, Objects::default()]) {
        object.request.objects = objects;
        let report = controller.step(object).await.expect("a report");
        assert!(report.is_done(), "{report:?}");
        let name = object.name();
        assert_eq!(clusters[&name], crate::zones::clusters(&vcsim)[&name], "{name}");
        controller.delete(object).await;
    }
    assert_eq!(names(&vcsim), from_the_start());
    running.stop().await;
}

#[tokio::test]
async fn a_zone_that_is_not_there_or_not_ready_is_named() {
    let Some(vcsim) = simulator(&two_clusters()) else { return };
    tag(&vcsim, 2);
    let running = started(&vcsim).await;
    let mut wrong = domain(1);
    wrong["zone"]["name"] = json!("zone-9");
    let all = objects(&vcsim, &[("a", domain(0)), ("b", wrong)]);
    let elsewhere = Objects::of([
        (
            kind("VSphereDeploymentZone"),
            AuxiliaryObject::new("c").with_spec(json!({
                "server": "vc9.example.org", "failureDomain": "c", "placementConstraint": {},
            })),
        ),
        (kind("VSphereFailureDomain"), AuxiliaryObject::new("c").with_spec(domain(0))),
    ]);
    let mut controller = Controller::new(&running);
    let pool = |mut object: Object, pool: &str| {
        object.request.spec["resourcePool"] = json!(pool);
        object
    };
    for (mut object, kind, part) in [
        (
            in_zone(&vcsim, &all, 1, "z"),
            ErrorKind::NotFound,
            "failure domain \"z\": there is no VSphereDeploymentZone of this name",
        ),
        (
            in_zone(&vcsim, &all, 1, "b"),
            ErrorKind::NotFound,
            "failure domain \"b\" is not ready: spec.zone: ClusterComputeResource domain-c",
        ),
        (
            in_zone(&vcsim, &elsewhere, 1, "c"),
            ErrorKind::InvalidInput,
            "failure domain \"c\": the VSphereDeploymentZone is on the vCenter \"vc9.example.org\"",
        ),
        (
            pool(in_zone(&vcsim, &all, 1, "a"), "DC0_C1/Resources"),
            ErrorKind::InvalidInput,
            "spec.resourcePool: \"DC0_C1/Resources\" is not in the cluster \"DC0_C0\"",
        ),
    ] {
        let error = controller.step(&mut object).await.expect_err(part);
        assert_eq!(error.kind(), kind, "{}", error.report());
        assert!(error.report().contains(part), "{}", error.report());
        controller.delete(&mut object).await;
    }
    assert_eq!(names(&vcsim), from_the_start());

    let (report, record) = cluster_step(&running, &vcsim, &all, json!({})).await;
    let version = record.status["vCenterVersion"].as_str().unwrap_or_default();
    assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{:?}", record.status);
    let report = report.expect("a report");
    assert_eq!(report.failure_domains.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a"]);
    let told =
        record.conditions.iter().find(|one| one.condition_type == "FailureDomainsReady").expect("told");
    assert_eq!(told.reason, "NotReady");
    assert!(told.message.contains("\"b\": spec.zone: ") && told.message.contains("zone-9"), "{told:?}");
    running.stop().await;
}

#[tokio::test]
async fn a_cluster_has_the_zones_that_it_selects() {
    let Some(vcsim) = simulator(&two_clusters()) else { return };
    tag(&vcsim, 2);
    let running = started(&vcsim).await;
    let objects = objects(&vcsim, &[("b", domain(1)), ("a", domain(0))]);
    for (selector, expected, reason) in [
        (json!({}), &["a", "b"][..], Some("Ready")),
        (json!({"matchLabels": {"site": "east"}}), &["a", "b"], Some("Ready")),
        (json!({"matchLabels": {"site": "west"}}), &[], Some("NotReady")),
        (Value::Null, &[], None),
    ] {
        let (report, record) = cluster_step(&running, &vcsim, &objects, selector.clone()).await;
        let domains = report.expect("a report").failure_domains;
        assert_eq!(domains.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), expected, "{selector}");
        assert!(domains.iter().all(|one| one.control_plane));
        let told = record.conditions.iter().find(|one| one.condition_type == "FailureDomainsReady");
        assert_eq!(told.map(|one| &*one.reason), reason, "{selector}");
    }
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Is"}]});
    let (report, _) = cluster_step(&running, &vcsim, &objects, selector).await;
    let error = report.expect_err("no such operator");
    assert!(
        error.report().contains("spec.failureDomainSelector.matchExpressions[0].operator"),
        "{}",
        error.report()
    );
    running.stop().await;
}

#[tokio::test]
async fn a_zone_says_whether_it_is_ready() {
    let Some(mut vcsim) = simulator(&two_clusters()) else { return };
    tag(&vcsim, 2);
    let running = started(&vcsim).await;
    let mut missing = domain(1);
    missing["topology"]["datastore"] = json!("fast");
    let objects = objects(&vcsim, &[("a", domain(0)), ("b", missing)]);
    let part = running.provider.machines().expect("machines");
    let zone = kind("VSphereDeploymentZone");
    let tell = async |name: &str, objects: &Objects| {
        let object = objects.get(&zone, None, name).expect("an answer").expect("a zone");
        let told = part.observe(&ObserveRequest::new(zone, object).with_objects(objects.clone())).await;
        told.expect("told")
    };
    let look = async |name: &str, objects: &Objects| {
        let told = tell(name, objects).await;
        let reasons: Vec<_> = told.conditions.iter().map(|one| one.reason.to_string()).collect();
        (told.status["ready"] == true, reasons)
    };
    let of = |reasons: &[&str]| reasons.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    assert_eq!(look("a", &objects).await, (true, of(&["Ready", "Available", "Ready", "Validated"])));
    let expected = of(&["NotReady", "Available", "Ready", "DatastoreNotFound"]);
    assert_eq!(look("b", &objects).await, (false, expected));

    let with_tags = with_auto_configure(&vcsim, domain(0));
    let told = tell("a", &with_tags).await;
    assert_eq!(told.status["ready"], true, "somebody has made the tags");
    let ignored =
        told.conditions.iter().find(|one| one.condition_type == "FieldsIgnored").expect("a condition");
    assert!(ignored.message.contains("spec.zone.autoConfigure: not supported"), "{ignored:?}");
    let mut untagged = domain(0);
    untagged["zone"]["name"] = json!("zone-9");
    let told = tell("a", &with_auto_configure(&vcsim, untagged)).await;
    let ready = &told.conditions[0];
    assert!(
        ready.message.contains("\"zone-9\" of the category \"k8s-zone\"; autoConfigure is not supported"),
        "{ready:?}"
    );

    let lonely = crate::zones::objects(&vcsim, &[("a", domain(0))]);
    let lonely = lonely.get(&zone, None, "a").expect("an answer").expect("a zone");
    let lonely = Objects::of([(zone, (*lonely).clone())]);
    assert_eq!(look("a", &lonely).await, (false, of(&["NotReady", "ValidationFailed"])));

    vcsim.kill().expect("killed");
    let began = std::time::Instant::now();
    while look("a", &objects).await != (false, of(&["NotReady", "VCenterUnreachable"])) {
        assert!(began.elapsed() < LIMIT, "it is away");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    running.stop().await;
}

/// The spec of a failure domain of the first cluster with a VM group.
pub(crate) fn domain_with_group() -> Value {
    let mut domain = domain(0);
    domain["topology"]["hosts"] = json!({"vmGroupName": "machines", "hostGroupName": "hosts"});
    domain
}

pub(crate) fn make_groups(vcsim: &Vcsim) {
    vcsim.make_groups("DC0_C0", "machines", &[&machine(0)], "hosts", &["DC0_C0_H0"]).expect("groups");
}

#[tokio::test]
async fn many_machines_join_a_group_and_none_is_lost() {
    const MANY: usize = 8;
    let options = VcsimOptions { task_delays: "ReconfigureCluster:200", ..two_clusters() };
    let Some(vcsim) = simulator(&options) else { return };
    tag(&vcsim, 2);
    let running = started(&vcsim).await;
    let objects = objects(&vcsim, &[("a", domain_with_group())]);
    let mut object = in_zone(&vcsim, &objects, 0, "a");
    let error = Controller::new(&running).step(&mut object).await.expect_err("no group");
    assert!(
        error.report().contains(
            "failure domain \"a\" is not ready: VSphereFailureDomain \"a\": spec.topology.hosts: the cluster has no VM group"
        ),
        "{}",
        error.report()
    );
    running.stop().await;

    make_groups(&vcsim);
    let running = started(&vcsim).await;
    vcsim.reset_counts().expect("reset");
    let one = |number| {
        let (running, vcsim, objects) = (&running, &vcsim, &objects);
        async move {
            let mut object = in_zone(vcsim, objects, number, "a");
            let mut controller = Controller::new(running);
            controller.make(&mut object).await;
            assert!(controller.errors.is_empty(), "{:?}", controller.errors);
            object
        }
    };
    let all = join_all((0..MANY).map(one)).await;
    let mut expected: Vec<_> = (0..MANY).map(|number| format!("worker-{number}")).collect();
    expected.insert(0, machine(0));
    assert_eq!(vcsim.vm_groups().expect("groups")["machines"], expected);
    let made = calls(&vcsim);
    assert!(made["soap:ReconfigureComputeResource_Task"] <= 4, "{made:?}");
    assert!(made.values().sum::<u64>() <= 8 * MANY as u64, "{made:?}");
    for mut object in all {
        Controller::new(&running).delete(&mut object).await;
    }
    assert_eq!(names(&vcsim), from_the_start());
    running.stop().await;
}

#[tokio::test]
async fn a_machine_is_not_started_outside_its_group() {
    let Some(vcsim) = simulator(&two_clusters()) else { return };
    tag(&vcsim, 2);
    make_groups(&vcsim);
    let running = started(&vcsim).await;
    let objects = objects(&vcsim, &[("a", domain_with_group())]);
    let mut controller = Controller::new(&running);
    vcsim.fail_next_task("ReconfigureComputeResource_Task", "NoPermission").expect("a fault");
    let mut object = in_zone(&vcsim, &objects, 1, "a");
    let error = loop {
        match controller.step(&mut object).await {
            Ok(report) => controller.wait(&object, report.wait()).await,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", error.report());
    assert!(
        error.report().contains("\"worker-1\" was not put into the VM group \"machines\" (task-"),
        "{}",
        error.report()
    );
    let found = vcsim.inventory().expect("an inventory");
    let found = found.iter().find(|one| one["name"] == "worker-1").expect("a machine");
    assert_eq!(found["power"], "poweredOff");
    controller.make(&mut object).await;
    assert_eq!(vcsim.vm_groups().expect("groups")["machines"], [machine(0), "worker-1".to_owned()]);
    controller.delete(&mut object).await;
    running.stop().await;
}

/// A zone is deleted after a machine was made in it, and before it has started.
#[tokio::test]
async fn a_machine_starts_with_its_zone_being_deleted_or_gone() {
    let Some(vcsim) = simulator(&two_clusters()) else { return };
    tag(&vcsim, 2);
    make_groups(&vcsim);
    let running = started(&vcsim).await;
    let all = objects(&vcsim, &[("a", domain_with_group())]);
    let of = |name: &str| {
        let found = all.get(&kind(name), None, "a").expect("an answer").expect("an object");
        (kind(name), (*found).clone())
    };
    let (zone_kind, zone) = of("VSphereDeploymentZone");
    let going = Objects::of([(zone_kind, zone.deleting(true)), of("VSphereFailureDomain")]);
    let mut controller = Controller::new(&running);
    for (number, later, is_in_group) in [(1, going.clone(), true), (2, Objects::default(), false)] {
        vcsim.fail_next_task("ReconfigureComputeResource_Task", "NoPermission").expect("a fault");
        let mut object = in_zone(&vcsim, &all, number, "a");
        loop {
            match controller.step(&mut object).await {
                Ok(report) => controller.wait(&object, report.wait()).await,
                Err(error) => break assert_eq!(error.kind(), ErrorKind::PermissionDenied),
            }
        }
        object.request.objects = later;
        controller.make(&mut object).await;
        let members = vcsim.vm_groups().expect("groups")["machines"].clone();
        assert_eq!(members.contains(&format!("worker-{number}")), is_in_group, "{members:?}");
    }
    let error = controller.step(&mut in_zone(&vcsim, &going, 3, "a")).await.expect_err("nothing new");
    assert!(error.report().contains("is being deleted, so nothing new is made in it"), "{}", error.report());
    running.stop().await;
}
