//! Whether a Machine is ready and available.

use std::time::Duration;

use crate::conditions::{Condition, Merge, Part, Polarity, Reasons, Statement, Status, summary_lines};

/// After this time, the condition says that a deletion takes long.
const LONG_DELETION: i64 = 15 * 60;
/// After this time, the condition says why a drain may take long.
const LONG_DRAIN: i64 = 5 * 60;

const REASONS: Reasons = Reasons { issue: "NotReady", unknown: "ReadyUnknown", info: "Ready" };

/// A Machine that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion<'a> {
    /// `metadata.deletionTimestamp` in seconds since 1970.
    pub since: i64,
    /// The reason of its condition `Deleting`: the stage that it has reached.
    pub stage: &'a str,
    /// The message of that condition.
    pub message: &'a str,
    /// `status.deletion.nodeDrainStartTime` in seconds since 1970, once a drain has begun.
    pub drain_since: Option<i64>,
}

impl Deletion<'_> {
    /// Whether it takes so long that people should know.
    pub(crate) fn is_long(&self, now: i64) -> bool {
        now.saturating_sub(self.since) > LONG_DELETION
    }
}

/// One of `spec.readinessGates`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate<'a> {
    /// The type of the condition that another controller writes.
    pub kind: &'a str,
    /// Which of its status is good.
    pub polarity: Polarity,
}

/// `Deleting`
#[must_use]
pub fn deleting(deletion: Option<&Deletion<'_>>) -> Statement {
    match deletion {
        Some(deletion) => Statement::new(Status::True, deletion.stage, deletion.message),
        None => Statement::new(Status::False, "NotDeleting", ""),
    }
}

/// `Ready`, from the other conditions of the Machine.
///
/// While it is being deleted, what is deleted already is no issue. The message names the stage of the deletion without its details, so
/// that the same words come from many Machines, and an aggregate of them stays short.
#[must_use]
pub fn ready(
    conditions: &[Condition],
    gates: &[Gate<'_>],
    deletion: Option<&Deletion<'_>>,
    now: i64,
) -> Statement {
    let gone: fn(&str) -> &'static [&'static str] = match deletion {
        Some(_) => gone_while_deleting,
        None => |_| &[],
    };
    let own = [
        ("Deleting", Polarity::Negative, false),
        ("Updating", Polarity::Negative, false),
        ("BootstrapConfigReady", Polarity::Positive, false),
        ("InfrastructureReady", Polarity::Positive, false),
        ("NodeHealthy", Polarity::Positive, false),
        ("HealthCheckSucceeded", Polarity::Positive, true),
    ];
    let own = own.into_iter().map(|(kind, polarity, is_optional)| Part {
        is_optional,
        harmless_reasons: gone(kind),
        ..Part::new(kind, polarity)
    });
    let parts: Vec<_> = own.chain(gates.iter().map(|gate| Part::new(gate.kind, gate.polarity))).collect();
    let mut conditions = conditions.to_vec();
    if let Some(deletion) = deletion
        && let Some(said) = conditions.iter_mut().find(|condition| condition.kind == "Deleting")
    {
        (said.status, said.message) = (Status::True, short(deletion, now));
    }
    let merge = Merge::positive(REASONS);
    summary_lines(&parts, &conditions).map_or_else(
        || Statement::new(Status::Unknown, "InternalError", super::SEE_LOG),
        |(severity, lines)| merge.statement(severity, &without_repetitions(lines)),
    )
}

/// The reasons of a condition that are no issue while the Machine is being deleted.
fn gone_while_deleting(kind: &str) -> &'static [&'static str] {
    match kind {
        "BootstrapConfigReady" | "InfrastructureReady" => &["ObjectDeleted", "ObjectDoesNotExist"],
        "NodeHealthy" => &["NodeDeleted", "NodeDoesNotExist"],
        _ => &[],
    }
}

/// Why a drain takes long, in the order in which the causes are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Delay {
    Budgets,
    Terminating,
    Eviction,
    Completion,
}

impl Delay {
    const ALL: [Self; 4] = [Self::Budgets, Self::Terminating, Self::Eviction, Self::Completion];

    /// What the message of a drain says then.
    fn sign(self) -> &'static str {
        match self {
            Self::Budgets => "cannot evict pod as it would violate the pod's disruption budget.",
            Self::Terminating => "deletionTimestamp set, but still not removed from the Node",
            Self::Eviction => "failed to evict Pod",
            Self::Completion => "waiting for completion",
        }
    }

    /// What other conditions say of it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Budgets => "PodDisruptionBudgets",
            Self::Terminating => "Pods not terminating",
            Self::Eviction => "Pod eviction errors",
            Self::Completion => "Pods not completed yet",
        }
    }
}

/// Why this deletion takes long, if its drain does.
pub(crate) fn delays(deletion: &Deletion<'_>, now: i64) -> Vec<Delay> {
    let is_long = deletion.drain_since.is_some_and(|since| now.saturating_sub(since) > LONG_DRAIN);
    let is_one = |delay: &Delay| {
        is_long && deletion.stage == "DrainingNode" && deletion.message.contains(delay.sign())
    };
    Delay::ALL.into_iter().filter(is_one).collect()
}

/// A deletion in few words.
fn short(deletion: &Deletion<'_>, now: i64) -> String {
    let stage = deletion.stage;
    if !deletion.is_long(now) {
        return format!("Machine deletion in progress, stage: {stage}");
    }
    let words = format!("Machine deletion in progress since more than 15m, stage: {stage}");
    let delays: Vec<_> = delays(deletion, now).into_iter().map(Delay::words).collect();
    if delays.is_empty() { words } else { format!("{words}, delay likely due to {}", delays.join(", ")) }
}

/// One line for all conditions of control plane components that say the same.
fn without_repetitions(lines: Vec<String>) -> Vec<String> {
    let of_component = |line: &str| {
        let (kind, message) = line.split_once(':')?;
        let is_one =
            ["* APIServer", "* ControllerManager", "* Scheduler"].iter().any(|one| kind.starts_with(one))
                || kind == "* EtcdPodHealthy";
        is_one.then(|| message.to_owned())
    };
    let messages: Vec<_> = lines.iter().filter_map(|line| of_component(line)).collect();
    let [first, rest @ ..] = messages.as_slice() else { return lines };
    if rest.is_empty() || rest.iter().any(|message| message != first) {
        return lines;
    }
    let mut is_named = false;
    lines
        .into_iter()
        .filter_map(|line| match of_component(&line) {
            None => Some(line),
            Some(_) if is_named => None,
            Some(message) => {
                is_named = true;
                Some(format!("* Control plane components:{message}"))
            }
        })
        .collect()
}

/// Whether a Machine is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// The condition `Available`.
    pub statement: Statement,
    /// When to look again, if nothing changes before.
    pub again: Option<Duration>,
}

/// `Available`: `Ready` for `spec.minReadySeconds`. `ready_since` is the time of the condition `Ready` while it is `True`.
#[must_use]
pub fn available(ready_since: Option<i64>, min_ready_seconds: u32, now: i64) -> Availability {
    let said = |status, reason| Statement::new(status, reason, "");
    let Some(since) = ready_since else {
        return Availability { statement: said(Status::False, "NotReady"), again: None };
    };
    let left = since.saturating_add(min_ready_seconds.into()).saturating_sub(now);
    match u64::try_from(left) {
        Ok(left) if left > 0 => Availability {
            statement: said(Status::False, "WaitingForMinReadySeconds"),
            again: Some(Duration::from_secs(left)),
        },
        _ => Availability { statement: said(Status::True, "Available"), again: None },
    }
}
