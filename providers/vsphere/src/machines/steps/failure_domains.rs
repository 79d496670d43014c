//! Failure domains: which ones a cluster has, and what one means for a machine.

use std::{borrow::Cow, sync::Arc};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{
        AuxiliaryObject, ClusterRequest, Condition, ConditionStatus, FailureDomain, Mark, Objects, Record,
    },
};

use super::{
    DeletionRequest, MachineRecord, Request,
    companion::{self, existing},
    login::Login,
};
use crate::{
    machines::{
        fleet::Fleet,
        invalid::invalid,
        kinds::DEPLOYMENT_ZONE_KIND,
        places::Finder,
        site::Site,
        spec::VSphereMachineSpec,
        spec::{FailureDomainType, NetworkSpec, VSphereClusterSpec},
        status::VSphereClusterStatus,
        zones::{Checked, Found, Zone, judge, place, place_in_pool, tagged_objects, zone_name},
    },
    moref::MoRef,
};

const FAILURE_DOMAINS_READY: &str = "FailureDomainsReady";
const SELECTOR: &str = "spec.failureDomainSelector";

impl Fleet {
    /// The request with the spec that its failure domain makes of it.
    ///
    /// A machine that is there stays where it is and is not checked again, whatever becomes of its failure domain.
    ///
    /// # Errors
    /// Why nothing can be made in this failure domain.
    pub(super) async fn placed<'r>(
        &self,
        request: &'r Request,
        record: &MachineRecord,
    ) -> Result<Cow<'r, Request>> {
        let Some(name) = zone_name(request.failure_domain.as_deref(), &request.spec) else {
            return Ok(Cow::Borrowed(request));
        };
        if request.provider_id.is_none() {
            agree(request.failure_domain.as_deref(), &request.spec)?;
        }
        let mut placed = request.clone();
        placed.failure_domain = Some(name.to_owned());
        placed.spec.clone.server = None;
        if request.provider_id.is_some()
            && let Some(network) = network_of(request)
        {
            placed.spec.clone.network = network;
            return Ok(Cow::Owned(placed));
        }
        let site = match request.provider_id {
            Some(_) => None,
            None => Some(self.site_for(&Login::of_machine(&placed)).await?),
        };
        let is_there = site.is_none() || self.has(&request.mark);
        let zone = match Zone::read(&request.objects, name) {
            Ok(zone) => zone,
            Err(error) if is_there => {
                tracing::debug!(machine = %request.mark, error = %error.report(), "its failure domain is not read");
                return Ok(Cow::Owned(placed));
            }
            Err(error) => return Err(error),
        };
        placed.spec = place(&request.spec, &zone);
        let Some(site) = &site else { return Ok(Cow::Owned(placed)) };
        if !is_on(site, &zone) {
            return Err(invalid(format!(
                "failure domain {name:?}: the VSphereDeploymentZone is on the vCenter {:?}, and the VSphereCluster on {:?}",
                zone.server().unwrap_or_default(),
                site.vcenter.settings.endpoint.authority()
            )));
        }
        site.check_live()?;
        if !is_there
            && record.status.task_ref.is_none()
            && let Some(why) = self.checked(site, &zone).await?.flaw()
        {
            let words = format!("failure domain {name:?} is not ready: {why}");
            return Err(Error::new(ErrorKind::NotFound, words));
        }
        let chosen = with_finder(site, |finder| place_in_pool(finder, &zone, &mut placed.spec));
        match chosen {
            Err(error) if !is_there => Err(error),
            _ => Ok(Cow::Owned(placed)),
        }
    }

    /// The request for a machine that is to go. In a failure domain it is on the vCenter of its cluster.
    pub(super) fn placed_for_deletion(request: &DeletionRequest) -> Cow<'_, DeletionRequest> {
        let named = zone_name(request.failure_domain.as_deref(), &request.spec);
        if named.is_none() || request.spec.clone.server.is_none() {
            return Cow::Borrowed(request);
        }
        let mut placed = request.clone();
        placed.spec.clone.server = None;
        Cow::Owned(placed)
    }

    /// The vCenter of the cluster of a machine that names another one. The machine may be there: with its Machine, the name of its
    /// failure domain is gone.
    ///
    /// # Errors
    /// Those of a login.
    pub(super) async fn site_of_lost_zone(
        &self,
        request: &DeletionRequest,
        own: &Arc<Site>,
    ) -> Result<Option<Arc<Site>>> {
        if request.spec.clone.server.is_none() || request.cluster.spec.is_none() {
            return Ok(None);
        }
        let mut of_cluster = request.clone();
        of_cluster.spec.clone.server = None;
        let login = Login::of_deletion(&of_cluster, None).filter(|login| !login.has_identity());
        let Some(login) = login else { return Ok(None) };
        match self.site_for(&login).await {
            Ok(site) => Ok((!Arc::ptr_eq(&site, own)).then_some(site)),
            // nothing was begun on a vCenter that is not configured
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The failure domains of a cluster: the zones of its vCenter that it selects, and that are ready.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a selector that is none; those of [`Objects::list`]. Trouble with a zone is in the condition.
    pub(super) async fn failure_domains(
        &self,
        site: &Arc<Site>,
        request: &ClusterRequest<VSphereClusterSpec>,
        record: &mut Record<VSphereClusterStatus>,
    ) -> Result<Vec<FailureDomain>> {
        let Some(selector) = &request.spec.failure_domain_selector else {
            record.remove(FAILURE_DOMAINS_READY);
            return Ok(Vec::new());
        };
        let (mut domains, mut flaws) = (Vec::new(), Vec::new());
        for object in request.objects.list(&DEPLOYMENT_ZONE_KIND, None)? {
            if object.is_deleting || !selector.selects(SELECTOR, &object.labels)? {
                continue;
            }
            match self.failure_domain(site, &request.objects, &object).await {
                Ok(None) => {}
                Ok(Some((domain, None))) => domains.push(domain),
                Ok(Some((domain, Some(why)))) => flaws.push(format!("{:?}: {why}", domain.name)),
                // what cannot be seen now is as it was told last
                Err(error) if error.is_retryable() && was_ready(&object) => domains.push(as_told(&object)),
                Err(error) => flaws.push(format!("{:?}: {}", object.name, error.report())),
            }
        }
        if domains.is_empty() && flaws.is_empty() {
            flaws.push(format!(
                "{SELECTOR}: no VSphereDeploymentZone of this vCenter has such labels: {:?}",
                site.vcenter.settings.endpoint.authority()
            ));
        }
        record.set(if flaws.is_empty() {
            Condition::new(FAILURE_DOMAINS_READY, ConditionStatus::True, "Ready")
        } else {
            let condition = Condition::new(FAILURE_DOMAINS_READY, ConditionStatus::False, "NotReady");
            condition.with_message(flaws.join("; "))
        });
        Ok(domains)
    }

    /// The failure domain that a zone is, and why it is not ready. `None` if it is on another vCenter.
    async fn failure_domain(
        &self,
        site: &Arc<Site>,
        objects: &Objects,
        object: &AuxiliaryObject,
    ) -> Result<Option<(FailureDomain, Option<String>)>> {
        let zone = Zone::of(objects, object)?;
        if !is_on(site, &zone) {
            return Ok(None);
        }
        let checked = self.checked(site, &zone).await?;
        let mut domain = FailureDomain::new(zone.name.clone());
        domain.control_plane = zone.spec.control_plane.unwrap_or(true);
        Ok(Some((domain, checked.flaw().map(str::to_owned))))
    }

    /// What is found out about a zone, which is known for a minute.
    ///
    /// # Errors
    /// Those of the calls.
    pub(super) async fn checked(&self, site: &Arc<Site>, zone: &Zone) -> Result<Arc<Checked>> {
        let key = (site.vcenter.name().to_owned(), zone.key());
        self.zones.get(key, async { Ok(judge(zone, &self.find_parts(site, zone).await?)) }).await
    }

    /// Looks for everything that a zone names: in the inventory, and with a few calls.
    async fn find_parts(&self, site: &Arc<Site>, zone: &Zone) -> Result<Found> {
        let mut found = with_finder(site, |finder| find_in_inventory(finder, zone));
        if let Ok(datacenter) = &found.datacenter {
            found.catalog = Some(self.catalog(site, datacenter).await?);
        }
        let parts = [zone.domain.region.kind, zone.domain.zone.kind];
        let has_groups = zone.hosts().is_some() || parts.contains(&FailureDomainType::HostGroup);
        if let Some(Ok(cluster)) = &found.compute_cluster
            && has_groups
        {
            found.groups = Some(Arc::new(self.cluster_groups(site, cluster).await?));
        }
        let mut objects: Vec<MoRef> =
            parts.into_iter().filter_map(|kind| tagged_objects(zone, kind, &found).ok()).flatten().collect();
        objects.sort_unstable();
        objects.dedup();
        let client = site.vcenter.tag_client().clone();
        let client = client.ok_or_else(|| site.vcenter.error(ErrorKind::Unavailable, "not connected"))?;
        found.tags = client.all_attached(&objects).await.map_err(|error| site.vcenter.error_of(&error))?;
        Ok(found)
    }

    /// Whether a vCenter that a machine may see shows it.
    pub(super) fn has(&self, mark: &Mark) -> bool {
        let Ok(instance_uuid) = uuid::Uuid::parse_str(&mark.uid) else { return false };
        self.sites_of(mark)
            .iter()
            .any(|site| site.vcenter.state().inventory.with_instance_uuid(instance_uuid).next().is_some())
    }
}

/// Whether a zone was ready when it was looked at last.
fn was_ready(zone: &AuxiliaryObject) -> bool {
    zone.status["ready"] == true
}

/// The failure domain that a zone was then.
fn as_told(zone: &AuxiliaryObject) -> FailureDomain {
    let mut domain = FailureDomain::new(zone.name.clone());
    domain.control_plane = zone.spec["controlPlane"] != false;
    domain
}

/// The network devices that a machine was made with, as its `VSphereVM` tells: those of its zone may be others by now, and the
/// machine has claimed addresses for its own.
fn network_of(request: &Request) -> Option<NetworkSpec> {
    existing(request).and_then(|vm| companion::network_of(&vm))
}

/// Whether a zone is on this vCenter. One that names none is on every one.
fn is_on(site: &Site, zone: &Zone) -> bool {
    zone.server().is_none_or(|server| site.is_called(server))
}

/// Does something with what is found in the inventory of a vCenter.
pub(super) fn with_finder<T>(site: &Site, act: impl FnOnce(Finder<'_>) -> T) -> T {
    let state = site.vcenter.state();
    let used: Vec<_> = site.vcenter.datacenters(&state).into_iter().collect();
    let vcenter = site.vcenter.settings.endpoint.authority();
    act(Finder::new(&vcenter, &state.inventory, &used).discreet(site.is_configured))
}

fn find_in_inventory(finder: Finder<'_>, zone: &Zone) -> Found {
    let (of_topology, of_placement) = (zone.fields_of_topology(), zone.fields_of_placement());
    let (topology, placement) = (finder.for_zone(&of_topology), finder.for_zone(&of_placement));
    let told = |found: Result<MoRef>| found.map_err(|error| error.to_string());
    let datacenter = told(topology.datacenter(Some(&zone.domain.topology.datacenter)));
    let named = |word: Option<&str>, find: &dyn Fn(&MoRef, &str) -> Result<MoRef>| {
        let word = word.filter(|word| !word.is_empty())?;
        Some(told(find(datacenter.as_ref().ok()?, word)))
    };
    let constraint = zone.placement();
    let pool =
        named(constraint.resource_pool.as_deref(), &|at, word| placement.resource_pool(at, Some(word)));
    let cluster = named(zone.compute_cluster(), &|at, word| topology.compute_cluster(at, word));
    let is_pool_in_cluster = match (&pool, &cluster) {
        (Some(Ok(pool)), Some(Ok(cluster))) => finder.is_below(pool, cluster),
        _ => false,
    };
    Found {
        folder: named(constraint.folder.as_deref(), &|at, word| placement.folder(at, Some(word))),
        resource_pool: pool,
        compute_cluster: cluster,
        is_pool_in_cluster,
        catalog: None,
        groups: None,
        tags: crate::zones::Tags::new(),
        datacenter,
    }
}

/// Cluster API's core copies what the object of the provider tells into the Machine. So if the two named different failure domains, the
/// Machine would soon name one that its virtual machine is not in.
fn agree(of_machine: Option<&str>, spec: &VSphereMachineSpec) -> Result<()> {
    let own = spec.failure_domain.as_deref().filter(|name| !name.is_empty());
    match (of_machine, own) {
        (Some(of_machine), Some(own)) if of_machine != own => Err(invalid(format!(
            "spec.failureDomain: {own:?}, and spec.failureDomain of the Machine is {of_machine:?}: leave one of them out"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::machines::ClusterContext;
    use serde_json::json;

    use super::*;
    use crate::machines::kinds::VM_KIND;

    #[test]
    fn two_failure_domains_of_one_machine_are_refused() {
        let spec = |name: &str| VSphereMachineSpec {
            failure_domain: Some(name.to_owned()),
            ..VSphereMachineSpec::default()
        };
        let error = agree(Some("a"), &spec("b")).expect_err("two");
        assert!(error.report().contains("spec.failureDomain: \"b\", and"), "{}", error.report());
        for (of_machine, own) in [(Some("a"), "a"), (Some("a"), ""), (None, "b")] {
            assert!(agree(of_machine, &spec(own)).is_ok(), "{of_machine:?} {own:?}");
        }
    }

    #[test]
    fn the_network_of_a_machine_is_the_one_that_it_was_made_with() {
        let mark = Mark::machine("u-1", "default", "prod", "worker-1");
        let request = Request::new(
            mark,
            VSphereMachineSpec::default(),
            ClusterContext::new(VSphereClusterSpec::default()),
        )
        .with_object_uid("u-1");
        assert_eq!(network_of(&request), None);
        let spec = json!({"template": "t", "biosUUID": "b", "network": {"devices": [{"networkName": "n"}]}});
        let vm = AuxiliaryObject::new("worker-1").in_namespace("default").with_owners(["u-1".to_owned()]);
        let vm = vm.with_spec(spec);
        let request = request.with_objects(Objects::of([(VM_KIND, vm)]));
        let network = network_of(&request).expect("a network");
        assert_eq!(network.devices.len(), 1);
        assert_eq!(network.devices[0].network_name, "n");
    }

    #[test]
    fn a_zone_that_cannot_be_seen_is_as_it_was_told() {
        let zone = |status, spec| AuxiliaryObject::new("a").with_status(status).with_spec(spec);
        assert!(was_ready(&zone(json!({"ready": true}), json!({}))));
        assert!(
            !was_ready(&zone(json!({"ready": false}), json!({}))) && !was_ready(&AuxiliaryObject::new("a"))
        );
        assert!(as_told(&zone(json!({}), json!({}))).control_plane);
        assert!(!as_told(&zone(json!({}), json!({"controlPlane": false}))).control_plane);
    }

    #[test]
    fn a_machine_that_goes_is_on_the_vcenter_of_its_cluster() {
        let spec: VSphereMachineSpec = serde_json::from_value(json!({
            "template": "t", "server": "other", "network": {"devices": []},
        }))
        .expect("a spec");
        let mark = Mark::machine("u-1", "default", "prod", "worker-1");
        let request = DeletionRequest::new(mark, spec, ClusterContext::new(None)).with_object_uid("u-1");
        assert_eq!(Fleet::placed_for_deletion(&request).spec.clone.server.as_deref(), Some("other"));
        let request = request.with_failure_domain(Some("a".to_owned()));
        assert_eq!(Fleet::placed_for_deletion(&request).spec.clone.server, None);
    }
}
