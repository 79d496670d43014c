//! The step of a machine whose domain is there.

use std::time::Duration;

use cloudprovider::{
    Error, ErrorKind, InstanceLookup, PowerState, Result,
    machines::{MachineReport, PresentMachine, Wait},
};

use tokio::time::Instant;

use super::{MachineRecord, Request, reservations};
use crate::{
    domain::Domain,
    machines::{
        console,
        identity::Identity,
        libvirt_machines::{Host, LibvirtMachines},
        names::VolumeNames,
    },
};

/// How soon a step checks again a domain that was started. An event comes earlier.
const STARTED_RETRY: Duration = Duration::from_secs(5);

/// How soon a wipe of bootstrap data that failed is tried again.
const WIPE_RETRY: Duration = Duration::from_secs(60);

/// What a domain needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It was defined and never started.
    Start,
    /// Nothing, but for an address.
    Address,
}

/// A machine that was complete once is not started again: a person switched it off, for a reason.
fn next(power: PowerState, is_provisioned: bool) -> Next {
    if power.is_shutdown() && !is_provisioned { Next::Start } else { Next::Address }
}

impl LibvirtMachines {
    /// A step of a machine whose domain `domain` is on `host`.
    pub(super) async fn present(
        &self,
        host: &Host,
        domain: &Domain,
        machine: &Identity,
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
        self.forget(machine);
        record.status.hypervisor = Some(host.name().to_owned());
        let mut instance = match self.look_up(host, domain.uuid, mark) {
            InstanceLookup::Present(instance) => *instance,
            InstanceLookup::Unknown(error) => return Err(error),
            InstanceLookup::Absent => {
                let words = format!("domain {:?} has just left hypervisor {:?}", domain.name, host.name());
                return Err(Error::new(ErrorKind::Unavailable, words));
            }
        };
        let incomplete = instance.incomplete.take();
        let mut wait = match next(instance.power_state, request.is_provisioned) {
            Next::Start => {
                host.domains.start(domain.uuid, request.spec.autostart).await?;
                host.hypervisor.reread_soon(domain.uuid);
                Some(starting(&domain.name, host))
            }
            Next::Address => match incomplete {
                Some(why) => {
                    let log = VolumeNames::of_domain(mark, domain.volume()).console();
                    Some(self.wait_for_address(host, machine, request, &log, why.to_string()).await)
                }
                None => None,
            },
        };
        if wait.is_none() {
            self.console_reads.forget(machine);
        }
        if wait.is_none() && !request.is_provisioned {
            wait = reservations::reserve_leased(host, domain, request).await?;
        }
        let wiped = self.wipe_bootstrap_data(host, domain.uuid, request, record).await;
        if let Err(error) = &wiped {
            // The machine works all the same.
            let reason = error.report();
            tracing::warn!(
                domain = domain.name,
                hypervisor = host.name(),
                reason,
                retry = ?WIPE_RETRY,
                "cannot remove the bootstrap data"
            );
        }
        let machine = PresentMachine::new(instance)
            .with_failure_domain(host.failure_domain().to_owned())
            .with_wait(wait)
            .look_again_after(wiped.is_err().then_some(WIPE_RETRY));
        Ok(machine.into())
    }
}

impl LibvirtMachines {
    /// The wait for an address, with the end of the serial log where the spec asks for it.
    async fn wait_for_address(
        &self,
        host: &Host,
        machine: &Identity,
        request: &Request,
        log: &str,
        why: String,
    ) -> Wait {
        let (spec, Some(data)) = (&request.spec, &request.bootstrap) else { return Wait::address(why) };
        if !spec.quote_serial_log || !spec.serial_log {
            return Wait::address(why);
        }
        if self.console_reads.is_due(machine, Instant::now()) {
            let end = console::read_end(&*host.storage, spec.pool(), log).await;
            let data = data.clone();
            // Large data take long to compare with.
            let quote = move || end.ok().and_then(|end| console::excerpt(&end, &data));
            // Without the log the condition says that it waits all the same.
            let words = tokio::task::spawn_blocking(quote).await.ok().flatten();
            self.console_reads.set(machine, words, Instant::now());
        }
        let (words, next) = self.console_reads.last(machine, Instant::now());
        let message = match words {
            Some(words) => format!("{why}; its serial log ends with: {words}"),
            None => why,
        };
        Wait::address(message).look_again_after(next)
    }
}

/// The wait for a domain that was started.
pub(super) fn starting(name: &str, host: &Host) -> Wait {
    Wait::task(format!("domain {name:?} on hypervisor {:?} starts", host.name()))
        .with_reason("StartingDomain")
        .look_again_after(STARTED_RETRY)
}

/// The error about a domain that belongs to another object.
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
