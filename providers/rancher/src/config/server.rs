//! The server of the configuration: its URL, credentials and certificates.

use std::time::Duration;

use cloudprovider::{FactoryInput, TextOddity};
use provider_kit::{Findings, Settings};
use rustls::RootCertStore;
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    files::{read_secret, resolve},
    keys::SCHEMA,
    parts::{Credentials, ServerConfig},
    url::ServerUrl,
    words::ApiVersion,
};
use crate::tls;

const PAGE_SIZE: u32 = 1000;
const MAX_PAGE_SIZE: u32 = 10_000;

/// The same for Rancher 2.x, which takes about 1.6 s for a page of 1,000 nodes, and must answer within the default timeout.
const MAX_PAGE_SIZE_V3: u32 = 3000;

/// The keys of an API key.
const KEY_NAMES: [&str; 4] = ["accessKey", "accessKeyFile", "secretKey", "secretKeyFile"];

/// The server, or `None` if a required part is missing.
pub(super) fn server(
    settings: &Settings,
    input: &FactoryInput,
    url: Option<ServerUrl>,
    (version, timeout): (ApiVersion, Duration),
    findings: &mut Findings,
) -> Option<ServerConfig> {
    let credentials = credentials(settings, input, version, findings);
    let authorities = authorities(settings, input, findings);
    let insecure = settings.flag("insecureSkipVerify") == Some(true);
    if insecure && authorities.is_some() {
        findings.warning(
            settings.origin("insecureSkipVerify"),
            "is true, so the certificate authorities of the configuration have no effect",
        );
    }
    let page_size =
        settings.number("pageSize").map_or(PAGE_SIZE, |size| u32::try_from(size).unwrap_or(u32::MAX));
    let (most, why) = match version {
        ApiVersion::V3 => {
            (MAX_PAGE_SIZE_V3, " with Rancher 2.x, which needs too long for more: about 1.6 s for 1000 nodes")
        }
        _ => (MAX_PAGE_SIZE, ""),
    };
    if !(1..=most).contains(&page_size) {
        findings.problem(settings.origin("pageSize"), format!("must be between 1 and {most}{why}"));
    }
    Some(ServerConfig {
        url: url?.root,
        credentials: credentials?,
        authorities,
        insecure,
        timeout,
        page_size,
    })
}

/// The API key, or the token of Rancher 2.x.
fn credentials(
    settings: &Settings,
    input: &FactoryInput,
    version: ApiVersion,
    findings: &mut Findings,
) -> Option<Credentials> {
    let has_token = settings.has("token") || settings.has("tokenFile");
    if version != ApiVersion::V3 || !has_token {
        if version == ApiVersion::V3 && !KEY_NAMES.iter().any(|name| settings.has(*name)) {
            let what = "is missing; give token or tokenFile, or an access key and its secret";
            findings.problem(settings.origin("token"), what);
            return None;
        }
        let access = secret(settings, input, "accessKey", findings);
        let secret = secret(settings, input, "secretKey", findings);
        return Some(Credentials::Key { access: access?, secret: secret? });
    }
    for name in KEY_NAMES {
        if settings.is_in_file(name) {
            let what = "stands beside a token; give the token, or the access key and its secret";
            findings.problem(settings.origin(name), what);
        }
    }
    secret(settings, input, "token", findings).map(Credentials::Token)
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
            let variable = SCHEMA.section("").and_then(|section| section.key(name)).map_or("", |key| key.env);
            let variable = match variable {
                "" => String::new(),
                variable => format!(" or the environment variable {variable}"),
            };
            let words = format!("is missing; give {name}, {file_name}{variable}");
            findings.problem(settings.origin(name), words);
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
