//! What is asked of the fake cloud, and what goes wrong with it.

use crate::Error;

/// A method of a provider, as the fake cloud counts and breaks it.
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
}

/// What goes wrong with a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It fails. A batch has this error for each node.
    Error(Error),
    /// The cloud seems to have nothing: each instance is [`Absent`](crate::InstanceLookup::Absent). What is no look-up
    /// fails with [`ErrorKind::NotFound`](crate::ErrorKind::NotFound).
    Absent,
    /// It panics, without a word on the terminal.
    Panic,
    /// It never answers.
    Hang,
    /// It never answers, and panics when the caller gives up.
    HangThenPanic,
    /// A batch has no answer at all, however many nodes it has. Other calls as with [`Absent`](Self::Absent).
    NoAnswers,
}

impl Fault {
    /// Whether it is a fault of the whole call, and not of single nodes.
    pub(super) fn is_of_the_call(&self) -> bool {
        !matches!(self, Self::Error(_) | Self::Absent)
    }

    /// Does to a call what the fault does whoever is asked about.
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

/// A call that came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// What was called.
    pub operation: Operation,
    /// The names of the nodes that it was about, in their order.
    pub nodes: Vec<String>,
    /// What else it was about: the name of a load balancer or of a cluster, the CIDR of a route. Else empty.
    pub subject: String,
}

/// As a panic, but without a word on the terminal.
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
