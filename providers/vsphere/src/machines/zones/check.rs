//! Whether vCenter has what a zone and its failure domain name.

use std::sync::Arc;

use cloudprovider::machines::{Condition, ConditionStatus};

use super::Zone;
use crate::{
    machines::{
        groups::ClusterGroups,
        places::Catalog,
        spec::{FailureDomain, FailureDomainType},
    },
    moref::MoRef,
    zones::Tags,
};

/// An object that a zone names, or why there is none.
type Named = Result<MoRef, String>;

/// What vCenter has of a zone.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) datacenter: Named,
    /// The cluster of hosts, if the zone names one.
    pub(crate) compute_cluster: Option<Named>,
    /// The resource pool, if the zone names one.
    pub(crate) resource_pool: Option<Named>,
    /// The folder, if the zone names one.
    pub(crate) folder: Option<Named>,
    /// Whether the resource pool is in the cluster of hosts.
    pub(crate) is_pool_in_cluster: bool,
    /// The networks and datastores of the datacenter.
    pub(crate) catalog: Option<Arc<Catalog>>,
    /// The groups of the cluster of hosts.
    pub(crate) groups: Option<Arc<ClusterGroups>>,
    /// The tags on the objects that region and zone are.
    pub(crate) tags: Tags,
}

/// What is wrong: the reason of a condition and its message.
type Flaw = (&'static str, String);

/// What was found out about a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    placement: Option<Flaw>,
    domain: Option<Flaw>,
}

impl Checked {
    /// Why no machine can be there.
    pub(crate) fn flaw(&self) -> Option<&str> {
        self.placement.as_ref().or(self.domain.as_ref()).map(|(_, message)| message.as_str())
    }

    /// The conditions of the zone beside `Ready` and that of its vCenter, in the words of Cluster API Provider vSphere.
    pub(crate) fn conditions(&self) -> [Condition; 2] {
        let one = |name, good, flaw: &Option<Flaw>| match flaw {
            None => Condition::new(name, ConditionStatus::True, good),
            Some((reason, message)) => {
                Condition::new(name, ConditionStatus::False, *reason).with_message(message.clone())
            }
        };
        [
            one("PlacementConstraintReady", "Ready", &self.placement),
            one("FailureDomainValidated", "Validated", &self.domain),
        ]
    }
}

/// The objects that carry the tag of a region or a zone.
///
/// # Errors
/// Why there are none.
pub(crate) fn tagged_objects(
    zone: &Zone,
    kind: FailureDomainType,
    found: &Found,
) -> Result<Vec<MoRef>, String> {
    let cluster = || match &found.compute_cluster {
        Some(Ok(cluster)) => Ok(cluster.clone()),
        Some(Err(why)) => Err(why.clone()),
        None => Err(format!("{}computeCluster: missing", zone.fields_of_topology())),
    };
    match kind {
        FailureDomainType::Datacenter => found.datacenter.clone().map(|one| vec![one]),
        FailureDomainType::ComputeCluster => cluster().map(|one| vec![one]),
        FailureDomainType::HostGroup => {
            cluster()?;
            let field = format!("{}hosts.hostGroupName", zone.fields_of_topology());
            let name = zone.domain.topology.hosts.as_ref().map(|hosts| hosts.host_group_name.as_str());
            let name = name.filter(|name| !name.is_empty()).ok_or_else(|| format!("{field}: missing"))?;
            let hosts = found.groups.as_ref().and_then(|groups| groups.hosts(name)).unwrap_or_default();
            if hosts.is_empty() {
                return Err(format!("{field}: the cluster has no host group {name:?} with hosts"));
            }
            Ok(hosts.to_vec())
        }
    }
}

/// Judges what was found.
pub(crate) fn judge(zone: &Zone, found: &Found) -> Checked {
    Checked { placement: placement(found), domain: domain(zone, found) }
}

fn placement(found: &Found) -> Option<Flaw> {
    let flaw = |reason, named: &Option<Named>| match named {
        Some(Err(why)) => Some((reason, why.clone())),
        _ => None,
    };
    flaw("ResourcePoolNotFound", &found.resource_pool).or_else(|| flaw("FolderNotFound", &found.folder))
}

fn domain(zone: &Zone, found: &Found) -> Option<Flaw> {
    let topology = &zone.domain.topology;
    let fields = zone.fields_of_topology();
    if let Err(why) = &found.datacenter {
        return Some(("ValidationFailed", why.clone()));
    }
    let parts = [
        ("RegionMisconfigured", "spec.region", &zone.domain.region, zone.auto_configure.region),
        ("ZoneMisconfigured", "spec.zone", &zone.domain.zone, zone.auto_configure.zone),
    ];
    for (reason, field, part, auto_configure) in parts {
        if let Err(why) = check_tag(zone, part, auto_configure, found) {
            return Some((reason, format!("{field}: {why}")));
        }
    }
    if let Some(Err(why)) = &found.compute_cluster {
        return Some(("ComputeClusterNotFound", why.clone()));
    }
    if found.compute_cluster.is_some()
        && !found.is_pool_in_cluster
        && matches!(found.resource_pool, Some(Ok(_)))
    {
        let words = format!(
            "{}resourcePool: it is not in the cluster {:?}",
            zone.fields_of_placement(),
            zone.compute_cluster().unwrap_or_default()
        );
        return Some(("ResourcePoolNotFound", words));
    }
    if let Some(catalog) = &found.catalog {
        let datastore = topology.datastore.as_deref().filter(|word| !word.is_empty());
        if let Some(Err(error)) = datastore.map(|word| catalog.storage(word)) {
            return Some(("DatastoreNotFound", format!("{fields}datastore: {error}")));
        }
        let names =
            topology.networks.iter().enumerate().map(|(number, name)| (format!("networks[{number}]"), name));
        let more = topology.network_configurations.iter().enumerate();
        let more = more
            .map(|(number, one)| (format!("networkConfigurations[{number}].networkName"), &one.network_name));
        for (field, name) in names.chain(more) {
            if let Err(error) = catalog.network(&format!("{fields}{field}"), name) {
                return Some(("NetworkNotFound", error.to_string()));
            }
        }
    }
    if topology.hosts.is_some() && zone.hosts().is_none() {
        return Some(("HostsMisconfigured", format!("{fields}hosts.vmGroupName: missing")));
    }
    let hosts = zone.hosts()?;
    let checked = match (&found.compute_cluster, &found.groups) {
        (None, _) => Err(format!("{fields}computeCluster: missing; a VM group is in one")),
        (Some(_), Some(groups)) => groups
            .check(&hosts.vm_group_name, &hosts.host_group_name)
            .map_err(|error| format!("{fields}hosts: {error}")),
        (Some(_), None) => Ok(()),
    };
    checked.err().map(|words| ("HostsMisconfigured", words))
}

fn check_tag(zone: &Zone, part: &FailureDomain, auto_configure: bool, found: &Found) -> Result<(), String> {
    let objects = tagged_objects(zone, part.kind, found)?;
    let has_tag = |object: &&MoRef| {
        let tags = found.tags.get(*object).map_or(&[][..], Vec::as_slice);
        tags.iter().any(|tag| *tag.category == *part.tag_category && *tag.name == *part.name)
    };
    let Some(without) = objects.iter().find(|object| !has_tag(object)) else { return Ok(()) };
    let advice = if auto_configure {
        "autoConfigure is not supported, so make the tag and attach it in vCenter"
    } else {
        "attach it in vCenter, which the controller does not do"
    };
    Err(format!(
        "{} {} has no tag {:?} of the category {:?}; {advice}",
        without.kind(),
        without.id(),
        part.name,
        part.tag_category
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        machines::{
            groups::tests::cluster as groups,
            zones::examples::{domain as domain_spec, objects, zone as zone_spec},
        },
        zones::Tag,
    };

    fn zone(topology: Value) -> Zone {
        let mut domain = domain_spec("DC0_C0");
        if let (Some(all), Value::Object(more)) = (domain["topology"].as_object_mut(), topology) {
            all.extend(more);
        }
        Zone::read(&objects([("a", zone_spec("x"))], [("x", domain)]), "a").expect("a zone")
    }

    fn object(kind: &str, id: &str) -> MoRef {
        MoRef::new(kind, id)
    }

    /// A vCenter that has everything.
    fn found() -> Found {
        let (datacenter, cluster) = (object("Datacenter", "dc-1"), object("ClusterComputeResource", "c-1"));
        let tag = |category: &str, name: &str| Tag { category: category.into(), name: name.into() };
        Found {
            tags: Tags::from([
                (datacenter.clone(), vec![tag("k8s-region", "region-1")]),
                (cluster.clone(), vec![tag("other", "zone-2"), tag("k8s-zone", "zone-1")]),
            ]),
            datacenter: Ok(datacenter),
            compute_cluster: Some(Ok(cluster)),
            resource_pool: None,
            folder: None,
            is_pool_in_cluster: false,
            catalog: Some(Arc::new(Catalog::default())),
            groups: Some(Arc::new(groups())),
        }
    }

    fn reasons(checked: &Checked) -> [String; 2] {
        checked.conditions().map(|one| one.reason.to_string())
    }

    #[test]
    fn a_zone_of_which_vcenter_has_everything_is_ready() {
        let checked = judge(&zone(json!({})), &found());
        assert_eq!(checked.flaw(), None);
        assert_eq!(reasons(&checked), ["Ready", "Validated"]);
        let hosts = json!({"hosts": {"vmGroupName": "machines", "hostGroupName": "hosts"}});
        assert_eq!(judge(&zone(hosts), &found()).flaw(), None);
        let pool = Some(Ok(object("ResourcePool", "r-1")));
        let checked =
            judge(&zone(json!({})), &Found { resource_pool: pool, is_pool_in_cluster: true, ..found() });
        assert_eq!(checked.flaw(), None);
    }

    #[test]
    fn what_vcenter_has_not_is_named() {
        let no = |words: &str| Err(words.to_owned());
        let pool = Some(Ok(object("ResourcePool", "r-1")));
        let without_zone = {
            let mut found = found();
            found.tags.retain(|object, _| object.kind() == "Datacenter");
            found
        };
        for (topology, found, reason, words) in [
            (
                json!({}),
                Found { datacenter: no("no datacenter"), ..found() },
                "ValidationFailed",
                "no datacenter",
            ),
            (
                json!({}),
                Found { tags: Tags::new(), ..found() },
                "RegionMisconfigured",
                "spec.region: Datacenter dc-1 has no tag \"region-1\" of the category \"k8s-region\"",
            ),
            (
                json!({}),
                without_zone,
                "ZoneMisconfigured",
                "spec.zone: ClusterComputeResource c-1 has no tag",
            ),
            (
                json!({}),
                Found { resource_pool: pool, ..found() },
                "ResourcePoolNotFound",
                "is not in the cluster",
            ),
            (json!({"datastore": "d"}), found(), "DatastoreNotFound", "spec.topology.datastore: "),
            (json!({"networks": ["n"]}), found(), "NetworkNotFound", "spec.topology.networks[0]: "),
            (
                json!({"networkConfigurations": [{"networkName": "n"}]}),
                found(),
                "NetworkNotFound",
                "spec.topology.networkConfigurations[0].networkName: ",
            ),
            (
                json!({"hosts": {"vmGroupName": "", "hostGroupName": "hosts"}}),
                found(),
                "HostsMisconfigured",
                "spec.topology.hosts.vmGroupName: missing",
            ),
            (
                json!({"hosts": {"vmGroupName": "lonely", "hostGroupName": "hosts"}}),
                found(),
                "HostsMisconfigured",
                "spec.topology.hosts: no rule of the cluster ties",
            ),
            (
                json!({"hosts": {"vmGroupName": "machines", "hostGroupName": "hosts"}}),
                Found { compute_cluster: None, ..found() },
                "ZoneMisconfigured",
                "spec.topology.computeCluster: missing",
            ),
        ] {
            let checked = judge(&zone(topology), &found);
            assert_eq!(reasons(&checked), ["Ready", reason], "{words}");
            assert!(checked.flaw().is_some_and(|flaw| flaw.contains(words)), "{checked:?}");
        }
        let found = Found { folder: Some(no("no folder")), ..found() };
        assert_eq!(reasons(&judge(&zone(json!({})), &found)), ["FolderNotFound", "Validated"]);
    }

    #[test]
    fn tags_that_nobody_makes_are_named() {
        let mut zone = zone(json!({}));
        zone.auto_configure.region = true;
        assert_eq!(judge(&zone, &found()).flaw(), None, "somebody has attached them");
        let checked = judge(&zone, &Found { tags: Tags::new(), ..found() });
        let words = "spec.region: Datacenter dc-1 has no tag \"region-1\" of the category \"k8s-region\"; autoConfigure is not \
                     supported, so make the tag and attach it in vCenter";
        assert_eq!(checked.flaw(), Some(words));
    }

    #[test]
    fn hosts_of_a_group_carry_the_tag_of_their_zone() {
        let mut zone = zone(json!({"hosts": {"vmGroupName": "machines", "hostGroupName": "hosts"}}));
        zone.domain.zone.kind = FailureDomainType::HostGroup;
        let flaw = |found: &Found| judge(&zone, found).flaw().map(str::to_owned);
        let words = flaw(&found()).expect("no tag");
        assert!(words.contains("HostSystem host-1 has no tag \"zone-1\""), "{words}");
        let mut tagged = found();
        let tag = Tag { category: "k8s-zone".into(), name: "zone-1".into() };
        tagged.tags.insert(object("HostSystem", "host-1"), vec![tag]);
        assert_eq!(flaw(&tagged), None);
        let words = flaw(&Found { groups: None, ..tagged }).expect("no hosts");
        assert!(words.contains("the cluster has no host group \"hosts\""), "{words}");
    }
}
