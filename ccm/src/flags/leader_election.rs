//! The flags of the leader election.

use std::time::Duration;

use clap::{ArgAction, Args};
use cloudprovider::dns;
use component::{
    command_line::values::{boolean, duration},
    leader_election::LeaderElectionOptions,
};

/// client-go's: a standby may wait for up to this many retry periods more.
const JITTER: f64 = 1.2;

/// `--leader-elect` and what belongs to it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Generic flags")]
pub struct LeaderElectionFlags {
    /// Of several replicas only the one that holds the lease works, the others stand by. 'false' is for one replica
    /// that nothing else runs beside.
    #[arg(long = "leader-elect", default_value = "true", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub enabled: bool,

    /// How long a standby waits after the last renewal that it saw before it takes over.
    #[arg(long = "leader-elect-lease-duration", default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub lease_duration: Duration,

    /// How long the leader tries to renew before it gives up and ends. Must be less than the lease duration.
    #[arg(long = "leader-elect-renew-deadline", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub renew_deadline: Duration,

    /// Pause between tries to acquire or renew.
    #[arg(long = "leader-elect-retry-period", default_value = "2s", value_parser = duration, value_name = "DURATION")]
    pub retry_period: Duration,

    /// The kind of object that the election is held on. 'leases' is the only one.
    #[arg(long = "leader-elect-resource-lock", default_value = "leases", value_name = "TYPE")]
    pub resource_lock: String,

    /// Name of the lease.
    #[arg(
        long = "leader-elect-resource-name",
        default_value = "cloud-controller-manager",
        value_name = "NAME"
    )]
    pub resource_name: String,

    /// Namespace of the lease.
    #[arg(long = "leader-elect-resource-namespace", default_value = "kube-system", value_name = "NAMESPACE")]
    pub resource_namespace: String,
}

impl LeaderElectionFlags {
    /// Everything that is wrong, as upstream: nothing is where no election is wanted.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.enabled {
            return faults;
        }
        for (flag, duration) in [
            ("--leader-elect-lease-duration", self.lease_duration),
            ("--leader-elect-renew-deadline", self.renew_deadline),
            ("--leader-elect-retry-period", self.retry_period),
        ] {
            if duration.is_zero() {
                faults.push(format!("{flag} must be greater than 0"));
            }
        }
        if self.lease_duration <= self.renew_deadline {
            faults.push(
                "--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline".to_owned(),
            );
        }
        if self.renew_deadline.as_secs_f64() <= self.retry_period.as_secs_f64() * JITTER {
            faults.push(format!(
                "--leader-elect-renew-deadline must be greater than {JITTER} times --leader-elect-retry-period"
            ));
        }
        if self.resource_lock != "leases" {
            faults.push(format!(
                "resourceLock value must be \"leases\" (--leader-elect-resource-lock), but is {:?}",
                self.resource_lock
            ));
        }
        let is_name: (fn(&str) -> bool, _) =
            (dns::is_subdomain, "lower-case letters, digits, hyphens and dots, 253 at most");
        let is_namespace: (fn(&str) -> bool, _) =
            (dns::is_label, "lower-case letters, digits and hyphens, 63 at most");
        for (flag, value, (is_good, expected)) in [
            ("--leader-elect-resource-name", &self.resource_name, is_name),
            ("--leader-elect-resource-namespace", &self.resource_namespace, is_namespace),
        ] {
            if value.is_empty() {
                faults.push(format!("{flag} cannot be empty"));
            } else if !is_good(value) {
                faults.push(format!("{flag}: {value:?} is not a name; expected {expected}"));
            }
        }
        faults
    }

    /// How long after the death of a leader whose renewals work another one leads at the earliest. The dead one may have renewed
    /// its Lease a retry period ago. `None` without an election.
    ///
    /// A leader whose renewals fail leads on for the renew deadline and a retry period. If it dies at the end of that, another
    /// one leads sooner: 3 s later with the defaults. [`Fence::alone_for`](component::leader_election::Fence::alone_for) returns
    /// the time that is left at each moment, also while renewals fail.
    pub fn takeover_after(&self) -> Option<Duration> {
        self.enabled.then(|| self.lease_duration.saturating_sub(self.retry_period))
    }

    /// Name of the lease that the election is held on, if there is one.
    pub(super) fn lease(&self) -> Option<&str> {
        self.enabled.then_some(self.resource_name.as_str())
    }

    /// What whoever set them should know. In a dry run nobody works.
    pub(super) fn warnings(&self, is_dry_run: bool) -> Vec<String> {
        let warning = "--leader-elect=false: nothing keeps a second replica, or another cloud-controller-manager, from \
                       working at the same time";
        if self.enabled || is_dry_run { Vec::new() } else { vec![warning.to_owned()] }
    }

    /// What a candidate with this identity needs to know.
    pub fn options(&self, identity: String) -> LeaderElectionOptions {
        LeaderElectionOptions {
            identity,
            namespace: self.resource_namespace.clone(),
            name: self.resource_name.clone(),
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
        }
    }
}
