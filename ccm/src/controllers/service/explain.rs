//! Explains what this controller would do about one Service now. Pure functions.

use std::net::IpAddr;

use cloudprovider::{Error, ErrorKind, IpFamilyPolicy, LoadBalancerStatus};
use controller_kit::{nodes::Node, services::Service};
use serde::Serialize;

use super::{
    nodes::{LeftOut, left_out},
    status::{same_status, shown},
};

/// What the controller finds about a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePlan {
    /// Whether the Service is to have a load balancer of this cloud.
    pub wanted: bool,
    /// By which rule.
    pub why: String,
    /// Whether the finalizer is there.
    pub finalizer: bool,
    /// The Nodes behind the load balancer, sorted.
    pub back_ends: Vec<String>,
    /// The Nodes that are left out.
    pub left_out: Vec<LeftOutNode>,
    /// The addresses in the Service's status.
    pub addresses: String,
    /// What would be done next.
    pub next: Vec<String>,
}

/// A Node that is no back end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOutNode {
    /// Its name.
    pub node: String,
    /// Why it is none.
    pub why: String,
}

/// What the controller would do. `cloud` is the cloud's answer about the load balancer.
pub fn plan(
    service: &Service,
    nodes: &[Node],
    cloud: &Result<Option<LoadBalancerStatus>, Error>,
) -> ServicePlan {
    let wanted = service.wants_load_balancer() && !service.deleting;
    let reason = |node: &Node| left_out(node).map(|why: LeftOut| why.to_string());
    let mut back_ends: Vec<String> =
        nodes.iter().filter(|node| reason(node).is_none()).map(|node| node.name().to_owned()).collect();
    back_ends.sort_unstable();
    let mut left_out: Vec<LeftOutNode> = nodes
        .iter()
        .filter_map(|node| Some(LeftOutNode { node: node.name().to_owned(), why: reason(node)? }))
        .collect();
    left_out.sort_unstable_by(|a, b| a.node.cmp(&b.node));
    let next =
        if wanted { towards_it(service, back_ends.len(), cloud) } else { away_from_it(service, cloud) };
    ServicePlan {
        wanted,
        why: why(service),
        finalizer: service.has_finalizer(),
        back_ends,
        left_out,
        addresses: shown(&service.content.status),
        next,
    }
}

fn why(service: &Service) -> String {
    match &service.load_balancer_class {
        _ if service.deleting => "it is being deleted".to_owned(),
        _ if !service.is_load_balancer() => format!("it is of type {}", service.service_type),
        Some(class) => format!("its loadBalancerClass {class:?} is another controller's"),
        None => "it is of type LoadBalancer without a loadBalancerClass".to_owned(),
    }
}

fn towards_it(
    service: &Service,
    back_ends: usize,
    cloud: &Result<Option<LoadBalancerStatus>, Error>,
) -> Vec<String> {
    let mut next = Vec::new();
    if !service.has_finalizer() {
        next.push("add the finalizer, before any call of the cloud".to_owned());
    }
    if back_ends == 0 {
        next.push("warn that there are no nodes for the load balancer".to_owned());
    }
    match cloud {
        Ok(Some(status)) if same_status(status, &service.content.status) => {
            if next.is_empty() {
                let lacks = lacking_family(service);
                let lacks = lacks.map(|family| {
                    format!("; it has no {family} address, which PreferDualStack would like to have")
                });
                next.push(format!(
                    "nothing, once it has ensured the load balancer after its start: the Service is right{}",
                    lacks.unwrap_or_default()
                ));
            }
        }
        Ok(Some(status)) => {
            next.push(format!("write what the cloud says into the status: {}", shown(status)));
        }
        Ok(None) => next.push(format!("make the load balancer, with {back_ends} nodes")),
        Err(error) => next.push(match (error.kind(), error.retry_after()) {
            (ErrorKind::ImplementedElsewhere, _) => {
                "leave the Service to the component that makes its load balancer".to_owned()
            }
            (_, Some(after)) => format!("ask the cloud again in {after:?}, as it asks for"),
            (ErrorKind::Unsupported, None) => {
                "wait for a change of the Service: the cloud cannot do this".to_owned()
            }
            (_, None) => "ask the cloud again, after 5s at first and 5m at most".to_owned(),
        }),
    }
    next
}

/// The family of `spec.ipFamilies` of which a Service that prefers both has no address. `None` also where the status has no
/// address at all: a name may stand for both families.
fn lacking_family(service: &Service) -> Option<&str> {
    let content = &service.content;
    let ips = content.status.ingress.iter().filter_map(|ingress| ingress.ip.as_deref()?.parse().ok());
    let has: Vec<&str> = ips.map(|ip: IpAddr| if ip.is_ipv4() { "IPv4" } else { "IPv6" }).collect();
    if has.is_empty() || content.ip_family_policy != Some(IpFamilyPolicy::PreferDualStack) {
        return None;
    }
    content.ip_families.iter().map(String::as_str).find(|family| !has.contains(family))
}

fn away_from_it(service: &Service, cloud: &Result<Option<LoadBalancerStatus>, Error>) -> Vec<String> {
    if !service.has_finalizer() {
        return vec!["nothing".to_owned()];
    }
    if !service.needs_cleanup() {
        return vec![
            "delete the load balancer if it is of this cloud, and leave the finalizer otherwise".to_owned(),
        ];
    }
    let mut next = Vec::new();
    match cloud {
        Ok(Some(_)) => {
            if !service.content.status.ingress.is_empty() {
                next.push("clear the status".to_owned());
            }
            next.push("delete the load balancer".to_owned());
        }
        Ok(None) => {}
        Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => {}
        Err(_) => next.push("ask the cloud whether there is a load balancer, and delete it".to_owned()),
    }
    next.push("remove the finalizer".to_owned());
    next
}

#[cfg(test)]
mod tests {
    use cloudprovider::LoadBalancerIngress;
    use controller_kit::services::LOAD_BALANCER_CLEANUP_FINALIZER;
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value, finalizer: bool, deleted: bool) -> Service {
        Service::from_json(json!({
            "metadata": {
                "namespace": "a", "name": "b",
                "finalizers": finalizer.then_some([LOAD_BALANCER_CLEANUP_FINALIZER]),
                "deletionTimestamp": deleted.then_some("2026-01-02T03:04:05Z"),
            },
            "spec": spec,
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        }))
    }

    #[test]
    fn each_state_has_its_next_step() {
        let lb = || json!({"type": "LoadBalancer"});
        let there = |ip: &str| {
            let ingress = LoadBalancerIngress { ip: Some(ip.into()), ..LoadBalancerIngress::default() };
            Ok(Some(LoadBalancerStatus { ingress: vec![ingress] }))
        };
        let error = |kind| Err(Error::new(kind, "x"));
        let nodes = [Node::from_json(json!({"metadata": {"name": "n"}}))];
        for (service, cloud, wanted, last) in [
            (service(lb(), true, false), there("192.0.2.1"), true, "nothing, once"),
            (service(lb(), false, false), there("192.0.2.1"), true, "add the finalizer"),
            (
                service(lb(), true, false),
                there("192.0.2.2"),
                true,
                "write what the cloud says into the status: 192.0.2.2",
            ),
            (service(lb(), true, false), Ok(None), true, "make the load balancer, with 1 nodes"),
            (service(lb(), true, false), error(ErrorKind::Unavailable), true, "ask the cloud again, after"),
            (service(lb(), true, false), error(ErrorKind::Unsupported), true, "wait for a change"),
            (service(lb(), true, false), error(ErrorKind::ImplementedElsewhere), true, "leave the Service"),
            (service(lb(), true, true), there("192.0.2.1"), false, "remove the finalizer"),
            (service(lb(), false, true), Ok(None), false, "nothing"),
            (service(json!({"type": "ClusterIP"}), false, false), Ok(None), false, "nothing"),
            (service(json!({"type": "NodePort"}), true, false), Ok(None), false, "remove the finalizer"),
            (
                service(json!({"type": "LoadBalancer", "loadBalancerClass": "x"}), false, false),
                Ok(None),
                false,
                "nothing",
            ),
            (
                service(json!({"type": "LoadBalancer", "loadBalancerClass": "x"}), true, false),
                Ok(None),
                false,
                "delete the load balancer if it is of this cloud",
            ),
        ] {
            let plan = plan(&service, &nodes, &cloud);
            assert_eq!(plan.wanted, wanted, "{service:?}");
            assert!(plan.next.last().is_some_and(|step| step.starts_with(last)), "{last} in {plan:?}");
        }
    }

    #[test]
    fn a_preferred_family_without_an_address_is_told() {
        for (families, policy, lacks) in [
            (&["IPv4", "IPv6"][..], "PreferDualStack", true),
            (&["IPv4"][..], "PreferDualStack", false),
            (&["IPv4", "IPv6"][..], "RequireDualStack", false),
        ] {
            let spec = json!({"type": "LoadBalancer", "ipFamilies": families, "ipFamilyPolicy": policy});
            let service = service(spec, true, false);
            let cloud = Ok(Some(service.content.status.clone()));
            let plan = plan(&service, &[Node::from_json(json!({"metadata": {"name": "n"}}))], &cloud);
            let words =
                "the Service is right; it has no IPv6 address, which PreferDualStack would like to have";
            assert_eq!(plan.next.iter().any(|step| step.ends_with(words)), lacks, "{plan:?}");
        }
    }

    #[test]
    fn the_status_is_cleared_first() {
        let there = Ok(Some(LoadBalancerStatus::default()));
        let plan = plan(&service(json!({"type": "LoadBalancer"}), true, true), &[], &there);
        assert_eq!(plan.next, ["clear the status", "delete the load balancer", "remove the finalizer"]);
    }

    #[test]
    fn nodes_that_are_left_out_are_named() {
        let node = |name: &str, labels: Value| {
            Node::from_json(json!({"metadata": {"name": name, "labels": labels}}))
        };
        let excluded = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
        let nodes = [node("b", json!({})), node("c", excluded), node("a", json!({}))];
        let plan = plan(&service(json!({"type": "LoadBalancer"}), true, false), &nodes, &Ok(None));
        assert_eq!(plan.back_ends, ["a", "b"]);
        let why = "label node.kubernetes.io/exclude-from-external-load-balancers".to_owned();
        assert_eq!(plan.left_out, [LeftOutNode { node: "c".into(), why }]);
    }
}
