//! Rules about the start and the end.

use futures::FutureExt as _;
use tokio::time::Instant;

use super::{
    check::Check,
    run::{Checked, Run, Working, called, described, ensure, failed, is_absent, is_present, not_checked},
};
use crate::CloudProvider;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "parts",
        says: "What a provider has, and its name, is the same before the start, after it and after the end.",
        look: |run| parts(run).boxed(),
    },
    Check {
        name: "before-the-start",
        says: "A look-up before the start returns, and calls nobody absent that is there.",
        look: |run| before_the_start(run).boxed(),
    },
    Check {
        name: "cloud-away",
        says: "A provider starts while the cloud cannot be reached, and works once it can.",
        look: |run| cloud_away(run).boxed(),
    },
    Check {
        name: "end",
        says: "Once it is told to stop it ends, whoever asks and how often.",
        look: |run| end(run).boxed(),
    },
    Check {
        name: "after-the-end",
        says: "A look-up after the end returns, and calls nobody absent that is there.",
        look: |run| after_the_end(run).boxed(),
    },
    Check {
        name: "stop-at-once",
        says: "A provider that is told to stop before or while it starts ends too.",
        look: |run| stop_at_once(run).boxed(),
    },
    Check {
        name: "two-at-once",
        says: "Two providers on one cloud work beside each other, and the end of one leaves the other.",
        look: |run| two_at_once(run).boxed(),
    },
    Check {
        name: "no-secret",
        says: "No error that was seen in any suite so far tells a secret.",
        look: |run| async { no_secret(run) }.boxed(),
    },
];

fn parts_of(provider: &dyn CloudProvider) -> (String, [bool; 6]) {
    let parts = [
        provider.instances().is_some(),
        provider.instances().is_some_and(|instances| instances.changes().is_some()),
        provider.zones().is_some(),
        provider.load_balancer().is_some(),
        provider.routes().is_some(),
        provider.clusters().is_some(),
    ];
    (provider.name().to_owned(), parts)
}

async fn parts(run: &Run<'_>) -> Checked {
    let working = run.make()?;
    let provider = &*working.provider;
    let before = parts_of(provider);
    working.start().await?;
    let started = parts_of(provider);
    working.end().await?;
    let ended = parts_of(provider);
    // It does not matter whether changes are pushed after the end.
    ensure(before == started && before.0 == ended.0 && before.1[2..] == ended.1[2..], || {
        format!("{before:?} before the start, {started:?} after it, {ended:?} after the end")
    })?;
    let names = ["instances", "changes", "zones", "load balancers", "routes", "clusters"];
    let has: Vec<_> = names.into_iter().zip(before.1).filter_map(|(name, has)| has.then_some(name)).collect();
    Ok(has.join(", "))
}

/// No node whose instance exists is absent. Returns the number of nodes.
async fn none_is_absent(run: &Run<'_>, working: &Working<'_>) -> Checked<usize> {
    let nodes = run.hooks.nodes().await?;
    let asked: Vec<_> = nodes.iter().collect();
    for (node, answer) in nodes.iter().zip(working.look_up(&asked).await?) {
        ensure(!is_absent(&answer), || format!("{} is {}", called(node), described(&answer)))?;
    }
    Ok(nodes.len())
}

async fn before_the_start(run: &Run<'_>) -> Checked {
    let working = run.make()?;
    Ok(format!("{} nodes", none_is_absent(run, &working).await?))
}

async fn cloud_away(run: &Run<'_>) -> Checked {
    let working = run.make()?;
    run.hooks.disconnect().await?;
    let began = Instant::now();
    let started = working.start().await;
    let took = began.elapsed();
    let seen = match &started {
        Ok(()) => none_is_absent(run, &working).await,
        Err(_) => Ok(0),
    };
    run.hooks.reconnect().await?;
    started?;
    seen?;
    for node in run.hooks.nodes().await? {
        working.becomes(&node, "is present", is_present, is_absent).await?;
    }
    Ok(format!("start returned after {took:?}"))
}

async fn end(run: &Run<'_>) -> Checked {
    let (working, _) = run.start().await?;
    ensure(!working.stop.is_cancelled(), || "the provider cancels the token of its context".to_owned())?;
    let began = Instant::now();
    let (first, second) = futures::join!(working.end(), working.end());
    first.and(second)?;
    working.end().await?;
    Ok(format!("three times, two of them at once, after {:?}", began.elapsed()))
}

async fn after_the_end(run: &Run<'_>) -> Checked {
    let (working, _) = run.start().await?;
    working.end().await?;
    Ok(format!("{} nodes", none_is_absent(run, &working).await?))
}

async fn stop_at_once(run: &Run<'_>) -> Checked {
    let early = run.make()?;
    early.stop.cancel();
    // The provider may return an error here or not.
    let _ = early.try_start().await?;
    early.end().await?;
    let late = run.make()?;
    late.start().await?;
    late.end().await?;
    Ok("a token that was cancelled before the start, and one right after it".to_owned())
}

async fn two_at_once(run: &Run<'_>) -> Checked {
    let (old, nodes) = run.start().await?;
    let (new, _) = run.start().await?;
    for working in [&old, &new] {
        none_is_absent(run, working).await?;
    }
    old.end().await?;
    for node in &nodes {
        new.becomes(node, "is present beside one that ended", is_present, is_absent).await?;
    }
    new.end().await?;
    Ok("the older one ended first".to_owned())
}

fn no_secret(run: &Run<'_>) -> Checked {
    let secrets = run.hooks.secrets()?;
    let messages = run.messages();
    match messages.leaks.first() {
        Some(leak) => failed(format!("{leak}, as do {} others", messages.leaks.len() - 1)),
        None if secrets.is_empty() => not_checked("a secret"),
        None => Ok(format!("{} messages", messages.seen)),
    }
}
