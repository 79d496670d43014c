//! What a failure domain means for a machine.

use std::{borrow::Cow, sync::Arc};

use cloudprovider::{Error, ErrorKind, Result, machines::Mark};

use super::{
    login::Login,
    step::{DeletionRequest, MachineRecord, Request},
    vsphere_vm::{self, existing},
};
use crate::{
    machines::{
        places::Finder,
        spec::{FailureDomainType, NetworkSpec, VSphereMachineSpec, invalid},
        vcenter_handle::VCenterHandle,
        vsphere_machines::VSphereMachines,
        zones::{Checked, Found, Zone, judge, place, place_in_pool, tagged_objects, zone_name},
    },
    moref::MoRef,
};

impl VSphereMachines {
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
        let vcenter = match request.provider_id {
            Some(_) => None,
            None => Some(self.vcenter_for(&Login::of_machine(&placed)).await?),
        };
        let is_there = vcenter.is_none() || self.has(&request.mark);
        let zone = match Zone::read(&request.objects, name) {
            Ok(zone) => zone,
            Err(error) if is_there => {
                tracing::debug!(machine = %request.mark, error = %error.report(), "its failure domain is not read");
                return Ok(Cow::Owned(placed));
            }
            Err(error) => return Err(error),
        };
        placed.spec = place(&request.spec, &zone);
        let Some(vcenter) = &vcenter else { return Ok(Cow::Owned(placed)) };
        if !is_on(vcenter, &zone) {
            return Err(invalid(format!(
                "failure domain {name:?}: the VSphereDeploymentZone is on the vCenter {:?}, and the VSphereCluster on {:?}",
                zone.server().unwrap_or_default(),
                vcenter.settings.endpoint.authority()
            )));
        }
        vcenter.check_live()?;
        if !is_there
            && record.status.task_ref.is_none()
            && let Some(why) = self.checked(vcenter, &zone).await?.flaw()
        {
            let words = format!("failure domain {name:?} is not ready: {why}");
            return Err(Error::new(ErrorKind::NotFound, words));
        }
        let chosen = vcenter.with_finder(|finder| place_in_pool(finder, &zone, &mut placed.spec));
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
    pub(super) async fn vcenter_of_lost_zone(
        &self,
        request: &DeletionRequest,
        own: &Arc<VCenterHandle>,
    ) -> Result<Option<Arc<VCenterHandle>>> {
        if request.spec.clone.server.is_none() || request.cluster.spec.is_none() {
            return Ok(None);
        }
        let mut of_cluster = request.clone();
        of_cluster.spec.clone.server = None;
        let login = Login::of_deletion(&of_cluster, None).filter(|login| !login.has_identity());
        let Some(login) = login else { return Ok(None) };
        match self.vcenter_for(&login).await {
            Ok(vcenter) => Ok((!Arc::ptr_eq(&vcenter, own)).then_some(vcenter)),
            // nothing was begun on a vCenter that is not configured
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is found out about a zone, which is known for a minute.
    ///
    /// # Errors
    /// Those of the calls.
    pub(super) async fn checked(&self, vcenter: &Arc<VCenterHandle>, zone: &Zone) -> Result<Arc<Checked>> {
        let key = (vcenter.name().to_owned(), zone.key());
        self.zones.get(key, async { Ok(judge(zone, &self.find_parts(vcenter, zone).await?)) }).await
    }

    /// Looks for everything that a zone names: in the inventory, and with a few calls.
    async fn find_parts(&self, vcenter: &Arc<VCenterHandle>, zone: &Zone) -> Result<Found> {
        let mut found = vcenter.with_finder(|finder| find_in_inventory(finder, zone));
        if let Ok(datacenter) = &found.datacenter {
            found.catalog = Some(self.catalog(vcenter, datacenter).await?);
        }
        let parts = [zone.domain.region.kind, zone.domain.zone.kind];
        let has_groups = zone.hosts().is_some() || parts.contains(&FailureDomainType::HostGroup);
        if let Some(Ok(cluster)) = &found.compute_cluster
            && has_groups
        {
            found.groups = Some(Arc::new(self.cluster_groups(vcenter, cluster).await?));
        }
        let mut objects: Vec<MoRef> =
            parts.into_iter().filter_map(|kind| tagged_objects(zone, kind, &found).ok()).flatten().collect();
        objects.sort_unstable();
        objects.dedup();
        let client = vcenter.tag_client().clone();
        let client = client.ok_or_else(|| vcenter.error(ErrorKind::Unavailable, "not connected"))?;
        found.tags = client.all_attached(&objects).await.map_err(|error| vcenter.error_of(&error))?;
        Ok(found)
    }

    /// Whether a vCenter that a machine may see shows it.
    pub(super) fn has(&self, mark: &Mark) -> bool {
        let Ok(instance_uuid) = uuid::Uuid::parse_str(&mark.uid) else { return false };
        self.vcenters_of(mark)
            .iter()
            .any(|vcenter| vcenter.state().inventory.with_instance_uuid(instance_uuid).next().is_some())
    }
}

/// The network devices that a machine was made with, as its `VSphereVM` tells: those of its zone may be others by now, and the
/// machine has claimed addresses for its own.
fn network_of(request: &Request) -> Option<NetworkSpec> {
    existing(request).and_then(|vm| vsphere_vm::network_of(&vm))
}

/// Whether a zone is on this vCenter. One that names none is on every one.
fn is_on(vcenter: &VCenterHandle, zone: &Zone) -> bool {
    zone.server().is_none_or(|server| vcenter.is_called(server))
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
    use cloudprovider::machines::{AuxiliaryObject, ClusterContext, Objects};
    use serde_json::json;

    use super::*;
    use crate::machines::{kinds::VM_KIND, spec::VSphereClusterSpec};

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
    fn a_machine_that_goes_is_on_the_vcenter_of_its_cluster() {
        let spec: VSphereMachineSpec = serde_json::from_value(json!({
            "template": "t", "server": "other", "network": {"devices": []},
        }))
        .expect("a spec");
        let mark = Mark::machine("u-1", "default", "prod", "worker-1");
        let request = DeletionRequest::new(mark, spec, ClusterContext::new(None)).with_object_uid("u-1");
        assert_eq!(
            VSphereMachines::placed_for_deletion(&request).spec.clone.server.as_deref(),
            Some("other")
        );
        let request = request.with_failure_domain(Some("a".to_owned()));
        assert_eq!(VSphereMachines::placed_for_deletion(&request).spec.clone.server, None);
    }
}
