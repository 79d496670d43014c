//! The choice of a hypervisor. Pure.

use std::{collections::BTreeSet, fmt, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{Mark, Wait},
};
use uuid::Uuid;

use crate::{config::MachineLimits, size::Size};

/// When a machine without a hypervisor looks again. Nothing tells when others free room.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// A machine that needs a hypervisor.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    /// The UUID that its domain has or will have.
    pub(crate) domain: Uuid,
    /// Whose it is.
    pub(crate) mark: &'a Mark,
    /// What it takes.
    pub(crate) size: Size,
    /// Whether it is a machine of the control plane.
    pub(crate) is_control_plane: bool,
    /// The hypervisor that its spec names.
    pub(crate) hypervisor: Option<&'a str>,
    /// The failure domain that its Machine names.
    pub(crate) failure_domain: Option<&'a str>,
    /// The hypervisors that its cluster may use. Empty: all.
    pub(crate) of_cluster: &'a [String],
    /// The failure domains that its cluster allows for its role. Empty: all.
    pub(crate) of_role: &'a [String],
    /// The hypervisor that has parts of it already. Nothing else counts then, but there must still be room.
    pub(crate) bound: Option<&'a str>,
}

/// A hypervisor as a place for machines.
#[derive(Clone, Debug)]
pub(crate) struct HypervisorLoad {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Its failure domain.
    pub(crate) failure_domain: String,
    /// Its CPUs and memory, or why no machine can be put there now.
    pub(crate) total: std::result::Result<Size, String>,
    /// All that takes room there.
    pub(crate) residents: Vec<Resident>,
}

/// A domain, or a machine that will be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    /// The UUID of the domain.
    pub(crate) domain: Uuid,
    /// What it takes.
    pub(crate) size: Size,
    /// Whether it is of the wanted machine's cluster.
    pub(crate) kin: Kin,
}

/// What something is to the machine that needs a hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kin {
    /// No machine of the same cluster.
    Stranger,
    /// A worker of the same cluster.
    Worker,
    /// A machine of the control plane of the same cluster.
    ControlPlane,
}

/// Where a machine is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// On this hypervisor.
    On(String),
    /// Nowhere for now. The message says why not on each hypervisor.
    Wait(Wait),
}

/// Chooses among `hosts`, whose residents do not contain the wanted machine.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a hypervisor or a failure domain that the configuration does not have, and
/// [`ErrorKind::InvalidInput`] if no hypervisor is all that is asked for.
pub(super) fn choose(
    hosts: &[HypervisorLoad],
    limits: &MachineLimits,
    wanted: &Wanted<'_>,
) -> Result<Placement> {
    check(hosts, wanted)?;
    let mut refusals = Vec::new();
    let mut best: Option<(Rank<'_>, &HypervisorLoad)> = None;
    for host in hosts {
        match fit(host, limits, wanted) {
            Ok(load) => {
                let rank = rank(host, hosts, load, wanted);
                if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                    best = Some((rank, host));
                }
            }
            Err(Refusal::NotAsked) => {}
            Err(refusal) => refusals.push((host.name.as_str(), refusal)),
        }
    }
    Ok(match best {
        Some((_, host)) => Placement::On(host.name.clone()),
        None => Placement::Wait(no_room(wanted, refusals)),
    })
}

/// Checks that what is asked for exists.
fn check(hosts: &[HypervisorLoad], wanted: &Wanted<'_>) -> Result<()> {
    if hosts.iter().any(|host| is_asked(host, wanted)) {
        return Ok(());
    }
    let not_found = |words: String| Err(Error::new(ErrorKind::NotFound, words));
    let known = || join(hosts.iter().map(|host| host.name.as_str()));
    let is_unknown = |name: &&str| !hosts.iter().any(|host| host.name == *name);
    if let Some(name) = wanted.bound.filter(is_unknown) {
        let words =
            format!("parts of the machine are on hypervisor {name:?}, which the configuration does not have");
        return not_found(format!("{words}; known: {}", known()));
    }
    if let Some(name) = wanted.hypervisor.filter(|name| wanted.bound.is_none() && is_unknown(name)) {
        let words = format!("spec.hypervisor: the configuration has no hypervisor {name:?}");
        return not_found(format!("{words}; known: {}", known()));
    }
    let domains: BTreeSet<&str> = hosts.iter().map(|host| host.failure_domain.as_str()).collect();
    if let Some(domain) = wanted.failure_domain.filter(|domain| !domains.contains(domain)) {
        let known = join(domains.into_iter());
        return not_found(format!("no hypervisor is in failure domain {domain:?}; known: {known}"));
    }
    let mut asked = Vec::new();
    asked.extend(wanted.hypervisor.map(|name| format!("hypervisor {name:?}")));
    asked.extend(wanted.failure_domain.map(|domain| format!("failure domain {domain:?}")));
    let list = |names: &[String]| join(names.iter().map(String::as_str));
    if !wanted.of_cluster.is_empty() {
        asked.push(format!("one of the cluster's hypervisors ({})", list(wanted.of_cluster)));
    }
    if !wanted.of_role.is_empty() {
        asked.push(format!("one of the failure domains for its role ({})", list(wanted.of_role)));
    }
    let words = format!("no hypervisor is all that is asked for: {}; known: {}", asked.join(", "), known());
    Err(Error::new(ErrorKind::InvalidInput, words))
}

/// Whether the machine may be on this hypervisor at all.
fn is_asked(host: &HypervisorLoad, wanted: &Wanted<'_>) -> bool {
    let allows = |names: &[String], name: &String| names.is_empty() || names.contains(name);
    match wanted.bound {
        Some(bound) => host.name == bound,
        None => {
            wanted.hypervisor.is_none_or(|name| host.name == name)
                && wanted.failure_domain.is_none_or(|domain| host.failure_domain == domain)
                && allows(wanted.of_cluster, &host.name)
                && allows(wanted.of_role, &host.failure_domain)
        }
    }
}

/// Why a machine is not put on a hypervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// The machine may not be on it.
    NotAsked,
    /// It can take no machine now.
    Unusable(String),
    /// It has too few CPUs left.
    Cpus { free: u64 },
    /// It has too little memory left.
    Memory { free_mib: u64 },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("is not allowed"),
            Self::Unusable(why) => f.write_str(why),
            Self::Cpus { free } => write!(f, "has {free} CPUs left"),
            Self::Memory { free_mib } => write!(f, "has {free_mib} MiB of memory left"),
        }
    }
}

impl Refusal {
    /// The reason for a condition, which neither names the hypervisor nor says how full it is.
    fn kind(&self) -> &'static str {
        match self {
            Self::NotAsked => "a hypervisor is not allowed",
            Self::Unusable(_) => "a hypervisor cannot be used now",
            Self::Cpus { .. } => "a hypervisor has too few CPUs left",
            Self::Memory { .. } => "a hypervisor has too little memory left",
        }
    }
}

/// How full the hypervisor is with the machine, in millionths of what it may take: the fuller of CPUs and
/// memory first.
fn fit(
    host: &HypervisorLoad,
    limits: &MachineLimits,
    wanted: &Wanted<'_>,
) -> std::result::Result<[u64; 2], Refusal> {
    if !is_asked(host, wanted) {
        return Err(Refusal::NotAsked);
    }
    let total = host.total.as_ref().map_err(|why| Refusal::Unusable(why.clone()))?;
    let limit = limits.of(*total);
    let mut taken = Size::default();
    for resident in &host.residents {
        taken += resident.size;
    }
    let free = Size {
        cpus: limit.cpus.saturating_sub(taken.cpus),
        memory_mib: limit.memory_mib.saturating_sub(taken.memory_mib),
    };
    if wanted.size.memory_mib > free.memory_mib {
        return Err(Refusal::Memory { free_mib: free.memory_mib });
    }
    if wanted.size.cpus > free.cpus {
        return Err(Refusal::Cpus { free: free.cpus });
    }
    taken += wanted.size;
    let load = |taken: u64, limit: u64| {
        let millionths = u128::from(taken) * 1_000_000 / u128::from(limit.max(1));
        u64::try_from(millionths).unwrap_or(u64::MAX)
    };
    let (cpus, memory) = (load(taken.cpus, limit.cpus), load(taken.memory_mib, limit.memory_mib));
    Ok([cpus.max(memory), cpus.min(memory)])
}

/// How good a hypervisor is; the least is the best. Machines of the same cluster and role in its failure
/// domain, then on it; all machines of the cluster likewise; its load; its name.
type Rank<'a> = ([u64; 4], [u64; 2], &'a str);

fn rank<'a>(
    host: &'a HypervisorLoad,
    hosts: &[HypervisorLoad],
    load: [u64; 2],
    wanted: &Wanted<'_>,
) -> Rank<'a> {
    let role = if wanted.is_control_plane { Kin::ControlPlane } else { Kin::Worker };
    let count = |host: &HypervisorLoad, counts: fn(Kin, Kin) -> bool| {
        host.residents.iter().filter(|one| counts(one.kin, role)).map(|_| 1u64).sum::<u64>()
    };
    let in_domain = |counts: fn(Kin, Kin) -> bool| {
        let members = hosts.iter().filter(|other| other.failure_domain == host.failure_domain);
        members.map(|other| count(other, counts)).sum()
    };
    let same_role = |kin, role| kin == role;
    let same_cluster = |kin, _| kin != Kin::Stranger;
    let spread =
        [in_domain(same_role), count(host, same_role), in_domain(same_cluster), count(host, same_cluster)];
    (spread, load, &host.name)
}

fn no_room(wanted: &Wanted<'_>, refusals: Vec<(&str, Refusal)>) -> Wait {
    for (hypervisor, refusal) in &refusals {
        tracing::debug!(machine = %wanted.mark, hypervisor, %refusal, "a hypervisor has no room for a machine");
    }
    let place = match (wanted.bound, wanted.failure_domain) {
        (Some(bound), _) => format!(" on hypervisor {bound:?}, which has parts of the machine already,"),
        (None, Some(domain)) => format!(" in failure domain {domain:?}"),
        (None, None) => String::new(),
    };
    // Which hypervisors there are, and how full they are, is not the tenant's business.
    let why: BTreeSet<&str> = refusals.iter().map(|(_, refusal)| refusal.kind()).collect();
    let why = why.into_iter().collect::<Vec<_>>().join("; ");
    let words = format!("no room{place} for {}: {why}", wanted.size);
    Wait::capacity(words).look_again_after(LOOK_AGAIN)
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
