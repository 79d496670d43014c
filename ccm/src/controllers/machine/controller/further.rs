//! Objects of the provider's further kinds: who is to look at what changed.

use std::collections::HashSet;

use super::MachineController;
use crate::cache::Changes;

impl MachineController {
    /// Takes note of what is there. Gives the changes from now on, kind by kind.
    pub(super) fn take_note_of_further(&mut self) -> Vec<Changes> {
        let further = self.stores.further.clone();
        let changes = further.all().iter().enumerate().map(|(number, store)| {
            let mut changes = store.cache.subscribe();
            self.further_changed(number, changes.take());
            changes
        });
        changes.collect()
    }

    /// Objects of a further kind appeared, changed or vanished.
    pub(super) fn further_changed(&mut self, number: usize, keys: HashSet<String>) {
        let further = self.stores.further.clone();
        let Some(store) = further.all().get(number) else { return };
        for key in keys {
            let found = store.cache.get(&key).map(|found| found.unpacked());
            if found.is_none() {
                store.ended(&key);
            }
            let readers = self.dependents.readers_of(&store.kind, &key);
            for reader in &readers {
                if let Some(memory) = self.memories.get_mut(reader) {
                    further.share(memory.inputs.reads_mut());
                }
            }
            if store.kind.is_made {
                let lost = self.dependents.update((store.kind, key), found.as_ref(), &self.shared.kinds);
                // Whose it is, no step reads.
                for subject in lost {
                    self.wake(&subject);
                }
            }
            self.look_at_these(readers);
        }
    }
}
