//! Sets of addresses as runs.
//!
//! The taken addresses of a full pool are a few runs, however many addresses it has. So the next free address is found
//! without a look at each of them.

use std::{collections::BTreeMap, net::IpAddr};

use crate::range::{AddressRange, Family, Order, address, number};

/// Addresses as runs that do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// The last address of each run, by its family and its first address.
    runs: BTreeMap<(Family, u128), u128>,
}

impl Runs {
    /// The run that has this address.
    fn run(&self, family: Family, number: u128) -> Option<(u128, u128)> {
        #[cfg(test)]
        crate::testing::count_look();
        let (&(of, first), &last) = self.runs.range(..=(family, number)).next_back()?;
        (of == family && number <= last).then_some((first, last))
    }

    pub(crate) fn insert(&mut self, ip: IpAddr) {
        let (family, at) = (Family::of(ip), number(ip));
        if self.run(family, at).is_some() {
            return;
        }
        let before = at.checked_sub(1).and_then(|before| self.run(family, before));
        let after = at.checked_add(1).and_then(|after| self.run(family, after));
        if let Some((first, _)) = after {
            self.runs.remove(&(family, first));
        }
        let first = before.map_or(at, |(first, _)| first);
        self.runs.insert((family, first), after.map_or(at, |(_, last)| last));
    }

    pub(crate) fn remove(&mut self, ip: IpAddr) {
        let (family, at) = (Family::of(ip), number(ip));
        let Some((first, last)) = self.run(family, at) else { return };
        self.runs.remove(&(family, first));
        if first < at {
            self.runs.insert((family, first), at - 1);
        }
        if at < last {
            self.runs.insert((family, at + 1), last);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The first address of this set in the range, in this order, that is in none of the others.
    pub(crate) fn first_outside(
        &self,
        range: &AddressRange,
        order: Order,
        others: &[&Self],
    ) -> Option<IpAddr> {
        let (family, (first, last)) = (range.family(), range.numbers());
        let mut at = match order {
            Order::Ascending => first,
            Order::Descending => last,
        };
        loop {
            at = self.next(family, at, order).filter(|next| (first..=last).contains(next))?;
            let Some((start, end)) = others.iter().find_map(|other| other.run(family, at)) else {
                return Some(address(family, at));
            };
            at = match order {
                Order::Ascending => end.checked_add(1)?,
                Order::Descending => start.checked_sub(1)?,
            };
        }
    }

    /// The nearest address of this set, in this order, from this one on.
    fn next(&self, family: Family, from: u128, order: Order) -> Option<u128> {
        if self.run(family, from).is_some() {
            return Some(from);
        }
        match order {
            Order::Ascending => {
                let (&(of, first), _) = self.runs.range((family, from)..).next()?;
                (of == family).then_some(first)
            }
            Order::Descending => {
                let (&(of, _), &last) = self.runs.range(..(family, from)).next_back()?;
                (of == family).then_some(last)
            }
        }
    }

    /// The first address of the range, in this order, that is neither in the set nor skipped.
    pub(crate) fn free_in(
        &self,
        range: &AddressRange,
        order: Order,
        skips: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        let (family, (first, last)) = (range.family(), range.numbers());
        let mut at = match order {
            Order::Ascending => first,
            Order::Descending => last,
        };
        loop {
            // The last address to pass, counted in this order.
            let end = match (self.run(family, at), order) {
                (Some((_, last)), Order::Ascending) => last,
                (Some((first, _)), Order::Descending) => first,
                (None, _) if skips(address(family, at)) => at,
                (None, _) => return Some(address(family, at)),
            };
            at = match order {
                Order::Ascending => end.checked_add(1).filter(|next| *next <= last)?,
                Order::Descending => end.checked_sub(1).filter(|next| *next >= first)?,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn range(first: u8, last: u8) -> AddressRange {
        AddressRange::new(ip(first), ip(last)).expect("a range")
    }

    #[test]
    fn runs_are_joined_and_split() {
        let mut taken = Runs::default();
        for last in [1, 3, 2, 7, 2] {
            taken.insert(ip(last));
        }
        assert_eq!(taken.runs.len(), 2);
        assert_eq!(taken.free_in(&range(1, 9), Order::Ascending, |_| false), Some(ip(4)));
        assert_eq!(taken.free_in(&range(1, 7), Order::Descending, |_| false), Some(ip(6)));
        taken.remove(ip(2));
        taken.remove(ip(9));
        assert_eq!(taken.runs.len(), 3);
        assert_eq!(taken.free_in(&range(1, 3), Order::Descending, |_| false), Some(ip(2)));
        assert_eq!(taken.free_in(&range(1, 3), Order::Ascending, |skipped| skipped == ip(2)), None);
    }

    #[test]
    fn the_ends_of_a_family_are_ordinary_addresses() {
        let all: AddressRange = AddressRange::of_network("::/0".parse().expect("a network"), false);
        let mut taken = Runs::default();
        taken.insert(all.first());
        taken.insert(all.last());
        assert_eq!(taken.free_in(&all, Order::Ascending, |_| false), "::1".parse().ok());
        let last = AddressRange::new(all.last(), all.last()).expect("a range");
        assert_eq!(taken.free_in(&last, Order::Ascending, |_| false), None);
        taken.remove(all.last());
        assert_eq!(taken.free_in(&last, Order::Descending, |_| false), Some(all.last()));
    }

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0_u8..24), 0..80), first in 0_u8..24, length in 0_u8..24) {
            let (mut taken, mut set) = (Runs::default(), BTreeSet::new());
            for (inserts, last) in steps {
                if inserts {
                    taken.insert(ip(last));
                    set.insert(last);
                } else {
                    taken.remove(ip(last));
                    set.remove(&last);
                }
            }
            let skips = |address: IpAddr| address == ip(5);
            let end = first + length;
            let mut free: Vec<_> = (first..=end).filter(|last| !set.contains(last) && *last != 5).map(ip).collect();
            prop_assert_eq!(taken.free_in(&range(first, end), Order::Ascending, skips), free.first().copied());
            prop_assert_eq!(taken.free_in(&range(first, end), Order::Descending, skips), free.pop());
        }

        #[test]
        fn what_is_in_one_set_and_in_no_other_is_found(
            own in prop::collection::btree_set(0_u8..24, 0..24),
            others in prop::collection::vec(prop::collection::btree_set(0_u8..24, 0..24), 0..3),
            first in 0_u8..24, length in 0_u8..24,
        ) {
            let runs = |set: &BTreeSet<u8>| {
                let mut runs = Runs::default();
                for last in set {
                    runs.insert(ip(*last));
                }
                runs
            };
            let end = first + length;
            let is_found = |last: &u8| own.contains(last) && others.iter().all(|other| !other.contains(last));
            let found: Vec<_> = (first..=end).filter(is_found).map(ip).collect();
            let (own, others): (_, Vec<_>) = (runs(&own), others.iter().map(runs).collect());
            let others: Vec<_> = others.iter().collect();
            let range = range(first, end);
            prop_assert_eq!(own.first_outside(&range, Order::Ascending, &others), found.first().copied());
            prop_assert_eq!(own.first_outside(&range, Order::Descending, &others), found.last().copied());
        }
    }
}
