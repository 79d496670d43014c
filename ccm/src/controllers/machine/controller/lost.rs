//! Objects that are gone, whether there was a step towards that or not.

use super::MachineController;
use crate::controllers::machine::subject::Subject;

impl MachineController {
    /// This object had this UID in its mark. If no object of any namespace has it any more, the provider is told, once no step can
    /// use it.
    pub(super) fn lost(&mut self, subject: &Subject, uid: String) {
        if !self.index.of_uid(&uid).is_empty() {
            return;
        }
        if self.queue.is_at_work(&subject.to_string()) {
            self.lost.entry(subject.clone()).or_default().insert(uid);
        } else {
            self.shared.cloud.forget_object(&uid);
        }
    }
}
