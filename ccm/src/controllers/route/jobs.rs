//! What is under way: deletions of routes, and the work on Nodes.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use serde_json::{Value, json};

use super::{retries::Work, step::Step};

/// What a job changes. Jobs of different passes never change the same thing at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// The routes with this CIDR.
    Cidr(String),
    /// The condition of this Node.
    Node(String),
}

impl Subject {
    /// What this work changes.
    pub(super) fn of(work: &Work) -> Vec<Self> {
        match work {
            Work::List => Vec::new(),
            Work::Delete { cidr, .. } => vec![Self::Cidr(cidr.clone())],
            Work::Create { node, cidr } => vec![Self::Cidr(cidr.clone()), Self::Node(node.clone())],
            Work::Condition { node } => vec![Self::Node(node.clone())],
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cidr(cidr) => write!(f, "routes of {cidr}"),
            Self::Node(node) => write!(f, "node {node}"),
        }
    }
}

/// One deletion, or all the work on one Node. It ends by itself, since each of its calls has a limit.
pub(super) struct Job {
    pub(super) subjects: Vec<Subject>,
    pub(super) work: BoxFuture<'static, Vec<Step>>,
}

/// A job that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The number of its pass.
    pub(super) pass: u64,
    pub(super) subjects: Vec<Subject>,
    pub(super) steps: Vec<Step>,
}

/// The jobs that are under way, of the pass that works and of earlier ones.
#[derive(Default)]
pub(super) struct Jobs {
    running: FuturesUnordered<BoxFuture<'static, (u64, Vec<Step>)>>,
    /// Pass and subjects of each, by the job's number.
    known: HashMap<u64, (u64, Vec<Subject>)>,
    /// How many jobs change each subject.
    busy: HashMap<Subject, usize>,
    next_number: u64,
}

impl Jobs {
    /// Begins a job of the pass with this number.
    pub(super) fn begin(&mut self, pass: u64, Job { subjects, work }: Job) {
        let number = self.next_number;
        self.next_number += 1;
        for subject in &subjects {
            *self.busy.entry(subject.clone()).or_default() += 1;
        }
        self.known.insert(number, (pass, subjects));
        self.running.push(Box::pin(async move { (number, work.await) }));
    }

    /// The next job that ends. `None`: nothing is under way.
    pub(super) async fn next(&mut self) -> Option<Ended> {
        let (number, steps) = self.running.next().await?;
        let (pass, subjects) = self.known.remove(&number)?;
        for subject in &subjects {
            let Some(count) = self.busy.get_mut(subject) else { continue };
            *count -= 1;
            if *count == 0 {
                self.busy.remove(subject);
            }
        }
        Some(Ended { pass, subjects, steps })
    }

    /// What is being changed.
    pub(super) fn subjects(&self) -> HashSet<Subject> {
        self.busy.keys().cloned().collect()
    }

    /// Whether a job changes this.
    pub(super) fn is_busy(&self, subject: &Subject) -> bool {
        self.busy.contains_key(subject)
    }

    /// Whether a pass before this one still changes this.
    pub(super) fn are_busy_with(&self, subject: &Subject, before: u64) -> bool {
        self.known.values().any(|(pass, subjects)| *pass < before && subjects.contains(subject))
    }

    /// For `/debug/state`.
    pub(super) fn to_json(&self) -> Value {
        let mut subjects: Vec<String> = self.subjects().iter().map(ToString::to_string).collect();
        subjects.sort();
        json!(subjects)
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("known", &self.known).finish_non_exhaustive()
    }
}
