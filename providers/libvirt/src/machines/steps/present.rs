//! The step of a machine whose domain is there.

use std::time::Duration;

use cloudprovider::{
    Error, ErrorKind, InstanceLookup, PowerState, Result,
    machines::{MachineReport, PresentMachine, Wait},
};

use super::{MachineRecord, Request};
use crate::{
    domain::Domain,
    machines::fleet::{Fleet, Host},
};

/// How soon a step looks again at a domain that was started. An event comes earlier.
const STARTED_RETRY: Duration = Duration::from_secs(5);

/// What a domain needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It was defined and never started.
    Start,
    /// Nothing, but for an address.
    Address,
}

/// A machine that was complete once is not started again: whoever switched it off had a reason.
fn next(power: PowerState, is_provisioned: bool) -> Next {
    if power.is_shutdown() && !is_provisioned { Next::Start } else { Next::Address }
}

impl Fleet {
    /// A step of a machine whose domain `domain` is on `host`.
    pub(super) async fn present(
        &self,
        host: &Host,
        domain: &Domain,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<MachineReport> {
        let mark = &request.mark;
        host.check_live()?;
        if let Err(why) = &domain.state {
            let words = format!("domain {:?} on hypervisor {:?}: {why}", domain.name, host.name());
            return Err(Error::new(ErrorKind::Unavailable, words));
        }
        if !mark.owns(domain.mark()) {
            return Err(conflict(host, &domain.name, request, domain.mark()));
        }
        self.forget(domain.uuid);
        record.status.hypervisor = Some(host.name().to_owned());
        let mut instance = match self.look_up(domain.uuid, mark)? {
            InstanceLookup::Present(instance) => *instance,
            InstanceLookup::Unknown(error) => return Err(error),
            InstanceLookup::Absent => {
                let words = format!("domain {:?} has just left hypervisor {:?}", domain.name, host.name());
                return Err(Error::new(ErrorKind::Unavailable, words));
            }
        };
        let incomplete = instance.incomplete.take();
        let wait = match next(instance.power_state, request.is_provisioned) {
            Next::Start => {
                host.domains.start(domain.uuid, request.spec.autostart).await?;
                Some(starting(&domain.name, host))
            }
            Next::Address => incomplete.map(|why| Wait::address(why.to_string())),
        };
        self.wipe_bootstrap_data(host, request, record).await?;
        let machine = PresentMachine::new(instance)
            .with_failure_domain(host.failure_domain().to_owned())
            .with_wait(wait);
        Ok(machine.into())
    }
}

/// The wait for a domain that was started.
pub(super) fn starting(name: &str, host: &Host) -> Wait {
    Wait::task(format!("domain {name:?} on hypervisor {:?} starts", host.name()))
        .with_reason("StartingDomain")
        .look_again_after(STARTED_RETRY)
}

/// The error about a domain that is somebody else's.
pub(super) fn conflict(
    host: &Host,
    name: &str,
    request: &Request,
    found: Option<&cloudprovider::machines::Mark>,
) -> Error {
    request.mark.conflict(format!("domain {name:?} on hypervisor {:?}", host.name()), found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_started_until_it_was_complete_once() {
        for (power, is_provisioned, expected) in [
            (PowerState::Off, false, Next::Start),
            (PowerState::Crashed, false, Next::Start),
            (PowerState::Off, true, Next::Address),
            (PowerState::Running, false, Next::Address),
            (PowerState::Paused, false, Next::Address),
        ] {
            assert_eq!(next(power, is_provisioned), expected, "{power}");
        }
    }
}
