//! A `VSphereDeploymentZone` together with its `VSphereFailureDomain`.

use std::collections::BTreeMap;

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{AuxiliaryKind, AuxiliaryObject, Objects},
};
use serde::de::DeserializeOwned;

use crate::machines::{
    conversion::kept,
    kinds::{DEPLOYMENT_ZONE_KIND, FAILURE_DOMAIN_KIND},
    spec::{
        FailureDomainHosts, PlacementConstraint, VSphereDeploymentZoneSpec, VSphereFailureDomainSpec,
        VSphereMachineSpec, invalid,
    },
};

/// A field of the region and the zone of a `VSphereFailureDomain`.
const AUTO_CONFIGURE: &str = "autoConfigure";

/// A `VSphereDeploymentZone` together with its `VSphereFailureDomain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    /// Its name, which is that of the failure domain for Cluster API.
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) spec: VSphereDeploymentZoneSpec,
    /// The `VSphereFailureDomain`.
    pub(crate) domain: VSphereFailureDomainSpec,
    /// Where the failure domain asks for tags that nobody makes here.
    pub(crate) auto_configure: AutoConfigure,
    domain_name: String,
}

/// `autoConfigure` of a `VSphereFailureDomain`, which v1beta1 alone has: Cluster API Provider vSphere makes and attaches the tags then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AutoConfigure {
    pub(crate) region: bool,
    pub(crate) zone: bool,
}

/// The `VSphereDeploymentZone` that a machine asks for: that of its Machine, or else its own.
pub(crate) fn zone_name<'a>(of_machine: Option<&'a str>, spec: &'a VSphereMachineSpec) -> Option<&'a str> {
    let is_set = |name: &&str| !name.is_empty();
    of_machine.filter(is_set).or_else(|| spec.failure_domain.as_deref().filter(is_set))
}

impl Zone {
    /// The zone with this name, for a machine that is to be made in it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such zone, it is being deleted, or there is no such failure domain. [`ErrorKind::InvalidInput`] for a spec that
    /// cannot be read. Those of [`Objects::get`].
    pub(crate) fn read(objects: &Objects, name: &str) -> Result<Self> {
        let flawed = |why: &str| Error::new(ErrorKind::NotFound, format!("failure domain {name:?}: {why}"));
        match objects.get(&DEPLOYMENT_ZONE_KIND, None, name)? {
            None => Err(flawed("there is no VSphereDeploymentZone of this name")),
            Some(object) if object.is_deleting => {
                Err(flawed("the VSphereDeploymentZone is being deleted, so nothing new is made in it"))
            }
            Some(object) => Self::of(objects, &object),
        }
    }

    /// The zone with this name, for a machine that is in it. It may be one that is being deleted. `None` if there is none any more.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(crate) fn around(objects: &Objects, name: &str) -> Result<Option<Self>> {
        let found = objects.get(&DEPLOYMENT_ZONE_KIND, None, name)?;
        found.map(|object| Self::of(objects, &object)).transpose()
    }

    /// The zone of this object.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(crate) fn of(objects: &Objects, object: &AuxiliaryObject) -> Result<Self> {
        let spec: VSphereDeploymentZoneSpec = spec_of(&DEPLOYMENT_ZONE_KIND, object)?;
        let domain_name = spec.failure_domain.clone().unwrap_or_default();
        if domain_name.is_empty() {
            let words = format!(
                "VSphereDeploymentZone {:?}: spec.failureDomain: missing; name a VSphereFailureDomain",
                object.name
            );
            return Err(invalid(words));
        }
        let domain = objects.get(&FAILURE_DOMAIN_KIND, None, &domain_name)?;
        let domain = domain.filter(|domain| !domain.is_deleting).ok_or_else(|| {
            let words = format!(
                "VSphereDeploymentZone {:?}: spec.failureDomain: there is no VSphereFailureDomain {domain_name:?}",
                object.name
            );
            Error::new(ErrorKind::NotFound, words)
        })?;
        Ok(Self {
            name: object.name.clone(),
            labels: object.labels.clone(),
            spec,
            domain: spec_of(&FAILURE_DOMAIN_KIND, &domain)?,
            auto_configure: AutoConfigure::of(&domain),
            domain_name,
        })
    }

    /// What it says, as one text.
    pub(crate) fn key(&self) -> String {
        let AutoConfigure { region, zone } = self.auto_configure;
        serde_json::json!([self.name, self.spec, self.domain_name, self.domain, region, zone]).to_string()
    }

    /// The fields that are set and mean nothing here, with the reason.
    pub(crate) fn ignored(&self) -> Option<String> {
        let AutoConfigure { region, zone } = self.auto_configure;
        let fields = [(region, "spec.region.autoConfigure"), (zone, "spec.zone.autoConfigure")];
        let fields: Vec<&str> =
            fields.iter().filter(|(is_set, _)| *is_set).map(|(_, field)| *field).collect();
        (!fields.is_empty()).then(|| {
            format!(
                "VSphereFailureDomain {:?}: {}: not supported; the tags are those that somebody attaches in vCenter",
                self.domain_name,
                fields.join(", ")
            )
        })
    }

    /// The vCenter that it names.
    pub(crate) fn server(&self) -> Option<&str> {
        self.spec.server.as_deref().filter(|server| !server.is_empty())
    }

    /// Where in the failure domain its machines are.
    pub(crate) fn placement(&self) -> PlacementConstraint {
        self.spec.placement_constraint.clone().unwrap_or_default()
    }

    /// The word for the cluster of hosts.
    pub(crate) fn compute_cluster(&self) -> Option<&str> {
        self.domain.topology.compute_cluster.as_deref().filter(|word| !word.is_empty())
    }

    /// The groups of its machines and hosts.
    pub(crate) fn hosts(&self) -> Option<&FailureDomainHosts> {
        self.domain.topology.hosts.as_ref().filter(|hosts| !hosts.vm_group_name.is_empty())
    }

    /// What the names of fields of the zone begin with in errors.
    pub(crate) fn fields_of_placement(&self) -> String {
        format!("VSphereDeploymentZone {:?}: spec.placementConstraint.", self.name)
    }

    /// What the names of fields of the failure domain begin with in errors.
    pub(crate) fn fields_of_topology(&self) -> String {
        format!("VSphereFailureDomain {:?}: spec.topology.", self.domain_name)
    }
}

impl AutoConfigure {
    /// What the object says in v1beta1. It is in an annotation, as v1beta2 has no place for it.
    fn of(domain: &AuxiliaryObject) -> Self {
        let kept = kept(&domain.annotations).unwrap_or_default();
        let is_set = |part: &str| kept.get("spec").is_some_and(|spec| spec[part][AUTO_CONFIGURE] == true);
        Self { region: is_set("region"), zone: is_set("zone") }
    }
}

/// The error about a resource pool that is in another cluster than the zone.
pub(super) fn outside(zone: &Zone, pool: &str, cluster: &str) -> Error {
    let words = format!(
        "spec.resourcePool: {pool:?} is not in the cluster {cluster:?} of the VSphereFailureDomain {:?}; name one in \
         spec.placementConstraint.resourcePool of the VSphereDeploymentZone {:?}",
        zone.domain_name, zone.name
    );
    invalid(words)
}

fn spec_of<T: DeserializeOwned>(kind: &AuxiliaryKind, object: &AuxiliaryObject) -> Result<T> {
    serde_json::from_value(object.spec.clone())
        .map_err(|error| invalid(format!("{} {:?}: spec: {error}", kind.kind, object.name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::machines::{
        convert,
        zones::examples::{domain, objects, zone},
    };

    #[test]
    fn a_zone_is_read_with_its_failure_domain() {
        let objects = objects([("a", zone("x"))], [("x", domain("DC0_C0"))]);
        let zone = Zone::read(&objects, "a").expect("a zone");
        assert_eq!((zone.name.as_str(), zone.compute_cluster()), ("a", Some("DC0_C0")));
        assert_eq!(zone.server(), Some("vc.example.org"));
        assert!(zone.hosts().is_none());
    }

    #[test]
    fn what_is_missing_is_named() {
        let all = objects(
            [("a", zone("x")), ("b", zone("")), ("c", json!({"server": 1}))],
            [("y", domain("DC0_C0"))],
        );
        for (name, kind, words) in [
            ("z", ErrorKind::NotFound, "failure domain \"z\": there is no VSphereDeploymentZone"),
            ("a", ErrorKind::NotFound, "there is no VSphereFailureDomain \"x\""),
            ("b", ErrorKind::InvalidInput, "VSphereDeploymentZone \"b\": spec.failureDomain: missing"),
            ("c", ErrorKind::InvalidInput, "VSphereDeploymentZone \"c\": spec: "),
        ] {
            let error = Zone::read(&all, name).expect_err(words);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn what_v1beta1_alone_has_is_read_and_named() {
        let zone_of = |region: bool, zone_part: Option<bool>| {
            let mut spec = domain("DC0_C0");
            spec["region"]["autoConfigure"] = json!(region);
            spec["zone"]["autoConfigure"] = json!(zone_part);
            let old = json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereFailureDomain", "metadata": {"name": "x"},
                "spec": spec,
            });
            let new = convert(old, "v1beta2").expect("converted");
            let annotations =
                serde_json::from_value(new["metadata"]["annotations"].clone()).unwrap_or_default();
            let domain =
                AuxiliaryObject::new("x").with_spec(new["spec"].clone()).with_annotations(annotations);
            let object = AuxiliaryObject::new("a").with_spec(zone("x"));
            let all = Objects::of([(FAILURE_DOMAIN_KIND, domain), (DEPLOYMENT_ZONE_KIND, object)]);
            Zone::read(&all, "a").expect("a zone")
        };
        let asked = zone_of(true, Some(true));
        assert_eq!(asked.auto_configure, AutoConfigure { region: true, zone: true });
        let words = asked.ignored().expect("words");
        assert!(words.starts_with("VSphereFailureDomain \"x\": spec.region.autoConfigure, spec.zone.autoConfigure: not supported"), "{words}");
        let half = zone_of(false, Some(true));
        assert!(half.ignored().is_some_and(|words| words.contains("\"x\": spec.zone.autoConfigure: ")));
        assert_ne!(half.key(), asked.key(), "what is found out about one is not that of the other");
        for one in [zone_of(false, Some(false)), zone_of(false, None)] {
            assert_eq!((one.auto_configure, one.ignored()), (AutoConfigure::default(), None));
        }
    }

    #[test]
    fn the_machine_object_of_the_core_decides() {
        let spec = |name: Option<&str>| VSphereMachineSpec {
            failure_domain: name.map(str::to_owned),
            ..VSphereMachineSpec::default()
        };
        for (of_machine, own, expected) in [
            (None, None, None),
            (Some(""), Some(""), None),
            (Some("a"), Some("b"), Some("a")),
            (None, Some("b"), Some("b")),
            (Some("a"), None, Some("a")),
        ] {
            assert_eq!(zone_name(of_machine, &spec(own)), expected);
        }
    }
}
