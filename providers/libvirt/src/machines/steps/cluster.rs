//! The steps of a cluster: where its machines can be, and the address of its API server.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{ClusterReport, ClusterRequest, Deletion, FailureDomain},
};
use uuid::Uuid;

use super::places;
use crate::{
    allow::Allowed,
    config::{Config, HypervisorConfig},
    machines::{
        endpoint::{Claim, Endpoint, ensure_endpoint, has_claim, is_claimed, release_endpoint},
        libvirt_machines::{Host, LibvirtMachines},
        reservation::HostEntry,
        spec::{EndpointPoolSpec, LibvirtClusterSpec},
    },
};

/// The hypervisors of a cluster.
///
/// # Errors
/// [`ErrorKind::NotFound`] for one that the configuration does not have.
fn hypervisors_of<'a>(
    config: &'a Config,
    request: &ClusterRequest<LibvirtClusterSpec>,
) -> Result<Vec<&'a HypervisorConfig>> {
    let (spec, allowed) = (&request.spec, config.allow.of(&request.mark.namespace));
    let all: Vec<_> = config.hypervisors.iter().filter(|one| allowed.has_hypervisor(&one.name)).collect();
    if all.is_empty() {
        return Err(Allowed::no_hypervisor());
    }
    if spec.hypervisors.is_empty() {
        return Ok(all);
    }
    let find = |(i, name): (usize, &String)| {
        all.iter().copied().find(|one| one.name == *name).ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
            let words = format!("spec.hypervisors[{i}]: the configuration has no hypervisor {name:?}");
            let detail = format!("it has {}", known.join(", "));
            Error::new(ErrorKind::NotFound, words).with_log_detail(detail)
        })
    };
    spec.hypervisors.iter().enumerate().map(find).collect()
}

impl LibvirtMachines {
    /// One step towards existing. Nothing is made for a cluster, but the claim to an endpoint of a pool.
    pub(super) async fn make_cluster(
        &self,
        uid: Uuid,
        request: &ClusterRequest<LibvirtClusterSpec>,
    ) -> Result<ClusterReport> {
        places::check_cluster(&self.config.allow, request)?;
        let report = seen(&self.config, request)?;
        let Some(pool) = &request.spec.control_plane_endpoint_pool else { return Ok(report) };
        let claim = Claim::of(uid, &request.mark, &request.object_uid);
        let known = request.control_plane_endpoint.as_ref();
        let host = match (self.host_of(request, pool, &claim).await, known) {
            // A later step renews the claim. The cluster itself lacks nothing.
            (Err(_), Some(_)) => return Ok(report),
            (host, _) => host?,
        };
        Ok(match ensure_endpoint(&*host.networks, &claim, pool, known).await? {
            Endpoint::At(endpoint) => report.with_control_plane_endpoint(endpoint),
            Endpoint::Unproven(endpoint, entry) => {
                self.say_unproven(host, request, pool, &entry);
                report.with_control_plane_endpoint(endpoint)
            }
            Endpoint::Wait(wait) => report.with_wait(wait),
        })
    }

    /// One step towards gone. The machines of a cluster share nothing else but images, which other clusters
    /// use too.
    pub(super) async fn remove_cluster(
        &self,
        uid: Uuid,
        request: &ClusterRequest<LibvirtClusterSpec>,
    ) -> Result<Deletion> {
        let Some(pool) = &request.spec.control_plane_endpoint_pool else { return Ok(Deletion::Gone) };
        let claim = Claim::of(uid, &request.mark, &request.object_uid);
        // If the endpoint is lost, the claim can be anywhere.
        let named = self.named_host(request, pool);
        let hosts = named.map_or_else(|_| self.hosts.iter().collect(), |host| vec![host]);
        // Without an endpoint there was no claim, and an address outside of the pool was never claimed.
        let left = pool.hypervisor.as_deref().filter(|name| self.host(name).is_none());
        let left = left.filter(|_| is_claimed(pool, request.control_plane_endpoint.as_ref()));
        let mut is_found = false;
        for host in hosts {
            host.check_live()?;
            is_found |= left.is_some() && has_claim(&*host.networks, &claim, pool).await?;
            if let Some(entry) = release_endpoint(&*host.networks, &claim, pool).await? {
                self.say_unproven(host, request, pool, &entry);
                // It may be the claim, so the hypervisor may be the one that had the other name.
                is_found = true;
            }
        }
        match left {
            Some(name) if !is_found => {
                Err(Self::elsewhere(&request.mark, "the claim of spec.controlPlaneEndpoint.host", name))
            }
            _ => Ok(Deletion::Gone),
        }
    }

    /// Says once in the log that an entry stays as it is.
    fn say_unproven(
        &self,
        host: &Host,
        request: &ClusterRequest<LibvirtClusterSpec>,
        pool: &EndpointPoolSpec,
        entry: &HostEntry,
    ) {
        if let Some(line) = self.unproven_claims.line(&request.mark, (host.name(), &pool.network), entry) {
            tracing::warn!("{line}");
        }
    }

    /// The live hypervisor that has the network of the pool. Where the pool names none of several, the one
    /// that has the claim: it was the only one when the claim was made.
    async fn host_of(
        &self,
        request: &ClusterRequest<LibvirtClusterSpec>,
        pool: &EndpointPoolSpec,
        claim: &Claim,
    ) -> Result<&Host> {
        let unnamed = match self.named_host(request, pool) {
            Ok(host) => return host.check_live().map(|()| host),
            Err(error) if pool.hypervisor.is_some() => return Err(error),
            Err(error) => error,
        };
        let mut trouble = None;
        for host in self.allowed_hosts(request) {
            match host.check_live() {
                Ok(()) if has_claim(&*host.networks, claim, pool).await? => return Ok(host),
                Ok(()) => {}
                Err(error) => trouble = Some(error),
            }
        }
        Err(trouble.unwrap_or(unnamed))
    }

    /// The hypervisors that the cluster's namespace may use.
    fn allowed_hosts(&self, request: &ClusterRequest<LibvirtClusterSpec>) -> impl Iterator<Item = &Host> {
        let allowed = self.config.allow.of(&request.mark.namespace);
        self.hosts.iter().filter(move |host| allowed.has_hypervisor(host.name()))
    }

    /// The hypervisor that the pool names, or the only one.
    fn named_host(
        &self,
        request: &ClusterRequest<LibvirtClusterSpec>,
        pool: &EndpointPoolSpec,
    ) -> Result<&Host> {
        let names: Vec<_> = self.allowed_hosts(request).map(Host::name).collect();
        let name = pool.hypervisor_of(&names)?;
        self.host(name).ok_or_else(|| Error::new(ErrorKind::Internal, "an unknown hypervisor was chosen"))
    }
}

/// What is known of a cluster without asking a hypervisor. The endpoint is the user's.
fn seen(config: &Config, request: &ClusterRequest<LibvirtClusterSpec>) -> Result<ClusterReport> {
    let spec = &request.spec;
    let hypervisors: Vec<_> = hypervisors_of(config, request)?.into_iter().cloned().collect();
    let mut domains = failure_domains(&hypervisors);
    let wanted = &spec.control_plane_failure_domains;
    for (i, name) in wanted.iter().enumerate() {
        if !domains.iter().any(|domain| domain.name == *name) {
            let known: Vec<_> = domains.iter().map(|domain| domain.name.as_str()).collect();
            let words = format!(
                "spec.controlPlaneFailureDomains[{i}]: the cluster has no failure domain {name:?}; it has {}",
                known.join(", ")
            );
            return Err(Error::new(ErrorKind::NotFound, words));
        }
    }
    for domain in &mut domains {
        domain.control_plane = wanted.is_empty() || wanted.contains(&domain.name);
    }
    let endpoint = request.control_plane_endpoint.clone();
    Ok(ClusterReport::done().with_failure_domains(domains).with_control_plane_endpoint(endpoint))
}

/// The failure domains of these hypervisors, sorted by name. Their attributes are `hypervisors`, and `region`
/// and `zone` if all hypervisors of one have the same.
fn failure_domains(hypervisors: &[HypervisorConfig]) -> Vec<FailureDomain> {
    let mut members: BTreeMap<&str, Vec<&HypervisorConfig>> = BTreeMap::new();
    for hypervisor in hypervisors {
        members.entry(hypervisor.failure_domain()).or_default().push(hypervisor);
    }
    members
        .into_iter()
        .map(|(name, members)| {
            let mut domain = FailureDomain::new(name);
            let mut set = |key: &str, values: BTreeSet<Option<&str>>| {
                if let (1, Some(Some(value))) = (values.len(), values.first()) {
                    domain.attributes.insert(key.to_owned(), (*value).to_owned());
                }
            };
            set("region", members.iter().map(|one| one.region.as_deref()).collect());
            set("zone", members.iter().map(|one| one.zone.as_deref()).collect());
            let names: BTreeSet<&str> = members.iter().map(|one| one.name.as_str()).collect();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            domain.attributes.insert("hypervisors".to_owned(), names);
            domain
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use cloudprovider::machines::Mark;

    use super::*;

    fn config() -> Config {
        let text = "hypervisors:\n- {name: kvm1, uri: 'test:///a', zone: rack-1}\n\
            - {name: kvm2, uri: 'test:///b', zone: rack-2}\n- {name: kvm3, uri: 'test:///c', zone: rack-3}\n";
        Config::parse(text, None).expect("valid")
    }

    fn step(hypervisors: &[&str], control_plane: &[&str]) -> Result<Vec<(String, bool)>> {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let spec = LibvirtClusterSpec {
            hypervisors: list(hypervisors),
            control_plane_failure_domains: list(control_plane),
            control_plane_endpoint_pool: None,
        };
        let mark = Mark::cluster("u", "default", "prod");
        let report = seen(&config(), &ClusterRequest::new(mark, spec))?;
        assert!(report.wait.is_none());
        Ok(report.failure_domains.into_iter().map(|one| (one.name, one.control_plane)).collect())
    }

    #[test]
    fn failure_domains_are_those_of_the_hypervisors_of_the_cluster() {
        let all = |names: &[(&str, bool)]| {
            names.iter().map(|(name, is)| ((*name).to_owned(), *is)).collect::<Vec<_>>()
        };
        let three = all(&[("rack-1", true), ("rack-2", true), ("rack-3", true)]);
        assert_eq!(step(&[], &[]).expect("valid"), three);
        assert_eq!(step(&["kvm2"], &[]).expect("valid"), all(&[("rack-2", true)]));
        let seen = step(&["kvm1", "kvm3"], &["rack-3"]).expect("valid");
        assert_eq!(seen, all(&[("rack-1", false), ("rack-3", true)]));
    }

    #[test]
    fn what_the_configuration_does_not_have_is_named() {
        let error = step(&["kvm1", "kvm9"], &[]).expect_err("unknown");
        assert_eq!(error.report(), "spec.hypervisors[1]: the configuration has no hypervisor \"kvm9\"");
        let error = step(&["kvm1"], &["rack-2"]).expect_err("not of this cluster");
        assert!(
            error.report().ends_with("no failure domain \"rack-2\"; it has rack-1"),
            "{}",
            error.report()
        );
    }

    #[test]
    fn zones_are_failure_domains_where_nothing_else_is_said() {
        let text = "hypervisors:\n\
            - {name: kvm2, uri: 'test:///b', zone: rack-1, region: north}\n\
            - {name: kvm1, uri: 'test:///a', zone: rack-1, region: north}\n\
            - {name: kvm3, uri: 'test:///c', zone: rack-2, failureDomain: hall-2}\n\
            - {name: kvm4, uri: 'test:///d', zone: rack-3, failureDomain: hall-2, region: south}\n\
            - {name: kvm5, uri: 'test:///e'}\n";
        let config = Config::parse(text, None).expect("valid");
        let seen: Vec<_> = failure_domains(&config.hypervisors)
            .into_iter()
            .map(|domain| (domain.name, domain.attributes.into_iter().collect::<Vec<_>>()))
            .collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            seen,
            [
                ("hall-2".to_owned(), vec![pair("hypervisors", "kvm3, kvm4")]),
                ("kvm5".to_owned(), vec![pair("hypervisors", "kvm5")]),
                (
                    "rack-1".to_owned(),
                    vec![pair("hypervisors", "kvm1, kvm2"), pair("region", "north"), pair("zone", "rack-1")]
                ),
            ]
        );
    }
}
