//! What every step of a machine works with, and how it begins work in vCenter.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result, Term,
    machines::{MachineDeletionRequest, MachineRequest, Mark, ObjectLock, Record, Wait},
    ties::{Contender, Evidence, Meant, the_meant_one},
};
use uuid::Uuid;

use crate::{
    machines::{
        allowed::Allowed,
        spec::{VSphereClusterSpec, VSphereMachineSpec},
        state::{MachineState, Owner},
        status::VSphereMachineStatus,
        vcenter_handle::VCenterHandle,
        vsphere_machines::VSphereMachines,
        work::Work,
    },
    moref::MoRef,
    vim::{Call, CallError},
    vm::VirtualMachine,
};

/// When a step looks again at a task that was begun just now. The watch reports its end, unless vCenter has lost it.
pub(super) const UNSEEN_TASK_RETRY: Duration = Duration::from_secs(6);

pub(crate) type Request = MachineRequest<VSphereMachineSpec, VSphereClusterSpec>;
pub(crate) type DeletionRequest = MachineDeletionRequest<VSphereMachineSpec, VSphereClusterSpec>;
pub(crate) type MachineRecord = Record<VSphereMachineStatus>;

/// How a list of steps ends before its end.
#[derive(Debug)]
pub(super) enum Stop<A> {
    /// Something is to be waited for, or nothing is left to do.
    Answer(A),
    Error(Error),
}

impl<A> From<Error> for Stop<A> {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// What a step returns: `Ok` if the next one is to follow.
pub(super) type Flow<A, T = ()> = Result<T, Stop<A>>;

/// The answer of a list of steps.
pub(super) fn answer_of<A>(flow: Flow<A, A>) -> Result<A> {
    match flow {
        Ok(answer) | Err(Stop::Answer(answer)) => Ok(answer),
        Err(Stop::Error(error)) => Err(error),
    }
}

/// A machine in work, before it is known on which vCenter it is. `C` is the spec of its cluster, which may be missing at a deletion.
pub(super) struct Pass<'a, C = VSphereClusterSpec> {
    pub(super) machines: &'a VSphereMachines,
    /// The UID of its object, which is the instance UUID.
    pub(super) uid: Uuid,
    pub(super) state: Arc<MachineState>,
    pub(super) request: &'a MachineRequest<VSphereMachineSpec, C>,
    pub(super) record: &'a mut MachineRecord,
}

impl<C> Pass<'_, C> {
    /// Whether the machine was made, or may have been, as far as is known.
    pub(super) fn has_begun(&self) -> bool {
        self.state.has_begun() || self.request.provider_id.is_some() || self.record.status.task_ref.is_some()
    }

    /// The machine on one vCenter.
    pub(super) fn on(&mut self, vcenter: &Arc<VCenterHandle>) -> Step<'_, C> {
        Step {
            machines: self.machines,
            vcenter: Arc::clone(vcenter),
            uid: self.uid,
            state: Arc::clone(&self.state),
            request: self.request,
            record: self.record,
        }
    }
}

/// A step of a machine on a vCenter. See [`Pass`].
pub(super) struct Step<'a, C = VSphereClusterSpec> {
    pub(super) machines: &'a VSphereMachines,
    pub(super) vcenter: Arc<VCenterHandle>,
    pub(super) uid: Uuid,
    pub(super) state: Arc<MachineState>,
    pub(super) request: &'a MachineRequest<VSphereMachineSpec, C>,
    pub(super) record: &'a mut MachineRecord,
}

impl<C> Step<'_, C> {
    /// Follows the vCenter and its tasks.
    ///
    /// # Errors
    /// Its inventory is not complete, or not live.
    pub(super) fn follow(&self) -> Result<()> {
        self.vcenter.follow_tasks();
        self.state.note_followed(self.vcenter.check_live())
    }

    /// Whether a machine carries the mark of the object.
    pub(super) async fn is_own(&self, vm: &VirtualMachine) -> Result<bool> {
        Ok(self.request.mark.owns(self.vcenter.mark_of(vm).await?.as_ref()))
    }

    /// The machine with this instance UUID, as far as it is known. Of several, the one that carries the mark is meant, and of these the
    /// one that vCenter can reach.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] if that leaves two.
    pub(super) fn shown(&self) -> Result<Option<VirtualMachine>> {
        let state = self.vcenter.state();
        let found: Vec<_> = state.inventory.with_instance_uuid(self.uid).collect();
        let contender = |vm: &&VirtualMachine| {
            let evidence = Evidence {
                is_marked: self.request.mark.owns(vm.mark.as_deref()),
                is_connected: vm.is_connected(),
                ..Evidence::default()
            };
            Contender { instance: vm.moref.clone(), evidence, is_read: true }
        };
        let contenders: Vec<_> = found.iter().map(contender).collect();
        match the_meant_one(&contenders) {
            Meant::None => Ok(None),
            Meant::One(meant) | Meant::Unread(meant) => Ok(state.inventory.machine(&meant).cloned()),
            Meant::Tie => {
                let ids: Vec<_> = found.iter().map(|vm| vm.moref.id()).collect();
                let words =
                    format!("the virtual machines {} have the instance UUID {}", ids.join(" and "), self.uid);
                Err(self.vcenter.error(ErrorKind::Ambiguous, &words))
            }
        }
    }

    /// Whether the machine is only an entry that vCenter has kept of one that it has destroyed.
    pub(super) fn is_left_over(&self, vm: &VirtualMachine) -> bool {
        !vm.is_connected() && self.state.is_destroyed_on(self.vcenter.name())
    }

    /// Begins work on a machine. The call is made to its end, also if the step is given up, so that its task is known to the next
    /// step. It is not sent after the term of the step.
    ///
    /// # Errors
    /// The error of the call, and an internal one if the answer names no task.
    pub(super) async fn begin(&self, work: Work, call: Call) -> Result<MoRef, CallError> {
        let (vcenter, state) = (Arc::clone(&self.vcenter), Arc::clone(&self.state));
        let (method, term, lock) = (call.method, Term::current(), ObjectLock::current());
        let made = self.machines.tasks.spawn(async move {
            // Without it, the next step would not wait for this call.
            let _lock = lock;
            let sent = term.pass(vcenter.call(&call)).await;
            let sent = sent.unwrap_or_else(|error| {
                Err(CallError::Unreachable { method, reason: error.report().into() })
            });
            let answer = sent.and_then(|answer| {
                let reason = "the answer has no task".into();
                answer.moref().ok_or(CallError::Malformed { method, reason })
            });
            state.note_begun(vcenter.name(), (work, call.this), &answer);
            answer
        });
        made.await.unwrap_or_else(|error| {
            Err(CallError::Malformed { method, reason: format!("the call did not end: {error}").into() })
        })
    }

    /// Begins work on a machine and says what to wait for. `None` if vCenter says that it is done already.
    pub(super) async fn work(&mut self, work: Work, call: Call) -> Result<Option<Wait>> {
        self.try_work(work, call).await.map_err(|error| self.vcenter.error_of(&error))
    }

    /// The same, with the error of the call.
    pub(super) async fn try_work(&mut self, work: Work, call: Call) -> Result<Option<Wait>, CallError> {
        let task = match self.begin(work, call).await {
            Ok(task) => task,
            Err(CallError::Fault { kind, .. }) if work.is_done_by(&kind) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.record.status.task_ref = Some(task.id().to_owned());
        self.vcenter.wait_for_task(&task, &self.request.mark.uid);
        Ok(Some(waiting(&self.vcenter, Some(work), &task).look_again_after(UNSEEN_TASK_RETRY)))
    }
}

/// A step of a machine that is being deleted.
pub(super) type DeletionStep<'a> = Step<'a, Option<VSphereClusterSpec>>;

impl<'a> Step<'a> {
    /// Whether the cluster names credentials of its own.
    pub(super) fn has_identity(&self) -> bool {
        self.request.cluster.spec.identity_ref.is_some()
    }

    /// What the machine may name on its vCenter.
    pub(super) fn allowed(&self) -> Allowed<'a> {
        self.machines.allowed(&self.vcenter, &self.request.mark.namespace, self.has_identity())
    }
}

/// Whose machine it is.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if the UID is not a UUID.
pub(super) fn owner_of(mark: &Mark) -> Result<Owner> {
    let uid = Uuid::parse_str(&mark.uid).map_err(|_| {
        let words = format!("the UID of the object, {:?}, is not a UUID", mark.uid);
        Error::new(ErrorKind::InvalidInput, words)
    })?;
    Ok((mark.namespace.clone(), uid))
}

/// The wait for a task.
pub(super) fn waiting(vcenter: &VCenterHandle, work: Option<Work>, task: &MoRef) -> Wait {
    let what = work.map_or("work", Work::words);
    let reason = match work {
        Some(Work::Clone) => "WaitingForClone",
        Some(Work::PowerOn) => "PoweringOn",
        Some(Work::PowerOff) => "PoweringOff",
        _ => "WaitingForTask",
    };
    let words = format!("{what} by {} of vCenter {:?}", task.id(), vcenter.name());
    // A power-on need not hold a move: whether a machine runs is seen in the inventory.
    let wait = if work == Some(Work::PowerOn) { Wait::address(words) } else { Wait::task(words) };
    // No task need be known after a crash: a second clone is refused, since the name is taken, and whatever else is done twice does no harm.
    // The clone has the bootstrap data, and what comes after it needs none.
    wait.with_reason(reason).without_bootstrap_data()
}
