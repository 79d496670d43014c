//! Rules about provider IDs.

use futures::FutureExt as _;

use super::{
    check::Check,
    run::{Checked, Run, called, described, ensure, failed, with_id},
    strange::{stranger, texts},
};
use crate::{InstanceLookup, NodeIdentity, ProviderId};

/// IDs that other clouds write.
const FOREIGN: &[&str] = &[
    "aws:///eu-west-1a/i-0123456789abcdef0",
    "azure:///subscriptions/1/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm",
    "gce://project/europe-west1-b/vm",
    "kind://docker/kind/kind-control-plane",
    "k3s://node-1",
    "openstack:///9f0f6a5e-6c61-4d51-8d0b-6f8c4a3a2b10",
    "hcloud://1234567",
    "digitalocean://1234567",
];

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "form",
        says: "Each ID that is given begins with the provider's name and ://, is complete, and is owned.",
        look: |run| form(run).boxed(),
    },
    Check {
        name: "round-trip",
        says: "A node with the ID that a look-up gave has the same instance and the same ID, byte for byte.",
        look: |run| round_trip(run).boxed(),
    },
    Check {
        name: "other-forms",
        says: "IDs in other forms that the provider reads are owned, and lead to the same instance.",
        look: |run| other_forms(run).boxed(),
    },
    Check {
        name: "foreign",
        says: "IDs of other clouds are not owned, also those whose names only look like this one's.",
        look: |run| foreign(run).boxed(),
    },
    Check {
        name: "broken",
        says: "An ID that has nothing behind the provider's name is no instance's: it is not owned, or else unknown.",
        look: |run| broken(run).boxed(),
    },
    Check {
        name: "any-text",
        says: "Any text is owned or not: always the same, without a panic, before the start and after it.",
        look: |run| any_text(run).boxed(),
    },
];

async fn form(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let (instances, name) = (working.instances()?, working.provider.name());
    ensure(!name.is_empty(), || "the provider has no name".to_owned())?;
    for node in &nodes {
        let id = working.id_of(node).await?;
        ensure(id.provider() == name, || format!("{id} does not begin with {name}://"))?;
        ensure(id.as_str().parse::<ProviderId>().as_ref() == Ok(&id), || format!("{id} is not complete"))?;
        ensure(instances.owns(id.as_str()), || format!("the provider gives {id} and does not own it"))?;
    }
    if let Some(form) = instances.provider_id_form() {
        ensure(form.starts_with(&format!("{name}://")), || {
            format!("the form {form:?} does not begin with {name}://")
        })?;
    }
    Ok(format!("{} IDs", nodes.len()))
}

async fn round_trip(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    for node in &nodes {
        let id = working.id_of(node).await?;
        for node in [with_id(node, &id), with_id(&stranger(), &id), with_id(&NodeIdentity::default(), &id)] {
            let again = working.id_of(&node).await?;
            ensure(again == id, || format!("{} has the ID {again}", called(&node)))?;
        }
    }
    Ok(format!("{} IDs", nodes.len()))
}

async fn other_forms(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mut count = 0;
    for node in &nodes {
        let id = working.id_of(node).await?;
        for other in run.hooks.other_provider_ids(node)? {
            ensure(working.instances()?.owns(&other), || format!("{other:?} is not owned"))?;
            let node = NodeIdentity { provider_id: Some(other), ..stranger() };
            let answer = working.look_up_one(&node).await?;
            let is_same = match &answer {
                InstanceLookup::Present(found) => found.provider_id.as_ref().is_none_or(|found| *found == id),
                _ => false,
            };
            ensure(is_same, || format!("{} is {}, and should be {id}", called(&node), described(&answer)))?;
            count += 1;
        }
    }
    Ok(format!("{count} IDs"))
}

async fn foreign(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let (instances, name) = (working.instances()?, working.provider.name());
    let id = working.id_of(&nodes[0]).await?;
    let rest = id.rest();
    let alike = [format!("{name}x://{rest}"), format!("x{name}://{rest}"), format!("x-{name}://{rest}")];
    let foreign = FOREIGN.iter().map(|id| (*id).to_owned()).chain(alike);
    let mut count = 0;
    for id in foreign.filter(|id| id.split_once("://").is_none_or(|(provider, _)| provider != name)) {
        ensure(!instances.owns(&id), || format!("{id} is owned"))?;
        count += 1;
    }
    Ok(format!("{count} IDs"))
}

async fn broken(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let (instances, name) = (working.instances()?, working.provider.name());
    let mut owned = 0;
    for id in ["", "/", "//"].map(|rest| format!("{name}://{rest}")) {
        if instances.owns(&id) {
            let node = NodeIdentity { provider_id: Some(id), ..nodes[0].clone() };
            let answer = working.look_up_one(&node).await?;
            ensure(matches!(answer, InstanceLookup::Unknown(_)), || {
                format!("{} is {}", called(&node), described(&answer))
            })?;
            owned += 1;
        }
    }
    Ok(format!("no, one and two slashes behind ://; {owned} of them are owned, and unknown"))
}

async fn any_text(run: &Run<'_>) -> Checked {
    let working = run.make()?;
    let name = working.provider.name().to_owned();
    let mut ids = Vec::new();
    for text in texts() {
        ids.extend([format!("{name}://{text}"), format!("{name}:///{text}"), text]);
    }
    let owned = |working: &super::run::Working<'_>| -> Checked<Vec<bool>> {
        let instances = working.instances()?;
        Ok(ids.iter().map(|id| instances.owns(id)).collect())
    };
    let before = owned(&working)?;
    let (started, _) = run.start().await?;
    for again in [owned(&working)?, owned(&started)?] {
        if let Some(place) = (0..ids.len()).find(|place| again[*place] != before[*place]) {
            let id: String = ids[place].chars().take(60).collect();
            return failed(format!("{id:?} is owned at one time and not at another"));
        }
    }
    Ok(format!("{} texts", ids.len()))
}
