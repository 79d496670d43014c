//! The allocator of this repository, given the same cases in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use address_pools::{Config, PooledLoadBalancer};
use anyhow::Context;
use cloudprovider::{
    ConfigMapName, ErrorKind, IpFamilyPolicy, LoadBalancer as _, LoadBalancerService, Protocol, ServicePort,
    ServiceRef, StartContext, testing::FakeServiceAccess,
};
use provider_kit::Findings;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::case::{Case, Service, Step};

const ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";
const INTERFACE: &str = "kube-vip.io/serviceInterface";

/// A cluster in memory with the allocator.
struct Ours {
    cluster: FakeServiceAccess,
    balancer: PooledLoadBalancer,
    stop: CancellationToken,
    /// The Services that are there, by UID.
    services: BTreeMap<String, LoadBalancerService>,
    /// How many changes of Services are applied already.
    applied: usize,
}

/// The answers to the Services of a case.
pub(super) async fn play(case: &Case) -> anyhow::Result<Vec<String>> {
    let mut ours = Ours::start()?;
    let mut answers = Vec::new();
    for step in &case.steps {
        match step {
            Step::Config(keys) => ours.set_config(keys).await,
            Step::Create(service, _) => {
                let mut json =
                    json!({"metadata": {"annotations": service.annotations}, "spec": service.spec});
                json["spec"]["type"] = json!("LoadBalancer");
                answers.push(format!("{}: {}", service.name, ours.change(service, &json).await?));
            }
            Step::Change(service, patch, _) => {
                answers.push(format!("{}: {}", service.name, ours.change(service, patch).await?));
            }
            Step::Delete(service) => ours.delete(&uid(service)).await?,
        }
    }
    ours.stop.cancel();
    Ok(answers)
}

fn uid(service: &Service) -> String {
    format!("{}/{}", service.namespace, service.name)
}

impl Ours {
    fn start() -> anyhow::Result<Self> {
        let mut findings = Findings::default();
        let config = Config::read(
            "addressPools",
            &json!({"kubeVipConfigMap": {"allowOutsidePools": true}}),
            &mut findings,
        );
        let balancer = PooledLoadBalancer::new(config.context("a configuration")?);
        let (cluster, stop) = (FakeServiceAccess::new(), CancellationToken::new());
        let context = StartContext::new(stop.clone(), "cases").with_services(Arc::new(cluster.clone()));
        balancer.start(&context, &TaskTracker::new())?;
        Ok(Self { cluster, balancer, stop, services: BTreeMap::new(), applied: 0 })
    }

    async fn set_config(&self, keys: &[(&str, &str)]) {
        let name = ConfigMapName { namespace: "kube-system".to_owned(), name: "kubevip".to_owned() };
        let data: BTreeMap<_, _> =
            keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.cluster.set_config_map(&name, (!data.is_empty()).then_some(data));
        // The allocator follows it in a task of its own.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Creates or changes a Service by a merge patch, and tells what is written on it then.
    async fn change(&mut self, case: &Service, patch: &Value) -> anyhow::Result<String> {
        let uid = uid(case);
        let service = self.services.entry(uid.clone()).or_insert_with(|| LoadBalancerService {
            namespace: case.namespace.to_owned(),
            name: case.name.to_owned(),
            uid: uid.clone(),
            ip_families: vec!["IPv4".to_owned()],
            ip_family_policy: Some(IpFamilyPolicy::SingleStack),
            ..LoadBalancerService::default()
        });
        apply(service, patch)?;
        let service_ref =
            ServiceRef { namespace: case.namespace.to_owned(), name: case.name.to_owned(), uid: uid.clone() };
        self.cluster.add_service(service_ref);
        if patch["spec"]["type"] == "ClusterIP" {
            self.balancer.delete("cases", &self.services[&uid]).await?;
            self.apply_changes()?;
        } else if case.spec.get("loadBalancerClass").is_none() {
            // The service controller calls again when the allocator has written annotations.
            for _ in 0..2 {
                let ensured = self.balancer.ensure("cases", &self.services[&uid], &[]).await;
                // kube-vip is to write the status.
                if let Err(error) = ensured
                    && error.kind() != ErrorKind::ImplementedElsewhere
                {
                    return Ok(format!("refused: {}", error.report()));
                }
                self.apply_changes()?;
            }
        }
        Ok(read(&self.services[&uid]))
    }

    async fn delete(&mut self, uid: &str) -> anyhow::Result<()> {
        let service = self.services.remove(uid).context("the Service")?;
        self.cluster.remove_service(uid);
        self.balancer.delete("cases", &service).await?;
        Ok(())
    }

    /// Applies what the allocator wrote since the last time.
    fn apply_changes(&mut self) -> anyhow::Result<()> {
        let changes = self.cluster.changes();
        for (of, change) in &changes[self.applied..] {
            let service = self.services.get_mut(&of.uid).context("the Service")?;
            let mut patch = json!({"metadata": {"annotations": change.annotations, "labels": change.labels}});
            if let Some(address) = &change.load_balancer_ip {
                patch["spec"] = json!({"loadBalancerIP": address});
            }
            apply(service, &patch)?;
        }
        self.applied = changes.len();
        Ok(())
    }
}

/// Applies a merge patch, as far as the cases have fields.
fn apply(service: &mut LoadBalancerService, patch: &Value) -> anyhow::Result<()> {
    for (field, map) in [("annotations", &mut service.annotations), ("labels", &mut service.labels)] {
        for (key, value) in patch["metadata"][field].as_object().into_iter().flatten() {
            match value.as_str() {
                Some(value) => drop(map.insert(key.clone(), value.to_owned())),
                None => drop(map.remove(key)),
            }
        }
    }
    for (field, value) in patch["spec"].as_object().into_iter().flatten() {
        match field.as_str() {
            "loadBalancerIP" => service.load_balancer_ip = value.as_str().map(str::to_owned),
            "ipFamilies" => service.ip_families = serde_json::from_value(value.clone())?,
            "ipFamilyPolicy" => {
                service.ip_family_policy = Some(match value.as_str() {
                    Some("RequireDualStack") => IpFamilyPolicy::RequireDualStack,
                    Some("PreferDualStack") => IpFamilyPolicy::PreferDualStack,
                    _ => IpFamilyPolicy::SingleStack,
                });
            }
            "ports" => {
                let ports = value.as_array().context("ports")?.iter().map(|port| ServicePort {
                    port: port["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default(),
                    protocol: if port["protocol"] == "UDP" { Protocol::Udp } else { Protocol::Tcp },
                    ..ServicePort::default()
                });
                service.ports = ports.collect();
            }
            _ => {}
        }
    }
    Ok(())
}

/// What is written on a Service, in the words of the tables.
fn read(service: &LoadBalancerService) -> String {
    let annotation = |key: &str| service.annotations.get(key).map(String::as_str);
    let addresses = annotation(ADDRESSES).unwrap_or("nothing");
    let mut answer = vec![addresses.to_owned()];
    let ip = service.load_balancer_ip.as_deref();
    if ip != addresses.split(',').next() {
        answer.push(format!("loadBalancerIP={}", ip.unwrap_or("none")));
    }
    if service.labels.get("implementation").map(String::as_str) != Some("kube-vip") {
        answer.push("unlabelled".to_owned());
    }
    answer.extend(annotation(INTERFACE).map(|interface| format!("on {interface}")));
    answer.join(" ")
}

/// The cases that have other answers than those of the table, as the [documentation](../../../docs/guides/address-pools.md)
/// lists the differences. A refusal is one with any words.
pub(super) fn unexpected(all: &[(Case, Vec<String>)]) -> Vec<String> {
    let mut wanted: BTreeMap<&str, &[&str]> = super::wanted::DIFFERENCES.iter().copied().collect();
    let mut unexpected = Vec::new();
    let mut names = BTreeSet::new();
    for (case, answers) in all {
        assert!(names.insert(case.name), "two cases are called {:?}", case.name);
        let ours: Vec<_> = answers.iter().map(|answer| without_words(answer)).collect();
        let theirs: Vec<_> = case.answers().iter().map(|answer| without_words(answer)).collect();
        let expected = wanted
            .remove(case.name)
            .map(|answers| answers.iter().map(|answer| (*answer).to_owned()).collect());
        if expected.as_ref() == Some(&theirs) {
            unexpected.push(format!("{}: is no difference", case.name));
        } else if ours != expected.unwrap_or(theirs) {
            unexpected.push(format!("{}: gives {answers:#?}", case.name));
        }
    }
    unexpected.extend(wanted.keys().map(|name| format!("{name}: there is no such case")));
    unexpected
}

/// An answer, without the reason of a refusal.
fn without_words(answer: &str) -> String {
    answer.split_once("refused: ").map_or_else(|| answer.to_owned(), |(name, _)| format!("{name}refused"))
}
