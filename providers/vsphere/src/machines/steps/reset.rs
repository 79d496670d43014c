//! The reset of a machine that does not work.

use cloudprovider::{Error, ErrorKind, Result, machines::Reset};

use super::{
    login::Login,
    step::{MachineRecord, Pass, Request, Stop},
};
use crate::{
    machines::{vsphere_machines::VSphereMachines, work::Work},
    vim::{
        CallError,
        machines::{PowerOnVm, ResetVm},
    },
    vm::VmPower,
};

impl Pass<'_> {
    /// Resets the machine, or powers it on.
    async fn reset(&mut self) -> Result<Reset> {
        let (machines, mark) = (self.machines, &self.request.mark);
        let vcenter = machines.vcenter_of(&Login::of_machine(self.request), mark, true).await?;
        let mut step = self.on(&vcenter);
        step.follow()?;
        let Some(vm) = step.shown()? else {
            return match step.confirm_lost().await {
                Ok(_) => Ok(Reset::Absent),
                Err(Stop::Error(error)) => Err(error),
                Err(Stop::Answer(_)) => {
                    Err(vcenter.error(ErrorKind::Unavailable, "it is not known where it is"))
                }
            };
        };
        if vcenter.tombstones.has(&vm.moref) {
            let words = format!("virtual machine {:?} is removed", vm.name);
            return Err(vcenter.error(ErrorKind::Unavailable, &words));
        }
        let found = vcenter.mark_of(&vm).await?;
        if !mark.owns(found.as_ref()) {
            return Err(vcenter.conflict(&vm, mark, found.as_ref()));
        }
        // Another reset need not be waited for: vCenter refuses a second one while it lasts.
        let is_reset = step.state.running().is_some_and(|running| running.work == Work::Reset);
        if !is_reset && let Some(wait) = step.outstanding().await? {
            return Err(Error::new(ErrorKind::Unavailable, wait.message));
        }
        let (work, call) = match vm.power {
            VmPower::On => (Work::Reset, ResetVm {}.of(&vm.moref)),
            _ => (Work::PowerOn, PowerOnVm { host: None }.of(&vm.moref)),
        };
        match step.begin(work, call).await {
            Ok(task) => {
                vcenter.wait_for_task(&task, &mark.uid);
                Ok(Reset::Done)
            }
            // vCenter, or its login, has said no.
            Err(error) if matches!(error, CallError::Fault { .. }) || error.is_refused() => {
                Err(vcenter.error_of(&error))
            }
            // The request may have arrived.
            Err(error) => Err(vcenter.error(ErrorKind::Timeout, &error.to_string())),
        }
    }
}

impl VSphereMachines {
    pub(super) async fn reset(&self, request: &Request, record: &MachineRecord) -> Result<Reset> {
        let request = &*self.placed(request, record).await?;
        let mut record = record.clone();
        let of_step = &mut record;
        let step = move |uid, state| async move {
            Pass { machines: self, uid, state, request, record: of_step }.reset().await
        };
        self.with_state(&request.mark, request.is_provisioned, step).await.0
    }
}
