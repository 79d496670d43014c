//! Conditions that follow from others.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    Condition, NOT_YET_REPORTED, Statement, Status,
    message::{below, counted, title},
};

/// How many messages an aggregate has.
const MESSAGES: usize = 3;

/// Which status of a condition is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polarity {
    /// `True` is good, as of `Ready`.
    Positive,
    /// `False` is good, as of `Deleting`.
    Negative,
}

/// What a condition says. The worst come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Issue,
    Unknown,
    Info,
}

impl Polarity {
    fn severity(self, status: Status) -> Severity {
        match (status, self) {
            (Status::Unknown, _) => Severity::Unknown,
            (Status::True, Self::Positive) | (Status::False, Self::Negative) => Severity::Info,
            _ => Severity::Issue,
        }
    }

    fn status(self, severity: Severity) -> Status {
        match (severity, self) {
            (Severity::Unknown, _) => Status::Unknown,
            (Severity::Info, Self::Positive) | (Severity::Issue, Self::Negative) => Status::True,
            _ => Status::False,
        }
    }
}

/// The reasons of a condition that follows from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reasons {
    /// At least one reports an issue.
    pub issue: &'static str,
    /// None reports an issue, and at least one is unknown.
    pub unknown: &'static str,
    /// All is well.
    pub info: &'static str,
}

impl Default for Reasons {
    fn default() -> Self {
        Self { issue: "IssuesReported", unknown: "UnknownReported", info: "InfoReported" }
    }
}

/// The condition that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// Which of its status is good.
    pub polarity: Polarity,
    /// Its reasons.
    pub reasons: Reasons,
}

impl Merge {
    /// A condition whose `True` is good, with these reasons.
    #[must_use]
    pub fn positive(reasons: Reasons) -> Self {
        Self { polarity: Polarity::Positive, reasons }
    }

    pub(crate) fn statement(&self, severity: Severity, messages: &[String]) -> Statement {
        let reason = match severity {
            Severity::Issue => self.reasons.issue,
            Severity::Unknown => self.reasons.unknown,
            Severity::Info => self.reasons.info,
        };
        Statement::new(self.polarity.status(severity), reason, messages.join("\n"))
    }
}

/// A condition that a summary looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Its type.
    pub kind: &'a str,
    /// Which of its status is good.
    pub polarity: Polarity,
    /// Whether a summary says nothing of it where it is not there. Otherwise it counts as unknown.
    pub is_optional: bool,
    /// With one of these reasons it is no issue, whatever its status.
    pub harmless_reasons: &'a [&'a str],
}

impl<'a> Part<'a> {
    /// A condition that has to be there.
    #[must_use]
    pub const fn new(kind: &'a str, polarity: Polarity) -> Self {
        Self { kind, polarity, is_optional: false, harmless_reasons: &[] }
    }

    fn severity(&self, condition: &Condition) -> Severity {
        if self.harmless_reasons.contains(&condition.reason.as_str()) {
            return Severity::Info;
        }
        self.polarity.severity(condition.status)
    }
}

/// One condition from several of the same object. All issues and unknown ones are in the message, in the order of `parts`; what else
/// there is only if there are none. `None`: no part is there, and all are optional.
#[must_use]
pub fn summary(parts: &[Part<'_>], of: &[Condition], merge: &Merge) -> Option<Statement> {
    summary_lines(parts, of).map(|(severity, lines)| merge.statement(severity, &lines))
}

/// What the worst part is, and the lines of the message.
pub(crate) fn summary_lines(parts: &[Part<'_>], of: &[Condition]) -> Option<(Severity, Vec<String>)> {
    let missing = |part: &Part<'_>| missing(part.kind, "Condition not yet reported".into());
    let found: Vec<_> = parts
        .iter()
        .filter_map(|part| match of.iter().find(|condition| condition.kind == part.kind) {
            Some(condition) => Some((part.severity(condition), condition.clone())),
            None => (!part.is_optional).then(|| (Severity::Unknown, missing(part))),
        })
        .collect();
    let worst = found.iter().map(|(severity, _)| *severity).min()?;
    let lines = found
        .iter()
        .filter(|(severity, condition)| {
            *severity != Severity::Info || (worst == Severity::Info && !condition.message.is_empty())
        })
        .map(|(_, condition)| {
            let said = if condition.message.is_empty() { &condition.reason } else { &condition.message };
            below(&format!("* {}:", condition.kind), said)
        })
        .collect();
    Some((worst, lines))
}

/// An object whose condition is part of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Whether it is a Machine of a control plane, which is named before others.
    pub is_control_plane_machine: bool,
    /// Its conditions.
    pub conditions: &'a [Condition],
}

/// What is known of a message, of whichever kind the objects are that have it.
#[derive(Clone, Copy)]
struct Rank {
    is_of_control_plane: bool,
    severity: Severity,
}

/// One condition from the condition `kind` of several objects, which has this polarity. The message has the three most important
/// messages: those of control planes first, issues before unknown ones, and what most objects say. `None`: there are no objects.
#[must_use]
pub fn aggregate(sources: &[Source<'_>], kind: &str, polarity: Polarity, merge: &Merge) -> Option<Statement> {
    let mut found: Vec<_> = sources
        .iter()
        .map(|source| {
            let condition = source.conditions.iter().find(|condition| condition.kind == kind).cloned();
            let condition =
                condition.unwrap_or_else(|| missing(kind, format!("Condition {kind} not yet reported")));
            (polarity.severity(condition.status), source, condition)
        })
        .collect();
    let worst = found.iter().map(|(severity, ..)| *severity).min()?;
    // A condition that is not there is older than all others.
    found.sort_by_key(|(severity, _, condition)| (*severity, condition.since));
    let said: Vec<_> = found
        .iter()
        .filter(|(severity, _, condition)| match worst {
            Severity::Info => !condition.message.is_empty(),
            Severity::Issue | Severity::Unknown => *severity != Severity::Info,
        })
        .map(|(severity, source, condition)| (*severity, *source, condition.message.as_str()))
        .collect();
    Some(merge.statement(worst, &messages(&said)))
}

/// What these objects say, most important first.
fn messages(said: &[(Severity, &Source<'_>, &str)]) -> Vec<String> {
    let mut ranks = BTreeMap::<&str, Rank>::new();
    let mut by_kind = BTreeMap::<&str, BTreeMap<&str, Vec<&Source<'_>>>>::new();
    for (severity, source, message) in said {
        by_kind.entry(source.kind).or_default().entry(message).or_default().push(source);
        let rank = ranks.entry(message).or_insert(Rank { is_of_control_plane: false, severity: *severity });
        rank.is_of_control_plane |= source.is_control_plane_machine;
        rank.severity = rank.severity.min(*severity);
    }
    let (mut lines, mut left) = (Vec::new(), MESSAGES);
    for (kind, by_message) in by_kind {
        let mut by_message: Vec<_> =
            by_message.into_iter().map(|(m, sources)| (ranks[m], m, sources)).collect();
        by_message.sort_by_key(|(rank, _, sources)| {
            let names: Vec<_> = sources.iter().map(|source| source.name).collect();
            (Reverse(rank.is_of_control_plane), rank.severity, Reverse(sources.len()), names.join(","))
        });
        let mut others = BTreeMap::<Severity, usize>::new();
        for (rank, message, mut sources) in by_message {
            if left == 0 {
                *others.entry(rank.severity).or_default() += sources.len();
                continue;
            }
            left -= 1;
            sources.sort_by_key(|source| (Reverse(source.is_control_plane_machine), source.name));
            let names: Vec<_> = sources.iter().map(|source| source.name).collect();
            lines.push(below(&title(kind, &names), message));
        }
        for (severity, count) in others {
            let what = match severity {
                Severity::Issue => "with other issues",
                Severity::Unknown => "with status unknown",
                Severity::Info => "with additional info",
            };
            lines.push(format!("And {count} {} {what}", counted(kind, count)));
        }
    }
    lines
}

/// One condition from the condition `kind` of another object: the same, since then. `otherwise` is what it says where the other
/// object has none, or cannot be read.
#[must_use]
pub fn mirror(of: Option<&Condition>, kind: &str, otherwise: Option<Statement>) -> Statement {
    let of_missing =
        || Statement::new(Status::Unknown, NOT_YET_REPORTED, format!("Condition {kind} not yet reported"));
    match of {
        Some(condition) => Statement {
            status: condition.status,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: Some(condition.since),
        },
        None => otherwise.unwrap_or_else(of_missing),
    }
}

/// What stands for a condition that is not there: Kubernetes' conventions call it unknown.
fn missing(kind: &str, message: String) -> Condition {
    Condition {
        kind: kind.into(),
        status: Status::Unknown,
        reason: NOT_YET_REPORTED.into(),
        message,
        since: i64::MIN,
    }
}
