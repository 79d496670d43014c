//! Rules about load balancers.

use std::{collections::BTreeSet, future::Future};

use futures::{FutureExt as _, future::join_all};
use tokio::time::{Instant, sleep};

use super::{
    check::Check,
    run::{
        CALL_TIMEOUT, CLUSTER, Checked, POLL_INTERVAL, Run, STEPS_GIVEN_UP, Working, ensure, failed, give_up,
        not_checked, within,
    },
};
use crate::{
    ErrorKind, ExternalTrafficPolicy, LoadBalancer, LoadBalancerService, LoadBalancerStatus, NodeIdentity,
    Result, ServicePort, SessionAffinity,
};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "name",
        says: "The name of a load balancer stays the same while its Service changes, and no two Services share one.",
        look: |run| name(run).boxed(),
    },
    Check {
        name: "ensured",
        says: "A load balancer that was ensured is found with the status of the answer, and ensuring it again changes nothing.",
        look: |run| ensured(run).boxed(),
    },
    Check {
        name: "nodes",
        says: "The backends may be any nodes, also none, and a change of them leaves the status alone. Who leaves them to another component does so always.",
        look: |run| nodes(run).boxed(),
    },
    Check {
        name: "restart",
        says: "Another provider on the same cloud finds, ensures and deletes what the one before made.",
        look: |run| restart(run).boxed(),
    },
    Check {
        name: "deleted",
        says: "A load balancer that was deleted is gone, others stay, and deleting what is not there succeeds.",
        look: |run| deleted(run).boxed(),
    },
    Check {
        name: "cancelled",
        says: "A call that is given up leaves nothing that cannot be ensured and deleted.",
        look: |run| cancelled(run).boxed(),
    },
    Check {
        name: "concurrent",
        says: "The load balancers of several Services are made, changed and deleted at the same time.",
        look: |run| concurrent(run).boxed(),
    },
    Check {
        name: "disconnected",
        says: "While the cloud cannot be reached every call fails, and none says that there is no load balancer.",
        look: |run| disconnected(run).boxed(),
    },
];

/// The answer of `update`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// The load balancer knows the nodes.
    Nodes,
    /// Another component chooses them.
    Elsewhere,
}

/// A running provider and its load balancers.
struct Balancers<'a> {
    run: &'a Run<'a>,
    working: Working<'a>,
    nodes: Vec<NodeIdentity>,
}

impl<'a> Balancers<'a> {
    async fn start(run: &'a Run<'a>) -> Checked<Self> {
        let working = run.make()?;
        if working.provider.load_balancer().is_none() {
            return not_checked("load balancers, which the provider has not");
        }
        if working.provider.instances().is_some() {
            let (working, nodes) = run.start().await?;
            return Ok(Self { run, working, nodes });
        }
        working.start().await?;
        let nodes = run.hooks.nodes().await?;
        ensure(!nodes.is_empty(), || "the hook `nodes` gives none".to_owned())?;
        Ok(Self { run, working, nodes })
    }

    /// The Services to test. None of them has a load balancer yet.
    async fn services(&self) -> Checked<Vec<LoadBalancerService>> {
        let services = self.run.hooks.load_balancer_services().await?;
        ensure(!services.is_empty(), || "the hook `load_balancer_services` gives none".to_owned())?;
        for service in &services {
            self.delete(service).await?;
        }
        Ok(services)
    }

    fn part(&self) -> Checked<&dyn LoadBalancer> {
        match self.working.provider.load_balancer() {
            Some(part) => Ok(part),
            None => failed("the provider has no load balancers any more"),
        }
    }

    fn all_nodes(&self) -> Vec<&NodeIdentity> {
        self.nodes.iter().collect()
    }

    async fn get(&self, service: &LoadBalancerService) -> Checked<Option<LoadBalancerStatus>> {
        let part = self.part()?;
        self.settled("get", || part.get(CLUSTER, service)).await
    }

    async fn ensure(
        &self,
        service: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> Checked<LoadBalancerStatus> {
        let part = self.part()?;
        self.settled("ensure", || part.ensure(CLUSTER, service, nodes)).await
    }

    async fn update(&self, service: &LoadBalancerService, nodes: &[&NodeIdentity]) -> Checked<Told> {
        let part = self.part()?;
        let update = || async move {
            match part.update(CLUSTER, service, nodes).await {
                Ok(()) => Ok(Told::Nodes),
                Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => Ok(Told::Elsewhere),
                Err(error) => Err(error),
            }
        };
        self.settled("update", update).await
    }

    async fn delete(&self, service: &LoadBalancerService) -> Checked<()> {
        let part = self.part()?;
        self.settled("delete", || part.delete(CLUSTER, service)).await
    }

    /// Repeats a call while the cloud is busy, as the controller does.
    async fn settled<T, F: Future<Output = Result<T>>>(
        &self,
        what: &str,
        call: impl Fn() -> F,
    ) -> Checked<T> {
        let began = Instant::now();
        loop {
            let error = match within(what, CALL_TIMEOUT, call()).await? {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            self.run.see(&error)?;
            if error.kind() != ErrorKind::InProgress || began.elapsed() > self.run.hooks.patience() {
                return failed(format!("{what} fails: {}", error.report()));
            }
            sleep(error.retry_after().unwrap_or(POLL_INTERVAL).max(POLL_INTERVAL)).await;
        }
    }

    /// Checks that the load balancer exists with this status.
    async fn is_there(&self, service: &LoadBalancerService, status: &LoadBalancerStatus) -> Checked<()> {
        let found = self.get(service).await?;
        ensure(found.as_ref() == Some(status), || {
            format!("the load balancer of {} is {found:?}, and was {status:?}", service.name)
        })
    }

    async fn is_gone(&self, service: &LoadBalancerService) -> Checked<()> {
        let found = self.get(service).await?;
        ensure(found.is_none(), || format!("the load balancer of {} is still there: {found:?}", service.name))
    }

    async fn delete_all(&self, services: &[LoadBalancerService]) -> Checked<()> {
        for service in services {
            self.delete(service).await?;
            self.is_gone(service).await?;
        }
        Ok(())
    }
}

async fn name(run: &Run<'_>) -> Checked {
    let balancers = Balancers::start(run).await?;
    let (part, services) = (balancers.part()?, balancers.services().await?);
    let mut names = BTreeSet::new();
    for service in &services {
        let name = part.name(CLUSTER, service);
        let mut changed = service.clone();
        changed.labels.insert("changed".to_owned(), "yes".to_owned());
        changed.annotations.insert("changed".to_owned(), "yes".to_owned());
        changed.ports.push(ServicePort { name: "changed".to_owned(), port: 65000, ..ServicePort::default() });
        changed.load_balancer_ip = Some("198.18.0.1".to_owned());
        changed.load_balancer_source_ranges = vec!["198.18.0.0/15".to_owned()];
        changed.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 };
        changed.external_traffic_policy = ExternalTrafficPolicy::Local;
        changed.status = LoadBalancerStatus::default();
        let renamed = part.name(CLUSTER, &changed);
        ensure(name == renamed, || format!("{name:?} becomes {renamed:?} when its Service changes"))?;
        ensure(!name.is_empty(), || format!("the load balancer of {} has no name", service.name))?;
        ensure(names.insert(name.clone()), || format!("two Services have the load balancer {name:?}"))?;
    }
    Ok(format!("{} names", names.len()))
}

async fn ensured(run: &Run<'_>) -> Checked {
    let balancers = Balancers::start(run).await?;
    let services = balancers.services().await?;
    for service in &services {
        balancers.is_gone(service).await?;
        let made = balancers.ensure(service, &balancers.all_nodes()).await?;
        balancers.is_there(service, &made).await?;
        // The controller calls again with the status that it wrote into the Service.
        let known = LoadBalancerService { status: made.clone(), ..service.clone() };
        for service in [service, &known] {
            let again = balancers.ensure(service, &balancers.all_nodes()).await?;
            ensure(again == made, || format!("ensured again, {made:?} becomes {again:?}"))?;
        }
        balancers.is_there(service, &made).await?;
    }
    balancers.delete_all(&services).await?;
    Ok(format!("{} load balancers, three times each", services.len()))
}

async fn nodes(run: &Run<'_>) -> Checked {
    let balancers = Balancers::start(run).await?;
    let services = balancers.services().await?;
    let all = balancers.all_nodes();
    let choices = [&all[..1], &all[..], &[]];
    let mut told = Vec::new();
    for service in &services {
        let made = balancers.ensure(service, &[]).await?;
        for nodes in choices {
            told.push(balancers.update(service, nodes).await?);
            balancers.is_there(service, &made).await?;
            let ensured = balancers.ensure(service, nodes).await?;
            ensure(ensured == made, || format!("with {} nodes {made:?} becomes {ensured:?}", nodes.len()))?;
        }
    }
    balancers.delete_all(&services).await?;
    ensure(told.iter().all(|answer| *answer == told[0]), || {
        "update leaves the nodes to another component for some nodes or Services, and not for others"
            .to_owned()
    })?;
    let by = if told[0] == Told::Elsewhere { ", which another component chooses" } else { "" };
    Ok(format!("0, 1 and {} nodes{by}", all.len()))
}

async fn restart(run: &Run<'_>) -> Checked {
    let before = Balancers::start(run).await?;
    let services = before.services().await?;
    let mut made = Vec::new();
    for service in &services {
        made.push(before.ensure(service, &before.all_nodes()).await?);
    }
    before.working.end().await?;
    let after = Balancers::start(run).await?;
    for (service, made) in services.iter().zip(&made) {
        after.is_there(service, made).await?;
        let again = after.ensure(service, &after.all_nodes()).await?;
        ensure(again == *made, || format!("{made:?} becomes {again:?} in another provider"))?;
    }
    after.working.end().await?;
    let last = Balancers::start(run).await?;
    last.delete_all(&services).await?;
    Ok(format!("{} load balancers and three providers", services.len()))
}

async fn deleted(run: &Run<'_>) -> Checked {
    let balancers = Balancers::start(run).await?;
    let services = balancers.services().await?;
    let mut made = Vec::new();
    for service in &services {
        made.push(balancers.ensure(service, &balancers.all_nodes()).await?);
    }
    for (number, service) in services.iter().enumerate() {
        // The Service may have changed since its load balancer was created.
        let changed = LoadBalancerService { ports: Vec::new(), ..service.clone() };
        balancers.delete(&changed).await?;
        balancers.is_gone(service).await?;
        balancers.delete(service).await?;
        for (other, made) in services.iter().zip(&made).skip(number + 1) {
            balancers.is_there(other, made).await?;
        }
    }
    Ok(format!("{} load balancers, twice each", services.len()))
}

async fn cancelled(run: &Run<'_>) -> Checked {
    let balancers = Balancers::start(run).await?;
    let (part, services) = (balancers.part()?, balancers.services().await?);
    let (service, nodes) = (&services[0], balancers.all_nodes());
    for steps in 0..STEPS_GIVEN_UP {
        give_up(part.ensure(CLUSTER, service, &nodes), steps).await;
        let made = balancers.ensure(service, &nodes).await?;
        give_up(part.update(CLUSTER, service, &nodes[..1]), steps).await;
        give_up(part.get(CLUSTER, service), steps).await;
        balancers.is_there(service, &made).await?;
        give_up(part.delete(CLUSTER, service), steps).await;
        balancers.delete_all(&services[..1]).await?;
    }
    Ok(format!("{} calls, given up after up to {STEPS_GIVEN_UP} steps", 4 * STEPS_GIVEN_UP))
}

async fn concurrent(run: &Run<'_>) -> Checked {
    let balancers = Balancers::start(run).await?;
    let services = balancers.services().await?;
    if services.len() < 2 {
        return not_checked("two Services or more from the hook `load_balancer_services`");
    }
    let nodes = balancers.all_nodes();
    let lives = services.iter().map(|service| async {
        let made = balancers.ensure(service, &nodes).await?;
        // Whoever chooses the nodes, the load balancer stays as it is.
        balancers.update(service, &nodes[..1]).await?;
        balancers.is_there(service, &made).await?;
        balancers.delete(service).await?;
        balancers.is_gone(service).await
    });
    join_all(lives).await.into_iter().collect::<Checked<Vec<()>>>()?;
    Ok(format!("{} load balancers at once", services.len()))
}

async fn disconnected(run: &Run<'_>) -> Checked {
    let balancers = Balancers::start(run).await?;
    let (part, services) = (balancers.part()?, balancers.services().await?);
    let (service, nodes) = (&services[0], balancers.all_nodes());
    let made = balancers.ensure(service, &nodes).await?;
    let told = balancers.update(service, &nodes[..1]).await?;
    if let Err(error) = run.hooks.disconnect().await {
        balancers.delete_all(&services[..1]).await?;
        return Err(error.into());
    }
    let seen = in_trouble(run, part, service, &nodes, told).await;
    run.hooks.reconnect().await?;
    let began = Instant::now();
    // The first calls may still use the broken connection.
    while balancers.get(service).await.is_err() && began.elapsed() < run.hooks.patience() {
        sleep(POLL_INTERVAL).await;
    }
    let kept = balancers.is_there(service, &made).await;
    balancers.delete_all(&services[..1]).await?;
    seen.and(kept)?;
    Ok("all four calls".to_owned())
}

async fn in_trouble(
    run: &Run<'_>,
    part: &dyn LoadBalancer,
    service: &LoadBalancerService,
    nodes: &[&NodeIdentity],
    told: Told,
) -> Checked<()> {
    let answers = [
        ("get", within("get", CALL_TIMEOUT, part.get(CLUSTER, service)).await?.map(drop)),
        ("ensure", within("ensure", CALL_TIMEOUT, part.ensure(CLUSTER, service, nodes)).await?.map(drop)),
        ("update", within("update", CALL_TIMEOUT, part.update(CLUSTER, service, &nodes[..1])).await?),
        ("delete", within("delete", CALL_TIMEOUT, part.delete(CLUSTER, service)).await?),
    ];
    for (what, answer) in answers {
        match answer {
            // It needs no cloud for that.
            Err(error)
                if what == "update"
                    && told == Told::Elsewhere
                    && error.kind() == ErrorKind::ImplementedElsewhere => {}
            Err(error) => {
                run.see(&error)?;
                ensure(!says_how_it_is(error.kind()), || {
                    format!("{what} fails with {} although the cloud cannot be reached", error.kind())
                })?;
            }
            Ok(()) => return failed(format!("{what} succeeds although the cloud cannot be reached")),
        }
    }
    Ok(())
}

/// Whether the controller takes an error of this kind for a statement about the load balancer.
fn says_how_it_is(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Unsupported | ErrorKind::ImplementedElsewhere)
}
