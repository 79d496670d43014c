//! The lines about the objects, as the original writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use lifecycle::rollout::{Counts, Planned, Strategy};

use super::{Annotations, Set, Stage};

impl Stage {
    pub(crate) fn set_summary(&self, number: usize) -> String {
        let Set { replicas, status, .. } = &self.sets[&number];
        let machines = self.sets[&number].shown();
        format!(
            "ms{number}: {}/{replicas} replicas, {} available, {} upToDate ({machines})",
            status.replicas, status.available, status.up_to_date
        )
    }

    pub(crate) fn deployment_summary(&self) -> String {
        let Counts { replicas, available, up_to_date } = self.counts;
        format!(
            "md: {replicas}/{} replicas, {available} available, {up_to_date} upToDate",
            self.deployment.replicas
        )
    }

    pub(crate) fn summary(&mut self) {
        writeln!(self.lines, "    {}", self.deployment_summary()).unwrap();
        for number in self.sets.keys().copied().collect::<Vec<_>>() {
            writeln!(self.lines, "    {}", self.set_summary(number)).unwrap();
        }
    }

    /// What the pass of the deployment changed, and whether the bounds hold.
    pub(crate) fn report(&mut self, before: &BTreeMap<usize, (i64, Annotations)>, planned: &[Planned]) {
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
