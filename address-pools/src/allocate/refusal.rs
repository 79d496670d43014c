//! Why a Service gets no address, in words for its owner and for the log.

use std::fmt;

use cloudprovider::{Error, ErrorKind};

use crate::{index::Index, pool::Pool, range::Family, request::Request};

/// How many holders of a full pool are named.
const HOLDERS_NAMED: usize = 3;

/// How many claims of a full pool are looked at, to name some.
const HOLDERS_LOOKED_AT: usize = 64;

/// Why a Service cannot have what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No free address. Room may come when Services are gone.
    Exhausted(String),
    /// No pool for the Service.
    NoPool(String),
    /// Another Service has the address, or gets it now.
    Held(String),
    /// The Service has to ask for something else.
    Invalid(String),
}

impl Refusal {
    /// With why the Service cannot do with less.
    pub(super) fn because(mut self, why: Option<&str>) -> Self {
        let (Self::Exhausted(words) | Self::NoPool(words) | Self::Held(words) | Self::Invalid(words)) =
            &mut self;
        if let Some(why) = why {
            *words += "; ";
            *words += why;
        }
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Exhausted(words) | Self::NoPool(words) | Self::Held(words) | Self::Invalid(words)) = self;
        f.write_str(words)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::Exhausted(_) | Refusal::NoPool(_) => ErrorKind::Unavailable,
            Refusal::Held(_) => ErrorKind::Conflict,
            Refusal::Invalid(_) => ErrorKind::InvalidInput,
        };
        Self::new(kind, refusal.to_string())
    }
}

/// The refusal to tell, of those for several families.
pub(super) fn worst(refusals: Vec<Refusal>) -> Refusal {
    let is_full = |refusal: &&Refusal| matches!(refusal, Refusal::Exhausted(_));
    let first = refusals.iter().find(is_full).or(refusals.first()).cloned();
    first.unwrap_or_else(|| Refusal::NoPool("no address family is left to choose from".to_owned()))
}

/// Names full pools, how large they are, and which Services of the namespace hold addresses of them.
pub(super) fn exhausted(index: &Index, pools: &[&Pool], family: Family, namespace: &str) -> String {
    let sizes: Vec<_> = pools
        .iter()
        .map(|pool| format!("{:?} ({} addresses)", pool.name, pool.addresses.count(family)))
        .collect();
    let which = if sizes.len() == 1 { "the pool" } else { "the pools" };
    let has = if sizes.len() == 1 { "has" } else { "have" };
    let ranges = || pools.iter().flat_map(|pool| pool.addresses.of_family(family));
    // No more are looked at than matter: many Services may wait for a full pool.
    let claims = ranges().flat_map(|range| index.claims_in(range)).take(HOLDERS_LOOKED_AT);
    let services = claims.flat_map(|claim| claim.holders.iter().map(|holder| &holder.service));
    let others = ranges().flat_map(|range| index.foreign_users_in(range)).map(|_| None);
    let (mut named, mut has_more) = (Vec::new(), false);
    for holder in services.map(Some).chain(others) {
        match holder.filter(|holder| holder.namespace == namespace && named.len() < HOLDERS_NAMED) {
            Some(own) => named.push(own.to_string()),
            None => has_more = true,
        }
    }
    let holders = match (named.is_empty(), has_more) {
        (true, false) => "nobody that this daemon knows of".to_owned(),
        (true, true) => "others".to_owned(),
        (false, _) => format!("{}{}", named.join(", "), if has_more { " and others" } else { "" }),
    };
    format!(
        "{which} {} {has} no free {family} address; held by {holders}; delete a Service or add addresses",
        sizes.join(", ")
    )
}

/// Who has the addresses that a Service asks for in vain, for the log: a tenant is not told of others.
pub(crate) fn in_the_way(index: &Index, request: &Request) -> Option<String> {
    let mut found = Vec::new();
    for address in &request.asked {
        let others = index.holders(*address).into_iter().chain(index.reserved_for(*address).iter().cloned());
        let others = others.filter(|other| other.uid != request.service.uid);
        found.extend(others.take(HOLDERS_NAMED).map(|other| format!("{address}: Service {other}")));
        found.extend(index.foreign_user(*address).map(|user| format!("{address}: {}", user.details())));
        let users = request.users(*address).take(HOLDERS_NAMED);
        found.extend(users.map(|user| format!("{address}: {user:?}")));
    }
    (!found.is_empty()).then(|| found.join(", "))
}
