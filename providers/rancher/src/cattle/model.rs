//! The objects of the API, with the fields that matter here. Unknown fields are ignored.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub(crate) use crate::norman::pages::Collection;
use crate::norman::reply::or_default;

/// Whether an object is gone. One that is being removed is not.
fn is_gone(removed: Option<&Value>, state: Option<&str>) -> bool {
    removed.is_some() || matches!(state, Some("removed" | "purging" | "purged"))
}

/// The state of an object that the server is about to remove.
const REMOVING: &str = "removing";

/// A host of a listing, or why it cannot be read. So one odd host does not spoil a listing.
#[derive(Debug)]
pub(crate) struct ListedHost(pub(crate) Result<Host, String>);

impl<'de> Deserialize<'de> for ListedHost {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let id = value.get("id").and_then(Value::as_str).unwrap_or("without an ID").to_owned();
        Ok(Self(serde_json::from_value(value).map_err(|error| format!("host {id} cannot be read: {error}"))))
    }
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Host {
    /// Such as `1h5`.
    pub(crate) id: String,
    /// The identity of the host, which provider IDs hold.
    pub(crate) uuid: String,
    #[serde(default)]
    pub(crate) hostname: Option<String>,
    #[serde(default)]
    pub(crate) state: Option<String>,
    #[serde(default)]
    pub(crate) agent_state: Option<String>,
    #[serde(default)]
    pub(crate) agent_ip_address: Option<String>,
    #[serde(default, deserialize_with = "labels")]
    pub(crate) labels: BTreeMap<String, String>,
    /// When the host was removed.
    #[serde(default)]
    pub(crate) removed: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) links: BTreeMap<String, String>,
}

impl Host {
    /// Whether the host is still there. One that is being removed is.
    pub(crate) fn exists(&self) -> bool {
        !is_gone(self.removed.as_ref(), self.state.as_deref())
    }

    /// The address of the agent, if the host says one.
    pub(crate) fn agent_ip(&self) -> Option<IpAddr> {
        self.agent_ip_address.as_deref()?.trim().parse().ok()
    }
}

/// An IP address of a host.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct IpAddress {
    #[serde(default)]
    pub(crate) address: Option<String>,
    #[serde(default)]
    pub(crate) state: Option<String>,
}

/// A stack.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stack {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) external_id: Option<String>,
    #[serde(default)]
    pub(crate) state: Option<String>,
    #[serde(default)]
    pub(crate) removed: Option<Value>,
}

impl Stack {
    /// Whether it is gone.
    pub(crate) fn is_gone(&self) -> bool {
        is_gone(self.removed.as_ref(), self.state.as_deref())
    }

    /// Whether it will be gone soon, with everything in it.
    pub(crate) fn is_being_removed(&self) -> bool {
        self.state.as_deref() == Some(REMOVING)
    }
}

/// What all services of a stack have, load balancers and external services too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceFields {
    /// Such as `1s7`.
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) stack_id: Option<String>,
    #[serde(default)]
    pub(crate) state: Option<String>,
    /// When it was removed.
    #[serde(default)]
    pub(crate) removed: Option<Value>,
    /// The URLs of the actions that are possible now.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) actions: BTreeMap<String, String>,
}

impl ServiceFields {
    /// Whether it is gone.
    pub(crate) fn is_gone(&self) -> bool {
        is_gone(self.removed.as_ref(), self.state.as_deref())
    }

    /// Whether it will be gone soon.
    pub(crate) fn is_being_removed(&self) -> bool {
        self.state.as_deref() == Some(REMOVING)
    }

    /// Whether it is active, or about to be.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state.as_deref(), Some("active" | "activating" | "updating-active"))
    }

    /// Whether the server works on a change of it.
    pub(crate) fn is_updating(&self) -> bool {
        matches!(self.state.as_deref(), Some("updating-active" | "updating-inactive" | "upgrading"))
    }
}

/// A load balancer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadBalancerService {
    #[serde(flatten)]
    pub(crate) common: ServiceFields,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) launch_config: LaunchConfig,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) lb_config: LbConfig,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) public_endpoints: Vec<PublicEndpoint>,
}

/// The container of a load balancer. Fields that are not known here are kept: an update sends them back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LaunchConfig {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) ports: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image_uuid: Option<String>,
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

/// What a load balancer does. Fields that are not known here are kept: an update sends them back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LbConfig {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) port_rules: Vec<PortRule>,
    /// Text that Rancher appends to the configuration of HAProxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<String>,
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

/// Sends what arrives at one port to a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PortRule {
    /// The port of the load balancer.
    pub(crate) source_port: Option<u16>,
    /// The port of the service.
    pub(crate) target_port: Option<u16>,
    /// The service.
    pub(crate) service_id: Option<String>,
    /// `tcp` here.
    pub(crate) protocol: Option<String>,
}

/// An address at which a load balancer is reached.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PublicEndpoint {
    pub(crate) ip_address: Option<String>,
}

/// Addresses outside of Rancher under a name: one for each Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExternalService {
    #[serde(flatten)]
    pub(crate) common: ServiceFields,
    #[serde(default)]
    pub(crate) description: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) external_ip_addresses: Vec<String>,
}

/// A setting of the server.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Setting {
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) value: Option<String>,
    #[serde(default)]
    pub(crate) active_value: Option<String>,
}

impl Setting {
    /// The value, or else the one that is in force without it. An empty text is none.
    pub(crate) fn text(self) -> Option<String> {
        [self.value, self.active_value].into_iter().flatten().find(|text| !text.is_empty())
    }
}

/// Labels whose values are texts. Others are no labels.
fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let labels: BTreeMap<String, Value> = or_default(from)?;
    let text = |(key, value)| match value {
        Value::String(value) => Some((key, value)),
        _ => None,
    };
    Ok(labels.into_iter().filter_map(text).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn no_answer_panics(text in "([\\[\\]{}:,]|\"(id|uuid|data|type|pagination|labels|links|state)\"|null|true|1|\\PC){0,30}") {
            let _ = serde_json::from_str::<Collection<Host>>(&text).map(|page| page.data.iter().all(Host::exists));
            let _ = serde_json::from_str::<Collection<LoadBalancerService>>(&text);
            let _ = serde_json::from_str::<Collection<ExternalService>>(&text);
        }
    }

    #[test]
    fn nothing_is_nothing() {
        let host: Host = serde_json::from_value(json!({
            "id": "1h5", "uuid": "u", "hostname": null, "labels": null, "links": null, "removed": null,
            "info": {"anything": [1, 2]}
        }))
        .expect("a host");
        assert!(host.exists() && host.agent_ip().is_none() && host.labels.is_empty());
        let host: Host =
            serde_json::from_value(json!({"id": "1h5", "uuid": "u", "labels": {"a": "b", "c": 5}}))
                .expect("a host");
        assert_eq!(host.labels.into_iter().collect::<Vec<_>>(), [("a".to_owned(), "b".to_owned())]);
        assert!(serde_json::from_value::<Host>(json!({"id": "1h5"})).is_err(), "a host without an identity");
        assert!(
            serde_json::from_value::<Collection<Host>>(json!({"type": "collection"})).is_err(),
            "no data"
        );
    }

    #[test]
    fn an_update_keeps_what_is_not_known_here() {
        let text =
            json!({"ports": ["80:80/tcp"], "imageUuid": "docker:x", "labels": {"a": "b"}, "memory": 5});
        let config: LaunchConfig = serde_json::from_value(text.clone()).expect("a launchConfig");
        assert_eq!(serde_json::to_value(config).expect("JSON"), text);
    }

    #[test]
    fn an_empty_setting_is_none() {
        let text = |value: Value, active: Value| {
            let setting = json!({"name": "lb.instance.image", "value": value, "activeValue": active});
            serde_json::from_value::<Setting>(setting).expect("a setting").text()
        };
        assert_eq!(text(json!("a"), json!("b")).as_deref(), Some("a"));
        for value in [Value::Null, json!("")] {
            assert_eq!(text(value.clone(), json!("b")).as_deref(), Some("b"));
            assert_eq!(text(value, json!("")), None);
        }
    }

    #[test]
    fn services_have_their_own_fields_and_the_common_ones() {
        let text = json!({
            "id": "1s7", "name": "a", "stackId": "1st5", "state": "active", "removed": null,
            "actions": {"activate": "/x"}, "launchConfig": null, "publicEndpoints": null, "anything": 5,
            "externalIpAddresses": ["10.0.0.1"], "lbConfig": {"portRules": [{"sourcePort": 80}], "x": 1},
        });
        let found: LoadBalancerService = serde_json::from_value(text.clone()).expect("a load balancer");
        assert_eq!((found.common.id.as_str(), found.common.stack_id.as_deref()), ("1s7", Some("1st5")));
        assert!(!found.common.is_gone() && found.common.is_active() && !found.common.is_updating());
        assert_eq!(found.lb_config.port_rules.len(), 1);
        let found: ExternalService = serde_json::from_value(text).expect("an external service");
        assert_eq!(found.external_ip_addresses, ["10.0.0.1"]);
        assert!(found.common.actions.contains_key("activate"));
        serde_json::from_value::<ExternalService>(json!({"name": "a"})).expect_err("no identity");
    }

    #[test]
    fn a_host_that_is_being_removed_is_still_there() {
        for (state, removed, exists) in [
            ("active", Value::Null, true),
            ("removing", Value::Null, true),
            ("removed", Value::Null, false),
            ("purged", Value::Null, false),
            ("removed", json!("2017-08-02T10:00:00Z"), false),
        ] {
            let host: Host =
                serde_json::from_value(json!({"id": "1h5", "uuid": "u", "state": state, "removed": removed}))
                    .expect("a host");
            assert_eq!(host.exists(), exists, "{state}");
        }
    }
}
