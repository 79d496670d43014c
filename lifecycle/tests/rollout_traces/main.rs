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

mod machine_sets;
mod report;

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
