//! kubeadm's own configuration, in the version of its API that the machine's Kubernetes knows.
//!
//! The kinds of Cluster API follow kubeadm's `v1beta4`. What `v1beta3` does not have is left out, and what it has in another
//! place or form is moved there, as Cluster API does.

mod documents;
mod parts;

use std::collections::BTreeMap;

use cluster_api::kubeadm::{InitConfiguration, JoinConfiguration};
use serde::Serialize;

use crate::error::Error;
use crate::present::is_set;
use crate::request::{Request, Role};
use crate::version::Api;
use crate::yaml;

use documents as out;
use parts::{duration, text};

/// The taint of a worker until Cluster API has written its labels.
const UNINITIALIZED: out::Taint<'static> = out::Taint {
    effect: "NoSchedule",
    key: "node.cluster.x-k8s.io/uninitialized",
    time_added: None,
    value: "",
};

/// The document `ClusterConfiguration`.
pub(crate) fn cluster_configuration(request: &Request<'_>, api: Api) -> Result<String, Error> {
    let cluster = &request.spec.cluster_configuration;
    let timeouts = &request.spec.init_configuration.timeouts;
    let only_v1beta4 = api == Api::V1Beta4;
    let own_endpoint = cluster.control_plane_endpoint.clone().filter(|endpoint| !endpoint.is_empty());
    let days = |days: Option<i32>| {
        let days = days.filter(|days| only_v1beta4 && *days > 0)?;
        duration(i64::from(days) * 24 * 3600)
    };
    write(&out::ClusterConfiguration {
        api_version: api.name(),
        kind: "ClusterConfiguration",
        etcd: parts::etcd(&cluster.etcd, api),
        networking: out::Networking {
            service_subnet: request.cluster.service_cidrs.join(","),
            pod_subnet: request.cluster.pod_cidrs.join(","),
            dns_domain: &request.cluster.service_domain,
        },
        kubernetes_version: request.kubernetes_version,
        control_plane_endpoint: own_endpoint.or_else(|| request.cluster.endpoint()).unwrap_or_default(),
        api_server: out::ApiServer {
            component: parts::api_server(&cluster.api_server, api),
            cert_sans: &cluster.api_server.cert_sans,
            // `v1beta4` has it among the timeouts of the machine
            timeout_for_control_plane: (!only_v1beta4)
                .then_some(timeouts.control_plane_component_health_check_seconds)
                .flatten()
                .and_then(|seconds| duration(seconds.into())),
        },
        controller_manager: parts::controller_manager(&cluster.controller_manager, api),
        scheduler: parts::scheduler(&cluster.scheduler, api),
        dns: out::ImageMeta {
            image_repository: text(cluster.dns.image_repository.as_ref()),
            image_tag: text(cluster.dns.image_tag.as_ref()),
        },
        proxy: only_v1beta4.then(BTreeMap::new),
        certificates_dir: text(cluster.certificates_dir.as_ref()),
        image_repository: text(cluster.image_repository.as_ref()),
        feature_gates: &cluster.feature_gates,
        cluster_name: &request.cluster.name,
        encryption_algorithm: cluster.encryption_algorithm.filter(|_| only_v1beta4),
        certificate_validity_period: days(cluster.certificate_validity_period_days),
        ca_certificate_validity_period: days(cluster.ca_certificate_validity_period_days),
    })
}

/// The document `InitConfiguration`.
pub(crate) fn init_configuration(init: &InitConfiguration, api: Api) -> Result<String, Error> {
    write(&out::InitConfiguration {
        api_version: api.name(),
        kind: "InitConfiguration",
        bootstrap_tokens: init.bootstrap_tokens.iter().map(parts::bootstrap_token).collect(),
        node_registration: parts::node_registration(&init.node_registration, api),
        local_api_endpoint: parts::endpoint(&init.local_api_endpoint),
        skip_phases: &init.skip_phases,
        patches: parts::patches(&init.patches),
        timeouts: parts::timeouts(&init.timeouts).filter(|_| api == Api::V1Beta4),
    })
}

/// The document `JoinConfiguration`. A worker gets the taint of a machine that Cluster API has not seen yet.
pub(crate) fn join_configuration(join: &JoinConfiguration, role: Role, api: Api) -> Result<String, Error> {
    let mut node_registration = parts::node_registration(&join.node_registration, api);
    if role == Role::JoinWorker {
        let taints = node_registration.taints.get_or_insert_default();
        if !taints.iter().any(|taint| taint.key == UNINITIALIZED.key && taint.effect == UNINITIALIZED.effect)
        {
            taints.push(UNINITIALIZED);
        }
    }
    let discovery = &join.discovery;
    let token = &discovery.bootstrap_token;
    write(&out::JoinConfiguration {
        api_version: api.name(),
        kind: "JoinConfiguration",
        node_registration,
        ca_cert_path: text(join.ca_cert_path.as_ref()),
        discovery: out::Discovery {
            bootstrap_token: is_set(token).then(|| out::BootstrapTokenDiscovery {
                token: token.token.as_deref().unwrap_or_default(),
                api_server_endpoint: text(token.api_server_endpoint.as_ref()),
                ca_cert_hashes: &token.ca_cert_hashes,
                unsafe_skip_ca_verification: token.unsafe_skip_ca_verification == Some(true),
            }),
            file: is_set(&discovery.file)
                .then(|| out::FileDiscovery { kube_config_path: &discovery.file.kube_config_path }),
            tls_bootstrap_token: discovery.tls_bootstrap_token.as_deref().unwrap_or_default(),
            // `v1beta4` has it among the timeouts
            timeout: (api == Api::V1Beta3)
                .then_some(join.timeouts.tls_bootstrap_seconds)
                .flatten()
                .and_then(|seconds| duration(seconds.into())),
        },
        control_plane: join.control_plane.as_ref().map(|control_plane| out::JoinControlPlane {
            local_api_endpoint: parts::endpoint(&control_plane.local_api_endpoint),
        }),
        skip_phases: &join.skip_phases,
        patches: parts::patches(&join.patches),
        timeouts: parts::timeouts(&join.timeouts).filter(|_| api == Api::V1Beta4),
    })
}

fn write(document: &impl Serialize) -> Result<String, Error> {
    let value = serde_json::to_value(document).map_err(|error| {
        Error::invalid("spec", format!("cannot be written as kubeadm's configuration: {error}"))
    })?;
    Ok(yaml::document(&value))
}
