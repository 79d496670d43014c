//! Objects that are gone, whether there was a step towards that or not.

use super::MachineController;
use crate::controllers::machine::subject::Subject;

impl MachineController {
    /// This object had this identity. If nothing has it any more, the provider is told, once no step can use it.
    pub(super) fn lost(&mut self, subject: &Subject, identity: String) {
        if !self.index.of_identity(&identity).is_empty() {
            return;
        }
        if self.queue.is_at_work(&subject.to_string()) {
            self.lost.entry(subject.clone()).or_default().insert(identity);
        } else {
            self.shared.cloud.forget_object(&identity);
        }
    }
}
