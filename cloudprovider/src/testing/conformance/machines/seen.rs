//! Rules about what steps see of a machine.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use futures::StreamExt as _;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    super::{
        HookError,
        run::{Checked, POLL_INTERVAL, Run, ensure, failed, is_present, not_checked, with_id},
    },
    driver::{Driver, Object, described},
    trouble::node_of,
};
use crate::{
    InstanceChange, InstanceLookup, InstanceStream, NodeAddress, NodeAddressType,
    machines::{ClusterRequest, Deletion, Mark, Record, Wait},
};

/// More steps than any machine needs. A provider whose steps wake their own object would go on for ever.
const MAX_STEPS: usize = 1_000;

/// How many failure domains are tried.
const DOMAINS: usize = 3;

pub(super) async fn provider_id(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut object = driver.object();
    let machine = driver.finish(&mut object).await?;
    let node = node_of(run, &object).await?;
    driver.working.becomes(&node, "is present", is_present, |_| false).await?;
    let of_the_node = driver.working.id_of(&node).await?;
    let same = |id: &crate::ProviderId| machine.instance.provider_id.as_ref() == Some(id);
    ensure(same(&of_the_node), || {
        format!("the machine has {:?}, and its Node {of_the_node:?}", machine.instance.provider_id)
    })?;
    let again = driver.working.id_of(&with_id(&node, &of_the_node)).await?;
    ensure(same(&again), || format!("a Node with provider ID {of_the_node} gets {again}"))?;
    driver.remove(&mut object).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok(of_the_node.to_string())
}

/// The IP addresses among these. Fails if one is not an address.
fn ips(name: &str, addresses: &[NodeAddress]) -> Checked<BTreeSet<IpAddr>> {
    let is_ip = |one: &&NodeAddress| {
        matches!(one.address_type, NodeAddressType::InternalIp | NodeAddressType::ExternalIp)
    };
    let parse = |one: &NodeAddress| match one.address.parse() {
        Ok(ip) => Ok(ip),
        Err(_) => failed(format!("{name} has the address {:?}", one.address)),
    };
    addresses.iter().filter(is_ip).map(parse).collect()
}

pub(super) async fn addresses(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut objects = [driver.object(), driver.object()];
    let mut all = BTreeSet::new();
    for object in &mut objects {
        let machine = driver.finish(object).await?;
        let found = ips(object.name(), &machine.instance.metadata.addresses)?;
        ensure(!found.is_empty(), || format!("{} is made and has no IP address", object.name()))?;
        let node = node_of(run, object).await?;
        driver.working.becomes(&node, "is present", is_present, |_| false).await?;
        if let InstanceLookup::Present(instance) = driver.working.look_up_one(&node).await? {
            let of_the_node = ips(&node.name, &instance.metadata.addresses)?;
            ensure(of_the_node.is_subset(&found), || {
                format!("{} has {found:?}, and its Node {of_the_node:?}", object.name())
            })?;
        }
        for ip in found {
            ensure(all.insert(ip), || format!("{} has {ip}, as another machine has", object.name()))?;
        }
    }
    for object in &mut objects {
        driver.remove(object).await?;
    }
    driver.has_only(&before, "with both machines gone").await?;
    Ok(format!("{} addresses of two machines", all.len()))
}

pub(super) async fn failure_domain(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mark = Mark { machine: None, ..driver.mark() };
    let uid = mark.uid.clone();
    let mut cluster = ClusterRequest::new(mark, driver.cases.cluster.clone()).with_object_uid(uid);
    let mut record = Record::default();
    let report = driver.finish_cluster(&mut cluster, &mut record).await?;
    let with_cluster = driver.things().await?;
    let domains: Vec<_> =
        report.failure_domains.into_iter().map(|domain| domain.name).take(DOMAINS).collect();
    for domain in &domains {
        let mut object = driver.object();
        object.request.failure_domain = Some(domain.clone());
        let machine = driver.finish(&mut object).await?;
        let found = &machine.failure_domain;
        ensure(found.as_ref() == Some(domain), || format!("asked for {domain:?}, it is in {found:?}"))?;
        driver.remove(&mut object).await?;
    }
    if !domains.is_empty() {
        let mut object = driver.object();
        object.request.failure_domain = Some("conformance-nowhere".to_owned());
        let answer = driver.step(&mut object).await?;
        let is_refused = answer.as_ref().is_err_and(|error| error.report().contains("conformance-nowhere"));
        ensure(is_refused, || format!("in a domain that is not there it is {}", described(&answer)))?;
        driver.remove(&mut object).await?;
        driver.has_only(&with_cluster, "after a domain that is not there").await?;
    }
    driver.remove_cluster(&cluster, &mut record).await?;
    driver.has_only(&before, "with the cluster gone").await?;
    if domains.is_empty() {
        return not_checked("failure domains, which the cluster of the hook `machines` has not");
    }
    Ok(format!("{} and one that is not there", domains.join(", ")))
}

/// Whether a change wakes this object.
fn wakes(change: &InstanceChange, object: &Object) -> bool {
    match change {
        InstanceChange::Resync => true,
        InstanceChange::Changed(instances) => {
            instances.iter().any(|one| one.machine.as_ref() == Some(&object.request.mark.uid))
        }
    }
}

/// Reads the stream until a change wakes this object.
async fn woken(
    stream: &mut InstanceStream,
    object: &Object,
    patience: Duration,
    waits_for: &str,
) -> Checked<()> {
    let deadline = Instant::now() + patience;
    loop {
        match timeout_at(deadline, stream.next()).await {
            Ok(Some(change)) if wakes(&change, object) => return Ok(()),
            Ok(Some(_)) => {}
            Ok(None) => return failed("the stream ends while the provider works"),
            Err(_) => return failed(format!("{}: nothing tells the end of: {waits_for}", object.name())),
        }
    }
}

/// What the answers and the stream say leads to the next step, and nothing else.
struct Follower<'a> {
    driver: &'a Driver<'a>,
    stream: InstanceStream,
    steps: usize,
}

impl<'a> Follower<'a> {
    fn new(driver: &'a Driver<'a>) -> Checked<Self> {
        match driver.working.instances()?.changes() {
            Some(stream) => Ok(Self { driver, stream, steps: 0 }),
            None => not_checked("changes, which the provider does not push"),
        }
    }

    fn count(&mut self, object: &Object) -> Checked<()> {
        self.steps += 1;
        let words = || format!("{} is told again and again, and nothing changes", object.name());
        ensure(self.steps < MAX_STEPS, words)
    }

    /// Waits until the next step is due.
    async fn wait(&mut self, object: &Object, wait: Option<&Wait>) -> Checked<()> {
        match wait {
            Some(Wait { look_again_after: None, message, .. }) => self.woken(object, message).await,
            Some(Wait { look_again_after: Some(after), .. }) => {
                // The time has come, if no change did before.
                let _ = woken(&mut self.stream, object, *after, "").await;
                Ok(())
            }
            None => {
                sleep(POLL_INTERVAL).await;
                Ok(())
            }
        }
    }

    async fn woken(&mut self, object: &Object, waits_for: &str) -> Checked<()> {
        woken(&mut self.stream, object, self.driver.run.hooks.patience(), waits_for).await
    }

    /// Steps until nothing is left to do, or only until the first step that succeeds.
    async fn make(&mut self, object: &mut Object, is_to_end: bool) -> Checked<()> {
        loop {
            self.count(object)?;
            let answer = self.driver.step(object).await?;
            match &answer {
                Ok(report) if report.is_done() || !is_to_end => return Ok(()),
                Ok(report) => self.wait(object, report.wait()).await?,
                Err(error) if error.is_retryable() => self.wait(object, None).await?,
                Err(error) => return failed(error.report()),
            }
        }
    }

    async fn delete(&mut self, object: &mut Object) -> Checked<()> {
        loop {
            self.count(object)?;
            match self.driver.delete_step(object).await? {
                Ok(Deletion::Gone) => return Ok(()),
                Ok(Deletion::Deleting(wait)) => self.wait(object, Some(&wait)).await?,
                Err(error) if error.is_retryable() => self.wait(object, None).await?,
                Err(error) => return failed(error.report()),
            }
        }
    }
}

pub(super) async fn told(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mut follower = Follower::new(&driver)?;
    let mut object = driver.object();
    follower.make(&mut object, true).await?;
    let node = node_of(run, &object).await?;
    let done = match run.hooks.power_off(&node).await {
        Ok(()) => {
            follower.woken(&object, "powered off behind our back").await?;
            "made, powered off, deleted"
        }
        Err(HookError::NotOffered(_)) => "made, deleted",
        Err(error) => return Err(error.into()),
    };
    follower.delete(&mut object).await?;
    driver.has_only(&before, "with the machine gone").await?;
    Ok(done.to_owned())
}

pub(super) async fn told_after_restart(run: &Run<'_>) -> Checked {
    let mut driver = Driver::start(run).await?;
    let before = driver.things().await?;
    for is_lost in [false, true] {
        let mut object = driver.object();
        Follower::new(&driver)?.make(&mut object, false).await?;
        driver = driver.restart().await?;
        if is_lost {
            object.forget_status();
        }
        let mut follower = Follower::new(&driver)?;
        follower.make(&mut object, true).await?;
        follower.delete(&mut object).await?;
        driver.has_only(&before, "with the machine gone").await?;
    }
    Ok("with its status and without".to_owned())
}

pub(super) async fn capacity(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let mut told = Vec::new();
    for _ in 0..2 {
        match driver.part()?.capacity(&driver.cases.machine).await {
            Ok(capacity) => told.push(capacity),
            Err(error) => return failed(format!("the capacity: {}", error.report())),
        }
    }
    ensure(told[0] == told[1], || format!("the capacity is {:?}, and then {:?}", told[0], told[1]))?;
    for (name, quantity) in &told[0].resources {
        let is_quantity = quantity.starts_with(|first: char| first.is_ascii_digit());
        ensure(is_quantity && !name.is_empty(), || format!("the capacity of {name:?} is {quantity:?}"))?;
    }
    let names: Vec<_> = told[0].resources.keys().cloned().collect();
    Ok(if names.is_empty() { "none is known".to_owned() } else { names.join(", ") })
}
