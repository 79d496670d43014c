//! Turns [`Settings`] into a [`Config`], and checks what concerns more than one key.

use std::{ops::RangeInclusive, time::Duration};

use cloudprovider::{FactoryInput, label_key_fault};
use provider_kit::{Findings, Settings};

use super::{
    harvester::harvester,
    load_balancer::{address_pools, load_balancer},
    management::management,
    parts::{Config, ZoneRules},
    server::server,
    url::url,
    version::api_version,
};

const TIMEOUT: Duration = Duration::from_secs(10);
const REFRESH_INTERVAL: Duration = Duration::from_secs(5 * 60);
const POLL_INTERVAL: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The configuration, or `None` if a required part is missing. Faults are added to the findings.
pub(super) fn build(settings: &Settings, input: &FactoryInput, findings: &mut Findings) -> Option<Config> {
    let url = url(settings, findings);
    let version = api_version(settings, url.as_ref(), findings);
    let mut time = |name: &str, default: Duration, range: RangeInclusive<Duration>| {
        let value = settings.duration(name).unwrap_or(default);
        if !range.contains(&value) {
            let (least, most) = (range.start().as_secs(), range.end().as_secs());
            findings.problem(settings.origin(name), format!("must be between {least}s and {most}s"));
        }
        value
    };
    let timeout = time("timeout", TIMEOUT, SECOND..=Duration::from_secs(50));
    let refresh_interval = time("refreshInterval", REFRESH_INTERVAL, Duration::from_secs(10)..=DAY);
    let poll_interval = time("pollInterval", POLL_INTERVAL, Duration::from_secs(5)..=DAY);
    let retry_interval =
        time("loadBalancer.retryInterval", RETRY_INTERVAL, SECOND..=Duration::from_secs(300));
    #[cfg(feature = "cattle")]
    let cattle = super::cattle::cattle(settings, url.as_ref(), version, findings);
    let server = server(settings, input, url, (version, timeout), findings);
    let management = management(settings, version, findings);
    let zones = zones(settings, findings);
    let load_balancer = load_balancer(settings, version, retry_interval, findings);
    let address_pools = address_pools(settings, load_balancer.mode, findings);
    let harvester = harvester(settings, input, load_balancer.mode, findings);
    Some(Config {
        api_version: version,
        server: server?,
        #[cfg(feature = "cattle")]
        cattle,
        management,
        refresh_interval,
        poll_interval,
        zones,
        load_balancer,
        address_pools,
        harvester,
    })
}

fn zones(settings: &Settings, findings: &mut Findings) -> ZoneRules {
    let default = ZoneRules::default();
    let mut label = |name: &str, default: String| {
        let Some(text) = settings.text(name) else { return default };
        if label_key_fault(text).is_some() {
            findings.problem(
                settings.origin(name),
                "must be the key of a label, such as topology.kubernetes.io/zone",
            );
        }
        text.to_owned()
    };
    ZoneRules {
        zone_label: label("zones.zoneLabel", default.zone_label),
        region_label: label("zones.regionLabel", default.region_label),
        legacy_zones: settings.flag("zones.legacyZones") == Some(true),
    }
}
