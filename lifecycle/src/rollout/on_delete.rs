//! The strategy `OnDelete`.

use super::{Reason, Rollout};

impl Rollout<'_> {
    pub(super) fn on_delete(&mut self) {
        self.size_current();
        if self.old_replicas() == 0 {
            return;
        }
        let mut surplus = self.old_replicas() + self.current.replicas() - self.deployment.replicas;
        // Replicas without a machine go: a user deleted it, or a newer template came before it was created.
        for work in &mut self.old {
            let missing = work.set.replicas - work.set.status.replicas;
            if work.set.replicas > 0 && missing > 0 {
                work.because(Reason::AlignedToMachines);
                work.wanted = Some((work.set.replicas - missing).max(0));
                surplus -= missing;
            }
        }
        // The user scaled the deployment down.
        for work in &mut self.old {
            let goes = work.replicas().min(surplus);
            if goes > 0 {
                work.because(Reason::AlignedToDeployment);
                work.wanted = Some(work.replicas() - goes);
                surplus -= goes;
            }
        }
    }
}
