//! Rules about look-ups.

mod metadata;

use std::time::Duration;

use futures::{FutureExt as _, future::join_all, poll};
use tokio::time::{Instant, sleep, timeout};

use super::{
    HookError,
    check::Check,
    run::{
        Checked, Run, Working, called, described, ensure, failed, give_up, is_absent, is_powered, is_present,
        not_checked, with_id, within,
    },
    strange::{stranger, texts},
};
use crate::{ErrorKind, InstanceLookup, NodeIdentity};

/// Number of nodes in one call. The largest clusters have as many.
const MANY: usize = 10_000;

/// One of so many nodes has no instance.
const STRANGER_EVERY: usize = 1_000;

/// Number of look-ups while the cloud is in trouble, and the pause between them.
const LOOKS_IN_TROUBLE: u32 = 10;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Number of simultaneous look-ups.
const CONCURRENT: usize = 32;

const ZONES_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "present",
        says: "An instance that runs is present and running, with a provider ID, for a node that has just registered.",
        look: |run| present(run).boxed(),
    },
    Check {
        name: "absent",
        says: "A machine that nobody has is absent, by its name and by its system UUID.",
        look: |run| absent(run).boxed(),
    },
    Check {
        name: "provider-id-decides",
        says: "A node that has a provider ID is looked up by it and by nothing else.",
        look: |run| provider_id_decides(run).boxed(),
    },
    Check {
        name: "powered-off",
        says: "An instance that is powered off is present and shut down, never absent.",
        look: |run| powered_off(run).boxed(),
    },
    Check {
        name: "destroyed",
        says: "An instance that was destroyed becomes absent, and its provider ID is no other instance's.",
        look: |run| destroyed(run).boxed(),
    },
    Check {
        name: "addresses",
        says: "An address of a type that holds IP addresses is one.",
        look: |run| metadata::addresses(run).boxed(),
    },
    Check {
        name: "metadata",
        says: "Type, zone, region, addresses and labels of an instance are its own, whatever else is asked about.",
        look: |run| metadata::metadata(run).boxed(),
    },
    Check {
        name: "order",
        says: "Answers come in the order of the nodes, however those are put together.",
        look: |run| order(run).boxed(),
    },
    Check { name: "no-nodes", says: "No nodes have no answers.", look: |run| no_nodes(run).boxed() },
    Check {
        name: "many-nodes",
        says: "10,000 nodes have 10,000 right answers within 60 s.",
        look: |run| many_nodes(run).boxed(),
    },
    Check {
        name: "strange-nodes",
        says: "Nodes with strange names, UUIDs and provider IDs are no instance's and spoil no other answer.",
        look: |run| strange_nodes(run).boxed(),
    },
    Check {
        name: "cancelled",
        says: "Calls that are given up at any point leave the next ones right.",
        look: |run| cancelled(run).boxed(),
    },
    Check {
        name: "concurrent",
        says: "Calls at the same time are each answered right.",
        look: |run| concurrent(run).boxed(),
    },
    Check {
        name: "fault",
        says: "While the cloud fails nobody is absent; afterwards everybody is seen again.",
        look: |run| fault(run).boxed(),
    },
    Check {
        name: "disconnected",
        says: "While the cloud cannot be reached nobody is absent; afterwards everybody is seen again.",
        look: |run| disconnected(run).boxed(),
    },
    Check {
        name: "zones",
        says: "Zones come one for each node, in their order.",
        look: |run| zones(run).boxed(),
    },
    Check {
        name: "clusters",
        says: "Clusters are sorted, each once; one that nobody knows is NotFound.",
        look: |run| clusters(run).boxed(),
    },
];

async fn present(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    for node in &nodes {
        let answer = working.look_up_one(node).await?;
        ensure(is_powered(false)(&answer), || format!("{} is {}", called(node), described(&answer)))?;
        working.id_of(node).await?;
    }
    Ok(format!("{} nodes", nodes.len()))
}

async fn absent(run: &Run<'_>) -> Checked {
    let (working, _) = run.start().await?;
    let nobody = stranger();
    let by_name = NodeIdentity { system_uuid: None, ..nobody.clone() };
    for node in [nobody, by_name] {
        working.becomes(&node, "is absent", is_absent, is_present).await?;
    }
    Ok("a name that is reserved for nobody, with and without a random UUID".to_owned())
}

async fn provider_id_decides(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    // The name and UUID of the node belong to another instance, or to none.
    let others = nodes.iter().skip(1).cloned().chain([stranger()]);
    for (node, other) in nodes.iter().zip(others) {
        let id = working.id_of(node).await?;
        let mixed = with_id(&other, &id);
        let answer = working.look_up_one(&mixed).await?;
        let is_right =
            matches!(&answer, InstanceLookup::Present(found) if found.provider_id.as_ref() == Some(&id));
        ensure(is_right, || format!("{} is {}", called(&mixed), described(&answer)))?;
    }
    Ok(format!("{} provider IDs in nodes with the name and UUID of others", nodes.len()))
}

async fn powered_off(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let (node, is_new) = run.to_power_off(&nodes).await?;
    // A new one may be seen as off before its start is seen.
    let is_seen = |answer: &InstanceLookup| is_present(answer) && (!is_new || is_powered(false)(answer));
    working.becomes(&node, "is present", is_seen, |_| false).await?;
    let known = with_id(&node, &working.id_of(&node).await?);
    run.hooks.power_off(&node).await?;
    for node in [&node, &known] {
        working.becomes(node, "is off", is_powered(true), is_absent).await?;
    }
    match run.hooks.power_on(&node).await {
        Err(HookError::NotOffered(_)) => return Ok("powered off".to_owned()),
        powered_on => powered_on?,
    }
    working.becomes(&known, "is on", is_powered(false), is_absent).await?;
    Ok("powered off and on".to_owned())
}

async fn destroyed(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let node = run.hooks.create().await?;
    working.becomes(&node, "is present", is_present, |_| false).await?;
    let id = working.id_of(&node).await?;
    run.hooks.destroy(&node).await?;
    for gone in [&with_id(&node, &id), &node] {
        working.becomes(gone, "is absent", is_absent, |_| false).await?;
    }
    let mixed = with_id(&nodes[0], &id);
    let answer = working.look_up_one(&mixed).await?;
    ensure(!is_present(&answer), || format!("{} is {}", called(&mixed), described(&answer)))?;
    Ok("by provider ID, by what identifies a new node, and by that ID in a node of another instance"
        .to_owned())
}

/// The part of an answer that is compared.
fn key(answer: &InstanceLookup) -> String {
    match answer {
        InstanceLookup::Present(instance) => format!("{:?}", instance.provider_id),
        InstanceLookup::Absent => "absent".to_owned(),
        InstanceLookup::Unknown(error) => format!("unknown: {}", error.kind()),
    }
}

/// Nodes, some initialised and some without an instance, each with its answer when it is looked up alone.
async fn mixture(working: &Working<'_>, nodes: &[NodeIdentity]) -> Checked<Vec<(NodeIdentity, String)>> {
    let mut mixture = Vec::new();
    for node in nodes {
        let id = working.id_of(node).await?;
        mixture.extend([node.clone(), stranger(), with_id(node, &id)]);
    }
    let mut with_answers = Vec::new();
    for node in mixture {
        let answer = key(&working.look_up_one(&node).await?);
        with_answers.push((node, answer));
    }
    Ok(with_answers)
}

async fn compare(working: &Working<'_>, batch: &[&(NodeIdentity, String)]) -> Checked<()> {
    let nodes: Vec<_> = batch.iter().map(|(node, _)| node).collect();
    for (place, (answer, (node, alone))) in working.look_up(&nodes).await?.iter().zip(batch).enumerate() {
        ensure(key(answer) == *alone, || {
            format!(
                "{} at place {place} of {} is {}, and {alone} when it is asked about alone",
                called(node),
                batch.len(),
                described(answer)
            )
        })?;
    }
    Ok(())
}

async fn order(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mixture = mixture(&working, &nodes).await?;
    let mut batch: Vec<_> = mixture.iter().collect();
    for _ in 0..batch.len() {
        compare(&working, &batch).await?;
        batch.rotate_left(1);
    }
    batch.reverse();
    compare(&working, &batch).await?;
    let twice: Vec<_> = mixture.iter().chain(&mixture).collect();
    compare(&working, &twice).await?;
    Ok(format!("{} orders of {} nodes, and each node twice", mixture.len() + 1, mixture.len()))
}

async fn no_nodes(run: &Run<'_>) -> Checked {
    let (working, _) = run.start().await?;
    working.look_up(&[]).await?;
    Ok("an empty batch".to_owned())
}

async fn many_nodes(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mixture = mixture(&working, &nodes).await?;
    let (nobody, known): (Vec<_>, Vec<_>) = mixture.iter().partition(|(_, alone)| alone == "absent");
    let strangers = nobody.iter().cycle();
    let mut strangers = strangers.copied();
    let batch: Vec<_> = known
        .iter()
        .cycle()
        .take(MANY)
        .enumerate()
        .map(|(place, known)| match place % STRANGER_EVERY {
            0 => strangers.next().unwrap_or(known),
            _ => *known,
        })
        .collect();
    ensure(batch.len() == MANY, || "no node is present".to_owned())?;
    let began = Instant::now();
    compare(&working, &batch).await?;
    Ok(format!("{MANY} nodes, {} of them nobody's, in {:?}", MANY / STRANGER_EVERY, began.elapsed()))
}

async fn strange_nodes(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let (good, mut count) = (&nodes[0], 0);
    for text in texts() {
        let named = NodeIdentity { name: text.clone(), ..NodeIdentity::default() };
        let mut strange = vec![
            NodeIdentity { system_uuid: Some(text.clone()), ..named.clone() },
            NodeIdentity { machine_id: Some(text.clone()), ..stranger() },
            NodeIdentity { system_uuid: Some(text.clone()), ..stranger() },
            named.clone(),
        ];
        let name = working.provider.name();
        for id in [text.clone(), format!("{name}://{text}"), format!("{name}:///{text}")] {
            // A node whose ID the provider does not own is never looked up.
            if working.instances()?.owns(&id) {
                strange.push(NodeIdentity { provider_id: Some(id), ..named.clone() });
            }
        }
        for node in &strange {
            let answers = working.look_up(&[good, node, good]).await?;
            for answer in [&answers[0], &answers[2]] {
                ensure(is_present(answer), || {
                    format!("{} beside {} is {}", called(good), called(node), described(answer))
                })?;
            }
            ensure(!is_present(&answers[1]), || format!("{} is {}", called(node), described(&answers[1])))?;
            count += 1;
        }
    }
    Ok(format!("{count} nodes with empty, endless, binary and malformed texts, each between two others"))
}

async fn cancelled(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mixture = mixture(&working, &nodes).await?;
    let batch: Vec<_> = mixture.iter().collect();
    let asked: Vec<_> = mixture.iter().map(|(node, _)| node).collect();
    let instances = working.instances()?;
    let mut given_up = 0;
    for steps in 0..4 {
        give_up(instances.lookup(&asked), steps).await;
        given_up += 1;
    }
    for milliseconds in [0, 1, 5, 20] {
        let _ = timeout(Duration::from_millis(milliseconds), instances.lookup(&asked)).await;
        given_up += 1;
    }
    // Calls that are dropped while other calls wait for the same answers.
    let mut calls: Vec<_> = (0..CONCURRENT).map(|_| instances.lookup(&asked)).collect();
    for call in &mut calls {
        let _ = poll!(call);
    }
    given_up += calls.len();
    drop(calls);
    compare(&working, &batch).await?;
    Ok(format!("{given_up} calls, given up after up to 20 ms"))
}

async fn concurrent(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mixture = mixture(&working, &nodes).await?;
    let calls = (0..CONCURRENT).map(|number| {
        let (working, mixture) = (&working, &mixture);
        async move {
            let mut batch: Vec<_> = mixture.iter().collect();
            batch.rotate_left(number % mixture.len());
            batch.truncate(1 + number % mixture.len());
            compare(working, &batch).await
        }
    });
    join_all(calls).await.into_iter().collect::<Checked<Vec<()>>>()?;
    Ok(format!("{CONCURRENT} calls at once"))
}

async fn fault(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    run.hooks.inject_fault().await?;
    let seen = in_trouble(&working, &nodes).await;
    run.hooks.clear_fault().await?;
    seen?;
    recovered(&working, &nodes).await?;
    Ok(format!("{LOOKS_IN_TROUBLE} look-ups during the fault, and those after it"))
}

async fn disconnected(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    run.hooks.disconnect().await?;
    let seen = in_trouble(&working, &nodes).await;
    run.hooks.reconnect().await?;
    seen?;
    recovered(&working, &nodes).await?;
    Ok(format!("{LOOKS_IN_TROUBLE} look-ups without a connection, and those after it"))
}

/// No node is absent, and a node that was never seen is unknown.
async fn in_trouble(working: &Working<'_>, nodes: &[NodeIdentity]) -> Checked<()> {
    for _ in 0..LOOKS_IN_TROUBLE {
        let nobody = stranger();
        let asked: Vec<_> = nodes.iter().chain([&nobody]).collect();
        for (node, answer) in asked.iter().zip(working.look_up(&asked).await?) {
            let is_nobody = std::ptr::eq(*node, &raw const nobody);
            let is_wrong = is_absent(&answer) || is_nobody && is_present(&answer);
            ensure(!is_wrong, || {
                format!("{} is {} although the cloud cannot say so", called(node), described(&answer))
            })?;
        }
        sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}

async fn recovered(working: &Working<'_>, nodes: &[NodeIdentity]) -> Checked<()> {
    for node in nodes {
        working.becomes(node, "is present again", is_present, is_absent).await?;
    }
    working.becomes(&stranger(), "is absent again", is_absent, is_present).await
}

async fn zones(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let Some(zones) = working.provider.zones() else {
        return not_checked("zones, which the provider has not");
    };
    for node in &nodes {
        let is_complete = |answer: &InstanceLookup| matches!(answer, InstanceLookup::Present(instance) if instance.incomplete.is_none());
        working.becomes(node, "is complete", is_complete, is_absent).await?;
    }
    let nobody = stranger();
    let ask = async |nodes: Vec<&NodeIdentity>| -> Checked<Vec<String>> {
        let answers = within("zones", ZONES_TIMEOUT, zones.zones(&nodes)).await?;
        ensure(answers.len() == nodes.len(), || {
            format!("zones gives {} answers for {} nodes", answers.len(), nodes.len())
        })?;
        let said = answers.into_iter().map(|answer| match answer {
            Ok(zone) => Ok(format!("{zone:?}")),
            Err(error) => run.see(&error).map(|()| format!("an error of kind {}", error.kind())),
        });
        said.collect()
    };
    ask(Vec::new()).await?;
    let mut alone = Vec::new();
    let asked: Vec<_> = nodes.iter().chain([&nobody]).collect();
    for node in &asked {
        alone.extend(ask(vec![node]).await?);
    }
    let together = ask(asked.clone()).await?;
    let reversed = ask(asked.iter().rev().copied().collect()).await?;
    for (place, node) in asked.iter().enumerate() {
        for found in [&together[place], &reversed[asked.len() - 1 - place]] {
            ensure(*found == alone[place], || {
                format!("{} has {found} beside others and {} alone", called(node), alone[place])
            })?;
        }
    }
    Ok(format!("0 and {} nodes, forwards and backwards", asked.len()))
}

async fn clusters(run: &Run<'_>) -> Checked {
    let (working, _) = run.start().await?;
    let Some(clusters) = working.provider.clusters() else {
        return not_checked("clusters, which the provider has not");
    };
    let names = match within("list of clusters", ZONES_TIMEOUT, clusters.list()).await? {
        Ok(names) => names,
        Err(error) => return failed(format!("list of clusters: {}", error.report())),
    };
    ensure(names.is_sorted_by(|a, b| a < b), || format!("clusters are not sorted, each once: {names:?}"))?;
    let nobody = crate::CHECK_NODE_NAME;
    match within("control_plane_endpoint", ZONES_TIMEOUT, clusters.control_plane_endpoint(nobody)).await? {
        Err(error) if error.kind() == ErrorKind::NotFound => run.see(&error)?,
        other => return failed(format!("the endpoint of a cluster that nobody knows is {other:?}")),
    }
    Ok(format!("{} clusters, and one that nobody knows", names.len()))
}
