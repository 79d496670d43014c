//! What a storage policy allows: the datastores that a resource pool has and that fulfil it. Pure, but for
//! [`read_policy`].

use cloudprovider::{Error, ErrorKind, Result};
use uuid::Uuid;

use super::{spec::invalid, vcenter_handle::VCenterHandle};
use crate::{
    moref::MoRef,
    vim::{
        element::Element,
        objects::{ObjectSpec, PropertyFilterSpec, PropertySpec, SelectionSpec, TraversalSpec},
        policies::{
            CheckRequirements, Hub, ProfileId, ProfileRequirement, QueryProfile, ResourceType,
            RetrieveContent, RetrievePolicyServices, policy_service,
        },
        property_collector::ObjectUpdate,
    },
};

const FIELD: &str = "spec.storagePolicyName";
const ACCESSIBLE: &str = "summary.accessible";
const MAINTENANCE: &str = "summary.maintenanceMode";

/// A storage policy, for machines of one resource pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoragePolicy {
    pub(crate) id: String,
    name: String,
    /// The datastores that fulfil it, in a fixed order.
    datastores: Vec<MoRef>,
}

impl StoragePolicy {
    /// What people call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether a machine of the resource pool may be on this datastore.
    pub(crate) fn allows(&self, datastore: &MoRef) -> bool {
        self.datastores.contains(datastore)
    }

    /// The datastore for a machine: the one that its spec names, or else one of those that it may use, always the same one for the same
    /// machine.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the named one is not allowed, [`ErrorKind::NotFound`] if none is.
    pub(crate) fn datastore(
        &self,
        named: Option<&MoRef>,
        uid: Uuid,
        may_use: impl Fn(&MoRef) -> bool,
    ) -> Result<MoRef> {
        if let Some(named) = named {
            if self.allows(named) {
                return Ok(named.clone());
            }
            return Err(invalid(format!(
                "spec.datastore: the storage policy {:?} does not allow {}, or the resource pool has not got it",
                self.name,
                named.id()
            )));
        }
        let usable: Vec<_> = self.datastores.iter().filter(|one| may_use(one)).collect();
        let count = u128::try_from(usable.len()).unwrap_or(u128::MAX).max(1);
        let chosen = usize::try_from(uid.as_u128() % count).unwrap_or_default();
        usable.get(chosen).map(|one| (*one).clone()).ok_or_else(|| {
            let words = format!(
                "{FIELD}: no datastore of the resource pool that the machine may be on fulfils {:?}",
                self.name
            );
            Error::new(ErrorKind::NotFound, words)
        })
    }
}

/// Reads what a policy allows on the datastores of a resource pool, in five calls.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is no such policy; those of the calls.
pub(crate) async fn read_policy(vcenter: &VCenterHandle, name: &str, pool: &MoRef) -> Result<StoragePolicy> {
    let services = vcenter.ask(&RetrievePolicyServices {}.of(&policy_service())).await?;
    let service = |name: &str| {
        let words = || vcenter.error(ErrorKind::Unsupported, "it has no storage policies");
        services.moref_of(name).ok_or_else(words)
    };
    let profiles = service("profileManager")?;
    let query =
        QueryProfile { resource_type: ResourceType { kind: "STORAGE" }, category: Some("REQUIREMENT") };
    let ids = vcenter.ask(&query.of(&profiles)).await?;
    let ids: Vec<_> = results(&ids).filter_map(|one| one.text_of("uniqueId")).map(id_of).collect();
    // both methods refuse empty lists, or take them for all
    let all = if ids.is_empty() {
        Element::default()
    } else {
        vcenter.ask(&RetrieveContent { profile_ids: ids }.of(&profiles)).await?
    };
    let id = policy_id(&all, name, vcenter.is_configured)?;
    let mut hubs = Vec::new();
    vcenter.read(selection(pool), |updates| hubs.extend(updates.iter().filter_map(usable))).await?;
    let check = CheckRequirements {
        hubs: hubs.iter().map(|one| Hub { kind: one.kind().to_owned(), id: one.id().to_owned() }).collect(),
        requirements: vec![ProfileRequirement { profile_id: id_of(&id) }],
    };
    let answer = if hubs.is_empty() {
        Element::default()
    } else {
        vcenter.ask(&check.of(&service("placementSolver")?)).await?
    };
    Ok(StoragePolicy { id, name: name.to_owned(), datastores: compatible(&answer, &hubs) })
}

fn id_of(id: &str) -> ProfileId {
    ProfileId { unique_id: id.to_owned() }
}

/// The results of an answer: it is the only one, or has several.
fn results(answer: &Element) -> impl Iterator<Item = &Element> {
    let is_list = answer.children.iter().any(|child| &*child.name == "returnval");
    let only = (!is_list && !answer.is_empty()).then_some(answer);
    only.into_iter().chain(answer.all("returnval"))
}

/// The ID of the policy with this name. `is_discreet`: an error does not say which there are.
fn policy_id(all: &Element, name: &str, is_discreet: bool) -> Result<String> {
    let named = results(all).find(|one| one.text_of("name") == Some(name));
    let id = named.and_then(|one| one.child("profileId")?.text_of("uniqueId"));
    id.map(str::to_owned).ok_or_else(|| {
        let mut known: Vec<_> = results(all).filter_map(|one| one.text_of("name")).collect();
        known.sort_unstable();
        let there_are = format!("; there are {}", known.join(", "));
        let there_are = if is_discreet { "" } else { &there_are };
        let words = format!("{FIELD}: there is no storage policy {name:?}{there_are}");
        Error::new(ErrorKind::NotFound, words)
    })
}

/// Selects the datastores of the hosts that a resource pool is on.
fn selection(pool: &MoRef) -> PropertyFilterSpec {
    let owner = TraversalSpec {
        name: Some("owner"),
        kind: "ResourcePool",
        path: "owner",
        skip: Some(true),
        select_set: vec![SelectionSpec { name: Some("datastores") }],
    };
    let datastores = TraversalSpec {
        name: Some("datastores"),
        kind: "ComputeResource",
        path: "datastore",
        skip: Some(false),
        select_set: Vec::new(),
    };
    PropertyFilterSpec {
        prop_set: vec![PropertySpec {
            kind: "Datastore",
            all: None,
            path_set: vec![ACCESSIBLE, MAINTENANCE],
        }],
        object_set: vec![ObjectSpec {
            obj: pool.clone(),
            skip: Some(true),
            select_set: vec![owner, datastores],
        }],
        report_missing_objects_in_results: None,
    }
}

/// A datastore that can be used.
fn usable(update: &ObjectUpdate<'_>) -> Option<MoRef> {
    let is = |path: &str, wrong: &dyn Fn(&Element) -> bool| {
        let value = update.properties.iter().find(|(name, _)| *name == path).and_then(|(_, value)| *value);
        !value.is_some_and(wrong)
    };
    let is_usable = is(ACCESSIBLE, &|value| !value.is_true())
        && is(MAINTENANCE, &|value| !matches!(&*value.text, "" | "normal"));
    (is_usable && update.object.kind() == "Datastore").then(|| update.object.clone())
}

/// The datastores among these that the answer has without an error.
fn compatible(answer: &Element, asked: &[MoRef]) -> Vec<MoRef> {
    let hub = |one: &Element| {
        let hub = one.child("hub")?;
        Some(MoRef::new(hub.text_of("hubType")?, hub.text_of("hubId")?))
    };
    let good = results(answer).filter(|one| one.child("error").is_none());
    let mut found: Vec<_> = good.filter_map(hub).filter(|one| asked.contains(one)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        testing::scripted::{node, text},
        vim::property_collector::UpdateKind,
    };

    pub(crate) fn datastore(number: usize) -> MoRef {
        MoRef::new("Datastore", &format!("datastore-{number}"))
    }

    /// A policy that allows these datastores.
    pub(crate) fn policy(datastores: &[usize]) -> StoragePolicy {
        StoragePolicy {
            id: "p".to_owned(),
            name: "gold".to_owned(),
            datastores: datastores.iter().copied().map(datastore).collect(),
        }
    }

    fn result(number: usize, is_wrong: bool) -> Element {
        let hub = node("hub", vec![text("hubType", "Datastore"), text("hubId", datastore(number).id())]);
        let mut children = vec![hub];
        children.extend(is_wrong.then(|| node("error", Vec::new())));
        node("returnval", children)
    }

    #[test]
    fn datastores_that_fulfil_a_policy() {
        let answer = node("", vec![result(2, false), result(1, true), result(3, false), result(9, false)]);
        let asked = [1, 2, 3].map(datastore);
        assert_eq!(compatible(&answer, &asked), [2, 3].map(datastore));
        // a single result is not in a list
        assert_eq!(compatible(&result(2, false), &asked), [datastore(2)]);
        assert!(compatible(&Element::default(), &asked).is_empty());
    }

    #[test]
    fn one_of_them_is_chosen() {
        let uid = Uuid::from_u128;
        let chosen = |number| policy(&[4, 5, 6]).datastore(None, uid(number), |_| true).ok();
        assert_eq!((0..4).map(chosen).collect::<Vec<_>>(), [4, 5, 6, 4].map(|one| Some(datastore(one))));
        assert_eq!(policy(&[4, 5]).datastore(Some(&datastore(5)), uid(0), |_| true).ok(), Some(datastore(5)));
        let error = policy(&[4]).datastore(Some(&datastore(5)), uid(0), |_| true).expect_err("not allowed");
        assert!(error.to_string().starts_with("spec.datastore: the storage policy \"gold\""), "{error}");
        let chosen = policy(&[4, 5]).datastore(None, uid(0), |one| *one == datastore(5));
        assert_eq!(chosen.ok(), Some(datastore(5)), "the other one may not be used");
        let error = policy(&[]).datastore(None, uid(0), |_| true).expect_err("none");
        assert!(error.to_string().starts_with("spec.storagePolicyName: no datastore"), "{error}");
    }

    #[test]
    fn a_policy_is_found_by_its_name() {
        let profile = |id: &str, name: &str| {
            node("returnval", vec![node("profileId", vec![text("uniqueId", id)]), text("name", name)])
        };
        let all = node("", vec![profile("1", "silver"), profile("2", "gold")]);
        assert_eq!(policy_id(&all, "gold", false).ok().as_deref(), Some("2"));
        assert_eq!(policy_id(&profile("1", "silver"), "silver", false).ok().as_deref(), Some("1"));
        let error = policy_id(&all, "iron", true).expect_err("none");
        assert!(error.to_string().ends_with("no storage policy \"iron\""), "{error}");
        let error = policy_id(&all, "iron", false).expect_err("none");
        assert!(error.to_string().ends_with("no storage policy \"iron\"; there are gold, silver"), "{error}");
    }

    #[test]
    fn a_datastore_in_maintenance_is_left_out() {
        for (accessible, mode, expected) in [
            ("true", Some("normal"), true),
            ("true", None, true),
            ("true", Some("inMaintenance"), false),
            ("false", Some("normal"), false),
        ] {
            let (accessible, mode) = (text("val", accessible), mode.map(|mode| text("val", mode)));
            let properties = vec![(ACCESSIBLE, Some(&accessible)), (MAINTENANCE, mode.as_ref())];
            let update = ObjectUpdate { object: datastore(1), kind: UpdateKind::Enter, properties };
            assert_eq!(usable(&update).is_some(), expected, "{accessible:?} {mode:?}");
        }
    }
}
