//! Held addresses that no interface has at the moment. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::announce::Fault;

/// The addresses with a fault, as the last looks found them.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Found by the last look. The announcer remedies most faults itself until the next one.
    new: BTreeSet<IpAddr>,
    /// Found by two looks in a row.
    told: BTreeSet<IpAddr>,
}

/// What a look brings to tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Addresses that are not announced.
    pub(crate) lost: Vec<Fault>,
    /// Addresses that are announced again.
    pub(crate) back: Vec<IpAddr>,
}

impl Faults {
    /// Notes what a look found.
    pub(crate) fn note(&mut self, found: Vec<Fault>) -> News {
        let found: BTreeMap<IpAddr, Fault> = found.into_iter().map(|fault| (fault.address, fault)).collect();
        let back: Vec<IpAddr> = self.told.iter().copied().filter(|one| !found.contains_key(one)).collect();
        self.told.retain(|address| found.contains_key(address));
        let (mut lost, mut new) = (Vec::new(), BTreeSet::new());
        for (address, fault) in found {
            if self.told.contains(&address) {
                continue;
            }
            if self.new.contains(&address) {
                self.told.insert(address);
                lost.push(fault);
            } else {
                new.insert(address);
            }
        }
        self.new = new;
        News { lost, back }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ip, ips};

    fn fault(address: &str) -> Fault {
        Fault { address: ip(address), why: "there is no interface".to_owned() }
    }

    #[test]
    fn a_fault_is_told_once_when_it_lasts_and_when_it_is_over() {
        let mut faults = Faults::default();
        let (a, b) = (fault("10.0.0.1"), fault("10.0.0.2"));
        for (found, lost, back) in [
            (vec![a.clone()], vec![], vec![]),
            (vec![], vec![], vec![]),
            (vec![a.clone()], vec![], vec![]),
            (vec![a.clone(), b.clone()], vec![a.clone()], vec![]),
            (vec![a.clone(), b.clone()], vec![b.clone()], vec![]),
            (vec![b.clone()], vec![], ips(&["10.0.0.1"])),
            (vec![], vec![], ips(&["10.0.0.2"])),
            (vec![], vec![], vec![]),
        ] {
            assert_eq!(faults.note(found.clone()), News { lost, back }, "{found:?}");
        }
    }
}
