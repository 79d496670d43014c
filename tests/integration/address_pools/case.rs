//! A case: `ConfigMap`s and Services in an order, and the answer to each Service.

use serde_json::{Value, json};

/// The namespaces of the Services.
pub(super) const NAMESPACES: [&str; 2] = ["pool-a", "pool-b"];

/// Steps in an order. Each starts without Services.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The ConfigMap has these keys from now on. Without keys there is no ConfigMap.
    Config(Vec<(&'static str, &'static str)>),
    /// A Service is created and has this answer.
    Create(Service, &'static str),
    /// A Service is changed by a merge patch. What was written after that has settled is the answer.
    Change(Service, Value, &'static str),
    /// A Service is deleted, and it is waited until it is gone.
    Delete(Service),
}

/// A Service of type LoadBalancer, known by its namespace and name.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
    pub(super) annotations: Value,
    pub(super) spec: Value,
}

impl Case {
    /// A case whose first ConfigMap has these keys.
    pub(super) fn new(name: &'static str, config: &[(&'static str, &'static str)]) -> Self {
        Self { name, steps: vec![Step::Config(config.to_vec())] }
    }

    /// The ConfigMap changes.
    pub(super) fn config(mut self, config: &[(&'static str, &'static str)]) -> Self {
        self.steps.push(Step::Config(config.to_vec()));
        self
    }

    /// A Service comes, and this is its answer.
    pub(super) fn gives(mut self, service: Service, answer: &'static str) -> Self {
        self.steps.push(Step::Create(service, answer));
        self
    }

    /// A Service changes, and this is its answer afterwards.
    pub(super) fn changes(mut self, service: Service, patch: Value, answer: &'static str) -> Self {
        self.steps.push(Step::Change(service, patch, answer));
        self
    }

    /// A Service goes.
    pub(super) fn deletes(mut self, service: Service) -> Self {
        self.steps.push(Step::Delete(service));
        self
    }

    /// The answers, each with the name of its Service.
    pub(super) fn answers(&self) -> Vec<String> {
        let answer = |step: &Step| match step {
            Step::Create(service, answer) | Step::Change(service, _, answer) => {
                Some(format!("{}: {answer}", service.name))
            }
            Step::Config(_) | Step::Delete(_) => None,
        };
        self.steps.iter().filter_map(answer).collect()
    }
}

/// A Service of the first namespace with one port, 80.
pub(super) fn a(name: &'static str) -> Service {
    Service { namespace: NAMESPACES[0], name, annotations: json!({}), spec: json!({}) }.ports(&[("TCP", 80)])
}

/// The same in the second namespace.
pub(super) fn b(name: &'static str) -> Service {
    Service { namespace: NAMESPACES[1], ..a(name) }
}

impl Service {
    /// With these ports, each with its protocol.
    pub(super) fn ports(self, ports: &[(&str, u16)]) -> Self {
        let ports: Vec<Value> = ports
            .iter()
            .map(|(protocol, port)| json!({"name": format!("p{port}-{}", protocol.to_lowercase()), "protocol": protocol, "port": port}))
            .collect();
        self.with("ports", json!(ports))
    }

    /// With these addresses asked for by kube-vip's annotation.
    pub(super) fn asks(mut self, addresses: &str) -> Self {
        self.annotations["kube-vip.io/loadbalancerIPs"] = addresses.into();
        self
    }

    /// With this `ipFamilyPolicy` and these `ipFamilies`.
    pub(super) fn families(self, policy: &str, families: &[&str]) -> Self {
        self.with("ipFamilyPolicy", json!(policy)).with("ipFamilies", json!(families))
    }

    /// With another field of the specification.
    pub(super) fn with(mut self, field: &str, value: Value) -> Self {
        self.spec[field] = value;
        self
    }
}
