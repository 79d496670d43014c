//! Calls about many nodes. Where a call fails as a whole, each half of its nodes is asked about again, and so on. In the end
//! only the nodes that make it fail are without an answer.

use std::{collections::HashMap, time::Duration};

use cloudprovider::{Error, ErrorKind, NodeIdentity};
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{
    call_time::CallTime,
    guarded::{CALL_TIMEOUT, caught_in_time},
    metrics::ProviderMetrics,
};

/// How long all calls of a batch after the first one may take together. To this is added twice the time of one call about
/// all nodes, [`CALL_TIMEOUT`] at most, since asking again in halves takes that long. Without enough time for it the next
/// batch would begin with the same calls and get no further.
const MORE_TIME: Duration = Duration::from_secs(30);

/// How many calls a batch may make after the first one: enough to find two failing nodes of 5,000.
pub(super) const MORE_CALLS: u32 = 64;

/// Where calls hang, one is given up when it takes this much longer than it would at the pace of the last good one. A longer
/// wait would leave too little of [`MORE_TIME`] for the other nodes. A cloud that has only become slower still gets its
/// chance: the call about half of the nodes has the same time to spare.
pub(super) const HANG_TIMEOUT: Duration = Duration::from_secs(5);

/// A node is asked about with the others again when no call has failed for it for so long.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Makes the calls, and remembers the nodes for which they failed.
#[derive(Debug)]
pub(super) struct Batches {
    metrics: ProviderMetrics,
    memory: Mutex<HashMap<&'static str, Memory>>,
}

/// What is known of one operation.
#[derive(Debug, Default)]
struct Memory {
    /// The nodes to be asked about apart from the others, by name.
    suspects: HashMap<String, Suspect>,
    pace: Option<Pace>,
}

/// How long the last good call took.
#[derive(Clone, Copy, Debug)]
struct Pace {
    took: Duration,
    /// How many nodes it was about.
    count: usize,
}

impl Pace {
    /// How long a call about `count` nodes takes at this pace.
    fn of(self, count: usize) -> Duration {
        let whole = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.took.saturating_mul(whole(count)) / whole(self.count).max(1)
    }
}

#[derive(Clone, Copy, Debug)]
struct Suspect {
    /// Whether a call about this node alone failed, and not only one about several nodes.
    is_alone: bool,
    /// Whether the call timed out.
    hangs: bool,
    failed_at: Instant,
}

/// Some nodes of a batch, by their indices in it.
type Group = Vec<usize>;

/// The nodes of a batch, by what is known from earlier calls.
struct Groups {
    /// Those for which no call has failed.
    others: Group,
    /// Those of calls that failed about several nodes. One of them makes the calls fail, and it is not known which.
    unclear: Group,
    /// Those for which a call about them alone fails. The one that was asked about the longest ago comes first.
    alone: Group,
}

/// The calls of one batch.
struct Run<'a, 'n, T> {
    batches: &'a Batches,
    operation: &'static str,
    nodes: &'a [&'n NodeIdentity],
    answers: Vec<Option<Result<T, Error>>>,
    /// The time of the call that gave each answer.
    times: Vec<CallTime>,
    calls: u32,
    /// When the first call ended.
    more_since: Option<Instant>,
    has_good_one: bool,
    hangs: bool,
    /// The error of the last call that failed for several nodes.
    why: Error,
    failed: Vec<(usize, Suspect)>,
}

impl Batches {
    pub(super) fn new(metrics: ProviderMetrics) -> Self {
        Self { metrics, memory: Mutex::default() }
    }

    /// Asks about `nodes`, in one call where that works. Gives one answer for each, in order, with the time of the call that
    /// gave it. Where there is no answer, `fault` makes one that says why.
    pub(super) async fn ask<'n, T>(
        &self,
        operation: &'static str,
        nodes: &[&'n NodeIdentity],
        call: impl Fn(Vec<&'n NodeIdentity>) -> BoxFuture<'n, Vec<T>>,
        is_error: impl Fn(&T) -> bool,
        fault: impl Fn(Error) -> T,
    ) -> Vec<(T, CallTime)> {
        let mut run = Run {
            batches: self,
            operation,
            nodes,
            answers: nodes.iter().map(|_| None).collect(),
            times: vec![CallTime::now(); nodes.len()],
            calls: 0,
            more_since: None,
            has_good_one: false,
            hangs: false,
            why: Error::new(ErrorKind::Internal, "the cloud provider was not asked"),
            failed: Vec::new(),
        };
        let Groups { others, unclear, alone } = self.groups(operation, nodes);
        let mut failed = Vec::new();
        for group in [others, unclear] {
            failed.extend(run.try_group(group, &call, &is_error).await);
        }
        // Those of the first group come first, since they are more.
        failed.reverse();
        while let Some(mut group) = failed.pop() {
            let half = group.split_off(group.len().div_ceil(2));
            for group in [half, group] {
                failed.extend(run.try_group(group, &call, &is_error).await);
            }
        }
        // All in one call at first, since the provider may work again.
        if let Some(group) = run.try_group(alone, &call, &is_error).await {
            let hang = run.hangs;
            for (place, index) in group.into_iter().enumerate() {
                // Each further call would hang as well.
                if hang && place > 0 {
                    run.leave(&[index], true);
                } else {
                    run.try_group(vec![index], &call, &is_error).await;
                }
            }
        }
        let is_good =
            |answer: &Option<Result<T, Error>>| matches!(answer, Some(Ok(answer)) if !is_error(answer));
        if !nodes.is_empty() && run.answers.iter().all(is_good) {
            self.metrics.answered(operation);
        }
        run.end().map(|(answer, time)| (answer.unwrap_or_else(&fault), time)).collect()
    }

    fn groups(&self, operation: &'static str, nodes: &[&NodeIdentity]) -> Groups {
        let memory = self.lock();
        let known = memory.get(operation).map(|memory| &memory.suspects);
        let suspect = |index: usize| known.and_then(|known| known.get(&nodes[index].name));
        let mut groups = Groups { others: Vec::new(), unclear: Vec::new(), alone: Vec::new() };
        for index in 0..nodes.len() {
            match suspect(index) {
                None => groups.others.push(index),
                Some(suspect) if suspect.is_alone => groups.alone.push(index),
                Some(_) => groups.unclear.push(index),
            }
        }
        groups.alone.sort_by_key(|&index| suspect(index).map(|suspect| suspect.failed_at));
        groups
    }

    /// Makes one call with a deadline, catches its panic, counts it.
    async fn call<T>(
        &self,
        operation: &'static str,
        count: usize,
        limit: Duration,
        call: impl Future<Output = Vec<T>>,
        is_error: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, Error> {
        self.metrics.asked(operation);
        #[expect(clippy::cast_precision_loss, reason = "no cluster has 2^52 nodes")]
        self.metrics.batch(operation).observe(count as f64);
        let outcome = caught_in_time(&self.metrics, operation, limit, call).await;
        let over =
            if count == 1 { " over this node".to_owned() } else { format!(" over one of {count} nodes") };
        let fault = match outcome {
            Ok(answers) if answers.len() == count => {
                let result = if answers.iter().any(is_error) { "partial" } else { "ok" };
                self.metrics.calls(operation, result).inc();
                return Ok(answers);
            }
            Ok(answers) => Error::new(
                ErrorKind::Internal,
                format!("the cloud provider gave {} answers for {count} nodes", answers.len()),
            ),
            Err(fault) => fault.into_error(&over),
        };
        self.metrics.calls(operation, fault.kind().as_str()).inc();
        Err(fault.with_operation(operation))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, Memory>> {
        self.memory.lock()
    }
}

impl<'n, T> Run<'_, 'n, T> {
    /// Asks about a group in one call. Gives the group back where the call failed and there are several nodes in it.
    async fn try_group(
        &mut self,
        group: Group,
        call: impl Fn(Vec<&'n NodeIdentity>) -> BoxFuture<'n, Vec<T>>,
        is_error: impl Fn(&T) -> bool,
    ) -> Option<Group> {
        if group.is_empty() {
            return None;
        }
        let batch: Vec<&NodeIdentity> = group.iter().map(|&index| self.nodes[index]).collect();
        let Some(limit) = self.limit(&batch) else {
            self.leave(&group, false);
            return None;
        };
        let began = Instant::now();
        let outcome = self.batches.call(self.operation, group.len(), limit, call(batch), is_error).await;
        self.calls += 1;
        self.more_since.get_or_insert_with(Instant::now);
        let error = match outcome {
            Ok(found) => {
                self.has_good_one = true;
                let time = CallTime { sent: began, ended: Instant::now() };
                let pace = Pace { took: began.elapsed(), count: group.len() };
                self.batches.lock().entry(self.operation).or_default().pace = Some(pace);
                for (&index, answer) in group.iter().zip(found) {
                    self.answers[index] = Some(Ok(answer));
                    self.times[index] = time;
                }
                return None;
            }
            Err(error) => error,
        };
        let hangs = error.kind() == ErrorKind::Timeout;
        self.hangs |= hangs;
        // The first failure is worth a line. Those that follow only narrow it down.
        if self.calls == 1 && !self.is_known(&group) {
            tracing::error!(error = %error, nodes = group.len(), "call of the cloud provider failed");
        } else {
            tracing::debug!(error = %error, nodes = group.len(), "call of the cloud provider failed");
        }
        if let [index] = group[..] {
            self.failed.push((index, Suspect { is_alone: true, hangs, failed_at: Instant::now() }));
            self.answers[index] = Some(Err(error));
            return None;
        }
        self.why = error;
        Some(group)
    }

    /// Leaves a group without an answer for now.
    fn leave(&mut self, group: &[usize], is_alone: bool) {
        for &index in group {
            // A node that was not asked about has its turn first the next time.
            if !is_alone {
                let suspect = Suspect { is_alone, hangs: self.hangs, failed_at: Instant::now() };
                self.failed.push((index, suspect));
            }
            self.answers[index] = Some(Err(self.why.clone()));
        }
    }

    fn is_known(&self, group: &[usize]) -> bool {
        let memory = self.batches.lock();
        let known = memory.get(self.operation).map(|memory| &memory.suspects);
        known.is_some_and(|known| group.iter().any(|&index| known.contains_key(&self.nodes[index].name)))
    }

    /// How long the next call may take. `None`: there may be none any more.
    fn limit(&self, batch: &[&NodeIdentity]) -> Option<Duration> {
        let memory = self.batches.lock();
        let memory = memory.get(self.operation);
        let hangs = self.hangs
            || memory.is_some_and(|memory| {
                batch.iter().any(|node| memory.suspects.get(&node.name).is_some_and(|one| one.hangs))
            });
        let pace = memory.and_then(|memory| memory.pace);
        let at_pace = |count: usize| pace.map_or(Duration::ZERO, |pace| pace.of(count)).min(CALL_TIMEOUT);
        let limit = at_pace(batch.len()).saturating_add(HANG_TIMEOUT).min(CALL_TIMEOUT);
        let limit = if hangs { limit } else { CALL_TIMEOUT };
        let Some(since) = self.more_since else { return Some(limit) };
        let more_time = MORE_TIME + (2 * at_pace(self.nodes.len())).min(CALL_TIMEOUT);
        let left = more_time.checked_sub(since.elapsed()).filter(|left| !left.is_zero())?;
        (self.calls <= MORE_CALLS).then(|| limit.min(left))
    }

    /// Remembers which nodes failed, and gives the answers.
    fn end(self) -> impl Iterator<Item = (Result<T, Error>, CallTime)> {
        let mut memory = self.batches.lock();
        let suspects = &mut memory.entry(self.operation).or_default().suspects;
        for (node, answer) in self.nodes.iter().zip(&self.answers) {
            if matches!(answer, Some(Ok(_))) && !suspects.is_empty() {
                suspects.remove(&node.name);
            }
        }
        for (index, suspect) in self.failed {
            let name = &self.nodes[index].name;
            let before = suspects.get(name).copied();
            // Where the cloud answered no call at all, that says nothing about a single node. A node that is known to fail
            // alone stays so.
            let says_nothing = !self.has_good_one && (suspect.hangs || !suspect.is_alone);
            if says_nothing || (!suspect.is_alone && before.is_some_and(|before| before.is_alone)) {
                continue;
            }
            suspects.insert(name.clone(), suspect);
            if suspect.is_alone && before.is_none_or(|before| !before.is_alone) {
                tracing::error!(
                    node = name,
                    operation = self.operation,
                    "the cloud provider fails over this node: it is asked about apart from the others"
                );
            }
        }
        suspects.retain(|_, suspect| suspect.failed_at.elapsed() < FORGET_AFTER);
        drop(memory);
        let why = self.why;
        let answers = self.answers.into_iter().map(move |answer| answer.unwrap_or_else(|| Err(why.clone())));
        answers.zip(self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_as_long_as_it_has_nodes() {
        let pace = |milliseconds, count| Pace { took: Duration::from_millis(milliseconds), count };
        for (pace, count, expected) in [
            (pace(2, 1), 2500, 5000),
            (pace(2, 1), 1, 2),
            (pace(10_000, 2500), 1, 4),
            (pace(10_000, 2500), 5000, 20_000),
            (pace(0, 1), 2500, 0),
        ] {
            assert_eq!(pace.of(count), Duration::from_millis(expected), "{pace:?} {count}");
        }
    }
}
