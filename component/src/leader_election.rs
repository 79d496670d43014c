//! Leader election on a Lease, by client-go's rules: candidates of both kinds can share one.
//!
//! ```text
//!   Elector ──acquire──> Leadership ──renew──> Lost (the daemon ends)
//!      │                     └────────release: the Lease has no holder, the next one begins at once
//!      └── step (pure): what was observed, and when on our own clock -> what to do
//! ```
//!
//! What keeps two from leading at the same time:
//! - every write carries the `resourceVersion` that was read, so of two writers one gets a conflict;
//! - another candidate's term ends when its record has not changed for its whole duration *on our own [`Clock`]*, which
//!   goes on while the machine is suspended; the times in the record are for people, and may be wrong by hours;
//! - a leader stops before its own term can end for anybody else: its term counts from before the last renewal that
//!   succeeded was sent;
//! - its controllers' writes pass a [`Fence`], which closes with the term by itself, so that a process that was frozen
//!   writes nothing when it goes on; where the time of day leaps ahead, it stays closed until the next renewal.
//!
//! Where this is stricter than client-go: a leader that sees another holder stops at once instead of at its renew
//! deadline, and the deadline can never lie behind the end of the term, whatever the flags say. Where it is faster: the
//! Lease is given back on a clean stop, and a standby that may watch the Lease sees that at once.

mod clock;
mod elector;
mod fence;
mod lock;
mod metrics;
mod releases;
mod status;
mod step;

use std::time::Duration;

use anyhow::Context as _;

pub use clock::{Clock, TimeSource};
pub use elector::{Elector, Leadership, Lost};
pub use fence::{Fence, NotLeading};
pub use metrics::ElectionMetrics;
pub use status::ElectionStatus;
pub use step::{Candidate, Observation, Op, Record, step};

/// client-go's resolution of renewals.
const SECOND: Duration = Duration::from_secs(1);

/// What the flags say about the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionOptions {
    /// Who we are on the Lease; see [`identity`]. No two candidates may have the same.
    pub identity: String,
    /// `--leader-elect-resource-namespace`: where the Lease is.
    pub namespace: String,
    /// `--leader-elect-resource-name`: how the Lease is called.
    pub name: String,
    /// `--leader-elect-lease-duration`: the record must stay unchanged for this long before others may take over.
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`: how long renewals are tried before leadership is given up. Shorter than
    /// `lease_duration`.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`: pause between two renewals, and the least pause between two tries to acquire.
    pub retry_period: Duration,
}

impl LeaderElectionOptions {
    /// How long after a renewal was sent its sender may still lead. As long as with client-go, which waits a retry
    /// period and then tries for the renew deadline, but always shorter than the lease duration.
    ///
    /// client-go sees a renewal only where its time differs in whole seconds: of several in one second it counts from the
    /// first one, and takes over up to a second earlier than we count. A duration below two seconds cannot make up for
    /// that, and gets what half of it can.
    fn leads_for(&self) -> Duration {
        let rest = self.lease_duration.saturating_sub(self.renew_deadline);
        let leads_for = self.renew_deadline.saturating_add(self.retry_period.min(rest / 2));
        if self.retry_period >= SECOND {
            return leads_for;
        }
        leads_for.min(self.lease_duration.saturating_sub(SECOND.min(self.lease_duration / 2)))
    }

    /// Deadline of one request, as upstream's client for this purpose has it.
    fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }
}

/// A name for this process as upstream makes it: `<hostname>_<uuid>`.
///
/// # Errors
/// A machine that does not say how it is called.
pub fn identity() -> anyhow::Result<String> {
    const FILE: &str = "/proc/sys/kernel/hostname";
    let hostname = std::fs::read_to_string(FILE).with_context(|| format!("no host name: {FILE}"))?;
    Ok(format!("{}_{}", hostname.trim(), uuid::Uuid::new_v4()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_stops_before_its_term_ends() {
        for (lease, renew, retry, expected) in
            [(15.0, 10.0, 2.0, 12.0), (15.0, 14.0, 5.0, 14.5), (60.0, 40.0, 10.0, 50.0), (3.0, 2.0, 1.0, 2.5)]
        {
            let found = leads_for(lease, renew, retry);
            assert!((found - expected).abs() < 1e-9, "{lease} {renew} {retry}: {found}");
            assert!(found < lease);
        }
    }

    fn leads_for(lease: f64, renew: f64, retry: f64) -> f64 {
        let options = LeaderElectionOptions {
            identity: String::new(),
            namespace: String::new(),
            name: String::new(),
            lease_duration: Duration::from_secs_f64(lease),
            renew_deadline: Duration::from_secs_f64(renew),
            retry_period: Duration::from_secs_f64(retry),
        };
        options.leads_for().as_secs_f64()
    }

    #[test]
    fn renewals_within_one_second_count_once_for_client_go() {
        for (lease, renew, retry, expected) in [
            (15.0, 10.0, 0.5, 10.5),
            (15.0, 14.9, 0.5, 14.0),
            (4.0, 3.5, 0.999, 3.0),
            (2.0, 1.5, 0.2, 1.0),
            (1.0, 0.8, 0.1, 0.5),
        ] {
            let found = leads_for(lease, renew, retry);
            assert!((found - expected).abs() < 1e-9, "{lease} {renew} {retry}: {found}");
        }
    }

    #[test]
    fn identities_differ() {
        let (one, other) = (identity().expect("one"), identity().expect("another"));
        assert_ne!(one, other);
        let (hostname, uuid) = one.rsplit_once('_').expect("two parts");
        assert!(!hostname.is_empty() && uuid.len() == 36, "{one}");
    }
}
