//! The step of a cluster.

use cloudprovider::{
    Result,
    machines::{ClusterReport, ClusterRequest, Record},
};
use serde_json::json;

use super::{available::available, login::Login, note_ignored};
use crate::machines::{fleet::Fleet, spec::VSphereClusterSpec, status::VSphereClusterStatus, supported};

impl Fleet {
    /// One step towards existing. Nothing is made for a cluster but cluster modules, and the endpoint is the user's.
    pub(super) async fn ensure_one_cluster(
        &self,
        request: &ClusterRequest<VSphereClusterSpec>,
        record: &mut Record<VSphereClusterStatus>,
    ) -> Result<ClusterReport> {
        note_ignored(record, supported::ignored_of_cluster(&request.spec, &self.options));
        let owner = (&*request.mark.namespace, &*request.mark.uid);
        let site = self.site_for(&Login::of_cluster(&request.spec, owner, &request.objects)).await;
        let site = site.and_then(|site| site.check_live().map(|()| site));
        record.set(available(&site));
        let site = site?;
        if let Some(version) = site.vcenter.state().version.clone() {
            record.status.vcenter_version = Some(version);
        }
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
