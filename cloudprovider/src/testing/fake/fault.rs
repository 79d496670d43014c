//! Calls to the fake cloud, and their faults.

use crate::Error;

/// A method of a provider whose calls can be counted and made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`CloudProvider::start`](crate::CloudProvider::start)
    Start,
    /// [`CloudProvider::ended`](crate::CloudProvider::ended)
    Ended,
    /// [`Instances::lookup`](crate::Instances::lookup)
    Lookup,
    /// [`Instances::changes`](crate::Instances::changes): only counted.
    Changes,
    /// [`Zones::zones`](crate::Zones::zones)
    Zones,
    /// [`LoadBalancer::get`](crate::LoadBalancer::get)
    GetLoadBalancer,
    /// [`LoadBalancer::ensure`](crate::LoadBalancer::ensure)
    EnsureLoadBalancer,
    /// [`LoadBalancer::update`](crate::LoadBalancer::update)
    UpdateLoadBalancer,
    /// [`LoadBalancer::delete`](crate::LoadBalancer::delete)
    DeleteLoadBalancer,
    /// [`Routes::list`](crate::Routes::list)
    ListRoutes,
    /// [`Routes::create`](crate::Routes::create)
    CreateRoute,
    /// [`Routes::delete`](crate::Routes::delete)
    DeleteRoute,
    /// [`Clusters::list`](crate::Clusters::list)
    ListClusters,
    /// [`Clusters::control_plane_endpoint`](crate::Clusters::control_plane_endpoint)
    ControlPlaneEndpoint,
    /// [`Machines::ensure_machine`](crate::Machines::ensure_machine)
    EnsureMachine,
    /// [`Machines::delete_machine`](crate::Machines::delete_machine)
    DeleteMachine,
    /// [`Machines::ensure_cluster`](crate::Machines::ensure_cluster)
    EnsureCluster,
    /// [`Machines::delete_cluster`](crate::Machines::delete_cluster)
    DeleteCluster,
    /// [`Machines::observe`](crate::Machines::observe)
    Observe,
    /// In a step of a machine: its disk is created.
    CreateDisk,
    /// In a step of a machine: the task that creates its instance begins.
    CreateMachine,
    /// In a step of a machine: its instance is powered on.
    PowerOn,
    /// [`Machines::reset_machine`](crate::machines::Machines::reset_machine): its instance is reset, and powered on if it is off.
    ResetMachine,
    /// In a step of a machine: its instance is powered off.
    PowerOff,
    /// In a step of a machine: the task that destroys its instance begins.
    DestroyMachine,
    /// In a step of a machine: its disk is deleted.
    DeleteDisk,
    /// In a step of a cluster: its endpoint is created.
    CreateEndpoint,
    /// In a step of a cluster: its endpoint is deleted.
    DeleteEndpoint,
}

/// A fault of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The call fails with this error. In a batch, each node gets the error.
    Error(Error),
    /// The cloud seems to be empty: each instance is [`Absent`](crate::InstanceLookup::Absent). Calls other
    /// than look-ups fail with [`ErrorKind::NotFound`](crate::ErrorKind::NotFound).
    Absent,
    /// The call panics, without a message on the terminal.
    Panic,
    /// The call never answers.
    Hang,
    /// The call never answers, and panics when the caller drops it.
    HangThenPanic,
    /// A batch gets no answers at all, whatever its size. Other calls fail as with [`Absent`](Self::Absent).
    NoAnswers,
}

impl Fault {
    /// Whether the fault concerns the whole call, not single nodes.
    pub(super) fn is_of_the_call(&self) -> bool {
        !matches!(self, Self::Error(_) | Self::Absent)
    }

    /// The part of the fault that does not depend on the nodes: panics or hangs.
    pub(super) async fn strike(&self) {
        match self {
            Self::Error(_) | Self::Absent | Self::NoAnswers => {}
            Self::Panic => fall(),
            Self::Hang => std::future::pending().await,
            Self::HangThenPanic => {
                let _held = FallsWhenGivenUp;
                std::future::pending::<()>().await;
            }
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// A recorded call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// What was called.
    pub operation: Operation,
    /// The names of the nodes in the call, in their order.
    pub nodes: Vec<String>,
    /// What else the call was about: the name of a load balancer or of a cluster, or the CIDR of a route.
    /// Otherwise empty.
    pub subject: String,
}

/// Unwinds like a panic, but without a message on the terminal.
fn fall() -> ! {
    std::panic::resume_unwind(Box::new("the fake cloud panics on purpose"))
}

struct FallsWhenGivenUp;

impl Drop for FallsWhenGivenUp {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            fall();
        }
    }
}
