//! The section `loadBalancer`.

mod ports;

use std::{fmt, time::Duration};

pub use self::ports::ReservedPorts;

use provider_kit::{Findings, Settings};

use super::words::{ApiVersion, words};

/// Settings of load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadBalancerConfig {
    /// What runs load balancers.
    pub mode: LoadBalancerMode,
    /// The stack that holds all load balancers of the cluster. Default `kubernetes-loadbalancers`.
    pub stack_name: String,
    /// The external ID of this stack. Default `kubernetes-loadbalancers://`.
    pub stack_external_id: String,
    /// The setting of Rancher that names the image of load balancers. Default `lb.instance.image`.
    pub image_setting: String,
    /// Ports that no Service gets with the mode `cattle`: a load balancer's ports are opened on the hosts, where others listen.
    pub reserved_ports: ReservedPorts,
    /// When a load balancer that Rancher still works on is looked at again. Default 2 s.
    pub retry_interval: Duration,
}

impl Default for LoadBalancerConfig {
    fn default() -> Self {
        Self {
            mode: LoadBalancerMode::Cattle,
            stack_name: "kubernetes-loadbalancers".to_owned(),
            stack_external_id: "kubernetes-loadbalancers://".to_owned(),
            image_setting: "lb.instance.image".to_owned(),
            reserved_ports: ReservedPorts::default(),
            retry_interval: Duration::from_secs(2),
        }
    }
}

words! {
    /// What runs the load balancers of Services.
    LoadBalancerMode:
    /// Nothing: Services of type `LoadBalancer` are left to others. The default with Rancher 2.x.
    None = "none",
    /// Cattle's own load balancers. Rancher 1.6 only, and the default there.
    Cattle = "cattle",
    /// Addresses of the pools in the section `addressPools`, and the default if there is one.
    Pool = "pool",
    /// Load balancers of Harvester.
    Harvester = "harvester"
}

/// Keys that only the mode `cattle` uses.
const CATTLE_KEYS: [&str; 4] =
    ["loadBalancer.stackName", "loadBalancer.stackExternalID", "loadBalancer.imageSetting", RESERVED_PORTS];

const RESERVED_PORTS: &str = "loadBalancer.reservedPorts";

/// Reads the section. `version` is what the configuration says of the server.
pub(super) fn load_balancer(
    settings: &Settings,
    version: ApiVersion,
    retry_interval: Duration,
    findings: &mut Findings,
) -> LoadBalancerConfig {
    let default = LoadBalancerConfig::default();
    let mode = settings
        .word("loadBalancer.mode", (LoadBalancerMode::ALL, LoadBalancerMode::as_str), findings)
        .unwrap_or(match version {
            _ if settings.tree(address_pools::Config::KEY).is_some() => LoadBalancerMode::Pool,
            ApiVersion::V3 => LoadBalancerMode::None,
            ApiVersion::Auto | ApiVersion::V2Beta => LoadBalancerMode::Cattle,
        });
    if version == ApiVersion::V3 {
        if mode == LoadBalancerMode::Cattle {
            let why = "cattle needs Rancher 1.6: Rancher 2.x has no load balancers of its own";
            findings.problem(settings.origin("loadBalancer.mode"), why);
        }
        for name in CATTLE_KEYS.into_iter().filter(|name| settings.has(*name)) {
            findings.warning(settings.origin(name), "has no effect: it is for load balancers of Rancher 1.6");
        }
    }
    let reserved_ports = settings.text(RESERVED_PORTS).map(ReservedPorts::parse).transpose();
    let reserved_ports = reserved_ports.unwrap_or_else(|why| {
        findings.problem(settings.origin(RESERVED_PORTS), why);
        None
    });
    let text = |name: &str, default: String| settings.text(name).map_or(default, str::to_owned);
    LoadBalancerConfig {
        mode,
        stack_name: text("loadBalancer.stackName", default.stack_name),
        stack_external_id: text("loadBalancer.stackExternalID", default.stack_external_id),
        image_setting: text("loadBalancer.imageSetting", default.image_setting),
        reserved_ports: reserved_ports.unwrap_or_default(),
        retry_interval,
    }
}

/// Reads the section `addressPools`, which only the mode `pool` uses.
pub(super) fn address_pools(
    settings: &Settings,
    mode: LoadBalancerMode,
    findings: &mut Findings,
) -> Option<address_pools::Config> {
    let (key, origin) = (address_pools::Config::KEY, settings.origin("loadBalancer.mode"));
    let section = settings.tree(key);
    let pools = section.and_then(|value| address_pools::Config::read(key, value, &mut findings.problems));
    match (mode, section.is_some()) {
        (LoadBalancerMode::Pool, true) => return pools,
        (LoadBalancerMode::Pool, false) => {
            findings.problem(origin, format!("is pool, which needs the section {key}; list pools there"));
        }
        (other, true) if settings.has("loadBalancer.mode") => {
            findings.problem(
                origin,
                format!("is {other}, and there are {key}; set it to pool, or leave {key} out"),
            );
        }
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests;
