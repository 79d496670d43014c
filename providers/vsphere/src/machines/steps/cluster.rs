//! The step of a cluster.

use std::sync::Arc;

use cloudprovider::{
    Result,
    machines::{
        AuxiliaryObject, ClusterReport, ClusterRequest, Condition, ConditionStatus, FailureDomain, Record,
    },
};
use serde_json::json;

use super::login::Login;
use crate::machines::{
    kinds::DEPLOYMENT_ZONE_KIND, spec::VSphereClusterSpec, status::VSphereClusterStatus, supported,
    vcenter_handle::VCenterHandle, vsphere_machines::VSphereMachines, zones::Zone,
};

/// The condition of clusters, zones and virtual machines that says whether their vCenter is followed.
pub(super) const VCENTER_AVAILABLE: &str = "VCenterAvailable";

/// The condition that names fields that mean nothing here.
const FIELDS_IGNORED: &str = "FieldsIgnored";

const FAILURE_DOMAINS_READY: &str = "FailureDomainsReady";
const SELECTOR: &str = "spec.failureDomainSelector";

/// A step of a cluster on its vCenter.
pub(super) struct ClusterStep<'a> {
    pub(super) machines: &'a VSphereMachines,
    pub(super) vcenter: Arc<VCenterHandle>,
    pub(super) request: &'a ClusterRequest<VSphereClusterSpec>,
    pub(super) record: &'a mut Record<VSphereClusterStatus>,
}

impl VSphereMachines {
    /// One step towards existing. Nothing is made for a cluster but cluster modules, and the endpoint is the user's.
    pub(super) async fn ensure_one_cluster(
        &self,
        request: &ClusterRequest<VSphereClusterSpec>,
        record: &mut Record<VSphereClusterStatus>,
    ) -> Result<ClusterReport> {
        note_ignored(record, supported::ignored_of_cluster(&request.spec, &self.options));
        let owner = (&*request.mark.namespace, &*request.mark.uid);
        let vcenter = self.vcenter_for(&Login::of_cluster(&request.spec, owner, &request.objects)).await;
        let vcenter = vcenter.and_then(|vcenter| vcenter.check_live().map(|()| vcenter));
        record.set(available(&vcenter));
        let vcenter = vcenter?;
        if let Some(version) = vcenter.state().version.clone() {
            record.status.vcenter_version = Some(version);
        }
        let mut step = ClusterStep { machines: self, vcenter, request, record };
        let modules = step.ensure_modules().await;
        let domains = step.failure_domains().await?;
        let endpoint = request.control_plane_endpoint.clone();
        let report =
            ClusterReport::done().with_control_plane_endpoint(endpoint).with_failure_domains(domains);
        Ok(match modules {
            Some(modules) => report.with_spec_field("clusterModules", json!(modules)),
            None => report,
        })
    }
}

impl ClusterStep<'_> {
    /// The failure domains of a cluster: the zones of its vCenter that it selects, and that are ready.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a selector that is none; those of [`Objects::list`]. Trouble with a zone is in the condition.
    async fn failure_domains(&mut self) -> Result<Vec<FailureDomain>> {
        let Some(selector) = &self.request.spec.failure_domain_selector else {
            self.record.remove(FAILURE_DOMAINS_READY);
            return Ok(Vec::new());
        };
        let (mut domains, mut flaws) = (Vec::new(), Vec::new());
        for object in self.request.objects.list(&DEPLOYMENT_ZONE_KIND, None)? {
            if object.is_deleting || !selector.selects(SELECTOR, &object.labels)? {
                continue;
            }
            match self.failure_domain(&object).await {
                Ok(None) => {}
                Ok(Some((domain, None))) => domains.push(domain),
                Ok(Some((domain, Some(why)))) => flaws.push(format!("{:?}: {why}", domain.name)),
                // what cannot be seen now is as it was seen last
                Err(error) if error.is_retryable() && was_ready(&object) => {
                    domains.push(as_seen_last(&object));
                }
                Err(error) => flaws.push(format!("{:?}: {}", object.name, error.report())),
            }
        }
        if domains.is_empty() && flaws.is_empty() {
            flaws.push(format!(
                "{SELECTOR}: no VSphereDeploymentZone of this vCenter has such labels: {:?}",
                self.vcenter.settings.endpoint.authority()
            ));
        }
        self.record.set(if flaws.is_empty() {
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
        object: &AuxiliaryObject,
    ) -> Result<Option<(FailureDomain, Option<String>)>> {
        let zone = Zone::of(&self.request.objects, object)?;
        if zone.server().is_some_and(|server| !self.vcenter.is_called(server)) {
            return Ok(None);
        }
        let checked = self.machines.checked(&self.vcenter, &zone).await?;
        let mut domain = FailureDomain::new(zone.name.clone());
        domain.control_plane = zone.spec.control_plane.unwrap_or(true);
        Ok(Some((domain, checked.flaw().map(str::to_owned))))
    }
}

/// Whether a zone was ready when it was looked at last.
fn was_ready(zone: &AuxiliaryObject) -> bool {
    zone.status["ready"] == true
}

/// The failure domain that a zone was then.
fn as_seen_last(zone: &AuxiliaryObject) -> FailureDomain {
    let mut domain = FailureDomain::new(zone.name.clone());
    domain.control_plane = zone.spec["controlPlane"] != false;
    domain
}

/// Whether the vCenter of an object is followed.
pub(super) fn available<T>(found: &Result<T>) -> Condition {
    match found {
        Ok(_) => Condition::new(VCENTER_AVAILABLE, ConditionStatus::True, "Available"),
        Err(error) => Condition::new(VCENTER_AVAILABLE, ConditionStatus::False, "VCenterUnreachable")
            .with_message(error.report()),
    }
}

pub(super) fn note_ignored<S>(record: &mut Record<S>, words: Option<String>) {
    match ignored_fields(words) {
        Some(condition) => record.set(condition),
        None => record.remove(FIELDS_IGNORED),
    }
}

/// The condition that names fields that mean nothing here.
pub(super) fn ignored_fields(words: Option<String>) -> Option<Condition> {
    words.map(|words| Condition::new(FIELDS_IGNORED, ConditionStatus::True, "NotNeeded").with_message(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_that_cannot_be_seen_is_as_it_was_seen_last() {
        let zone = |status, spec| AuxiliaryObject::new("a").with_status(status).with_spec(spec);
        assert!(was_ready(&zone(json!({"ready": true}), json!({}))));
        assert!(
            !was_ready(&zone(json!({"ready": false}), json!({}))) && !was_ready(&AuxiliaryObject::new("a"))
        );
        assert!(as_seen_last(&zone(json!({}), json!({}))).control_plane);
        assert!(!as_seen_last(&zone(json!({}), json!({"controlPlane": false}))).control_plane);
    }
}
