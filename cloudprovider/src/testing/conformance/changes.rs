//! Rules about the stream of changes.

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    HookError,
    check::Check,
    run::{
        Checked, Run, Stop, Working, called, described, ensure, failed, is_absent, is_powered, is_present,
        not_checked, with_id,
    },
};
use crate::{InstanceChange, InstanceLookup, InstanceStream, NodeIdentity, ProviderId};

/// Number of changes while the stream is not read.
const UNREAD: usize = 20;

/// After this time, the changes that were on their way to a stream have arrived.
const SETTLE: Duration = Duration::from_millis(100);

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "told",
        says: "An instance that is created, powered off, powered on or destroyed is told, and a look-up then shows it.",
        look: |run| told(run).boxed(),
    },
    Check {
        name: "every-stream",
        says: "Each stream gets every change from its beginning on.",
        look: |run| every_stream(run).boxed(),
    },
    Check {
        name: "unread",
        says: "Changes while nobody reads a stream are not lost.",
        look: |run| unread(run).boxed(),
    },
    Check {
        name: "reconnect",
        says: "A change while the connection is lost is told once it is back.",
        look: |run| reconnect(run).boxed(),
    },
    Check {
        name: "stop",
        says: "Streams end with the provider, and nothing is told after its end.",
        look: |run| stop(run).boxed(),
    },
];

/// A stream, with the provider that it comes from.
struct Follower<'a> {
    working: &'a Working<'a>,
    stream: InstanceStream,
    patience: Duration,
}

fn stream(working: &Working<'_>) -> Checked<InstanceStream> {
    match working.instances()?.changes() {
        Some(stream) => Ok(stream),
        None => not_checked("changes, which the provider does not push"),
    }
}

impl<'a> Follower<'a> {
    fn new(run: &Run<'_>, working: &'a Working<'a>) -> Checked<Self> {
        Ok(Self { working, stream: stream(working)?, patience: run.hooks.patience() })
    }

    /// Reads the changes that have arrived so far.
    async fn catch_up(&mut self) -> Checked<()> {
        sleep(SETTLE).await;
        while let Some(change) = self.stream.next().now_or_never() {
            ensure(change.is_some(), || "the stream ends while the provider works".to_owned())?;
        }
        Ok(())
    }

    /// Reads until a change concerns this node and a look-up then gives the wanted answer.
    async fn learns(
        &mut self,
        node: &NodeIdentity,
        what: &str,
        is_wanted: impl Fn(&InstanceLookup) -> bool,
    ) -> Checked<()> {
        let (deadline, mut is_told) = (Instant::now() + self.patience, false);
        loop {
            match timeout_at(deadline, self.stream.next()).await {
                Ok(Some(change)) if concerns(&change, node) => is_told = true,
                Ok(Some(_)) => continue,
                Ok(None) => return failed("the stream ends while the provider works"),
                Err(_) => break,
            }
            if is_wanted(&self.working.look_up_one(node).await?) {
                return Ok(());
            }
        }
        let answer = self.working.look_up_one(node).await?;
        let (seen, seconds) = (described(&answer), self.patience.as_secs());
        failed(if is_told {
            format!("{} {what}: told, and it is {seen} after {seconds} s", called(node))
        } else {
            format!("{} {what}: not told within {seconds} s; it is {seen}", called(node))
        })
    }
}

/// Whether this change makes the daemon look at this node again.
fn concerns(change: &InstanceChange, node: &NodeIdentity) -> bool {
    match change {
        InstanceChange::Resync => true,
        InstanceChange::Changed(instances) => instances.iter().any(|instance| {
            let same = |ours: Option<&str>, its: Option<&str>| {
                ours.zip(its).is_some_and(|(ours, its)| ours.eq_ignore_ascii_case(its))
            };
            instance.provider_id.is_some() && instance.provider_id == node.provider_id
                || same(node.system_uuid.as_deref(), instance.system_uuid.as_deref())
                || same(Some(&node.name), instance.name.as_deref())
        }),
    }
}

/// Waits until the instance is seen. A new one may be seen as off before its start is seen.
async fn known(
    working: &Working<'_>,
    node: &NodeIdentity,
    is_new: bool,
) -> Checked<(NodeIdentity, ProviderId)> {
    let is_seen = |answer: &InstanceLookup| is_present(answer) && (!is_new || is_powered(false)(answer));
    working.becomes(node, "is present", is_seen, |_| false).await?;
    let id = working.id_of(node).await?;
    Ok((with_id(node, &id), id))
}

async fn told(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mut follower = Follower::new(run, &working)?;
    follower.catch_up().await?;
    let (node, is_new) = run.to_power_off(&nodes).await?;
    let mut done = Vec::new();
    if is_new {
        // A node that has just registered has no provider ID, so the change must name it by something else.
        follower.learns(&node, "was created", is_present).await?;
        done.push("created");
    }
    let (node, _) = known(&working, &node, is_new).await?;
    for (what, acted, is_wanted) in [
        ("was powered off", run.hooks.power_off(&node).boxed(), Some(true)),
        ("was powered on", run.hooks.power_on(&node).boxed(), Some(false)),
        ("was destroyed", run.hooks.destroy(&node).boxed(), None),
    ] {
        if is_wanted.is_none() && !is_new {
            continue;
        }
        follower.catch_up().await?;
        match acted.await {
            Ok(()) => {}
            Err(HookError::NotOffered(_)) => continue,
            Err(error) => return Err(error.into()),
        }
        match is_wanted {
            Some(is_off) => follower.learns(&node, what, is_powered(is_off)).await?,
            None => follower.learns(&node, what, is_absent).await?,
        }
        done.extend(what.strip_prefix("was "));
    }
    if done.is_empty() {
        return not_checked("the hooks `create` and `power_off`");
    }
    Ok(done.join(", "))
}

/// Powers an instance off, or destroys it if it cannot be powered off. For rules that need any change.
async fn change(run: &Run<'_>, node: &NodeIdentity, is_new: bool) -> Checked<Option<bool>> {
    match run.hooks.power_off(node).await {
        Ok(()) => Ok(Some(true)),
        Err(HookError::NotOffered(_)) if is_new => {
            run.hooks.destroy(node).await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn is_changed(how: Option<bool>) -> impl Fn(&InstanceLookup) -> bool {
    move |answer| how.map_or_else(|| is_absent(answer), |is_off| is_powered(is_off)(answer))
}

/// Powers the instance on again, if that is possible.
async fn restore(run: &Run<'_>, node: &NodeIdentity, how: Option<bool>) -> Checked<()> {
    match how {
        Some(_) => match run.hooks.power_on(node).await {
            Err(HookError::NotOffered(_)) => Ok(()),
            other => other.map_err(Stop::from),
        },
        None => Ok(()),
    }
}

async fn every_stream(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mut followers = [Follower::new(run, &working)?, Follower::new(run, &working)?];
    let (node, is_new) = run.to_power_off(&nodes).await?;
    let (node, _) = known(&working, &node, is_new).await?;
    for follower in &mut followers {
        follower.catch_up().await?;
    }
    let [first, second] = followers;
    // A stream that is dropped must not affect the others, and a stream may be opened later.
    drop(first);
    let mut followers = [second, Follower::new(run, &working)?];
    followers[1].catch_up().await?;
    let how = change(run, &node, is_new).await?;
    for follower in &mut followers {
        follower.learns(&node, "changed", is_changed(how)).await?;
    }
    restore(run, &node, how).await?;
    Ok("two streams, one of them opened later, and one that was dropped".to_owned())
}

async fn unread(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mut follower = Follower::new(run, &working)?;
    let (node, is_new) = run.to_power_off(&nodes).await?;
    let (node, _) = known(&working, &node, is_new).await?;
    follower.catch_up().await?;
    for _ in 0..UNREAD / 2 {
        run.hooks.power_off(&node).await?;
        run.hooks.power_on(&node).await?;
    }
    run.hooks.power_off(&node).await?;
    follower.learns(&node, "was powered off at last", is_powered(true)).await?;
    run.hooks.power_on(&node).await?;
    Ok(format!("{} changes before the first was read", UNREAD + 1))
}

async fn reconnect(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mut follower = Follower::new(run, &working)?;
    let (node, is_new) = run.to_power_off(&nodes).await?;
    let (node, _) = known(&working, &node, is_new).await?;
    follower.catch_up().await?;
    run.hooks.disconnect().await?;
    let changed = change(run, &node, is_new).await;
    run.hooks.reconnect().await?;
    let how = changed?;
    follower.learns(&node, "changed without a connection", is_changed(how)).await?;
    // Later changes must be reported as before.
    restore(run, &node, how).await?;
    Ok("a change without a connection".to_owned())
}

async fn stop(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mut follower = Follower::new(run, &working)?;
    follower.catch_up().await?;
    working.end().await?;
    let mut streams = vec![follower.stream];
    streams.extend(working.instances()?.changes());
    // In a test driver, the cloud may have ended with its provider.
    let changed = match run.to_power_off(&nodes).await {
        Ok((node, _)) => run.hooks.power_off(&node).await.map(|()| node).ok(),
        Err(_) => None,
    };
    for stream in &mut streams {
        match timeout_at(Instant::now() + run.hooks.patience(), stream.next()).await {
            Ok(None) => {}
            Ok(Some(change)) => return failed(format!("{change:?} is told after the end")),
            Err(_) => return failed("a stream does not end with its provider"),
        }
    }
    if let Some(node) = &changed {
        restore(run, node, Some(true)).await?;
    }
    let change = if changed.is_some() { "a change after the end" } else { "no change in the cloud" };
    Ok(format!("a stream from before and one from after the end, with {change}"))
}
