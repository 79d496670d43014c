//! What the objects ask for, and how that differs from what is there.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::world::{BLOCK_MOVE, IDENTITY, condition};

/// The first thing that is not as the objects ask for.
///
/// `objects` are the machines, `have_data` the names of those with bootstrap data, `cloud` the lines of
/// [`FakeCloud::objects`](cloudprovider::testing::FakeCloud::objects), `foreign` those among them that somebody else has made.
pub(super) fn difference(
    objects: &[Value],
    have_data: &BTreeSet<String>,
    cloud: &[String],
    foreign: &BTreeSet<String>,
) -> Option<String> {
    let cloud: BTreeSet<&str> =
        cloud.iter().map(String::as_str).filter(|line| !line.starts_with("endpoint/")).collect();
    let mut wanted: BTreeSet<String> = foreign.clone();
    for object in objects {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        if !metadata["deletionTimestamp"].is_null() {
            return Some(format!("{name} is still being deleted"));
        }
        let ready = condition(object, "Ready");
        let (status, reason) = (&ready["status"], ready["reason"].as_str().unwrap_or_default());
        if condition(object, "Paused")["status"] != "False" {
            return Some(format!("{name} does not say that it is not paused"));
        }
        let has_provider_id = object["spec"]["providerID"].is_string();
        let uid = metadata["annotations"][IDENTITY].as_str().unwrap_or_default();
        let (disk, instance) = (format!("disk/{name} of {uid}"), format!("instance/{name} of {uid}"));
        if !has_provider_id && !have_data.contains(name) {
            if reason != "WaitingForBootstrapData" {
                return Some(format!("{name} waits for {reason:?} instead of bootstrap data"));
            }
            // An earlier step may have made the disk, before the data were taken away.
            continue;
        }
        let is_there = cloud.contains(instance.as_str());
        if !is_there && has_provider_id {
            if reason != "MachineLost" {
                return Some(format!("{name} is lost, and says {reason:?}"));
            }
            if cloud.contains(disk.as_str()) {
                wanted.insert(disk);
            }
            continue;
        }
        if !is_there && foreign.contains(&format!("disk/{name}")) {
            if reason != "ForeignObject" {
                return Some(format!("the disk of {name} is somebody else's, and it says {reason:?}"));
            }
            continue;
        }
        if !is_there {
            return Some(format!("{name} has no instance and says {reason:?}"));
        }
        if status != "True" {
            return Some(format!("{name} is not ready: {reason:?}"));
        }
        if object["status"]["initialization"]["provisioned"] != true {
            return Some(format!("{name} is not provisioned"));
        }
        if object["spec"]["providerID"] != format!("fake:///{uid}") {
            return Some(format!("{name} has the provider ID {}", object["spec"]["providerID"]));
        }
        if !metadata["annotations"][BLOCK_MOVE].is_null() {
            return Some(format!("{name} holds a move"));
        }
        wanted.extend([disk, instance]);
    }
    let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    let (extra, missing): (Vec<_>, Vec<_>) =
        (cloud.difference(&wanted).collect(), wanted.difference(&cloud).collect());
    (!extra.is_empty() || !missing.is_empty())
        .then(|| format!("in the cloud nobody asks for {extra:?}, and {missing:?} are missing"))
}

/// Whether a machine of a history has the object of a guest.
pub(super) fn has_guest(name: &str) -> bool {
    matches!(name, "m0" | "m2")
}

/// The first thing about the objects of guests that is not as the machines ask for.
pub(super) fn difference_of_guests(objects: &[Value], guests: &[Value]) -> Option<String> {
    let owner_of = |guest: &Value| guest["metadata"]["ownerReferences"][0]["uid"].clone();
    for guest in guests {
        let owner = owner_of(guest);
        if !objects.iter().any(|object| object["metadata"]["uid"] == owner) {
            return Some(format!("the guest {} is of nobody", guest["metadata"]["name"]));
        }
    }
    objects.iter().find_map(|object| {
        let (metadata, ready) = (&object["metadata"], condition(object, "Ready"));
        let name = metadata["name"].as_str().unwrap_or_default();
        let phase = match (ready["status"].as_str(), ready["reason"].as_str()) {
            (Some("True"), _) => "Running",
            (_, Some("MachineLost")) => "Lost",
            _ => return None,
        };
        let guest = guests.iter().find(|guest| owner_of(guest) == metadata["uid"]);
        match guest {
            None if has_guest(name) => Some(format!("{name} has no guest")),
            Some(_) if !has_guest(name) => Some(format!("{name} has a guest")),
            Some(guest) if guest["status"]["phase"] != phase => {
                Some(format!("the guest of {name} is {}, and not {phase}", guest["status"]["phase"]))
            }
            _ => None,
        }
    })
}
