//! Claims of addresses as objects of the API: `IPAddress` of `networking.k8s.io/v1`, whose name is the address. So the API
//! server sees to it that each address is claimed once.

use std::net::IpAddr;

use cloudprovider::{AddressClaim, AddressHolder, ServiceRef};
use k8s_openapi::api::networking::v1::{IPAddress, IPAddressSpec, ParentReference};
use kube::{ResourceExt as _, api::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The label by which claims are told from the `IPAddress` objects of others, and its value.
pub(super) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "cloud-controller-manager");

/// The annotation with the holders, as JSON. `spec.parentRef` has room for one, and never changes.
const HOLDERS: &str = "service.cloudprovider.kubernetes.io/holders";

/// One holder in the annotation.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holder {
    namespace: String,
    name: String,
    uid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sharing_key: Option<String>,
    #[serde(default)]
    ports: Vec<String>,
}

/// The selector of all claims.
pub(super) fn selector() -> String {
    format!("{}={}", MANAGED_BY.0, MANAGED_BY.1)
}

/// The object of a claim that is not stored yet. Its parent is the first holder.
pub(super) fn to_object(claim: &AddressClaim) -> IPAddress {
    let parent = claim.holders.first().map(|holder| holder.service.clone()).unwrap_or_default();
    let (label, value) = MANAGED_BY;
    IPAddress {
        metadata: ObjectMeta {
            name: Some(claim.address.to_string()),
            labels: Some([(label.to_owned(), value.to_owned())].into()),
            annotations: Some([(HOLDERS.to_owned(), holders_text(claim))].into()),
            ..ObjectMeta::default()
        },
        spec: IPAddressSpec {
            parent_ref: ParentReference {
                group: Some(String::new()),
                resource: "services".to_owned(),
                namespace: Some(parent.namespace),
                name: parent.name,
            },
        },
    }
}

/// A merge patch that sets the holders if the object still has the claim's version.
pub(super) fn to_patch(claim: &AddressClaim) -> Value {
    json!({"metadata": {"resourceVersion": claim.version, "annotations": {HOLDERS: holders_text(claim)}}})
}

fn holders_text(claim: &AddressClaim) -> String {
    let holder = |holder: &AddressHolder| Holder {
        namespace: holder.service.namespace.clone(),
        name: holder.service.name.clone(),
        uid: holder.service.uid.clone(),
        sharing_key: holder.sharing_key.clone(),
        ports: holder.ports.clone(),
    };
    let holders: Vec<Holder> = claim.holders.iter().map(holder).collect();
    serde_json::to_string(&holders).unwrap_or_default()
}

/// The claim of an object. `None`: it is not one of ours.
pub(super) fn from_object(object: &IPAddress) -> Option<AddressClaim> {
    let (label, value) = MANAGED_BY;
    if object.labels().get(label).is_none_or(|found| found != value) {
        return None;
    }
    let address: IpAddr = object.name_any().parse().ok()?;
    let text = object.annotations().get(HOLDERS).map(String::as_str).unwrap_or_default();
    let mut holders: Vec<AddressHolder> = serde_json::from_str::<Vec<Holder>>(text)
        .unwrap_or_default()
        .into_iter()
        .map(|holder| AddressHolder {
            service: ServiceRef { namespace: holder.namespace, name: holder.name, uid: holder.uid },
            sharing_key: holder.sharing_key,
            ports: holder.ports,
        })
        .collect();
    if holders.is_empty() {
        // Somebody changed the annotation. The address is taken all the same.
        let parent = &object.spec.parent_ref;
        let namespace = parent.namespace.clone().unwrap_or_default();
        let service = ServiceRef { namespace, name: parent.name.clone(), uid: String::new() };
        holders.push(AddressHolder { service, ..AddressHolder::default() });
    }
    Some(AddressClaim { address, holders, version: object.resource_version().unwrap_or_default() })
}

/// What the address belongs to, for people.
pub(super) fn parent(object: &IPAddress) -> String {
    let parent = &object.spec.parent_ref;
    let namespace = parent.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} {namespace}{}", parent.resource, parent.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> AddressClaim {
        let holder = |name: &str, key: Option<&str>| AddressHolder {
            service: ServiceRef { namespace: "a".into(), name: name.into(), uid: format!("uid-{name}") },
            sharing_key: key.map(str::to_owned),
            ports: vec!["80/TCP".into()],
        };
        AddressClaim {
            address: "2001:db8::1".parse().expect("an address"),
            holders: vec![holder("b", Some("k")), holder("c", None)],
            version: String::new(),
        }
    }

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        let mut object = to_object(&claim());
        assert_eq!(object.name_any(), "2001:db8::1");
        let parent = &object.spec.parent_ref;
        assert_eq!((parent.resource.as_str(), parent.name.as_str()), ("services", "b"));
        assert_eq!(parent.namespace.as_deref(), Some("a"));
        object.metadata.resource_version = Some("7".into());
        let stored = AddressClaim { version: "7".into(), ..claim() };
        assert_eq!(from_object(&object), Some(stored.clone()));
        let text = holders_text(&stored);
        assert_eq!(
            to_patch(&stored),
            json!({"metadata": {"resourceVersion": "7", "annotations": {"service.cloudprovider.kubernetes.io/holders": text}}})
        );
    }

    #[test]
    fn what_others_wrote() {
        let mut object = to_object(&claim());
        object.annotations_mut().clear();
        let read = from_object(&object).expect("a claim of ours");
        assert_eq!(read.holders.len(), 1);
        assert_eq!(
            (read.holders[0].service.to_string(), read.holders[0].service.uid.as_str()),
            ("a/b".into(), "")
        );
        object.labels_mut().clear();
        assert_eq!(from_object(&object), None);
        assert_eq!(parent(&object), "services a/b");
    }
}
