//! Rules about routes.

use futures::{FutureExt as _, future::join_all};
use tokio::time::{Instant, sleep};

use super::{
    check::Check,
    run::{
        CALL_TIMEOUT, CLUSTER, Checked, POLL_INTERVAL, Run, STEPS_GIVEN_UP, Working, ensure, failed, give_up,
        not_checked, within,
    },
};
use crate::{Error, ErrorKind, Route, Routes};

/// Another cluster on the same cloud.
const OTHER_CLUSTER: &str = "conformance-other";

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "created",
        says: "A route that was created is listed once, with its pod CIDR and the Node that it leads to.",
        look: |run| created(run).boxed(),
    },
    Check {
        name: "again",
        says: "Creating a route that is there succeeds and makes no second one; its CIDR is not given to another Node.",
        look: |run| again(run).boxed(),
    },
    Check {
        name: "deleted",
        says: "A route that was deleted is gone, others stay, and deleting it again succeeds.",
        look: |run| deleted(run).boxed(),
    },
    Check {
        name: "cluster",
        says: "The list has the routes of the cluster that was asked about, and no others.",
        look: |run| cluster(run).boxed(),
    },
    Check {
        name: "restart",
        says: "Another provider on the same cloud lists and deletes what the one before made.",
        look: |run| restart(run).boxed(),
    },
    Check {
        name: "cancelled",
        says: "A call that is given up leaves nothing that cannot be listed, created and deleted.",
        look: |run| cancelled(run).boxed(),
    },
    Check {
        name: "concurrent",
        says: "Several routes are created and deleted at the same time.",
        look: |run| concurrent(run).boxed(),
    },
    Check {
        name: "disconnected",
        says: "While the cloud cannot be reached every call fails, and none says that there are no routes.",
        look: |run| disconnected(run).boxed(),
    },
];

/// A running provider and its routes.
struct Table<'a> {
    run: &'a Run<'a>,
    working: Working<'a>,
}

impl<'a> Table<'a> {
    async fn start(run: &'a Run<'a>) -> Checked<Self> {
        let working = run.make()?;
        if working.provider.routes().is_none() {
            return not_checked("routes, which the provider has not");
        }
        working.start().await?;
        let table = Self { run, working };
        table.wait_for_connection().await?;
        Ok(table)
    }

    /// Waits until the provider can list routes, but no longer than it may take.
    async fn wait_for_connection(&self) -> Checked<()> {
        let (began, patience) = (Instant::now(), self.run.hooks.patience());
        while self.try_list(CLUSTER).await?.is_err() && began.elapsed() < patience {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// The routes to test. None of them exists yet.
    async fn wanted(&self) -> Checked<Vec<Route>> {
        let wanted = self.run.hooks.routes().await?;
        ensure(!wanted.is_empty(), || "the hook `routes` gives none".to_owned())?;
        for cluster in [CLUSTER, OTHER_CLUSTER] {
            self.delete_listed(cluster, &wanted).await?;
        }
        Ok(wanted)
    }

    /// Deletes the listed routes, as the controller does. A route that is none of `wanted` may belong to somebody else, and is
    /// not touched.
    async fn delete_listed(&self, cluster: &str, wanted: &[Route]) -> Checked<()> {
        let listed = self.list(cluster).await?;
        let foreign =
            |route: &&Route| !wanted.iter().any(|one| one.destination_cidr == route.destination_cidr);
        if let Some(route) = listed.iter().find(foreign) {
            return failed(format!(
                "the list of cluster {cluster:?} has {}, which it did not make",
                described(route)
            ));
        }
        for route in &listed {
            self.delete(cluster, route).await?;
        }
        Ok(())
    }

    fn part(&self) -> Checked<&dyn Routes> {
        match self.working.provider.routes() {
            Some(part) => Ok(part),
            None => failed("the provider has no routes any more"),
        }
    }

    async fn try_list(&self, cluster: &str) -> Checked<Result<Vec<Route>, Error>> {
        within("list", CALL_TIMEOUT, self.part()?.list(cluster)).await
    }

    async fn list(&self, cluster: &str) -> Checked<Vec<Route>> {
        self.no_error("list", self.try_list(cluster).await?)
    }

    async fn create(&self, cluster: &str, route: &Route) -> Checked<()> {
        let hint = format!("uid-of-{}", route.target_node);
        let call = self.part()?.create(cluster, &hint, route);
        self.no_error("create", within("create", CALL_TIMEOUT, call).await?)
    }

    async fn delete(&self, cluster: &str, route: &Route) -> Checked<()> {
        let call = self.part()?.delete(cluster, route);
        self.no_error("delete", within("delete", CALL_TIMEOUT, call).await?)
    }

    fn no_error<T>(&self, what: &str, answer: Result<T, Error>) -> Checked<T> {
        match answer {
            Ok(value) => Ok(value),
            Err(error) => {
                self.run.see(&error)?;
                failed(format!("{what} fails: {}", error.report()))
            }
        }
    }

    /// The listed route for a created one. It must be listed exactly once.
    async fn found(&self, cluster: &str, wanted: &Route) -> Checked<Route> {
        let listed = self.list(cluster).await?;
        let mut fitting = listed.iter().filter(|route| is_for(route, wanted));
        match (fitting.next(), fitting.next()) {
            (Some(route), None) => Ok(route.clone()),
            (None, _) => failed(format!("{} is not among {listed:?}", described(wanted))),
            (Some(_), Some(_)) => failed(format!("{} is more than once in {listed:?}", described(wanted))),
        }
    }

    /// Checks that the list contains these routes and no others.
    async fn are_all(&self, cluster: &str, wanted: &[Route]) -> Checked<()> {
        for route in wanted {
            self.found(cluster, route).await?;
        }
        let listed = self.list(cluster).await?;
        ensure(listed.len() == wanted.len(), || {
            format!("{} routes are listed where there are {}: {listed:?}", listed.len(), wanted.len())
        })
    }

    async fn create_all(&self, cluster: &str, wanted: &[Route]) -> Checked<()> {
        for route in wanted {
            self.create(cluster, route).await?;
        }
        self.are_all(cluster, wanted).await
    }

    async fn delete_all(&self, cluster: &str, wanted: &[Route]) -> Checked<()> {
        self.delete_listed(cluster, wanted).await?;
        self.are_all(cluster, &[]).await
    }
}

fn is_for(route: &Route, wanted: &Route) -> bool {
    route.destination_cidr == wanted.destination_cidr && route.target_node == wanted.target_node
}

fn described(route: &Route) -> String {
    format!("the route to {} by way of node {:?}", route.destination_cidr, route.target_node)
}

async fn created(run: &Run<'_>) -> Checked {
    let table = Table::start(run).await?;
    let wanted = table.wanted().await?;
    table.create_all(CLUSTER, &wanted).await?;
    for route in &wanted {
        let found = table.found(CLUSTER, route).await?;
        ensure(!found.blackhole, || format!("{} is a black hole", described(route)))?;
        ensure(!found.name.is_empty(), || format!("{} has no name", described(route)))?;
    }
    table.delete_all(CLUSTER, &wanted).await?;
    Ok(format!("{} routes", wanted.len()))
}

async fn again(run: &Run<'_>) -> Checked {
    let table = Table::start(run).await?;
    let wanted = table.wanted().await?;
    for _ in 0..2 {
        table.create_all(CLUSTER, &wanted).await?;
    }
    let (first, part) = (&wanted[0], table.part()?);
    if let Some(other) = wanted.iter().find(|other| other.target_node != first.target_node) {
        let elsewhere = Route { destination_cidr: first.destination_cidr.clone(), ..other.clone() };
        let answer = within("create", CALL_TIMEOUT, part.create(CLUSTER, "uid", &elsewhere)).await?;
        let is_conflict = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict);
        ensure(is_conflict, || {
            format!("creating {} over {} gives {answer:?}", described(&elsewhere), described(first))
        })?;
        table.are_all(CLUSTER, &wanted).await?;
    }
    table.delete_all(CLUSTER, &wanted).await?;
    Ok(format!("{} routes, twice each", wanted.len()))
}

async fn deleted(run: &Run<'_>) -> Checked {
    let table = Table::start(run).await?;
    let wanted = table.wanted().await?;
    table.create_all(CLUSTER, &wanted).await?;
    for (number, route) in wanted.iter().enumerate() {
        let found = table.found(CLUSTER, route).await?;
        for _ in 0..2 {
            table.delete(CLUSTER, &found).await?;
        }
        table.are_all(CLUSTER, &wanted[number + 1..]).await?;
    }
    Ok(format!("{} routes, twice each", wanted.len()))
}

async fn cluster(run: &Run<'_>) -> Checked {
    let table = Table::start(run).await?;
    let wanted = table.wanted().await?;
    if wanted.len() < 2 {
        return not_checked("two routes or more from the hook `routes`");
    }
    let (ours, others) = wanted.split_at(1);
    table.create_all(OTHER_CLUSTER, others).await?;
    table.create_all(CLUSTER, ours).await?;
    table.are_all(OTHER_CLUSTER, others).await?;
    table.delete_all(CLUSTER, &wanted).await?;
    table.are_all(OTHER_CLUSTER, others).await?;
    table.delete_all(OTHER_CLUSTER, &wanted).await?;
    Ok(format!("{} routes of two clusters", wanted.len()))
}

async fn restart(run: &Run<'_>) -> Checked {
    let before = Table::start(run).await?;
    let wanted = before.wanted().await?;
    before.create_all(CLUSTER, &wanted).await?;
    before.working.end().await?;
    let after = Table::start(run).await?;
    after.are_all(CLUSTER, &wanted).await?;
    after.delete_all(CLUSTER, &wanted).await?;
    Ok(format!("{} routes", wanted.len()))
}

async fn cancelled(run: &Run<'_>) -> Checked {
    let table = Table::start(run).await?;
    let wanted = table.wanted().await?;
    let (part, route) = (table.part()?, &wanted[0]);
    for steps in 0..STEPS_GIVEN_UP {
        give_up(part.create(CLUSTER, "uid", route), steps).await;
        table.create(CLUSTER, route).await?;
        give_up(part.list(CLUSTER), steps).await;
        let found = table.found(CLUSTER, route).await?;
        give_up(part.delete(CLUSTER, &found), steps).await;
        table.delete_all(CLUSTER, &wanted).await?;
    }
    Ok(format!("{} calls, given up after up to {STEPS_GIVEN_UP} steps", 3 * STEPS_GIVEN_UP))
}

async fn concurrent(run: &Run<'_>) -> Checked {
    let table = Table::start(run).await?;
    let wanted = table.wanted().await?;
    if wanted.len() < 2 {
        return not_checked("two routes or more from the hook `routes`");
    }
    let creations = wanted.iter().map(|route| table.create(CLUSTER, route));
    join_all(creations).await.into_iter().collect::<Checked<Vec<()>>>()?;
    table.are_all(CLUSTER, &wanted).await?;
    let listed = table.list(CLUSTER).await?;
    let deletions = listed.iter().map(|route| table.delete(CLUSTER, route));
    join_all(deletions).await.into_iter().collect::<Checked<Vec<()>>>()?;
    table.are_all(CLUSTER, &[]).await?;
    Ok(format!("{} routes at once", wanted.len()))
}

async fn disconnected(run: &Run<'_>) -> Checked {
    let table = Table::start(run).await?;
    let wanted = table.wanted().await?;
    table.create(CLUSTER, &wanted[0]).await?;
    let found = table.found(CLUSTER, &wanted[0]).await?;
    if let Err(error) = run.hooks.disconnect().await {
        table.delete_all(CLUSTER, &wanted).await?;
        return Err(error.into());
    }
    let seen = in_trouble(&table, wanted.last().unwrap_or(&found), &found).await;
    run.hooks.reconnect().await?;
    // The first calls may still use the broken connection.
    table.wait_for_connection().await?;
    let kept = table.are_all(CLUSTER, &wanted[..1]).await;
    table.delete_all(CLUSTER, &wanted).await?;
    seen.and(kept)?;
    Ok("all three calls".to_owned())
}

async fn in_trouble(table: &Table<'_>, new: &Route, known: &Route) -> Checked<()> {
    let part = table.part()?;
    let answers = [
        ("list", table.try_list(CLUSTER).await?.map(drop)),
        ("create", within("create", CALL_TIMEOUT, part.create(CLUSTER, "uid", new)).await?),
        ("delete", within("delete", CALL_TIMEOUT, part.delete(CLUSTER, known)).await?),
    ];
    for (what, answer) in answers {
        match answer {
            Err(error) => table.run.see(&error)?,
            Ok(()) => return failed(format!("{what} succeeds although the cloud cannot be reached")),
        }
    }
    Ok(())
}
