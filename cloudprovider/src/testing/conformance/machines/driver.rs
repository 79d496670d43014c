//! A small controller: drives objects through the steps of a provider, and checks what must be true of every
//! step.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::super::{
    hooks::MachineCases,
    run::{
        CALL_TIMEOUT, CLUSTER, Checked, POLL_INTERVAL, Run, Working, ensure, failed, not_checked, tells,
        within,
    },
};
use crate::{
    DynMachines, Error, Result,
    machines::{
        BootstrapData, ClusterContext, ClusterReport, ClusterRequest, Deletion, MachineReport,
        MachineRequest, Mark, PresentMachine, Record, Wait,
    },
};

/// The namespace of every object.
pub(super) const NAMESPACE: &str = "conformance";

/// A running provider, and what it can make.
pub(super) struct Driver<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) working: Working<'a>,
    pub(super) cases: MachineCases,
}

/// An object of the API, as the controller keeps it.
#[derive(Clone)]
pub(super) struct Object {
    pub(super) request: MachineRequest<Value, Value>,
    pub(super) record: Record<Value>,
    /// The bootstrap data, while steps are called without them.
    pub(super) kept: Option<BootstrapData>,
}

impl Object {
    pub(super) fn name(&self) -> &str {
        self.request.mark.name()
    }

    /// The object as it is if what the last steps said was not written.
    pub(super) fn forget_status(&mut self) {
        self.record = Record::default();
    }
}

impl<'a> Driver<'a> {
    pub(super) async fn start(run: &'a Run<'a>) -> Checked<Self> {
        let working = run.make()?;
        if working.provider.machines().is_none() {
            return not_checked("machines, which the provider has not");
        }
        let cases = run.hooks.machines().await?;
        working.start().await?;
        let driver = Self { run, working, cases };
        driver.wait_for_connection().await?;
        Ok(driver)
    }

    /// Ends this provider and starts another one on the same cloud.
    pub(super) async fn restart(self) -> Checked<Self> {
        self.working.end().await?;
        Self::start(self.run).await
    }

    /// Waits until the provider can delete a machine that never was.
    pub(super) async fn wait_for_connection(&self) -> Checked<()> {
        let began = Instant::now();
        let mut nothing = self.object();
        while self.delete_step(&mut nothing).await?.is_err() && began.elapsed() < self.run.hooks.patience() {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    pub(super) fn part(&self) -> Checked<&dyn DynMachines> {
        match self.working.provider.machines() {
            Some(part) => Ok(part),
            None => failed("the provider has no machines any more"),
        }
    }

    /// A mark with an identity that no other object of this run has.
    pub(super) fn mark(&self) -> Mark {
        let number = self.run.objects.fetch_add(1, Ordering::Relaxed);
        let uid = format!("c0f0c0de-0000-4000-8000-{number:012x}");
        Mark::machine(uid, NAMESPACE, CLUSTER, format!("conformance-{number}"))
    }

    pub(super) fn object_with(&self, mark: Mark) -> Object {
        let cluster = ClusterContext::new(self.cases.cluster.clone());
        // Cluster API calls the two alike, and somebody who makes them by hand may not.
        let machine_name = format!("{}-m", mark.name());
        let uid = mark.uid.clone();
        let request = MachineRequest::new(mark, self.cases.machine.clone(), cluster)
            .with_object_uid(uid)
            .with_machine_name(machine_name)
            .with_bootstrap(self.cases.bootstrap.clone());
        Object { request, record: Record::default(), kept: None }
    }

    /// An object whose machine does not exist yet.
    pub(super) fn object(&self) -> Object {
        self.object_with(self.mark())
    }

    /// Everything in the cloud that machines and clusters consist of.
    pub(super) async fn things(&self) -> Checked<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for line in self.run.hooks.machine_objects().await? {
            ensure(!all.contains(&line), || format!("two things in the cloud are {line:?}"))?;
            all.insert(line);
        }
        Ok(all)
    }

    /// Fails unless the cloud has exactly these things.
    pub(super) async fn has_only(&self, things: &BTreeSet<String>, when: &str) -> Checked<()> {
        let now = self.things().await?;
        let list =
            |things: Vec<&String>| things.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(", ");
        let more = list(now.difference(things).collect());
        ensure(more.is_empty(), || format!("{when} there is also {more}"))?;
        let less = list(things.difference(&now).collect());
        ensure(less.is_empty(), || format!("{when} {less} is missing"))
    }

    /// One step towards existing, with what the controller does after it.
    pub(super) async fn step(&self, object: &mut Object) -> Checked<Result<MachineReport>> {
        let part = self.part()?;
        let step = part.ensure_machine(&object.request, &mut object.record);
        let answer = within("ensure_machine", CALL_TIMEOUT, step).await?;
        self.examine(object, answer.as_ref().err(), answer.as_ref().ok().and_then(MachineReport::wait))?;
        let Ok(report) = &answer else { return Ok(answer) };
        match report {
            MachineReport::Present(machine) => {
                let id = self.id_of(object, machine)?;
                object.request.provider_id = Some(id);
            }
            MachineReport::Lost { message } => {
                ensure(object.request.provider_id.is_some(), || {
                    format!("{} is lost ({message}) although it never existed", object.name())
                })?;
            }
            MachineReport::Creating(_) => {
                let id = object.request.provider_id.as_deref();
                ensure(id.is_none(), || {
                    format!("{} is being created although it was {}", object.name(), id.unwrap_or_default())
                })?;
            }
        }
        if let Some(wait) = report.wait() {
            let Object { request, kept, .. } = object;
            if !wait.needs_bootstrap_data {
                *kept = request.bootstrap.take().or(kept.take());
            } else if kept.is_some() {
                request.bootstrap = kept.take();
            }
        }
        if report.is_done() {
            object.request.is_provisioned = true;
            object.request.bootstrap = None;
        }
        Ok(answer)
    }

    fn id_of(&self, object: &Object, machine: &PresentMachine) -> Checked<String> {
        let name = object.name();
        let id = match &machine.instance.provider_id {
            Some(id) if id.is_complete() => id.as_str().to_owned(),
            id => return failed(format!("{name} exists and its provider ID is {id:?}")),
        };
        ensure(self.working.instances()?.owns(&id), || {
            format!("{name} has provider ID {id:?}, not an own one")
        })?;
        match &object.request.provider_id {
            Some(before) if *before != id => {
                failed(format!("{name} has provider ID {id:?}, and had {before:?} before"))
            }
            _ => Ok(id),
        }
    }

    /// One step towards gone.
    pub(super) async fn delete_step(&self, object: &mut Object) -> Checked<Result<Deletion>> {
        object.request.bootstrap = None;
        let part = self.part()?;
        let step = part.delete_machine(&object.request, &mut object.record);
        let answer = within("delete_machine", CALL_TIMEOUT, step).await?;
        let wait = match &answer {
            Ok(Deletion::Deleting(wait)) => Some(wait),
            _ => None,
        };
        self.examine(object, answer.as_ref().err(), wait)?;
        Ok(answer)
    }

    /// What must be true of every answer, and of what it leaves in the status.
    fn examine(&self, object: &Object, error: Option<&Error>, wait: Option<&Wait>) -> Checked<()> {
        if let Some(error) = error {
            self.run.see(error)?;
        }
        if let Some(wait) = wait {
            let is_told = !wait.message.trim().is_empty() && !wait.reason.is_empty();
            ensure(is_told, || format!("{} waits without saying for what: {wait:?}", object.name()))?;
        }
        let secret = String::from_utf8_lossy(self.cases.bootstrap.expose());
        let texts = [error.map(|error| format!("{error:?}")), wait.map(|wait| format!("{wait:?}"))];
        let shows =
            texts.iter().flatten().chain([&format!("{:?}", object.record)]).any(|t| tells(t, &secret));
        ensure(!shows, || format!("a step of {} shows its bootstrap data", object.name()))
    }

    /// Steps until nothing is left to do. An error is tried again as the controller does.
    pub(super) async fn finish(&self, object: &mut Object) -> Checked<PresentMachine> {
        self.finish_with(object, |_| {}).await
    }

    /// Like [`finish`](Self::finish), with something done to the object before each step.
    pub(super) async fn finish_with(
        &self,
        object: &mut Object,
        before: impl Fn(&mut Object),
    ) -> Checked<PresentMachine> {
        let (began, patience) = (Instant::now(), self.run.hooks.patience());
        loop {
            before(object);
            let answer = self.step(object).await?;
            let words = match answer {
                Ok(MachineReport::Present(machine)) if machine.wait.is_none() => return Ok(*machine),
                Err(error) if !error.is_retryable() => {
                    return failed(format!("{}: {}", object.name(), error.report()));
                }
                Ok(MachineReport::Lost { message }) => {
                    return failed(format!("{} is lost: {message}", object.name()));
                }
                answer => described(&answer),
            };
            let seconds = patience.as_secs();
            ensure(began.elapsed() < patience, || {
                format!("{} is not made after {seconds} s: {words}", object.name())
            })?;
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Steps until the machine is gone.
    pub(super) async fn remove(&self, object: &mut Object) -> Checked<()> {
        self.remove_with(object, |_| {}).await
    }

    pub(super) async fn remove_with(&self, object: &mut Object, before: impl Fn(&mut Object)) -> Checked<()> {
        let (began, patience) = (Instant::now(), self.run.hooks.patience());
        loop {
            before(object);
            let words = match self.delete_step(object).await? {
                Ok(Deletion::Gone) => return Ok(()),
                Ok(Deletion::Deleting(wait)) => wait.message.into_owned(),
                Err(error) if error.is_retryable() => error.report(),
                Err(error) => return failed(format!("deleting {}: {}", object.name(), error.report())),
            };
            let seconds = patience.as_secs();
            ensure(began.elapsed() < patience, || {
                format!("{} is not gone after {seconds} s: {words}", object.name())
            })?;
            sleep(POLL_INTERVAL).await;
        }
    }

    /// How many things a machine consists of.
    pub(super) async fn size_of_a_machine(&self) -> Checked<usize> {
        let before = self.things().await?;
        let mut object = self.object();
        self.finish(&mut object).await?;
        let size = self.things().await?.difference(&before).count();
        self.remove(&mut object).await?;
        self.has_only(&before, "with a machine gone").await?;
        ensure(size > 0, || "the hook `machine_objects` does not see a machine".to_owned())?;
        Ok(size)
    }

    /// Fails unless exactly one machine of this size was added to what was there `before`.
    pub(super) async fn is_one(&self, before: &BTreeSet<String>, size: usize, when: &str) -> Checked<()> {
        let now = self.things().await?;
        let made: Vec<_> = now.difference(before).cloned().collect();
        let is_one = made.len() == size && before.is_subset(&now);
        ensure(is_one, || format!("{when} there is {}, where a machine has {size} parts", made.join(", ")))
    }

    pub(super) async fn cluster_step(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Checked<Result<ClusterReport>> {
        let answer =
            within("ensure_cluster", CALL_TIMEOUT, self.part()?.ensure_cluster(request, record)).await?;
        answer.as_ref().err().map_or(Ok(()), |error| self.run.see(error))?;
        Ok(answer)
    }

    /// Steps of a cluster until nothing is left to do.
    pub(super) async fn finish_cluster(
        &self,
        request: &mut ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Checked<ClusterReport> {
        let (began, patience) = (Instant::now(), self.run.hooks.patience());
        loop {
            let words = match self.cluster_step(request, record).await? {
                Ok(report) => {
                    let (before, now) = (&request.control_plane_endpoint, &report.control_plane_endpoint);
                    ensure(before.is_none() || before == now, || {
                        format!("the endpoint of the cluster is {now:?}, and was {before:?} before")
                    })?;
                    request.control_plane_endpoint.clone_from(now);
                    match &report.wait {
                        None => return Ok(report),
                        Some(wait) => wait.message.clone().into_owned(),
                    }
                }
                Err(error) => error.report(),
            };
            ensure(began.elapsed() < patience, || format!("the cluster is not made: {words}"))?;
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Steps of a cluster until it is gone.
    pub(super) async fn remove_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Checked<()> {
        let (began, patience) = (Instant::now(), self.run.hooks.patience());
        loop {
            let step = self.part()?.delete_cluster(request, record);
            let words = match within("delete_cluster", CALL_TIMEOUT, step).await? {
                Ok(Deletion::Gone) => return Ok(()),
                Ok(Deletion::Deleting(wait)) => wait.message.into_owned(),
                Err(error) => {
                    self.run.see(&error)?;
                    error.report()
                }
            };
            ensure(began.elapsed() < patience, || format!("the cluster is not gone: {words}"))?;
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Describes an answer for the report.
pub(super) fn described(answer: &Result<MachineReport>) -> String {
    match answer {
        Ok(MachineReport::Creating(wait)) => format!("being created ({})", wait.message),
        Ok(MachineReport::Present(machine)) => match &machine.wait {
            Some(wait) => format!("there and waiting ({})", wait.message),
            None => format!("there ({})", machine.instance.power_state),
        },
        Ok(MachineReport::Lost { message }) => format!("lost ({message})"),
        Err(error) => format!("an error ({}: {})", error.kind(), error.report()),
    }
}
