//! How many connections there may be.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// Counts connections. Cloning shares it.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    connections: usize,
    from_one_address: usize,
}

/// The place of one connection, free again when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    address: IpAddr,
}

impl Slots {
    /// So many at the same time, and so many of those from one address.
    pub(super) fn new(connections: usize, from_one_address: usize) -> Self {
        Self { taken: Arc::default(), connections, from_one_address }
    }

    /// A place for a connection from this address, if there is one left.
    pub(super) fn take(&self, address: IpAddr) -> Option<Slot> {
        let mut counts = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = counts.values().sum();
        let from_there = counts.get(&address).copied().unwrap_or_default();
        if total >= self.connections || from_there >= self.from_one_address {
            return None;
        }
        counts.insert(address, from_there + 1);
        Some(Slot { slots: self.clone(), address })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.slots.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(&self.address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const CONNECTIONS: usize = 512;
    const FROM_ONE_ADDRESS: usize = 128;

    #[test]
    fn one_address_does_not_take_all() {
        let (slots, one) = (Slots::new(CONNECTIONS, FROM_ONE_ADDRESS), IpAddr::from(Ipv4Addr::LOCALHOST));
        let mut taken: Vec<Slot> = (0..FROM_ONE_ADDRESS).map_while(|_| slots.take(one)).collect();
        assert_eq!(taken.len(), FROM_ONE_ADDRESS);
        assert!(slots.take(one).is_none());
        let other = IpAddr::from([192, 0, 2, 1]);
        assert!(slots.take(other).is_some());
        taken.pop();
        let again = slots.take(one);
        assert!(again.is_some());
        let addresses = (0..=u8::MAX).flat_map(|last| [IpAddr::from([198, 51, 100, last]); 4]);
        let rest: Vec<Slot> = addresses.map_while(|address| slots.take(address)).collect();
        assert_eq!(rest.len(), CONNECTIONS - FROM_ONE_ADDRESS);
        drop((taken, again, rest));
        assert!(slots.taken.lock().expect("no panic").is_empty());
    }
}
