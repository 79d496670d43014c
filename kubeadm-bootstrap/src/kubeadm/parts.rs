//! Parts of Cluster API's kinds as parts of kubeadm's.

use std::time::Duration;

use basics::go::format_duration;
use cluster_api::kubeadm as api;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::documents as out;
use crate::present::is_set;
use crate::version::Api;

pub(super) fn text(value: Option<&String>) -> &str {
    value.map(String::as_str).unwrap_or_default()
}

/// A duration as Go writes it, such as `4m0s`. `None` for a negative one, which no field allows.
pub(super) fn duration(seconds: i64) -> Option<String> {
    Some(format_duration(Duration::from_secs(u64::try_from(seconds).ok()?)))
}

fn time(value: &Time) -> String {
    value.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Where a mapping holds a flag twice, the last one counts.
fn args(args: &[api::Arg], version: Api) -> out::Args<'_> {
    let pairs = args.iter().map(|arg| (arg.name.as_str(), arg.value.as_str()));
    match version {
        Api::V1Beta3 => out::Args::Mapping(pairs.collect()),
        Api::V1Beta4 => out::Args::List(pairs.map(|(name, value)| out::Arg { name, value }).collect()),
    }
}

fn envs(envs: Option<&Vec<core::EnvVar>>, version: Api) -> Vec<out::EnvVar<'_>> {
    if version == Api::V1Beta3 {
        return Vec::new();
    }
    envs.into_iter()
        .flatten()
        .map(|env| out::EnvVar {
            name: &env.name,
            value: text(env.value.as_ref()),
            value_from: env.value_from.as_ref().map(value_from),
        })
        .collect()
}

fn value_from(source: &core::EnvVarSource) -> Value {
    let mut value = json!(source);
    // Go writes the zero of a quantity.
    if let Some(resource) = value.get_mut("resourceFieldRef").and_then(Value::as_object_mut) {
        resource.entry("divisor").or_insert_with(|| json!("0"));
    }
    value
}

fn volumes(volumes: &[api::HostPathMount]) -> Vec<out::HostPathMount<'_>> {
    volumes
        .iter()
        .map(|volume| out::HostPathMount {
            name: &volume.name,
            host_path: &volume.host_path,
            mount_path: &volume.mount_path,
            read_only: volume.read_only == Some(true),
            path_type: text(volume.path_type.as_ref()),
        })
        .collect()
}

pub(super) fn api_server(server: &api::APIServer, version: Api) -> out::Component<'_> {
    out::Component {
        extra_args: args(&server.extra_args, version),
        extra_volumes: volumes(&server.extra_volumes),
        extra_envs: envs(server.extra_envs.as_ref(), version),
    }
}

pub(super) fn controller_manager(manager: &api::ControllerManager, version: Api) -> out::Component<'_> {
    out::Component {
        extra_args: args(&manager.extra_args, version),
        extra_volumes: volumes(&manager.extra_volumes),
        extra_envs: envs(manager.extra_envs.as_ref(), version),
    }
}

pub(super) fn scheduler(scheduler: &api::Scheduler, version: Api) -> out::Component<'_> {
    out::Component {
        extra_args: args(&scheduler.extra_args, version),
        extra_volumes: volumes(&scheduler.extra_volumes),
        extra_envs: envs(scheduler.extra_envs.as_ref(), version),
    }
}

pub(super) fn etcd(etcd: &api::Etcd, version: Api) -> out::Etcd<'_> {
    let local = &etcd.local;
    let external = &etcd.external;
    out::Etcd {
        local: is_set(local).then(|| out::LocalEtcd {
            image: out::ImageMeta {
                image_repository: text(local.image_repository.as_ref()),
                image_tag: text(local.image_tag.as_ref()),
            },
            data_dir: text(local.data_dir.as_ref()),
            extra_args: args(&local.extra_args, version),
            extra_envs: envs(local.extra_envs.as_ref(), version),
            server_cert_sans: &local.server_cert_sans,
            peer_cert_sans: &local.peer_cert_sans,
        }),
        external: is_set(external).then(|| out::ExternalEtcd {
            endpoints: &external.endpoints,
            ca_file: &external.ca_file,
            cert_file: &external.cert_file,
            key_file: &external.key_file,
        }),
    }
}

pub(super) fn node_registration(
    registration: &api::NodeRegistrationOptions,
    version: Api,
) -> out::NodeRegistration<'_> {
    out::NodeRegistration {
        name: text(registration.name.as_ref()),
        cri_socket: text(registration.cri_socket.as_ref()),
        taints: registration.taints.as_ref().map(|taints| taints.iter().map(taint).collect()),
        kubelet_extra_args: args(&registration.kubelet_extra_args, version),
        ignore_preflight_errors: &registration.ignore_preflight_errors,
        image_pull_policy: registration.image_pull_policy,
        image_pull_serial: registration.image_pull_serial.filter(|_| version == Api::V1Beta4),
    }
}

fn taint(taint: &core::Taint) -> out::Taint<'_> {
    out::Taint {
        key: &taint.key,
        value: text(taint.value.as_ref()),
        effect: &taint.effect,
        time_added: taint.time_added.as_ref().map(time),
    }
}

pub(super) fn endpoint(endpoint: &api::APIEndpoint) -> out::Endpoint<'_> {
    let address = text(endpoint.advertise_address.as_ref());
    out::Endpoint { advertise_address: address, bind_port: endpoint.bind_port.filter(|port| *port != 0) }
}

pub(super) fn bootstrap_token(token: &api::BootstrapToken) -> out::BootstrapToken<'_> {
    out::BootstrapToken {
        token: &token.token,
        description: text(token.description.as_ref()),
        ttl: token.ttl_seconds.and_then(|seconds| duration(seconds.into())),
        expires: token.expires.as_ref().map(time),
        usages: &token.usages,
        groups: &token.groups,
    }
}

pub(super) fn patches(patches: &api::Patches) -> Option<out::Patches<'_>> {
    is_set(patches).then(|| out::Patches { directory: text(patches.directory.as_ref()) })
}

pub(super) fn timeouts(timeouts: &api::Timeouts) -> Option<out::Timeouts> {
    let of = |seconds: Option<i32>| seconds.and_then(|seconds| duration(seconds.into()));
    is_set(timeouts).then(|| out::Timeouts {
        control_plane_component_health_check: of(timeouts.control_plane_component_health_check_seconds),
        kubelet_health_check: of(timeouts.kubelet_health_check_seconds),
        kubernetes_api_call: of(timeouts.kubernetes_api_call_seconds),
        etcd_api_call: of(timeouts.etcd_api_call_seconds),
        tls_bootstrap: of(timeouts.tls_bootstrap_seconds),
        discovery: of(timeouts.discovery_seconds),
    })
}
