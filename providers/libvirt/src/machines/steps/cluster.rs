//! The step of a cluster: where its machines can be.

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{ClusterReport, ClusterRequest},
};

use crate::{
    config::{Config, HypervisorConfig},
    machines::{placement::failure_domains, spec::LibvirtClusterSpec},
};

/// The hypervisors of a cluster.
///
/// # Errors
/// [`ErrorKind::NotFound`] for one that the configuration does not have.
fn hypervisors_of<'a>(config: &'a Config, spec: &LibvirtClusterSpec) -> Result<Vec<&'a HypervisorConfig>> {
    if spec.hypervisors.is_empty() {
        return Ok(config.hypervisors.iter().collect());
    }
    let find = |(i, name): (usize, &String)| {
        config.hypervisors.iter().find(|one| one.name == *name).ok_or_else(|| {
            let known: Vec<_> = config.hypervisors.iter().map(|one| one.name.as_str()).collect();
            let words = format!(
                "spec.hypervisors[{i}]: the configuration has no hypervisor {name:?}; it has {}",
                known.join(", ")
            );
            Error::new(ErrorKind::NotFound, words)
        })
    };
    spec.hypervisors.iter().enumerate().map(find).collect()
}

/// One step towards existing. Nothing is made for a cluster, and the endpoint is the user's.
pub(super) fn ensure(config: &Config, request: &ClusterRequest<LibvirtClusterSpec>) -> Result<ClusterReport> {
    let spec = &request.spec;
    let hypervisors: Vec<_> = hypervisors_of(config, spec)?.into_iter().cloned().collect();
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
        };
        let mark = Mark::cluster("u", "default", "prod");
        let report = ensure(&config(), &ClusterRequest::new(mark, spec))?;
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
        assert_eq!(
            error.report(),
            "spec.hypervisors[1]: the configuration has no hypervisor \"kvm9\"; it has kvm1, kvm2, kvm3"
        );
        let error = step(&["kvm1"], &["rack-2"]).expect_err("not of this cluster");
        assert!(
            error.report().ends_with("no failure domain \"rack-2\"; it has rack-1"),
            "{}",
            error.report()
        );
    }
}
