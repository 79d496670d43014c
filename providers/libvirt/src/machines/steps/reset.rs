//! The reset of a machine that does not work.

use cloudprovider::{Result, machines::Reset};

use super::{MachineRecord, Request, present::conflict};
use crate::machines::{identity::Identity, libvirt_machines::LibvirtMachines};

impl LibvirtMachines {
    /// Resets the domain of a machine, or starts it if it is off.
    pub(super) async fn reset(
        &self,
        machine: &Identity,
        request: &Request,
        record: &MachineRecord,
    ) -> Result<Reset> {
        let uid = machine.uid;
        let copies = self.copies(machine, request, record);
        let found = self.find(uid, &request.mark)?.filter(|(host, _)| !copies.contains(&host.name()));
        let Some((host, domain)) = found else {
            let others: Vec<_> = self.hosts.iter().filter(|host| !copies.contains(&host.name())).collect();
            self.confirm_absent(&others, uid).await?;
            return match self.left(request, record) {
                Some(name) => Err(Self::elsewhere(&request.mark, "the machine", &name)),
                None => Ok(Reset::Absent),
            };
        };
        host.check_live()?;
        if !request.mark.owns(domain.mark()) {
            return Err(conflict(host, &domain.name, request, domain.mark()));
        }
        // The inventory may be a moment old.
        let now = host.domains.find(uid, None).await?;
        if let Some(now) = now.filter(|now| !request.mark.owns(now.mark.as_ref())) {
            return Err(conflict(host, &now.name, request, now.mark.as_ref()));
        }
        let is_there = host.domains.reset(uid, request.spec.autostart).await?;
        host.hypervisor.reread_soon(uid);
        Ok(if is_there { Reset::Done } else { Reset::Absent })
    }
}
