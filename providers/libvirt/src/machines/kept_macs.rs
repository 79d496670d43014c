//! The MAC addresses of machines, chosen or made from their marks, until their domains are there.
//!
//! Between the look at the domains and the definition of a machine's own one, its image and its disks are
//! made. Two machines with one address at once would both find it free.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::identity::Identity;
use crate::mac::Mac;

/// How long an address is kept that no step takes again. Steps come at least once a resync period.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Who has which address.
#[derive(Debug, Default)]
pub(crate) struct KeptMacs(Mutex<HashMap<Mac, (Identity, Instant)>>);

impl KeptMacs {
    /// Keeps an address for a machine, or keeps it for longer. Gives whether no other machine has it.
    pub(crate) fn take(&self, mac: Mac, machine: &Identity, now: Instant) -> bool {
        let mut all = self.0.lock();
        let is_kept = |since: Instant| now.saturating_duration_since(since) < TIMEOUT;
        if all.get(&mac).is_some_and(|(other, since)| other != machine && is_kept(*since)) {
            return false;
        }
        all.insert(mac, (machine.clone(), now));
        true
    }

    /// The domain of the machine is there and shows what it has, it was refused, or nothing of the machine is
    /// left.
    pub(crate) fn release(&self, machine: &Identity) {
        self.0.lock().retain(|_, (other, _)| other != machine);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_address_is_kept_for_one_machine_until_it_is_released_or_not_asked_for() {
        let (macs, mac) = (KeptMacs::default(), Mac::from_bytes([2; 6]));
        let machine = |namespace: &str| Identity { namespace: namespace.to_owned(), uid: Uuid::nil() };
        let (ours, theirs) = (machine("team-a"), machine("team-b"));
        let start = Instant::now();
        assert!(macs.take(mac, &ours, start));
        assert!(!macs.take(mac, &theirs, start));
        assert!(macs.take(Mac::from_bytes([3; 6]), &theirs, start));
        let later = start + TIMEOUT / 2;
        assert!(macs.take(mac, &ours, later), "it is kept for longer");
        assert!(!macs.take(mac, &theirs, start + TIMEOUT));
        macs.release(&theirs);
        assert!(!macs.take(mac, &theirs, start + TIMEOUT), "it is not theirs");
        assert!(macs.take(mac, &theirs, later + TIMEOUT));
        macs.release(&theirs);
        assert!(macs.take(mac, &ours, later + TIMEOUT));
    }
}
