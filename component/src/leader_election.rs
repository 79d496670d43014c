//! Leader election on a Lease, by client-go's rules. Candidates of client-go and of this program can share a
//! Lease.
//!
//! ```text
//!   Elector ──acquire──> Leadership ──renew──> Lost (the daemon ends)
//!      │                     └────────release: the Lease has no holder, another candidate leads at once
//!      └── step (pure): what was observed, and when on the local clock -> what to do
//! ```
//!
//! Four rules prevent two leaders at the same time:
//! - Every write contains the `resourceVersion` that was read. So if two candidates write, one of them gets a
//!   conflict.
//! - Another candidate's term ends when its record has not changed for the record's whole duration *on the
//!   local [`Clock`]*. This clock continues while the machine is suspended. The times in the record are for
//!   people and may be wrong by hours.
//! - A leader stops before other candidates can consider its term over. It counts its term from before it
//!   sent the last successful renewal.
//! - The writes of its controllers pass a [`Fence`], which closes by itself at the end of the term. So a
//!   process that was frozen writes nothing when it continues. If the time of day leaps ahead, the fence
//!   stays closed until the next renewal.
//!
//! It is stricter than client-go: a leader that sees another holder stops at once instead of at its renew
//! deadline, and this deadline is never later than the end of the term, whatever the flags say. It is also
//! faster: the Lease is released on a clean stop, and a standby that may watch the Lease sees that at once.

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

/// The resolution with which client-go sees renewals.
const SECOND: Duration = Duration::from_secs(1);

/// The election options from the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionOptions {
    /// The name of this process on the Lease; see [`identity`]. It must be unique among the candidates.
    pub identity: String,
    /// `--leader-elect-resource-namespace`: the namespace of the Lease.
    pub namespace: String,
    /// `--leader-elect-resource-name`: the name of the Lease.
    pub name: String,
    /// `--leader-elect-lease-duration`: how long the record must stay unchanged before other candidates may
    /// take over.
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`: how long the leader tries to renew before it gives up leadership.
    /// Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`: the pause between two renewals, and the minimum pause between two tries
    /// to acquire.
    pub retry_period: Duration,
}

impl LeaderElectionOptions {
    /// How long after sending a renewal its sender may still lead. This is as long as with client-go, which
    /// waits a retry period and then tries for the renew deadline. But it is always shorter than the lease
    /// duration.
    fn leads_for(&self) -> Duration {
        let rest = self.lease_duration.saturating_sub(self.renew_deadline);
        self.renew_deadline.saturating_add(self.retry_period.min(rest / 2)).min(self.alone_for())
    }

    /// How long after sending a renewal no other candidate leads.
    ///
    /// client-go sees a renewal only if its time differs in whole seconds. If there are several in one
    /// second, client-go counts from the first one and takes over up to a second earlier than this process
    /// expects. So with a retry period below one second, the result is a second shorter than the lease
    /// duration, or half the lease duration if that is below two seconds.
    fn alone_for(&self) -> Duration {
        if self.retry_period >= SECOND {
            return self.lease_duration;
        }
        self.lease_duration.saturating_sub(SECOND.min(self.lease_duration / 2))
    }

    /// Timeout of one request, the same as in upstream's client for the election.
    fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }
}

/// A name for this process in upstream's form: `<hostname>_<uuid>`.
///
/// # Errors
/// The host name cannot be read.
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
