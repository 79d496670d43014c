//! The step of a cluster.

use cloudprovider::{
    Result,
    machines::{ClusterReport, ClusterRequest, Condition, ConditionStatus, Record},
};
use serde_json::json;

use super::{login::Login, note_ignored};
use crate::machines::{fleet::Fleet, spec::VSphereClusterSpec, status::VSphereClusterStatus, supported};

const VCENTER_AVAILABLE: &str = "VCenterAvailable";

impl Fleet {
    /// One step towards existing. Nothing is made for a cluster but cluster modules, and the endpoint is the user's.
    pub(super) async fn ensure_one_cluster(
        &self,
        request: &ClusterRequest<VSphereClusterSpec>,
        record: &mut Record<VSphereClusterStatus>,
    ) -> Result<ClusterReport> {
        note_ignored(record, supported::ignored_of_cluster(&request.spec, self.options));
        let owner = (&*request.mark.namespace, &*request.mark.uid);
        let site = self.site_for(&Login::of_cluster(&request.spec, owner, &request.objects)).await;
        let site = match site.and_then(|site| site.check_live().map(|()| site)) {
            Ok(site) => site,
            Err(error) => {
                let condition =
                    Condition::new(VCENTER_AVAILABLE, ConditionStatus::False, "VCenterUnreachable");
                record.set(condition.with_message(error.report()));
                return Err(error);
            }
        };
        record.set(Condition::new(VCENTER_AVAILABLE, ConditionStatus::True, "Available"));
        let modules = self.ensure_modules(&site, request, record).await;
        let domains = self.failure_domains(&site, request, record).await?;
        let endpoint = request.control_plane_endpoint.clone();
        let report =
            ClusterReport::done().with_control_plane_endpoint(endpoint).with_failure_domains(domains);
        Ok(match modules {
            Some(modules) => report.with_spec_field("clusterModules", json!(modules)),
            None => report,
        })
    }
}
