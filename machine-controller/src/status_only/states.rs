//! What the statuses of status-only objects say, for people.

use std::collections::BTreeSet;

use cloudprovider::machines::{AuxiliaryKind, Kinds};
use controller_kit::writes::within_deadline;
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;

use crate::{
    auxiliary::{Auxiliary, WireAuxiliary},
    discovery::served_auxiliary,
    names::READY,
};

/// A status-only object, as its status says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its kind.
    pub kind: &'static str,
    /// Its name, with its namespace if it has one.
    pub name: String,
    /// Why it is not ready. `None`: it is.
    pub flaw: Option<String>,
}

impl std::fmt::Display for State {
    /// For people: `Zone a: ready`, or `Zone a: not ready: NoTag: there is no tag`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, name, flaw } = self;
        match flaw {
            None => write!(f, "{kind} {name}: ready"),
            Some(flaw) => write!(f, "{kind} {name}: not ready: {flaw}"),
        }
    }
}

/// An object that another one names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference<'a> {
    kind: AuxiliaryKind,
    name: &'a str,
}

/// The status-only objects that a machine uses: the failure domain that it is in, and those that its specs
/// name with `kind` and `name`.
pub fn references<'a>(
    kinds: &Kinds,
    failure_domain: Option<&'a str>,
    specs: impl IntoIterator<Item = &'a Value>,
) -> BTreeSet<Reference<'a>> {
    let told = || kinds.auxiliary.iter().filter(|kind| kind.is_status_only);
    let domains = told().filter(|kind| kind.failure_domain.is_some());
    let mut found: BTreeSet<_> = failure_domain
        .into_iter()
        .flat_map(|name| domains.clone().map(move |kind| Reference { kind: *kind, name }))
        .collect();
    for value in specs.into_iter().filter_map(Value::as_object).flat_map(|spec| spec.values()) {
        let of_kind = told().find(|kind| value["kind"] == kind.kind);
        if let (Some(kind), Some(name)) = (of_kind, value["name"].as_str()) {
            found.insert(Reference { kind: *kind, name });
        }
    }
    found
}

/// The states of these objects, sorted. Of a kind that is not served nothing is said.
///
/// # Errors
/// The API server does not answer.
pub async fn states_of(
    client: &Client,
    kinds: &Kinds,
    references: &BTreeSet<Reference<'_>>,
    namespace: &str,
) -> Result<Vec<State>, String> {
    let mut states = Vec::new();
    for kind in served(client, kinds).await? {
        let wanted: Vec<_> = references.iter().filter(|one| one.kind == kind).collect();
        if wanted.is_empty() {
            continue;
        }
        let all = list(client, &kind, Some(namespace)).await?;
        states.extend(wanted.into_iter().map(|one| {
            let found = all.iter().find(|kept| kept.object.name == one.name);
            let missing = || State {
                kind: kind.kind,
                name: one.name.to_owned(),
                flaw: Some("there is no such object".to_owned()),
            };
            found.map_or_else(missing, |kept| state_of(&kind, kept))
        }));
    }
    Ok(states)
}

/// The states of all status-only objects, in one namespace if there is one.
///
/// # Errors
/// The API server does not answer.
pub async fn all_states(
    client: &Client,
    kinds: &Kinds,
    namespace: Option<&str>,
) -> Result<Vec<State>, String> {
    let mut states = Vec::new();
    for kind in served(client, kinds).await? {
        let all = list(client, &kind, namespace).await?;
        states.extend(all.iter().map(|kept| state_of(&kind, kept)));
    }
    Ok(states)
}

/// The status-only kinds that the API server serves.
async fn served(client: &Client, kinds: &Kinds) -> Result<Vec<AuxiliaryKind>, String> {
    let told: Vec<_> = kinds.auxiliary.iter().filter(|kind| kind.is_status_only).copied().collect();
    let served = served_auxiliary(client, &told).await?;
    Ok(told.into_iter().zip(served).filter(|(_, is_served)| *is_served).map(|(kind, _)| kind).collect())
}

async fn list(
    client: &Client,
    kind: &AuxiliaryKind,
    namespace: Option<&str>,
) -> Result<Vec<Auxiliary>, String> {
    let version = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&version, kind.plural);
    let api = match namespace.filter(|_| kind.is_namespaced) {
        Some(namespace) => Api::<WireAuxiliary>::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let listed = within_deadline(api.list(&ListParams::default())).await;
    let listed = listed.map_err(|error| format!("{} cannot be listed: {error}", kind.plural))?;
    Ok(listed.items.into_iter().map(Auxiliary::from).collect())
}

fn state_of(kind: &AuxiliaryKind, kept: &Auxiliary) -> State {
    let object = &kept.object;
    let name = match &object.namespace {
        Some(namespace) => format!("{namespace}/{}", object.name),
        None => object.name.clone(),
    };
    let infra = kept.as_infra();
    let flaw = match infra.condition(READY) {
        Some(ready) if ready["status"] == "True" => None,
        Some(ready) => {
            let words = ["reason", "message"].map(|field| ready[field].as_str().unwrap_or_default());
            Some(words.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": "))
        }
        None => Some("the machine controller has said nothing about it yet".to_owned()),
    };
    State { kind: kind.kind, name, flaw }
}

#[cfg(test)]
mod tests {
    use cloudprovider::machines::Kind;
    use serde_json::json;

    use super::*;

    const ZONE: AuxiliaryKind = AuxiliaryKind::new("example.org", "v1", Kind::new("Zone", "zones"))
        .cluster_scoped()
        .status_only()
        .failure_domains("zone.example.org");
    const IDENTITY: AuxiliaryKind =
        AuxiliaryKind::new("example.org", "v1", Kind::new("Identity", "identities"))
            .cluster_scoped()
            .status_only();
    const KINDS: Kinds =
        Kinds::new("v1", Kind::new("A", "as"), Kind::new("B", "bs")).with_auxiliary(&[ZONE, IDENTITY]);

    #[test]
    fn a_machine_uses_its_failure_domain_and_what_its_specs_name() {
        let of = |domain, spec: Value| {
            let found = references(&KINDS, domain, [&spec]);
            found.iter().map(|one| format!("{} {}", one.kind.kind, one.name)).collect::<Vec<_>>()
        };
        let identity = json!({"identityRef": {"kind": "Identity", "name": "team"}});
        assert_eq!(of(Some("a"), identity), ["Identity team", "Zone a"]);
        let secret = json!({"identityRef": {"kind": "Secret", "name": "team"}, "kind": "Zone", "name": "z"});
        assert!(of(None, secret).is_empty());
        assert!(of(None, Value::Null).is_empty());
    }

    #[test]
    fn a_state_says_why_an_object_is_not_ready() {
        let of = |status: Value| {
            let wire = json!({
                "apiVersion": "example.org/v1", "kind": "Zone", "status": status, "metadata": {"name": "z"},
            });
            let kept: Auxiliary = serde_json::from_value::<WireAuxiliary>(wire).expect("an object").into();
            state_of(&ZONE, &kept).to_string()
        };
        let ready = |status: &str, message: &str| json!({"conditions": [{"type": "Ready", "status": status, "reason": "Told", "message": message}]});
        assert_eq!(of(ready("True", "")), "Zone z: ready");
        assert_eq!(of(ready("False", "no tag")), "Zone z: not ready: Told: no tag");
        assert_eq!(of(ready("Unknown", "")), "Zone z: not ready: Told");
        assert!(of(Value::Null).ends_with("has said nothing about it yet"));
    }
}
