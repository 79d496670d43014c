//! Which Rancher the configuration is for.

use provider_kit::{Findings, Settings};

use super::{url::ServerUrl, words::ApiVersion};

/// Keys that only Rancher 1.6 has.
#[cfg(feature = "cattle")]
const OF_CATTLE: &[&str] = &["projectID", "addresses.types"];
#[cfg(not(feature = "cattle"))]
const OF_CATTLE: &[&str] = &[];

/// Keys that only Rancher 2.x has.
const OF_MANAGEMENT: &[&str] = &[
    "token",
    "tokenFile",
    "clusterID",
    "clusterName",
    "namespace",
    "addresses.nodeIPCIDR",
    "addresses.excludeCIDRs",
];

/// The API that the configuration is for. What does not fit to it is a problem.
pub(super) fn api_version(
    settings: &Settings,
    url: Option<&ServerUrl>,
    findings: &mut Findings,
) -> ApiVersion {
    let of =
        |keys: &[&'static str]| keys.iter().copied().filter(|name| settings.has(*name)).collect::<Vec<_>>();
    let (of_cattle, of_management) = (of(OF_CATTLE), of(OF_MANAGEMENT));
    let in_url = url.and_then(|url| url.api);
    let said = settings
        .word("apiVersion", (ApiVersion::ALL, ApiVersion::as_str), findings)
        .filter(|version| *version != ApiVersion::Auto);
    if let (Some(said), Some(in_url)) = (said, in_url)
        && said != in_url
    {
        findings.problem(
            settings.origin("url"),
            format!("ends in the path of {in_url}, and apiVersion is {said}"),
        );
    }
    let version = match said.or(in_url) {
        Some(version) => version,
        None if !of_management.is_empty() => ApiVersion::V3,
        None if !of_cattle.is_empty() => ApiVersion::V2Beta,
        None if cfg!(feature = "cattle") => ApiVersion::Auto,
        None => ApiVersion::V3,
    };
    if version == ApiVersion::V2Beta && !cfg!(feature = "cattle") {
        let why = "v2-beta is Rancher 1.6, which this build leaves out: it lacks the cargo feature cattle";
        findings.problem(settings.origin("apiVersion"), why);
        return version;
    }
    let (others, why) = match version {
        ApiVersion::V3 => {
            (of_cattle, "is for Rancher 1.6 (v2-beta), and this configuration is for Rancher 2.x (v3)")
        }
        ApiVersion::V2Beta => {
            (of_management, "is for Rancher 2.x (v3), and this configuration is for Rancher 1.6 (v2-beta)")
        }
        ApiVersion::Auto => return version,
    };
    for name in others {
        findings.problem(settings.origin(name), why);
    }
    version
}
