//! kube-vip's `ConfigMap` as pools.
//!
//! | Key | Value |
//! |---|---|
//! | `cidr-<namespace>`, `cidr-global` | networks, joined by commas; `0.0.0.0/32` alone for DHCP |
//! | `range-<namespace>`, `range-global` | ranges, joined by commas |
//! | `interface-<namespace>`, `interface-global` | the interface of the addresses |
//! | `allow-share-<namespace>`, `allow-share-global` | whether Services with different ports share addresses |
//! | `search-order` | `desc`: the highest address first |
//! | `skip-end-ips-in-cidr` | `true`: not the first and the last address of an IPv4 network |
//!
//! A namespace has one pool: that of the first key of these that is there: `cidr-<namespace>`, `cidr-global`,
//! `range-<namespace>`, `range-global`.

use std::collections::BTreeMap;

use cloudprovider::{ConfigMapName, ConfigProblem, parse_bool};

use crate::{
    pool::{Choice, Pool, Pools, Sharing},
    range::{AddressSet, EVERYTHING, Order, RangeText, unusable},
};

const GLOBAL: &str = "global";
const DHCP: &str = "0.0.0.0/32";
const SEARCH_ORDER: &str = "search-order";
const SKIP_ENDS: &str = "skip-end-ips-in-cidr";

/// Reads the `data` of the `ConfigMap`. Returns the pools, and what is wrong in it: each problem with its key. A pool that
/// cannot be read is there, with its fault.
pub fn read(name: &ConfigMapName, data: &BTreeMap<String, String>) -> (Pools, Vec<ConfigProblem>) {
    let mut reader = Reader { name, data, problems: Vec::new() };
    let pools = reader.pools();
    (pools, reader.problems)
}

struct Reader<'a> {
    name: &'a ConfigMapName,
    data: &'a BTreeMap<String, String>,
    problems: Vec<ConfigProblem>,
}

impl Reader<'_> {
    fn pools(&mut self) -> Pools {
        let order = self.order();
        let skip_ends = self.flag(SKIP_ENDS, |text| match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        });
        let (interface, interfaces) =
            self.by_namespace("interface-", |_, _, text| Some(text.trim().to_owned()));
        let (shares, sharing) = self.by_namespace("allow-share-", |reader, key, _| {
            Some(if reader.flag(key, |text| parse_bool(text).ok()) {
                Sharing::Always
            } else {
                Sharing::Never
            })
        });
        let mut pools = Vec::new();
        for kind in ["cidr-", "range-"] {
            let (global, own): (Vec<_>, Vec<_>) =
                self.keys(kind).into_iter().partition(|(namespace, ..)| namespace == GLOBAL);
            for (namespace, key, text) in own.into_iter().chain(global) {
                let mut pool = Pool {
                    namespaces: if namespace == GLOBAL { Vec::new() } else { vec![namespace] },
                    interface: interface.clone(),
                    auto_assign: true,
                    sharing: shares.unwrap_or_default(),
                    order,
                    skips_0_and_255: true,
                    ..Pool::default()
                };
                self.addresses(&key, &text, skip_ends, &mut pool);
                pools.push(Pool { name: key, ..pool });
            }
        }
        Pools {
            pools,
            choice: Choice::First,
            origin: format!("ConfigMap {}", self.name),
            interfaces,
            sharing,
        }
    }

    /// Reads the addresses of a pool, or notes its fault.
    fn addresses(&mut self, key: &str, text: &str, skip_ends: bool, pool: &mut Pool) {
        let text = text.trim();
        if text == DHCP {
            pool.dhcp = true;
            return;
        }
        let mut ranges = Vec::new();
        let mut faults = Vec::new();
        for part in text.split(',').map(str::trim) {
            match part.parse::<RangeText>() {
                _ if part.is_empty() && text.is_empty() => {
                    faults.push("is empty; write networks or ranges".to_owned());
                }
                _ if part.is_empty() => {
                    faults.push("has a comma without anything before or behind it".to_owned());
                }
                _ if part == DHCP => faults.push(format!("{DHCP} asks for DHCP and must stand alone")),
                Ok(range) if range.is_everything() => faults.push(format!("{part:?} {EVERYTHING}")),
                Ok(range) => {
                    let range = range.range(skip_ends);
                    match unusable(&range) {
                        Some(words) => faults.push(format!("{part:?} {words}")),
                        None => ranges.push(range),
                    }
                }
                Err(fault) => faults.push(format!("{part:?} {fault}")),
            }
        }
        if faults.is_empty() {
            pool.addresses = ranges.into_iter().collect::<AddressSet>();
        } else {
            let words = faults.join("; ");
            pool.fault = Some(format!("ConfigMap {}, key {key}: {words}", self.name));
            self.problems.push(ConfigProblem::new(key, words));
        }
    }

    fn order(&mut self) -> Order {
        match self.data.get(SEARCH_ORDER).map(String::as_str) {
            Some("desc") => return Order::Descending,
            None | Some("asc" | "") => {}
            Some(other) => {
                let words = format!("{other:?} is not an order and counts as asc; known: asc, desc");
                self.problems.push(ConfigProblem::new(SEARCH_ORDER, words));
            }
        }
        Order::Ascending
    }

    /// A value that is true or false. Anything else counts as false, as in kube-vip.
    fn flag(&mut self, key: &str, parse: impl Fn(&str) -> Option<bool>) -> bool {
        let Some(text) = self.data.get(key) else { return false };
        parse(text).unwrap_or_else(|| {
            let words = format!("{text:?} counts as false; write true or false");
            self.problems.push(ConfigProblem::new(key, words));
            false
        })
    }

    /// The keys with this beginning: the namespace or `global`, the whole key and the value.
    fn keys(&self, kind: &str) -> Vec<(String, String, String)> {
        let of_kind = self.data.iter().filter_map(|(key, text)| {
            let namespace = key.strip_prefix(kind).filter(|namespace| !namespace.is_empty())?;
            Some((namespace.to_owned(), key.clone(), text.clone()))
        });
        of_kind.collect()
    }

    /// What holds for all namespaces, and what holds for single ones.
    fn by_namespace<T>(
        &mut self,
        kind: &str,
        read: impl Fn(&mut Self, &str, &str) -> Option<T>,
    ) -> (Option<T>, BTreeMap<String, T>) {
        let (mut global, mut own) = (None, BTreeMap::new());
        for (namespace, key, text) in self.keys(kind) {
            match read(self, &key, &text) {
                value if namespace == GLOBAL => global = value,
                Some(value) => drop(own.insert(namespace, value)),
                None => {}
            }
        }
        (global, own)
    }
}

#[cfg(test)]
mod tests;
