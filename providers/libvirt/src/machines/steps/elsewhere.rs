//! Machines that were made on a hypervisor that the configuration does not have any more, under the name that is known.

use cloudprovider::{
    Error, Result,
    machines::{MachineRequest, Mark, Wait},
};
use std::time::Duration;

use super::{MachineRecord, volumes};
use crate::machines::{
    fleet::{Fleet, Host, not_known},
    identity::Identity,
    spec::LibvirtMachineSpec,
    storage::has_any_volume,
};

/// How soon the next step comes that uses a choice: at once, when the choice is written.
const CHOSEN_RETRY: Duration = Duration::from_millis(1);

impl Fleet {
    /// The error about something on a hypervisor that the configuration does not have.
    pub(super) fn elsewhere(mark: &Mark, what: &str, name: &str) -> Error {
        mark.out_of_reach(what, format_args!("hypervisor {name:?}"))
    }

    /// The hypervisor that the machine was made on, or is said to have been, if the configuration does not have it.
    pub(super) fn left<C>(
        &self,
        request: &MachineRequest<LibvirtMachineSpec, C>,
        record: &MachineRecord,
    ) -> Option<String> {
        // A status can be lost. A machine that existed was where its spec says.
        let pinned = request.spec.hypervisor.as_ref().filter(|_| request.provider_id.is_some());
        let name = record.status.hypervisor.as_ref().or(pinned)?;
        self.host(name).is_none().then(|| name.clone())
    }

    /// The hypervisor that has the machine under another name than is known.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfiguration`] if none has: the machine can be on the one that is missing. Also if one cannot be asked.
    pub(super) async fn renamed<C>(
        &self,
        name: &str,
        machine: &Identity,
        request: &MachineRequest<LibvirtMachineSpec, C>,
    ) -> Result<&Host> {
        for host in &self.hosts {
            let has_parts = host.has_parts(machine, request).await;
            if has_parts.map_err(|doubt| not_known(machine.uid, &doubt))? {
                return Ok(host);
            }
        }
        Err(Self::elsewhere(&request.mark, "the machine", name))
    }
}

impl Host {
    /// Whether it has the domain or a volume of the machine.
    async fn has_parts<C>(
        &self,
        machine: &Identity,
        request: &MachineRequest<LibvirtMachineSpec, C>,
    ) -> Result<bool> {
        self.check_live()?;
        let domain = self.domains.find(machine.uid, None).await?;
        if domain.is_some_and(|found| request.mark.owns(found.mark.as_ref())) {
            return Ok(true);
        }
        let possible = volumes::possible(request);
        let is_ours = |volume: &str| possible.iter().any(|names| names.has(volume));
        for pool in request.spec.pools() {
            if has_any_volume(&self.storage, pool, &is_ours).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The wait for a hypervisor's name to be written before anything is changed there.
pub(super) fn chosen(host: &Host) -> Wait {
    let words = format!("hypervisor {:?} is chosen", host.name());
    Wait::time(CHOSEN_RETRY, words).with_reason("HypervisorChosen")
}
