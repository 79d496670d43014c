//! The claims in memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use cloudprovider::{AddressClaim, AddressHolder, AddressUse, ServiceRef};

use crate::{
    range::{AddressRange, Order},
    runs::Runs,
};

/// How many Services share one address at most. So the object of a claim stays small, and so does the work with it.
pub(crate) const MAX_HOLDERS: usize = 250;

/// What is known of all addresses. The claims in the cluster decide; this is a copy, which each write checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    claims: BTreeMap<IpAddr, AddressClaim>,
    /// The claimed addresses of each Service, by its [`key`].
    by_service: HashMap<String, BTreeSet<IpAddr>>,
    /// The addresses that are shared or may be, by sharing key.
    by_key: HashMap<String, Shared>,
    /// Writes that have begun and whose outcome is not known, by the UID of the Service.
    pending: BTreeSet<(String, IpAddr)>,
    /// How many of these each address has.
    pending_at: HashMap<IpAddr, usize>,
    /// Addresses in the status of Services that nobody has claimed. They are kept for these Services, which may share one.
    reserved: HashMap<IpAddr, Vec<ServiceRef>>,
    /// The addresses that are kept so for each Service, by its UID.
    reserved_for: HashMap<String, BTreeSet<IpAddr>>,
    /// Addresses that something else uses, and what that is.
    foreign: BTreeMap<IpAddr, ForeignUser>,
    /// All addresses of the collections above.
    taken: Runs,
}

/// Why an address that a host has is not handed out, for a tenant.
pub(crate) const HOST_HAS_IT: &str = "a host on the network has it";

/// What uses an address and has no claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ForeignUser {
    /// Another object of the cluster, named for the log: it may belong to another tenant.
    Object(String),
    /// A host on the network, or this one. Why the address cannot be announced, for the log.
    Host(String),
}

impl ForeignUser {
    /// What a tenant may know.
    pub(crate) fn words(&self) -> &'static str {
        match self {
            Self::Object(_) => "something else in the cluster uses it",
            Self::Host(_) => HOST_HAS_IT,
        }
    }

    /// What an operator should know.
    pub(crate) fn details(&self) -> &str {
        let (Self::Object(details) | Self::Host(details)) = self;
        details
    }
}

/// The addresses of one sharing key.
#[derive(Clone, Debug, Default)]
struct Shared {
    /// Those that have room for another Service.
    open: Runs,
    /// Those where each port is in use.
    ports: HashMap<String, Runs>,
}

impl Shared {
    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.ports.is_empty()
    }
}

impl Index {
    /// The state of the cluster. `assigned` are the addresses in the status of Services.
    pub(crate) fn new(claims: Vec<AddressClaim>, assigned: Vec<(ServiceRef, IpAddr)>) -> Self {
        let mut index = Self::default();
        for claim in claims {
            index.set(claim);
        }
        for (service, address) in assigned {
            if !index.claims.contains_key(&address) {
                index.taken.insert(address);
                index.reserved_for.entry(service.uid.clone()).or_default().insert(address);
                index.reserved.entry(address).or_default().push(service);
            }
        }
        index
    }

    /// The addresses that are kept for Services because they had them in their status.
    pub(crate) fn reservations(&self) -> Vec<(ServiceRef, IpAddr)> {
        let all = self.reserved.iter();
        all.flat_map(|(address, having)| having.iter().map(|service| (service.clone(), *address))).collect()
    }

    /// The Services for which addresses are kept.
    pub(crate) fn having_reservations(&self) -> impl Iterator<Item = &ServiceRef> {
        self.reserved.values().flatten()
    }

    /// The Services for which this address is kept because they have it in their status.
    pub(crate) fn reserved_for(&self, address: IpAddr) -> &[ServiceRef] {
        self.reserved.get(&address).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the Service has the address: it has claimed it, or had it in its status when the claims were read first.
    pub(crate) fn has(&self, service: &ServiceRef, address: IpAddr) -> bool {
        self.of_service(service).contains(&address) || self.is_reserved_for(&service.uid, address)
    }

    /// Whether the address is kept for the Service because it had it in its status.
    pub(crate) fn is_reserved_for(&self, uid: &str, address: IpAddr) -> bool {
        self.reserved_for.get(uid).is_some_and(|addresses| addresses.contains(&address))
    }

    /// All claims.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &AddressClaim> {
        self.claims.values()
    }

    pub(crate) fn claim(&self, address: IpAddr) -> Option<&AddressClaim> {
        self.claims.get(&address)
    }

    /// The Services that hold an address.
    pub(crate) fn holders(&self, address: IpAddr) -> Vec<ServiceRef> {
        let holders = self.claims.get(&address).into_iter().flat_map(|claim| &claim.holders);
        holders.map(|holder| holder.service.clone()).collect()
    }

    /// The claimed addresses of a Service.
    pub(crate) fn of_service(&self, service: &ServiceRef) -> Vec<IpAddr> {
        let keys = [service.uid.clone(), key(&ServiceRef { uid: String::new(), ..service.clone() })];
        let all: BTreeSet<_> = keys.iter().filter_map(|key| self.by_service.get(key)).flatten().collect();
        all.into_iter().copied().collect()
    }

    /// Whether the Service with this UID has claimed the address. A claim whose UIDs are lost may be of any Service.
    pub(crate) fn is_of_service(&self, uid: &str, address: IpAddr) -> bool {
        let holders = self.claims.get(&address).into_iter().flat_map(|claim| &claim.holders);
        holders.map(|holder| &holder.service.uid).any(|of| of == uid || of.is_empty())
    }

    /// The first address of the range, in this order, whose holders have this key, and none of them one of these ports.
    pub(crate) fn shared_in(
        &self,
        range: &AddressRange,
        order: Order,
        key: &str,
        ports: &[String],
    ) -> Option<IpAddr> {
        let shared = self.by_key.get(key)?;
        let used: Vec<&Runs> = ports.iter().filter_map(|port| shared.ports.get(port)).collect();
        shared.open.first_outside(range, order, &used)
    }

    /// The claims of a range.
    pub(crate) fn claims_in(&self, range: &AddressRange) -> impl Iterator<Item = &AddressClaim> {
        self.claims.range(range.first()..=range.last()).map(|(_, claim)| claim)
    }

    /// What else uses addresses of a range.
    pub(crate) fn foreign_users_in(&self, range: &AddressRange) -> impl Iterator<Item = &ForeignUser> {
        self.foreign.range(range.first()..=range.last()).map(|(_, user)| user)
    }

    /// A Service that has this address in its status, which nobody has claimed, unless this one has it too.
    pub(crate) fn reserved_for_others(&self, address: IpAddr, uid: &str) -> Option<&ServiceRef> {
        let having = self.reserved.get(&address)?;
        if having.iter().any(|service| service.uid == uid) { None } else { having.first() }
    }

    /// What else uses the address, where something does.
    pub(crate) fn foreign_user(&self, address: IpAddr) -> Option<&ForeignUser> {
        self.foreign.get(&address)
    }

    /// Notes that a host has the address, so that it is passed over.
    pub(crate) fn note_host(&mut self, address: IpAddr, details: String) {
        if !self.claims.contains_key(&address) {
            self.foreign.insert(address, ForeignUser::Host(details));
            self.taken.insert(address);
        }
    }

    /// Whether another Service than this one has begun to write a claim of the address.
    pub(crate) fn is_pending_elsewhere(&self, address: IpAddr, uid: &str) -> bool {
        let all = self.pending_at.get(&address).copied().unwrap_or_default();
        all > usize::from(self.pending.contains(&(uid.to_owned(), address)))
    }

    /// The first free address of a range.
    pub(crate) fn free_in(
        &self,
        range: &AddressRange,
        order: Order,
        skips: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        self.taken.free_in(range, order, skips)
    }

    /// Takes over a claim as it is stored.
    pub(crate) fn set(&mut self, claim: AddressClaim) {
        let address = claim.address;
        self.unlink(address);
        for service in self.reserved.remove(&address).unwrap_or_default() {
            forget(&mut self.reserved_for, &service.uid, address);
        }
        self.foreign.remove(&address);
        for holder in &claim.holders {
            self.by_service.entry(key(&holder.service)).or_default().insert(address);
            let Some(key) = &holder.sharing_key else { continue };
            let shared = self.by_key.entry(key.clone()).or_default();
            if claim.holders.len() < MAX_HOLDERS {
                shared.open.insert(address);
            }
            for port in &holder.ports {
                shared.ports.entry(port.clone()).or_default().insert(address);
            }
        }
        self.taken.insert(address);
        self.claims.insert(address, claim);
    }

    /// Notes what the cluster says of an address.
    pub(crate) fn learn(&mut self, address: IpAddr, found: AddressUse) {
        let user = match found {
            AddressUse::Claimed(claim) => return self.set(claim),
            AddressUse::Elsewhere(user) => Some(user),
            AddressUse::Free => None,
        };
        self.unlink(address);
        self.claims.remove(&address);
        self.foreign.remove(&address);
        if let Some(user) = user {
            self.foreign.insert(address, ForeignUser::Object(user));
            self.taken.insert(address);
        }
        self.free_if_unused(address);
    }

    /// Removes the claim from the collections that point to it.
    fn unlink(&mut self, address: IpAddr) {
        for holder in self.claims.get(&address).map(|claim| claim.holders.as_slice()).unwrap_or_default() {
            forget(&mut self.by_service, &key(&holder.service), address);
            let Some(key) = &holder.sharing_key else { continue };
            let Some(shared) = self.by_key.get_mut(key) else { continue };
            shared.open.remove(address);
            for port in &holder.ports {
                if let Some(used) = shared.ports.get_mut(port) {
                    used.remove(address);
                    if used.is_empty() {
                        shared.ports.remove(port);
                    }
                }
            }
            if shared.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    fn free_if_unused(&mut self, address: IpAddr) {
        let is_used = self.claims.contains_key(&address)
            || self.pending_at.contains_key(&address)
            || self.reserved.contains_key(&address)
            || self.foreign.contains_key(&address);
        if !is_used {
            self.taken.remove(address);
        }
    }

    /// Notes that a write of a claim begins. Until its outcome is known nobody else gets the address.
    pub(crate) fn begin(&mut self, uid: &str, address: IpAddr) {
        if self.pending.insert((uid.to_owned(), address)) {
            *self.pending_at.entry(address).or_default() += 1;
            self.taken.insert(address);
        }
    }

    /// Notes that the outcome of a write is known.
    pub(crate) fn end(&mut self, uid: &str, address: IpAddr) {
        if self.pending.remove(&(uid.to_owned(), address)) {
            if let Some(count) = self.pending_at.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    self.pending_at.remove(&address);
                }
            }
            self.free_if_unused(address);
        }
    }

    /// The writes for a Service whose outcome is not known.
    pub(crate) fn pending_of(&self, uid: &str) -> Vec<IpAddr> {
        let from = (uid.to_owned(), IpAddr::from([0, 0, 0, 0]));
        self.pending.range(from..).take_while(|(of, _)| of == uid).map(|(_, address)| *address).collect()
    }

    /// Keeps no address any longer for a Service because it is in its status.
    pub(crate) fn end_reservations(&mut self, uid: &str) {
        for address in self.reserved_for.remove(uid).unwrap_or_default() {
            #[cfg(test)]
            crate::testing::count_look();
            let Some(having) = self.reserved.get_mut(&address) else { continue };
            having.retain(|service| service.uid != uid);
            if having.is_empty() {
                self.reserved.remove(&address);
                self.free_if_unused(address);
            }
        }
    }

    /// The claim without this Service: `None` if nobody else holds the address.
    pub(crate) fn without(claim: &AddressClaim, service: &ServiceRef) -> Option<AddressClaim> {
        let holders = claim.holders.iter().filter(|holder| !is_same(&holder.service, service));
        let holders: Vec<AddressHolder> = holders.cloned().collect();
        (!holders.is_empty()).then(|| AddressClaim { holders, ..claim.clone() })
    }
}

/// Whether a holder is this Service. Somebody may have removed the UIDs from a claim; then only the name is left.
pub(crate) fn is_same(holder: &ServiceRef, service: &ServiceRef) -> bool {
    if holder.uid.is_empty() {
        (&holder.namespace, &holder.name) == (&service.namespace, &service.name)
    } else {
        holder.uid == service.uid
    }
}

/// The UID of a holder, or its name if that is lost. No UID has a slash.
fn key(holder: &ServiceRef) -> String {
    if holder.uid.is_empty() { format!("{}/{}", holder.namespace, holder.name) } else { holder.uid.clone() }
}

fn forget(addresses: &mut HashMap<String, BTreeSet<IpAddr>>, name: &str, address: IpAddr) {
    if let Some(known) = addresses.get_mut(name) {
        known.remove(&address);
        if known.is_empty() {
            addresses.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::Family;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn claim(last: u8, holders: &[(&str, Option<&str>)]) -> AddressClaim {
        let holder = |(uid, key): &(&str, Option<&str>)| AddressHolder {
            service: ServiceRef { uid: (*uid).to_owned(), ..ServiceRef::default() },
            sharing_key: key.map(str::to_owned),
            ports: vec!["1/UDP".to_owned()],
        };
        AddressClaim {
            address: ip(last),
            holders: holders.iter().map(holder).collect(),
            version: "1".to_owned(),
        }
    }

    fn of(uid: &str) -> ServiceRef {
        ServiceRef { uid: uid.to_owned(), ..ServiceRef::default() }
    }

    fn free(index: &Index) -> Option<IpAddr> {
        let range = AddressRange::new(ip(1), ip(9)).expect("a range");
        assert_eq!(range.family(), Family::Ipv4);
        index.free_in(&range, Order::Ascending, |_| false)
    }

    #[test]
    fn claims_are_found_by_service_and_by_key() {
        let mut index = Index::new(
            vec![claim(1, &[("a", Some("k")), ("b", Some("k"))]), claim(2, &[("a", None)])],
            vec![],
        );
        assert_eq!(index.of_service(&of("a")), [ip(1), ip(2)]);
        let shared = |index: &Index, ports: &[&str]| {
            let ports: Vec<String> = ports.iter().map(|port| (*port).to_owned()).collect();
            let range = AddressRange::new(ip(1), ip(9)).expect("a range");
            index.shared_in(&range, Order::Ascending, "k", &ports)
        };
        assert_eq!([shared(&index, &["80/TCP"]), shared(&index, &["1/UDP"])], [Some(ip(1)), None]);
        assert_eq!(free(&index), Some(ip(3)));
        index.set(claim(1, &[("b", None)]));
        assert_eq!(index.of_service(&of("a")), [ip(2)]);
        assert!(shared(&index, &["80/TCP"]).is_none() && index.by_key.is_empty());
        index.learn(ip(1), AddressUse::Free);
        assert_eq!((index.of_service(&of("b")), free(&index)), (vec![], Some(ip(1))));
    }

    #[test]
    fn a_claim_without_uids_is_found_by_name() {
        let named = |name: &str, uid: &str| ServiceRef {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        let lost = |last, name| {
            let holder = AddressHolder { service: named(name, ""), ..AddressHolder::default() };
            AddressClaim { address: ip(last), holders: vec![holder], version: "1".to_owned() }
        };
        let index = Index::new(vec![lost(1, "a"), lost(2, "b")], vec![]);
        assert_eq!(index.of_service(&named("a", "uid")), [ip(1)]);
        assert_eq!(index.of_service(&named("b", "")), [ip(2)]);
        assert_eq!(Index::without(&lost(1, "a"), &named("b", "uid")), Some(lost(1, "a")));
        assert_eq!(Index::without(&lost(1, "a"), &named("a", "uid")), None);
    }

    #[test]
    fn an_address_with_many_holders_has_no_room() {
        let uids: Vec<String> = (0..MAX_HOLDERS).map(|number| format!("s{number}")).collect();
        let mut holders: Vec<_> = uids.iter().map(|uid| (uid.as_str(), Some("k"))).collect();
        let full = claim(1, &holders);
        holders.pop();
        let range = AddressRange::new(ip(1), ip(9)).expect("a range");
        let mut index = Index::new(vec![full], vec![]);
        assert_eq!(index.shared_in(&range, Order::Ascending, "k", &[]), None);
        index.set(claim(1, &holders));
        assert_eq!(index.shared_in(&range, Order::Ascending, "k", &[]), Some(ip(1)));
    }

    #[test]
    fn services_share_an_address_of_their_status() {
        let mut index = Index::new(vec![], vec![(of("a"), ip(1)), (of("b"), ip(1))]);
        let reserved = |index: &Index, uid| index.reserved_for_others(ip(1), uid).cloned();
        assert_eq!([reserved(&index, "a"), reserved(&index, "b")], [None, None]);
        assert_eq!(reserved(&index, "c"), Some(of("a")));
        index.end_reservations("a");
        assert_eq!((reserved(&index, "a"), free(&index)), (Some(of("b")), Some(ip(2))));
        index.end_reservations("b");
        assert_eq!(free(&index), Some(ip(1)));
    }

    #[test]
    fn an_address_is_free_only_when_nothing_uses_it() {
        let service = ServiceRef { uid: "r".to_owned(), ..ServiceRef::default() };
        let mut index = Index::new(vec![claim(1, &[("a", None)])], vec![(service, ip(2))]);
        assert_eq!(free(&index), Some(ip(3)));
        index.begin("b", ip(3));
        index.begin("c", ip(1));
        index.learn(ip(4), AddressUse::Elsewhere("services a/b".to_owned()));
        assert_eq!(free(&index), Some(ip(5)));
        assert!(index.is_pending_elsewhere(ip(3), "c") && !index.is_pending_elsewhere(ip(3), "b"));
        index.learn(ip(1), AddressUse::Free);
        assert_eq!(free(&index), Some(ip(5)));
        assert_eq!((index.pending_of("b"), index.pending_of("c")), (vec![ip(3)], vec![ip(1)]));
        index.end("c", ip(1));
        index.end("c", ip(1));
        assert_eq!(free(&index), Some(ip(1)));
        index.set(claim(1, &[("a", None)]));
        index.end_reservations("r");
        assert_eq!(free(&index), Some(ip(2)));
        index.end("b", ip(3));
        index.set(claim(2, &[("a", None)]));
        assert_eq!(free(&index), Some(ip(3)));
        index.set(claim(3, &[("a", None)]));
        let details = |index: &Index| index.foreign_user(ip(4)).map(|user| user.details().to_owned());
        assert_eq!((details(&index).as_deref(), free(&index)), (Some("services a/b"), Some(ip(5))));
        index.learn(ip(4), AddressUse::Free);
        assert_eq!((index.foreign_user(ip(4)), free(&index)), (None, Some(ip(4))));
    }
}
