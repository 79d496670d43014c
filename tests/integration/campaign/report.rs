//! The result of a campaign.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    time::Duration,
};

use anyhow::bail;

use super::{
    daemons::Memory,
    world::{Micros, seconds},
};

/// The most faults that are kept and reported. More would not add information.
const MAX: usize = 20;

/// Figures and faults.
#[derive(Debug, Default)]
pub(super) struct Report {
    seed: u64,
    nodes: usize,
    pub(super) time: Duration,
    pub(super) faults_injected: BTreeMap<String, u64>,
    pub(super) skipped: u64,
    pub(super) right_deletions: u64,
    pub(super) wrong_deletions: u64,
    /// UIDs of the Nodes that daemons deleted.
    pub(super) deleted: HashSet<String>,
    pub(super) writes: u64,
    pub(super) leader_changes: usize,
    pub(super) processes: u32,
    pub(super) memory: Memory,
    /// Responses to the daemons, by status.
    pub(super) answers: BTreeMap<String, u64>,
    pub(super) spoiled: u64,
    /// Writes to Nodes in the audit log, by verb and status.
    pub(super) audited: BTreeMap<String, u64>,
    /// How long settling took: at the start, and after each series of faults.
    pub(super) settled: Vec<Duration>,
    /// The longest time that a leader was without a watch of Nodes while its other requests succeeded.
    pub(super) longest_without_watch: Micros,
    /// The longest time that writes to one Node were refused as invalid.
    pub(super) longest_refused: Micros,
    wrong: Vec<String>,
    wrong_in_all: usize,
}

impl Report {
    pub(super) fn new(seed: u64, nodes: usize) -> Self {
        Self { seed, nodes, ..Self::default() }
    }

    /// Adds a fault and prints it at once.
    pub(super) fn fault(&mut self, what: String) {
        self.wrong_in_all += 1;
        if self.wrong.len() < MAX {
            println!("WRONG (seed {}, {} nodes): {what}", self.seed, self.nodes);
            self.wrong.push(what);
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.wrong_in_all == 0
    }

    fn injected(&self) -> u64 {
        self.faults_injected.values().sum()
    }

    pub(super) fn in_one_line(&self) -> String {
        let Self { right_deletions, wrong_deletions, leader_changes, writes, spoiled, memory, .. } = self;
        format!(
            "{} faults injected, {spoiled} requests spoiled, {right_deletions} deletions right and {wrong_deletions} wrong, \
             {leader_changes} changes of the leader, {writes} writes to Nodes, {} MiB at most, {} wrong in all",
            self.injected(),
            memory.anonymous / 1024,
            self.wrong_in_all
        )
    }

    /// Fails if there was a fault.
    ///
    /// # Errors
    /// The first fault, and how to reproduce it.
    pub(super) fn verdict(&self) -> anyhow::Result<()> {
        let Some(first) = self.wrong.first() else { return Ok(()) };
        bail!(
            "{} things were wrong, the first of them: {first}\nThe same faults again: make soak SEED={} NODES={}",
            self.wrong_in_all,
            self.seed,
            self.nodes
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nseed {}, {} nodes, {:.0} s", self.seed, self.nodes, self.time.as_secs_f64())?;
        writeln!(f, "{}", self.in_one_line())?;
        writeln!(f, "\n{:>7}  fault", "times")?;
        for (word, count) in &self.faults_injected {
            writeln!(f, "{count:>7}  {word}")?;
        }
        writeln!(f, "{:>7}  (met nothing that they fit)", self.skipped)?;
        writeln!(f, "\n{:>7}  answers to the daemons", "times")?;
        for (word, count) in &self.answers {
            writeln!(f, "{count:>7}  {word}")?;
        }
        writeln!(f, "\n{:>7}  writes of the daemons to Nodes, by the audit log", "times")?;
        for (word, count) in &self.audited {
            writeln!(f, "{count:>7}  {word}")?;
        }
        let settled: Vec<String> =
            self.settled.iter().map(|time| format!("{:.1} s", time.as_secs_f64())).collect();
        writeln!(f, "\nsettled after {}", settled.join(", "))?;
        writeln!(
            f,
            "a leader was without a watch of Nodes for {:.1} s at most while its other requests were answered; writes to one \
             Node were refused as invalid for {:.1} s at most",
            seconds(self.longest_without_watch),
            seconds(self.longest_refused)
        )?;
        writeln!(
            f,
            "{} processes; memory at most {} KiB allocated, {} KiB with files that are mapped",
            self.processes, self.memory.anonymous, self.memory.resident
        )?;
        writeln!(f, "{} things were wrong", self.wrong_in_all)
    }
}
