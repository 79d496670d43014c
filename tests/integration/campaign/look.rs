//! Collects the judge's input each second: the audit log, the requests through the proxy, the events of the
//! watch.

use std::{collections::HashMap, fmt::Write as _, sync::atomic::Ordering};

use anyhow::ensure;

use super::{
    audit::Answered,
    judge::{Deletion, Rules},
    proxy::Write,
    run::Campaign,
    world::{Micros, SECOND, now, seconds},
};

/// How long a leader may be without a watch of Nodes while its other requests succeed.
const WITHOUT_WATCH: Micros = 15 * SECOND;

/// How long writes to one Node may be refused as invalid.
const REFUSED: Micros = 8 * SECOND;

impl Campaign {
    /// Judges everything since the last call.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
            ensure!(self.stop.is_cancelled(), "a part of the campaign ended");
        }
        self.look_at_watch();
        let answered = self.stage.api_server.answered(&self.proxy)?;
        self.look_at_refusals(&answered);
        let rules: HashMap<_, _> = self.common.rules.lock().clone();
        let (mut deletions, mut lost, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        {
            let mut seen = self.proxy.seen();
            for answer in answered {
                *self.report.audited.entry(format!("{} {}", answer.verb, answer.code)).or_default() += 1;
                let sent = seen.deletions.remove(&answer.audit_id);
                if answer.verb != "delete" || answer.code >= 300 {
                    continue;
                }
                match sent {
                    Some(deletion) => deletions.push(deletion),
                    None => self.report.fault(format!("{} was deleted past the proxy", answer.node)),
                }
            }
            // An API server that is killed does not log its last requests.
            let old = now() - 30 * SECOND;
            let without_answer: Vec<String> = seen
                .deletions
                .iter()
                .filter(|(_, deletion)| deletion.sent < old)
                .map(|(id, _)| id.clone())
                .collect();
            lost.extend(without_answer.iter().filter_map(|id| seen.deletions.remove(id)));
            let mut terms = self.stage.terms();
            for renewal in seen.renewals.drain(..) {
                terms.add(renewal);
            }
            // A renewal that was sent before these writes may not have completed yet.
            let settled = now() - 2 * SECOND;
            let split = seen.writes.partition_point(|write| write.sent < settled);
            writes.extend(seen.writes.drain(..split));
        }
        self.judge_writes(&writes, &rules);
        self.judge_lost(lost, &mut deletions);
        for deletion in deletions {
            let Some(rules) = rules.get(&deletion.life) else { continue };
            self.judge_deletion(&deletion, *rules);
        }
        let found: Vec<String> = {
            let mut faults = self.common.faults.lock();
            let mut observed = self.observed.lock();
            faults.drain(..).chain(observed.drain(..)).collect()
        };
        for fault in found {
            let fault = format!("{fault}{}", self.recent_faults(now()));
            self.report.fault(fault);
        }
        if !self.report.is_good() {
            self.common.keep_logs.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// A leader whose requests succeed must soon have its watch again.
    fn look_at_watch(&mut self) {
        let (since, now) = (self.looked, now());
        self.looked = now;
        let holder = self.stage.terms().holder();
        let leader = self.stage.daemons.iter().find(|daemon| holder.is_some() && daemon.life() == holder);
        let Some(leader) = leader else {
            self.without_watch = 0;
            return;
        };
        if leader.way.has_watch() {
            self.without_watch = 0;
        } else if leader.way.misses_watch(since) {
            let before = self.without_watch;
            self.without_watch += (now - since).min(2 * SECOND);
            self.report.longest_without_watch = self.report.longest_without_watch.max(self.without_watch);
            if before <= WITHOUT_WATCH && self.without_watch > WITHOUT_WATCH {
                let fault = format!(
                    "the leader has no watch of Nodes for {} s, though its other requests are answered{}",
                    WITHOUT_WATCH / SECOND,
                    self.recent_faults(now)
                );
                self.report.fault(fault);
            }
        }
    }

    /// A write that the API server refuses as invalid must not be repeated for long.
    fn look_at_refusals(&mut self, answered: &[Answered]) {
        for answer in answered {
            let Some(life) = answer.life() else { continue };
            let key = (life, answer.node.clone());
            if answer.code != 422 {
                self.refused.remove(&key);
                continue;
            }
            let row = answer.at - *self.refused.entry(key.clone()).or_insert(answer.at);
            self.report.longest_refused = self.report.longest_refused.max(row);
            if row > REFUSED {
                self.refused.remove(&key);
                let fault = format!(
                    "daemon {life} has sent writes to {} for {} s that are refused as invalid{}",
                    answer.node,
                    REFUSED / SECOND,
                    self.recent_faults(now())
                );
                self.report.fault(fault);
            }
        }
    }

    fn judge_writes(&mut self, writes: &[Write], rules: &HashMap<u32, Rules>) {
        self.report.writes += writes.len() as u64;
        let faults: Vec<(String, Micros)> = {
            let mut terms = self.stage.terms();
            let faults = writes.iter().filter_map(|write| {
                let fault = terms.fault(write, rules)?;
                let what = format!("daemon {} sent {} without leading: {fault}", write.life, write.what);
                Some((what, write.sent))
            });
            let faults = faults.collect();
            terms.forget_before(now() - 120 * SECOND);
            self.report.leader_changes = terms.changes;
            faults
        };
        for (fault, sent) in faults {
            let fault = format!("{fault}{}", self.recent_faults(sent));
            self.report.fault(fault);
        }
    }

    /// Judges deletions that are not in the audit log, since they may have happened.
    fn judge_lost(&mut self, lost: Vec<Deletion>, deletions: &mut Vec<Deletion>) {
        let state = self.stage.world.lock();
        let by_campaign = self.stage.deleted();
        for deletion in lost {
            let known = self.report.deleted.contains(&deletion.uid) || by_campaign.contains(&deletion.uid);
            if !known && !state.existing.contains(&deletion.uid) {
                deletions.push(deletion);
            }
        }
    }

    fn judge_deletion(&mut self, deletion: &Deletion, rules: Rules) {
        if !self.report.deleted.insert(deletion.uid.clone()) {
            return;
        }
        let faults = deletion.faults(rules);
        if faults.is_empty() {
            self.report.right_deletions += 1;
            return;
        }
        self.report.wrong_deletions += 1;
        let mut text = format!("daemon {} deleted {} ({}), and", deletion.life, deletion.name, deletion.uid);
        for fault in faults {
            let _ = write!(text, "\n    {fault}");
        }
        if let Some(slot) = &deletion.slot {
            text.push_str(&history(&slot.history, deletion.sent));
        }
        text.push_str(&self.recent_faults(deletion.sent));
        self.report.fault(text);
    }

    pub(super) fn history(&self, number: usize, moment: Micros) -> String {
        self.stage.world.with(number, |slot| history(&slot.history, moment))
    }

    /// The faults before a moment that were not of a single Node, for the report.
    pub(super) fn recent_faults(&self, moment: Micros) -> String {
        let log = self.stage.log();
        let mut text = String::from("\n    faults of the last 60 s, without those of single Nodes:");
        let is_recent = |at: Micros, line: &str| at > moment - 60 * SECOND && !line.contains(" on node-");
        for (at, line) in log.lines.iter().filter(|(at, line)| is_recent(*at, line)) {
            let _ = write!(text, "\n      {:+8.2} s: {line}", seconds(at - moment));
        }
        text
    }
}

/// The events at one place before and after a moment, for the report.
fn history(history: &[(Micros, String)], moment: Micros) -> String {
    let mut text = String::from("\n    what happened there:");
    for (at, line) in history.iter().rev().take(12).rev() {
        let _ = write!(text, "\n      {:+8.2} s: {line}", seconds(at - moment));
    }
    text
}
