//! Replays the rollouts that Cluster API recorded of its own planner (its golden files) and compares every line.
//!
//! A file names the objects at the beginning and then every pass of a controller, in the order in which they ran, a random one
//! in half of them. This test runs our planner in the same order beside a small `MachineSet` controller, as the original did,
//! and writes the same lines.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lifecycle::rollout::{
    Bound, Candidate, Counts, Current, Deployment, Machine, MachineSet, Planned, Revision, Strategy, choose,
    plan,
};
use test_env::{ClusterApiPrograms, StartError};

/// The rollouts that Cluster API 1.14.2 has.
const TRACES: usize = 46;

#[test]
fn the_recorded_rollouts_are_played_alike() {
    let programs = match ClusterApiPrograms::find() {
        Ok(programs) => programs,
        Err(StartError::Unavailable(reason)) if std::env::var_os("CI").is_none() => {
            println!("SKIPPED: {reason}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let folder = programs.rollouts();
    let files = golden_files(&folder);
    assert_eq!(files.len(), TRACES, "files below {}", folder.display());
    for file in files {
        let golden = std::fs::read_to_string(&file).unwrap();
        let played = Stage::play(&golden);
        if let Some((number, (ours, theirs))) =
            played.lines().zip(golden.lines()).enumerate().find(|(_, (ours, theirs))| ours != theirs)
        {
            panic!("{}:{}\n  ours:   {ours}\n  theirs: {theirs}", file.display(), number + 1);
        }
        assert_eq!(played, golden, "{}", file.display());
    }
}

fn golden_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = ["rollingupdate", "ondelete"]
        .iter()
        .flat_map(|strategy| std::fs::read_dir(folder.join(strategy)).expect("a folder of golden files"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "golden"))
        .collect();
    files.sort();
    files
}

/// The objects of one rollout, and the lines about it so far.
struct Stage {
    deployment: Deployment,
    /// `status` of the deployment.
    counts: Counts,
    sets: BTreeMap<usize, Set>,
    /// The number of the `MachineSet` with the template of the deployment.
    current: Option<usize>,
    /// How many machines were ever made.
    made: usize,
    lines: String,
}

/// A `MachineSet` with its machines, by their numbers.
#[derive(Default)]
struct Set {
    replicas: i64,
    status: Counts,
    machines: BTreeMap<usize, State>,
    annotations: Annotations,
}

#[derive(Clone, Default, PartialEq)]
struct Annotations {
    revision: Option<Revision>,
    moves_to: Option<String>,
    receives_from: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    creates_no_machines: Option<bool>,
}

#[derive(Clone, Copy, Default)]
struct State {
    pending: bool,
    updating: bool,
    deleting: bool,
}

impl Stage {
    fn play(golden: &str) -> String {
        let mut stage = Self::read(golden);
        for line in golden.lines() {
            if let Some(head) = line.strip_suffix("Reconcile md") {
                writeln!(stage.lines, "{head}Reconcile md").unwrap();
                stage.deployment_pass();
            } else if let Some((head, rest)) = line.split_once("Reconcile ms") {
                let number = number(rest.split(':').next().unwrap());
                let summary = stage.set_summary(number);
                writeln!(stage.lines, "{head}Reconcile {summary}").unwrap();
                stage.set_pass(number);
            } else if let Some((_, name)) = line.split_once("Deleting machine m") {
                // Which machine a user deletes, and when, is the user's.
                writeln!(stage.lines, "{line}").unwrap();
                stage.machine(number(name)).expect("the machine exists").deleting = true;
            } else if let Some((_, name)) = line
                .split_once("[M controller] Iteration")
                .and_then(|(_, rest)| rest.split_once("Reconcile m"))
            {
                writeln!(stage.lines, "{line}").unwrap();
                stage.machine_pass(number(name));
            } else if line.starts_with("[Test] Final state") {
                writeln!(stage.lines, "[Test] Final state").unwrap();
                stage.summary();
            }
        }
        stage.lines
    }

    /// The objects at the beginning.
    fn read(golden: &str) -> Self {
        let title = golden.lines().next().unwrap();
        let words = |text: &str| -> Vec<i64> {
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
        };
        let begin = golden.lines().position(|line| line.starts_with("[Test] Rollout")).unwrap();
        let parameters = golden.lines().nth(begin).unwrap();
        let numbers = words(parameters);
        let strategy = if parameters.contains("onDeleteStrategy") {
            Strategy::OnDelete
        } else {
            Strategy::RollingUpdate {
                max_surge: Bound::Count(numbers[1]),
                max_unavailable: Bound::Count(numbers[2]),
            }
        };
        let mut sets = BTreeMap::new();
        let mut made = 0;
        let mut replicas = 0;
        for line in golden.lines().take(begin).map(str::trim_start) {
            if line.starts_with("md: ") {
                replicas = words(line)[1];
            } else if line.starts_with("ms") {
                let (counts, machines) = line.split_once('(').unwrap();
                let counts = words(counts);
                let machines: BTreeMap<usize, State> = words(machines)
                    .into_iter()
                    .map(|machine| (usize::try_from(machine).unwrap(), State::default()))
                    .collect();
                made = made.max(machines.keys().copied().max().unwrap_or(0));
                let status = Counts { replicas: counts[1], available: counts[3], up_to_date: counts[4] };
                let set = Set { replicas: counts[2], status, machines, ..Set::default() };
                sets.insert(usize::try_from(counts[0]).unwrap(), set);
            }
        }
        let created = golden.contains("created, it is now the current MachineSet");
        Self {
            deployment: Deployment {
                replicas,
                strategy,
                in_place_updates: title.to_lowercase().contains("in-place"),
            },
            counts: Counts { replicas, available: replicas, up_to_date: 0 },
            current: if created { None } else { sets.keys().copied().max() },
            sets,
            made,
            lines: golden.lines().take(begin + 1).fold(String::new(), |lines, line| lines + line + "\n"),
        }
    }

    fn machine(&mut self, number: usize) -> Option<&mut State> {
        self.sets.values_mut().find_map(|set| set.machines.get_mut(&number))
    }

    fn deployment_pass(&mut self) {
        let before: BTreeMap<usize, (i64, Annotations)> = self
            .sets
            .iter()
            .map(|(number, set)| (*number, (set.replicas, set.annotations.clone())))
            .collect();
        let planned = self.plan();
        if self.current.is_none() {
            let number = self.sets.len() + 1;
            self.sets.insert(number, Set::default());
            self.current = Some(number);
        }
        for planned in &planned {
            self.sets.get_mut(&number(&planned.name[2..])).unwrap().apply(planned);
        }
        let sum = |of: fn(&Counts) -> i64| self.sets.values().map(|set| of(&set.status)).sum();
        let up_to_date = match self.deployment.strategy {
            Strategy::RollingUpdate { .. } => sum(|counts| counts.up_to_date),
            Strategy::OnDelete => 0,
        };
        self.counts = Counts {
            replicas: sum(|counts| counts.replicas),
            available: sum(|counts| counts.available),
            up_to_date,
        };
        self.report(&before, &planned);
    }

    fn plan(&self) -> Vec<Planned> {
        let names: Vec<(usize, String)> =
            self.sets.keys().map(|number| (*number, format!("ms{number}"))).collect();
        let candidates: Vec<Candidate<'_>> = names
            .iter()
            .map(|(number, name)| Candidate {
                name,
                created: 0,
                replicas: self.sets[number].replicas,
                has_template: self.current == Some(*number),
            })
            .collect();
        let choice = choose(&candidates, None, 0);
        let set = |index: usize, updatable_in_place: bool| {
            let (number, name) = &names[index];
            let set = &self.sets[number];
            MachineSet {
                name: name.clone(),
                created: 0,
                replicas: set.replicas,
                status: set.status,
                updatable_in_place,
                acknowledged: set.annotations.acknowledged.clone(),
                revision: set.annotations.revision.clone(),
            }
        };
        let current = choice.current.map_or_else(
            || Current::New { name: format!("ms{}", self.sets.len() + 1) },
            |index| Current::Exists(set(index, false)),
        );
        let old = choice.old.iter().map(|old| set(old.index, old.may_update_in_place)).collect();
        let machines: Vec<Machine> = self
            .sets
            .iter()
            .flat_map(|(number, set)| {
                set.machines.iter().map(move |(machine, state)| Machine {
                    name: format!("m{machine}"),
                    machine_set: format!("ms{number}"),
                    pending_acknowledge: state.pending,
                    updating: state.updating,
                })
            })
            .collect();
        plan(&self.deployment, current, old, &machines).machine_sets
    }

    /// A small `MachineSet` controller: it ends updates in place, takes over acknowledged machines, and creates, hands over or
    /// deletes machines.
    fn set_pass(&mut self, number: usize) {
        let current = self.current;
        self.end_updates(number);
        self.size(number);
        let set = self.sets.get_mut(&number).unwrap();
        let ready = i64::try_from(set.machines.values().filter(|state| !state.updating).count()).unwrap();
        set.status = Counts {
            replicas: i64::try_from(set.machines.len()).unwrap(),
            available: ready,
            up_to_date: if current == Some(number) { ready } else { 0 },
        };
    }

    fn end_updates(&mut self, number: usize) {
        let set = self.sets.get_mut(&number).unwrap();
        let ended: Vec<usize> = set
            .machines
            .iter()
            .filter(|(_, state)| state.updating && !state.pending)
            .map(|(machine, _)| *machine)
            .collect();
        for machine in &ended {
            set.machines.get_mut(machine).unwrap().updating = false;
        }
        let receives = !set.annotations.receives_from.is_empty();
        for (machine, state) in &mut set.machines {
            if state.pending && (!receives || set.annotations.acknowledged.contains(&format!("m{machine}"))) {
                state.pending = false;
            }
        }
        if !ended.is_empty() {
            let line = format!("[MS controller] - Replicas {} completed in-place update", by_text(&ended));
            writeln!(self.lines, "{line}").unwrap();
        }
    }

    fn size(&mut self, number: usize) {
        let set = self.sets.get_mut(&number).unwrap();
        let has = i64::try_from(set.machines.len()).unwrap();
        let wants = set.replicas;
        if has < wants {
            if set.annotations.creates_no_machines == Some(true) {
                return;
            }
            let new: Vec<usize> = (has..wants).zip(self.made + 1..).map(|(_, machine)| machine).collect();
            self.made += new.len();
            set.machines.extend(new.iter().map(|machine| (*machine, State::default())));
            writeln!(
                self.lines,
                "[MS controller] - ms{number} scale up to {wants}/{wants} replicas ({} created)",
                listed(&new)
            )
            .unwrap();
        } else if has > wants {
            let pending: Vec<usize> = if set.annotations.receives_from.is_empty() {
                Vec::new()
            } else {
                set.machines.iter().filter(|(_, state)| state.pending).map(|(machine, _)| *machine).collect()
            };
            if !pending.is_empty() {
                writeln!(
                    self.lines,
                    "[MS controller] - Replicas {} moved from an old MachineSet still pending acknowledge from machine deployment md",
                    by_text(&pending)
                )
                .unwrap();
            }
            let surplus = usize::try_from(has - i64::try_from(pending.len()).unwrap() - wants).unwrap_or(0);
            if surplus > 0 {
                match set.annotations.moves_to.clone() {
                    Some(to) => self.hand_over(number, crate::number(&to[2..]), surplus),
                    None => self.delete(number, surplus),
                }
            }
        }
    }

    fn hand_over(&mut self, from: usize, to: usize, surplus: usize) {
        assert!(
            self.sets[&to].annotations.receives_from.contains(&format!("ms{from}")),
            "ms{to} expects machines of ms{from}"
        );
        let set = self.sets.get_mut(&from).unwrap();
        let moved: Vec<usize> = set
            .machines
            .iter()
            .filter(|(_, state)| !state.deleting && !state.updating)
            .map(|(machine, _)| *machine)
            .take(surplus)
            .collect();
        set.machines.retain(|machine, _| !moved.contains(machine));
        writeln!(
            self.lines,
            "[MS controller] - ms{from} scale down to {}/{} replicas ({} moved to ms{to})",
            set.machines.len(),
            set.replicas,
            listed(&moved)
        )
        .unwrap();
        let state = State { pending: true, updating: true, deleting: false };
        self.sets.get_mut(&to).unwrap().machines.extend(moved.into_iter().map(|machine| (machine, state)));
    }

    /// Machines that are being updated go first, the last one of them before the others; then the oldest.
    fn delete(&mut self, number: usize, surplus: usize) {
        let set = self.sets.get_mut(&number).unwrap();
        let updating = set.machines.iter().rev().filter(|(_, state)| state.updating);
        let others = set.machines.iter().filter(|(_, state)| !state.updating);
        let deleted: Vec<usize> = updating.chain(others).map(|(machine, _)| *machine).take(surplus).collect();
        set.machines.retain(|machine, _| !deleted.contains(machine));
        writeln!(
            self.lines,
            "[MS controller] - ms{number} scale down to {0}/{0} replicas ({1} deleted)",
            set.replicas,
            listed(&deleted)
        )
        .unwrap();
    }

    fn machine_pass(&mut self, number: usize) {
        if self.machine(number).is_some_and(|state| state.deleting) {
            for set in self.sets.values_mut() {
                set.machines.remove(&number);
            }
            writeln!(self.lines, "[M controller] - m{number} finalizer removed").unwrap();
        }
    }

    fn set_summary(&self, number: usize) -> String {
        let Set { replicas, status, .. } = &self.sets[&number];
        let machines = self.sets[&number].shown();
        format!(
            "ms{number}: {}/{replicas} replicas, {} available, {} upToDate ({machines})",
            status.replicas, status.available, status.up_to_date
        )
    }

    fn deployment_summary(&self) -> String {
        let Counts { replicas, available, up_to_date } = self.counts;
        format!(
            "md: {replicas}/{} replicas, {available} available, {up_to_date} upToDate",
            self.deployment.replicas
        )
    }

    fn summary(&mut self) {
        writeln!(self.lines, "    {}", self.deployment_summary()).unwrap();
        for number in self.sets.keys().copied().collect::<Vec<_>>() {
            writeln!(self.lines, "    {}", self.set_summary(number)).unwrap();
        }
    }

    /// What the pass of the deployment changed, and whether the bounds hold.
    fn report(&mut self, before: &BTreeMap<usize, (i64, Annotations)>, planned: &[Planned]) {
        let summary = self.deployment_summary();
        writeln!(self.lines, "[MD controller] - Result of rollout planner\n    md: {summary}").unwrap();
        for (number, set) in &self.sets {
            let planned = planned.iter().find(|planned| planned.name == format!("ms{number}")).unwrap();
            let kind = if self.current == Some(*number) { "current" } else { "old" };
            let text = set.changes(*number, kind, before.get(number), planned);
            self.lines.push_str(&text);
        }
        let wants = self.deployment.replicas;
        if self.counts.available < wants - self.deployment.max_unavailable()
            && self.deployment.strategy != Strategy::OnDelete
        {
            writeln!(self.lines, "[Toleration] tolerate maxUnavailable breach").unwrap();
        }
        let machines: i64 = self.sets.values().map(|set| set.replicas.max(set.status.replicas)).sum();
        if machines > wants + self.deployment.max_surge() && self.deployment.strategy != Strategy::OnDelete {
            writeln!(self.lines, "[Toleration] tolerate maxSurge breach").unwrap();
        }
    }
}

impl Set {
    /// Writes what was planned. As in the original, annotations that the plan does not name stay.
    fn apply(&mut self, planned: &Planned) {
        self.replicas = planned.replicas;
        let annotations = &mut self.annotations;
        annotations.revision.clone_from(&planned.revision);
        annotations.creates_no_machines = Some(planned.creates_no_machines);
        if planned.moves_machines_to.is_some() {
            annotations.moves_to.clone_from(&planned.moves_machines_to);
        }
        if !planned.receives_machines_from.is_empty() {
            annotations.receives_from.clone_from(&planned.receives_machines_from);
        }
        if !planned.acknowledged.is_empty() {
            annotations.acknowledged.clone_from(&planned.acknowledged);
        }
    }

    fn shown(&self) -> String {
        let machines: Vec<String> = self
            .machines
            .iter()
            .map(|(machine, state)| {
                let mut name = format!("m{machine}");
                if state.pending && !self.annotations.acknowledged.contains(&name) {
                    name.push('🟠');
                }
                if state.updating {
                    name.push('🟡');
                }
                name
            })
            .collect();
        machines.join(",")
    }

    fn changes(
        &self,
        number: usize,
        kind: &str,
        before: Option<&(i64, Annotations)>,
        planned: &Planned,
    ) -> String {
        let had = before.map_or(0, |(replicas, _)| *replicas);
        let has = self.replicas;
        let Counts { replicas, available, up_to_date } = self.status;
        let sizes = if before.is_none() || had == has {
            format!("{replicas}/{has}")
        } else {
            format!("from {replicas}/{had} to {replicas}/{has}")
        };
        let mut text = format!(
            "    ms{number}: {sizes} replicas, {available} available, {up_to_date} upToDate ({})\n",
            self.shown()
        );
        let reasons: Vec<String> = planned.reasons.iter().map(ToString::to_string).collect();
        let reasons = reasons.join(", ");
        let Some((_, annotations)) = before else {
            writeln!(text, "      - MachineSet ms{number} created, it is now the current MachineSet")
                .unwrap();
            if has > 0 {
                writeln!(text, "      - Scaled up current MachineSet ms{number} from 0 to {has} replicas (+{has})\n        - Reason: {reasons}").unwrap();
            }
            return text;
        };
        let others = self.annotations.changes(annotations, (had != has).then_some(has));
        if has != had {
            let (word, sign) = if has > had { ("up", '+') } else { ("down", '-') };
            writeln!(
                text,
                "      - Scaled {word} {kind} MachineSet ms{number} from {had} to {has} replicas ({sign}{})\n        - Reason: {reasons}",
                has.abs_diff(had)
            )
            .unwrap();
        } else if !others.is_empty() {
            writeln!(text, "      - Updated {kind} MachineSet ms{number}").unwrap();
        }
        if !others.is_empty() {
            writeln!(text, "        - Diff: {others}").unwrap();
        }
        text
    }
}

impl Annotations {
    fn changes(&self, before: &Self, replicas: Option<i64>) -> String {
        let joined =
            |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let mut changes = Vec::new();
        if let Some(replicas) = replicas {
            changes.push(format!("replicas {replicas}"));
        }
        if let Some(revision) = self.revision.as_ref().filter(|_| self.revision != before.revision) {
            changes.push(format!("machinedeployment.clusters.x-k8s.io/revision: {}", revision.number));
        }
        if let Some(to) = self.moves_to.as_ref().filter(|_| self.moves_to != before.moves_to) {
            changes.push(format!(
                "in-place-updates.internal.cluster.x-k8s.io/move-machines-to-machineset: {to}"
            ));
        }
        if self.receives_from != before.receives_from {
            let from = joined(&self.receives_from);
            changes.push(format!(
                "in-place-updates.internal.cluster.x-k8s.io/receive-machines-from-machinesets: {from}"
            ));
        }
        if self.acknowledged != before.acknowledged {
            let machines = joined(&self.acknowledged);
            changes.push(format!("in-place-updates.internal.cluster.x-k8s.io/acknowledged-move: {machines}"));
        }
        if let Some(none) =
            self.creates_no_machines.filter(|_| self.creates_no_machines != before.creates_no_machines)
        {
            changes.push(format!("cluster.x-k8s.io/disable-machine-create: {none}"));
        }
        changes.join(",")
    }
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("a number, not {text}"))
}

/// By number.
fn listed(machines: &[usize]) -> String {
    machines.iter().map(|machine| format!("m{machine}")).collect::<Vec<_>>().join(",")
}

/// By text, as upstream sorts names.
fn by_text(machines: &[usize]) -> String {
    let names: BTreeSet<String> = machines.iter().map(|machine| format!("m{machine}")).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}
