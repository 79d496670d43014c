//! What to do about a load balancer: decided from what Harvester has and what the Service asks for.

use std::net::IpAddr;

use cloudprovider::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

use super::{
    demand::{Demand, OWNER},
    object::{CLUSTER, DHCP, GROUP, KIND, LoadBalancer, Spec, VERSION},
};

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Creates the object.
    Create,
    /// Sends this merge patch. It names the version that was read, so it changes nothing else.
    Change(Value),
    /// Everything is as it should be.
    Keep,
    /// It is being deleted, and has to be gone first.
    Wait,
}

/// Whether the object is the load balancer of the Service with this UID.
pub(super) fn is_of(found: &LoadBalancer, uid: &str) -> bool {
    found.metadata.labels.as_ref().and_then(|labels| labels.get(OWNER)).is_some_and(|owner| owner == uid)
}

/// The step towards what is demanded.
///
/// # Errors
/// [`ErrorKind::Conflict`] if the object belongs to another program, [`ErrorKind::Unsupported`] for what
/// cannot be changed.
pub(super) fn step(found: Option<&LoadBalancer>, demand: &Demand) -> Result<Step> {
    let Some(found) = found else {
        return match &demand.asked_address {
            Some(asked) => Err(asked.refusal()),
            None => Ok(Step::Create),
        };
    };
    if !is_of(found, &demand.uid) {
        return Err(foreign(found, &demand.uid));
    }
    if found.metadata.deletion_timestamp.is_some() {
        return Ok(Step::Wait);
    }
    refuse_other(&found.spec, demand)?;
    let mut metadata = Map::new();
    let mut spec = Map::new();
    let labels = missing(&demand.labels, found.metadata.labels.as_ref());
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), labels.into());
    }
    if found.spec.listeners != demand.spec.listeners {
        spec.insert("listeners".to_owned(), json!(demand.spec.listeners));
    }
    if found.spec.health_check != demand.spec.health_check {
        spec.insert("healthCheck".to_owned(), json!(demand.spec.health_check));
    }
    // What decides about the address counts until there is one: addresses stay. The annotations count at the
    // creation only, since Harvester's webhook overwrites them with every write.
    if allocated(found).is_none() && found.spec.ip_pool != demand.spec.ip_pool {
        spec.insert("ipPool".to_owned(), json!(demand.spec.ip_pool));
    }
    if metadata.is_empty() && spec.is_empty() {
        return Ok(Step::Keep);
    }
    metadata.insert("resourceVersion".to_owned(), json!(found.metadata.resource_version));
    let mut patch = Map::from_iter([("metadata".to_owned(), metadata.into())]);
    if !spec.is_empty() {
        patch.insert("spec".to_owned(), spec.into());
    }
    Ok(Step::Change(patch.into()))
}

/// Refuses what Harvester does not change.
fn refuse_other(spec: &Spec, demand: &Demand) -> Result<()> {
    if spec.workload_type.as_deref() != Some(CLUSTER) {
        let words = "the load balancer in Harvester was changed to another workloadType than cluster: delete it there";
        return Err(Error::new(ErrorKind::Conflict, words));
    }
    let has = spec.ipam.as_deref().unwrap_or("pool");
    match demand.asked_ipam {
        Some(asked) if asked.as_str() != has => Err(Error::unsupported(format!(
            "Harvester does not change the ipam of a load balancer from {has} to {asked}: delete the Service and create it anew"
        ))),
        _ => Ok(()),
    }
}

/// The entries of `wanted` that an object has not.
fn missing(wanted: &super::object::Words, has: Option<&super::object::Words>) -> Map<String, Value> {
    let is_missing = |(key, value): &(&String, &String)| has.and_then(|has| has.get(*key)) != Some(value);
    wanted.iter().filter(is_missing).map(|(key, value)| (key.clone(), json!(value))).collect()
}

/// What Harvester's webhook made of the annotations that were asked for, if it is something else.
pub(super) fn overwritten(made: &LoadBalancer, demand: &Demand) -> Option<String> {
    let has = made.metadata.annotations.as_ref();
    let other = missing(&demand.annotations, has);
    let shown = other.keys().map(|key| {
        let now = has.and_then(|has| has.get(key)).map_or("", String::as_str);
        format!("{key} is {now:?}")
    });
    let shown: Vec<_> = shown.collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

fn foreign(found: &LoadBalancer, uid: &str) -> Error {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    let namespace = found.metadata.namespace.as_deref().unwrap_or_default();
    let words = format!(
        "the LoadBalancer {namespace}/{name} in Harvester is not of this daemon; if it is the one of this Service, hand it over: \
         kubectl label --namespace {namespace} loadbalancers.{GROUP} {name} {OWNER}={uid}"
    );
    Error::new(ErrorKind::Conflict, words)
}

/// The object to create.
pub(super) fn object(name: &str, namespace: &str, demand: &Demand) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": demand.labels,
            "annotations": demand.annotations,
        },
        "spec": demand.spec,
    })
}

/// The address that Harvester gave, if any. With `dhcp` it is [`DHCP`].
pub(super) fn allocated(found: &LoadBalancer) -> Option<IpAddr> {
    let text = &found.status.as_ref()?.allocated_address.ip;
    let address = text.parse().ok()?;
    // Only DHCP has no address of its own.
    (address != DHCP || found.spec.ipam.as_deref() == Some("dhcp")).then_some(address)
}

/// Why Harvester gives no address, in its words.
pub(super) fn trouble(found: &LoadBalancer) -> Option<String> {
    let conditions = &found.status.as_ref()?.conditions;
    let not_ready = conditions.iter().find(|one| one.kind == "Ready" && one.status == "False")?;
    let message = not_ready.message.trim();
    (!message.is_empty())
        .then(|| message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect())
}

/// The patch that shows people in Harvester the address in use. `None` if it is there already.
pub(super) fn shown(found: &LoadBalancer, address: IpAddr) -> Option<Value> {
    let text = address.to_string();
    let is_shown = found.status.as_ref().is_some_and(|status| status.address == text);
    let version = &found.metadata.resource_version;
    (!is_shown).then(|| json!({"metadata": {"resourceVersion": version}, "status": {"address": text}}))
}

#[cfg(test)]
mod tests;
