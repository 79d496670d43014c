//! Turns [`Settings`] into a [`Config`], and checks what concerns more than one key.

use std::{ops::RangeInclusive, path::Path, time::Duration};

use cloudprovider::{FactoryInput, TextOddity, label_key_fault};
use reqwest::Url;
use rustls::RootCertStore;
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    parts::{AddressTypes, ApiVersion, Config, LoadBalancerConfig, LoadBalancerMode, ZoneRules},
    settings::{Findings, Settings},
};
use crate::tls;

const TIMEOUT: Duration = Duration::from_secs(10);
const PAGE_SIZE: u32 = 1000;
const MAX_PAGE_SIZE: u32 = 10_000;
const REFRESH_INTERVAL: Duration = Duration::from_secs(5 * 60);
const POLL_INTERVAL: Duration = Duration::from_secs(30);

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The path of the API of Rancher 1.6.
const V2_BETA: &str = "v2-beta";

const NO_V3: &str = "Rancher 2.x (v3) is not supported yet; only Rancher 1.6 (v2-beta) is";

/// The configuration, or `None` if a required part is missing. Faults are added to the findings.
pub(super) fn build(settings: &Settings, input: &FactoryInput, findings: &mut Findings) -> Option<Config> {
    let version = word(settings, "apiVersion", (ApiVersion::ALL, ApiVersion::as_str), findings)
        .unwrap_or(ApiVersion::Auto);
    if version == ApiVersion::V3 {
        findings.problem(settings.origin("apiVersion"), NO_V3);
    }
    let base = base(settings, version, findings);
    let access_key = secret(settings, input, "accessKey", findings);
    let secret_key = secret(settings, input, "secretKey", findings);
    let authorities = authorities(settings, input, findings);
    let insecure = settings.flag("insecureSkipVerify");
    if insecure && authorities.is_some() {
        findings.warning(
            settings.origin("insecureSkipVerify"),
            "is true, so the certificate authorities of the configuration have no effect",
        );
    }
    let page_size = settings.number("pageSize").unwrap_or(PAGE_SIZE);
    if !(1..=MAX_PAGE_SIZE).contains(&page_size) {
        findings.problem(settings.origin("pageSize"), format!("must be between 1 and {MAX_PAGE_SIZE}"));
    }
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
    let retry = LoadBalancerConfig::default().retry_interval;
    let retry_interval = time("loadBalancer.retryInterval", retry, SECOND..=Duration::from_secs(300));
    let address_types =
        word(settings, "addresses.types", (AddressTypes::ALL, AddressTypes::as_str), findings)
            .unwrap_or(AddressTypes::Internal);
    let zones = zones(settings, findings);
    let load_balancer = load_balancer(settings, retry_interval, findings);
    Some(Config {
        base: base?,
        access_key: access_key?,
        secret_key: secret_key?,
        authorities,
        insecure,
        timeout,
        page_size,
        refresh_interval,
        poll_interval,
        address_types,
        zones,
        load_balancer,
    })
}

/// A setting whose value is one of a few words.
fn word<T: Copy>(
    settings: &Settings,
    name: &str,
    (all, as_str): (&[T], fn(T) -> &'static str),
    findings: &mut Findings,
) -> Option<T> {
    let text = settings.text(name)?;
    let value = all.iter().copied().find(|one| as_str(*one) == text);
    if value.is_none() {
        let words: Vec<_> = all.iter().map(|one| as_str(*one)).collect();
        findings.problem(settings.origin(name), format!("must be one of {}", words.join(", ")));
    }
    value
}

/// The URL below which the collections are. As in the old manager, an empty path becomes `/v2-beta`, and `/v1`
/// is replaced by it.
fn base(settings: &Settings, version: ApiVersion, findings: &mut Findings) -> Option<String> {
    let origin = settings.origin("url");
    let Some(text) = settings.text("url") else {
        if !settings.has("url") {
            findings.problem(origin, "is missing; give the URL of the Rancher server, here or in CATTLE_URL");
        }
        return None;
    };
    let url =
        Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(mut url) = url else {
        findings.problem(origin, "must be a URL such as https://rancher.example.org");
        return None;
    };
    if !url.username().is_empty() || url.password().is_some() {
        findings.problem(origin, "must not hold a user or a password; give accessKey and secretKey");
        return None;
    }
    if url.query().is_some() || url.fragment().is_some() {
        findings.warning(&origin, "has a part behind ? or #, which is ignored");
        url.set_query(None);
        url.set_fragment(None);
    }
    if url.scheme() == "http" {
        findings.warning(&origin, "is a URL without TLS: the API key is sent in the clear");
    }
    let path = url.path().to_owned();
    let mut parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.last() == Some(&"schemas") {
        parts.pop();
    }
    if parts.contains(&"v3") {
        if version != ApiVersion::V3 {
            findings.problem(origin, format!("ends in /v3; {NO_V3}"));
        }
        return None;
    }
    match parts.iter_mut().find(|part| matches!(**part, "v1" | "v2" | V2_BETA)) {
        Some(part) => *part = V2_BETA,
        None => parts.push(V2_BETA),
    }
    let in_url = parts.iter().position(|part| *part == "projects").and_then(|at| parts.get(at + 1)).copied();
    if let Some(project) = settings.text("projectID") {
        let is_plain = project.bytes().all(|b| b.is_ascii_alphanumeric());
        match in_url {
            _ if !is_plain => {
                findings.problem(
                    settings.origin("projectID"),
                    "must be the ID of a project (environment), such as 1a5",
                );
            }
            Some(other) if other != project => {
                findings.problem(
                    settings.origin("projectID"),
                    "is not the project of the url; give one of the two",
                );
            }
            Some(_) => {}
            None => parts.extend(["projects", project]),
        }
    }
    url.set_path(&parts.join("/"));
    Some(url.as_str().trim_end_matches('/').to_owned())
}

/// A secret from the configuration, or from the file that it names. Exactly one of both.
fn secret(
    settings: &Settings,
    input: &FactoryInput,
    name: &str,
    findings: &mut Findings,
) -> Option<SecretString> {
    let file_name = format!("{name}File");
    let (inline, file) = (settings.text(name), settings.text(&file_name));
    let Some(file) = file else {
        if inline.is_none() && !settings.has(name) && !settings.has(&file_name) {
            let variable = if name == "accessKey" { "CATTLE_ACCESS_KEY" } else { "CATTLE_SECRET_KEY" };
            findings.problem(
                settings.origin(name),
                format!("is missing; give {name}, {file_name} or the environment variable {variable}"),
            );
        }
        return inline.map(Into::into);
    };
    let origin = settings.origin(&file_name);
    if inline.is_some() {
        findings.problem(&origin, format!("stands beside {name}; give one of the two"));
    }
    match read_secret(input, &resolve(input, file)) {
        Ok(secret) => {
            if let Some(oddity) = TextOddity::in_secret(secret.expose_secret()) {
                findings.warning(origin, format!("the value in the file {}", oddity.of_secret()));
            }
            Some(secret)
        }
        Err(why) => {
            findings.problem(origin, why);
            None
        }
    }
}

/// A path is relative to the folder of the configuration file.
fn resolve(input: &FactoryInput, file: &str) -> std::path::PathBuf {
    let folder = input.config_path.as_deref().and_then(Path::parent);
    folder.map_or_else(|| file.into(), |folder| folder.join(file))
}

fn read_secret(input: &FactoryInput, path: &Path) -> Result<SecretString, String> {
    let shown = path.display();
    let content = input.read_file(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let text = String::from_utf8(content).map_err(|_| format!("{shown} is not valid UTF-8"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(format!("{shown} is empty"));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("{shown} has more than one line, or holds a control character"));
    }
    Ok(text.into())
}

fn authorities(settings: &Settings, input: &FactoryInput, findings: &mut Findings) -> Option<RootCertStore> {
    let mut both = Vec::new();
    if let Some(file) = settings.text("caFile") {
        let path = resolve(input, file);
        let read = input.read_file(&path).map_err(|error| format!("cannot read {}: {error}", path.display()));
        let read =
            read.and_then(|pem| tls::certificates(&pem).map_err(|why| format!("{} {why}", path.display())));
        both.push((settings.origin("caFile"), read));
    }
    if let Some(text) = settings.text("caCert") {
        let read = tls::certificates(text.as_bytes()).map_err(str::to_owned);
        both.push((settings.origin("caCert"), read));
    }
    let mut roots = None;
    for (origin, read) in both {
        match read {
            Ok(found) => roots.get_or_insert_with(RootCertStore::empty).extend(found.roots),
            Err(why) => findings.problem(origin, why),
        }
    }
    roots
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
        legacy_zones: settings.flag("zones.legacyZones"),
    }
}

fn load_balancer(
    settings: &Settings,
    retry_interval: Duration,
    findings: &mut Findings,
) -> LoadBalancerConfig {
    let default = LoadBalancerConfig::default();
    let text = |name: &str, default: String| settings.text(name).map_or(default, str::to_owned);
    LoadBalancerConfig {
        mode: word(
            settings,
            "loadBalancer.mode",
            (LoadBalancerMode::ALL, LoadBalancerMode::as_str),
            findings,
        )
        .unwrap_or(default.mode),
        stack_name: text("loadBalancer.stackName", default.stack_name),
        stack_external_id: text("loadBalancer.stackExternalID", default.stack_external_id),
        image_setting: text("loadBalancer.imageSetting", default.image_setting),
        retry_interval,
    }
}
