//! The section `addressPools` in the configuration of a provider.
//!
//! ```yaml
//! addressPools:
//!   announce: true
//!   pools:
//!   - name: public
//!     addresses: [192.0.2.0/26, 2001:db8::100-2001:db8::1ff]
//!     namespaces: [shop]
//!     interface: eth1
//! ```

use cloudprovider::{ConfigMapName, dns, is_invisible};
use provider_kit::{Fields, Findings};
use serde_json::Value;

use crate::{
    conventions::Announcer,
    pool::{Pool, Pools, Sharing},
    range::{AddressRange, AddressSet, EVERYTHING, RangeText, unusable},
};

/// The section `addressPools`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Where the pools are.
    pub source: Source,
    /// Who announces the addresses.
    pub announcer: Announcer,
    /// Whether Services may ask for addresses that are in no pool, where the pools are in kube-vip's `ConfigMap` and kube-vip
    /// announces.
    pub allows_outside_pools: bool,
}

/// Where the pools are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the configuration itself.
    Own(Pools),
    /// In a `ConfigMap` with kube-vip's keys, which may change at any time.
    KubeVip(ConfigMapName),
}

impl Config {
    /// The name of the section.
    pub const KEY: &'static str = "addressPools";

    /// Reads the section, which stands at `path`. Adds every fault to `findings`, each with the path of its key. `None`
    /// if the section is of no use. Texts `true` and `false` count as the values.
    pub fn read(path: &str, value: &Value, findings: &mut Findings) -> Option<Self> {
        let had = findings.problems.len();
        let mut fields = Fields::new(path, value.clone(), &[], findings)?;
        let pools = fields.list("pools", findings);
        let config_map = fields.take("kubeVipConfigMap");
        let announces = fields.flag("announce", false, findings);
        let announced_by = fields.text("announcedBy", findings).map(trimmed);
        let mut allows_outside_pools = false;
        let source = match (pools, config_map) {
            (Some(_), Some(_)) => {
                let words = "stands beside pools; give one of the two".to_owned();
                findings.problem(fields.path("kubeVipConfigMap"), words);
                None
            }
            (Some(list), None) => own_pools(&fields.path("pools"), list, findings).map(Source::Own),
            (None, Some(value)) => {
                let path = fields.path("kubeVipConfigMap");
                kube_vip_config_map(&path, &value, findings).map(|(name, allows)| {
                    allows_outside_pools = allows;
                    Source::KubeVip(name)
                })
            }
            (None, None) => {
                if findings.problems.len() == had {
                    findings.problem(
                        path,
                        "has no pools; list some under pools, or name kube-vip's under kubeVipConfigMap",
                    );
                }
                None
            }
        };
        let is_kube_vip = matches!(source, Some(Source::KubeVip(_)));
        let announcer = match (announces, announced_by) {
            (false, None) if is_kube_vip => Announcer::KubeVip,
            (false, None) => Announcer::Nobody,
            (true, None) => Announcer::Itself,
            (true, Some(_)) => {
                let words = "stands beside announce: true; leave it out, or do not announce";
                findings.problem(fields.path("announcedBy"), words);
                Announcer::Itself
            }
            (false, Some(word)) => {
                let known = Announcer::OTHERS;
                known.into_iter().find(|known| known.as_str() == word).unwrap_or_else(|| {
                    let known = known.map(Announcer::as_str).join(", ");
                    let words = format!("{word:?} is not known; known: {known}");
                    findings.problem(fields.path("announcedBy"), words);
                    Announcer::Nobody
                })
            }
        };
        fields.finish(findings);
        if findings.problems.len() > had {
            return None;
        }
        if allows_outside_pools && announcer != Announcer::KubeVip {
            let words = "has an effect only where kube-vip announces; leave it out";
            findings.problem(format!("{path}.kubeVipConfigMap.allowOutsidePools"), words);
            return None;
        }
        Some(Self { source: source?, announcer, allows_outside_pools })
    }
}

fn kube_vip_config_map(path: &str, value: &Value, findings: &mut Findings) -> Option<(ConfigMapName, bool)> {
    let mut fields = Fields::new(path, value.clone(), &[], findings)?;
    let namespace = fields.text("namespace", findings).map_or_else(|| "kube-system".to_owned(), trimmed);
    let name = fields.text("name", findings).map_or_else(|| "kubevip".to_owned(), trimmed);
    if !dns::is_label(&namespace) {
        findings.problem(fields.path("namespace"), "must be the name of a namespace");
    }
    if !dns::is_subdomain(&name) {
        findings.problem(fields.path("name"), "must be the name of a ConfigMap");
    }
    let allows_outside_pools = fields.flag("allowOutsidePools", false, findings);
    fields.finish(findings);
    Some((ConfigMapName { namespace, name }, allows_outside_pools))
}

fn own_pools(path: &str, list: Vec<(String, Value)>, findings: &mut Findings) -> Option<Pools> {
    if list.is_empty() {
        findings.problem(path, "is empty; list at least one pool with name and addresses");
        return None;
    }
    let mut pools: Vec<Pool> = Vec::new();
    for (path, value) in list {
        let Some(pool) = read_pool(&path, &value, findings) else { continue };
        if !pool.name.is_empty() && pools.iter().any(|other| other.name == pool.name) {
            let words = format!("{:?} is the name of another pool already; each needs its own", pool.name);
            findings.problem(format!("{path}.name"), words);
        }
        for other in &pools {
            if let Some(both) = pool.addresses.overlap(&other.addresses) {
                let words =
                    format!("{both} is in the pool {:?} too; an address belongs to one pool", other.name);
                findings.problem(format!("{path}.addresses"), words);
            }
        }
        pools.push(pool);
    }
    Some(Pools { pools, origin: path.to_owned(), ..Pools::default() })
}

fn read_pool(path: &str, value: &Value, findings: &mut Findings) -> Option<Pool> {
    let mut fields = Fields::new(path, value.clone(), &[], findings)?;
    let name = fields
        .required_text("name", "a name of your own for the pool", findings)
        .map(trimmed)
        .unwrap_or_default();
    if !name.is_empty() && !dns::is_subdomain(&name) {
        let words =
            "must be lower-case letters, digits, - and ., beginning and ending with a letter or digit";
        findings.problem(fields.path("name"), words);
    }
    let skip_ends = fields.flag("skipEnds", false, findings);
    let addresses = addresses(&mut fields, skip_ends, findings);
    let had = findings.problems.len();
    let namespaces = fields.texts("namespaces", findings);
    if findings.problems.len() == had && namespaces.as_ref().is_some_and(Vec::is_empty) {
        let words = "is empty; list namespaces, or leave the key out if all may use the pool";
        findings.problem(fields.path("namespaces"), words);
    }
    let namespaces = namespaces.unwrap_or_default();
    for (at, namespace) in namespaces.iter().enumerate().filter(|(_, name)| !dns::is_label(name)) {
        let words = format!("{namespace:?} is not the name of a namespace");
        findings.problem(format!("{}[{at}]", fields.path("namespaces")), words);
    }
    let interface = fields.text("interface", findings).map(trimmed);
    if interface.as_ref().is_some_and(|name| !is_interface(name)) {
        let words = "must be the name of a network interface: at most 15 characters without / and blanks";
        findings.problem(fields.path("interface"), words);
    }
    let auto_assign = fields.flag("autoAssign", true, findings);
    let allows_sharing = fields.flag("allowSharing", false, findings);
    let probe = fields.flag("probe", true, findings);
    fields.finish(findings);
    Some(Pool {
        name,
        addresses,
        namespaces,
        interface,
        auto_assign,
        probe,
        sharing: if allows_sharing { Sharing::ByKey } else { Sharing::Never },
        ..Pool::default()
    })
}

fn trimmed(text: String) -> String {
    text.trim().to_owned()
}

/// The longest name of an interface in Linux.
const MAX_INTERFACE_NAME: usize = 15;

fn is_interface(name: &str) -> bool {
    let is_odd = |c: char| c == '/' || c.is_whitespace() || is_invisible(c);
    name.len() <= MAX_INTERFACE_NAME && !name.contains(is_odd)
}

fn addresses(fields: &mut Fields, skip_ends: bool, findings: &mut Findings) -> AddressSet {
    let path = fields.path("addresses");
    let had = findings.problems.len();
    let texts = fields.texts("addresses", findings).unwrap_or_default();
    if texts.is_empty() && findings.problems.len() == had {
        let words =
            "is missing or empty; list networks such as 192.0.2.0/26 or ranges such as 192.0.2.10-192.0.2.20";
        findings.problem(&path, words);
    }
    let mut ranges: Vec<AddressRange> = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let range = match text.parse::<RangeText>() {
            Ok(range) => range,
            Err(fault) => {
                findings.problem(path, format!("{text:?} {fault}"));
                continue;
            }
        };
        if let Some(network) = range.with_host_bits() {
            let words =
                format!("{text:?} has bits behind its prefix; write {network}, or a range for a part of it");
            findings.problem(&path, words);
        }
        let everything = range.is_everything().then_some(EVERYTHING);
        let range = range.range(skip_ends);
        if let Some(words) = everything.or_else(|| unusable(&range)) {
            findings.problem(&path, format!("{text:?} {words}"));
        }
        if let Some(both) = ranges.iter().find_map(|other| other.overlap(&range)) {
            findings.problem(&path, format!("{both} is listed twice"));
        }
        ranges.push(range);
    }
    ranges.into_iter().collect()
}

#[cfg(test)]
mod tests;
