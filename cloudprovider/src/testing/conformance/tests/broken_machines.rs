//! For each rule about machines, a provider that breaks it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::subject::Subject;
use crate::{
    CloudProvider, ControlPlaneEndpoint, DynMachines, Error, ErrorKind, InstanceChange, InstanceLookup,
    InstanceStream, Instances, NodeAddress, NodeIdentity, PowerState, Result, StartContext, async_trait,
    machines::{
        BootstrapData, BootstrapFormat, Capacity, ClusterReport, ClusterRequest, Deletion, Kinds,
        MachineReport, MachineRequest, Mark, ObserveRequest, PresentMachine, Record, Reset, Schemas,
        StatusReport, Wait,
    },
    testing::FakeCloud,
};

type Request = MachineRequest<Value, Value>;

/// A fault of a provider's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// A machine is done before it runs.
    IsDoneTooEarly,
    /// A machine that exists has no provider ID.
    HasNoId,
    /// Each step of a machine that exists makes one more disk.
    MakesMore,
    /// The status changes with each step.
    CountsSteps,
    /// A machine is made without bootstrap data.
    NeedsNoBootstrap,
    /// The bootstrap data are in the status.
    ShowsBootstrap,
    /// All machines have the ID of the one that was seen first.
    SharesIds,
    /// Identities belong to the process.
    IdentityInMemory,
    /// Identities are in the status.
    IdentityInTheStatus,
    /// A wait for the end of a deletion counts as its end.
    GoneTooEarly,
    /// What is not there cannot be deleted.
    DeletesOnce,
    /// Without its cluster's object no machine is deleted.
    NeedsTheCluster,
    /// The machine goes with its object, whoever removed that.
    DeletesWhatIsForgotten,
    /// Without a machine there is nothing to delete, whatever task is running.
    IgnoresTasks,
    /// Only a process that saw the machine deletes its disk.
    ForgetsParts,
    /// A machine of this name is taken over.
    AdoptsByName,
    /// A machine of this name is deleted.
    DeletesByName,
    /// The error does not say what is in the way.
    HidesWhatIsForeign,
    /// Only the UID of a mark counts.
    TrustsUids,
    /// A lost machine is made again.
    MakesAgain,
    /// A machine that is off counts as lost.
    OffIsLost,
    /// A reset is not asked of the cloud.
    ResetsNothing,
    /// A machine that never was is reset.
    ResetsWhatIsNotThere,
    /// A machine that is reset is another one afterwards.
    ResetsByReplacing,
    /// Errors of tasks are not told.
    HidesFailures,
    /// A cloud that is away has nothing.
    ErrorsAreGone,
    /// A cloud that is away has lost everything.
    ErrorsAreLost,
    /// The Node's provider ID is in other letters.
    WritesIdsApart,
    /// Every machine has the gateway's address too.
    SharesAddresses,
    /// The failure domain that was asked for is ignored.
    IgnoresFailureDomains,
    /// Changes do not say whose they are.
    TellsNoMachine,
    /// Only what the same process began is told.
    TellsItsOwnOnly,
    /// The capacity grows.
    GuessesCapacity,
    /// The endpoint moves.
    MovesEndpoints,
    /// The endpoint stays when the cluster is gone.
    LeavesEndpoints,
}

/// What the providers of one cloud share.
#[derive(Default)]
struct Common {
    first_id: Mutex<Option<crate::ProviderId>>,
    count: AtomicUsize,
    providers: AtomicUsize,
}

struct Broken {
    inner: Arc<dyn CloudProvider>,
    cloud: FakeCloud,
    wrong: Wrong,
    common: Arc<Common>,
    /// Which of the providers it is.
    number: usize,
    /// The machines that it saw.
    seen: Mutex<BTreeSet<String>>,
    /// The machines that it began.
    began: Arc<Mutex<BTreeSet<String>>>,
}

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.wrong.fmt(f)
    }
}

impl Broken {
    fn part(&self) -> &dyn DynMachines {
        self.inner.machines().expect("the fake has machines")
    }

    fn next(&self) -> usize {
        self.common.count.fetch_add(1, Ordering::Relaxed)
    }

    /// The ID of the instance of this name.
    fn by_name(&self, mark: &Mark) -> Option<String> {
        // What the hook `foreign_machine` makes.
        let is_there = self.cloud.objects().contains(&format!("instance/{}", mark.name()));
        is_there.then(|| format!("foreign-{}", mark.name()))
    }

    /// Writes this mark on the instance and the disk with its UID, whosever they are.
    fn take_over(&self, mark: &Mark) {
        let is_of_it = |line: &String| line.starts_with("instance/") && line.ends_with(&mark.uid);
        if self.cloud.objects().iter().any(is_of_it) {
            self.cloud.change(&mark.uid, |instance| instance.mark = Some(mark.clone()));
        }
    }

    /// The request as a broken provider understands it.
    fn request(&self, request: &Request, record: &mut Record<Value>) -> Request {
        let mut request = request.clone();
        match self.wrong {
            Wrong::NeedsNoBootstrap if request.bootstrap.is_none() => {
                request.bootstrap = Some(BootstrapData::new(BootstrapFormat::Ignition, "{}"));
            }
            Wrong::IdentityInMemory => request.mark.uid = format!("{}-{}", request.mark.uid, self.number),
            Wrong::IdentityInTheStatus => {
                if record.status.get("id").is_none() {
                    record.status = json!({ "id": self.next() });
                }
                request.mark.uid = format!("{}-{}", request.mark.uid, record.status["id"]);
            }
            Wrong::MakesAgain => request.provider_id = None,
            Wrong::IgnoresFailureDomains => request.failure_domain = None,
            _ => {}
        }
        request
    }

    fn machine(&self, request: &Request, mut machine: PresentMachine) -> MachineReport {
        let instance = &mut machine.instance;
        match self.wrong {
            Wrong::HasNoId => instance.provider_id = None,
            Wrong::SharesIds => {
                let id = instance.provider_id.take();
                let mut first = self.common.first_id.lock();
                instance.provider_id = Some(first.get_or_insert(id.expect("it has one")).clone());
            }
            Wrong::WritesIdsApart => {
                let id = instance.provider_id.take().expect("it has one").to_string();
                instance.provider_id =
                    format!("fake:///{}", id["fake:///".len()..].to_uppercase()).parse().ok();
            }
            Wrong::SharesAddresses => instance.metadata.addresses.push(NodeAddress::internal_ip("10.0.0.1")),
            Wrong::OffIsLost if instance.power_state == PowerState::Off && request.is_provisioned => {
                return MachineReport::lost("it is off");
            }
            Wrong::MakesMore if machine.wait.is_none() => {
                self.cloud.put_object(&format!("disk/more-{}", self.next()), Some(request.mark.clone()));
            }
            _ => {}
        }
        machine.into()
    }
}

/// Puts an identity back into the status, which the fake does not know.
fn keep(id: Option<Value>, record: &mut Record<Value>) {
    if let (Some(id), Some(status)) = (id, record.status.as_object_mut()) {
        status.insert("id".to_owned(), id);
    }
}

#[async_trait]
impl DynMachines for Broken {
    fn kinds(&self) -> Kinds {
        self.part().kinds()
    }

    fn schemas(&self) -> Schemas {
        self.part().schemas()
    }

    async fn ensure_machine(&self, asked: &Request, record: &mut Record<Value>) -> Result<MachineReport> {
        let request = self.request(asked, record);
        let mark = &request.mark;
        match self.wrong {
            Wrong::AdoptsByName => {
                if let Some(id) = self.by_name(mark) {
                    self.cloud.change(&id, |instance| instance.mark = Some(mark.clone()));
                }
            }
            Wrong::TrustsUids => self.take_over(mark),
            _ => {}
        }
        if !self.cloud.objects().iter().any(|line| line.ends_with(&mark.uid)) {
            self.began.lock().insert(mark.uid.clone());
        }
        let kept = record.status.get("id").cloned();
        let answer = self.part().ensure_machine(&request, record).await;
        keep(kept, record);
        match (self.wrong, &request.bootstrap) {
            (Wrong::ShowsBootstrap, Some(data)) => {
                record.status["userData"] = json!(String::from_utf8_lossy(data.expose()));
            }
            (Wrong::CountsSteps, _) => record.status["steps"] = json!(self.next()),
            _ => {}
        }
        match (self.wrong, answer) {
            (_, Ok(MachineReport::Present(machine))) => {
                self.seen.lock().insert(mark.uid.clone());
                Ok(self.machine(&request, *machine))
            }
            (Wrong::HidesWhatIsForeign, Err(error)) => {
                Err(Error::new(error.kind(), "something is in the way"))
            }
            (Wrong::HidesFailures, Err(error)) if error.kind() == ErrorKind::Unavailable => {
                Ok(MachineReport::Creating(Wait::task("going on")))
            }
            (Wrong::ErrorsAreLost, Err(error)) if error.kind() == ErrorKind::Unavailable => {
                Ok(MachineReport::lost("the cloud has nothing"))
            }
            (Wrong::IsDoneTooEarly, Ok(MachineReport::Creating(_))) if request.bootstrap.is_some() => {
                let id = self.cloud.provider_id(&mark.uid);
                Ok(PresentMachine::new(crate::Instance::new(id, PowerState::Off)).into())
            }
            (_, answer) => answer,
        }
    }

    async fn identify_machine(&self, request: &Request) -> Result<Option<String>> {
        self.part().identify_machine(request).await
    }

    async fn delete_machine(&self, asked: &Request, record: &mut Record<Value>) -> Result<Deletion> {
        let request = self.request(asked, record);
        let mark = &request.mark;
        let has =
            |what: &str| self.cloud.objects().contains(&format!("{what}/{} of {}", mark.name(), mark.uid));
        let mut saw = self.seen.lock().contains(&mark.uid);
        if has("instance") {
            saw = true;
            self.seen.lock().insert(mark.uid.clone());
        }
        match self.wrong {
            Wrong::ForgetsParts if !saw => return Ok(Deletion::Gone),
            Wrong::NeedsTheCluster if request.cluster.spec.is_null() => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "spec of the cluster: missing field `server`",
                ));
            }
            Wrong::DeletesOnce if !has("instance") && !has("disk") => {
                return Err(Error::new(ErrorKind::NotFound, "there is no such machine"));
            }
            Wrong::IgnoresTasks if !has("instance") && !has("disk") => return Ok(Deletion::Gone),
            Wrong::IgnoresTasks if !has("instance") => {
                self.cloud.remove_object(&format!("disk/{}", mark.name()));
                return Ok(Deletion::Gone);
            }
            Wrong::DeletesByName => {
                if let Some(id) = self.by_name(mark) {
                    self.cloud.remove(&id);
                }
            }
            Wrong::TrustsUids => self.take_over(mark),
            _ => {}
        }
        let kept = record.status.get("id").cloned();
        let answer = self.part().delete_machine(&request, record).await;
        keep(kept, record);
        match (self.wrong, answer) {
            (Wrong::GoneTooEarly, Ok(_)) | (Wrong::ErrorsAreGone, Err(_)) => Ok(Deletion::Gone),
            (_, answer) => answer,
        }
    }

    async fn reset_machine(&self, request: &Request, record: &Record<Value>) -> Result<Reset> {
        let mark = &request.mark;
        match self.wrong {
            Wrong::ResetsNothing if self.seen.lock().contains(&mark.uid) => return Ok(Reset::Done),
            Wrong::ResetsByReplacing => self.cloud.remove_object(&format!("disk/{}", mark.name())),
            Wrong::TrustsUids => self.take_over(mark),
            _ => {}
        }
        match self.part().reset_machine(request, record).await {
            Ok(Reset::Absent) if self.wrong == Wrong::ResetsWhatIsNotThere => Ok(Reset::Done),
            answer => answer,
        }
    }

    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Result<ClusterReport> {
        let mut report = self.part().ensure_cluster(request, record).await?;
        if self.wrong == Wrong::MovesEndpoints {
            let host = format!("10.0.0.{}", self.next());
            report.control_plane_endpoint = Some(ControlPlaneEndpoint { host, port: 6443 });
        }
        Ok(report)
    }

    async fn delete_cluster(
        &self,
        request: &ClusterRequest<Value>,
        record: &mut Record<Value>,
    ) -> Result<Deletion> {
        if self.wrong == Wrong::LeavesEndpoints {
            return Ok(Deletion::Gone);
        }
        self.part().delete_cluster(request, record).await
    }

    async fn observe(&self, request: &ObserveRequest) -> Result<StatusReport> {
        self.part().observe(request).await
    }

    fn changes(&self) -> Option<InstanceStream> {
        self.part().changes()
    }

    fn forget(&self, uid: &str) {
        let is_of_it = |line: &String| line.starts_with("instance/") && line.ends_with(uid);
        if self.wrong == Wrong::DeletesWhatIsForgotten && self.cloud.objects().iter().any(is_of_it) {
            self.cloud.remove(uid);
        }
        self.part().forget(uid);
    }

    async fn capacity(&self, spec: &Value) -> Result<Capacity> {
        let capacity = self.part().capacity(spec).await?;
        Ok(match self.wrong {
            Wrong::GuessesCapacity => capacity.with_resource("cpu", self.next().to_string()),
            _ => capacity,
        })
    }
}

#[async_trait]
impl Instances for Broken {
    fn owns(&self, provider_id: &str) -> bool {
        self.inner.instances().expect("the fake has instances").owns(provider_id)
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        self.inner.instances().expect("the fake has instances").lookup(nodes).await
    }

    fn changes(&self) -> Option<InstanceStream> {
        let changes = self.inner.instances()?.changes()?;
        let (wrong, seen) = (self.wrong, self.began.clone());
        let without = move |change| match change {
            InstanceChange::Changed(mut all) => {
                for one in &mut all {
                    let is_known = |uid: &String| seen.lock().contains(uid);
                    one.machine = one.machine.take().filter(|uid| match wrong {
                        Wrong::TellsNoMachine => false,
                        Wrong::TellsItsOwnOnly => is_known(uid),
                        _ => true,
                    });
                }
                InstanceChange::Changed(all)
            }
            InstanceChange::Resync => InstanceChange::Resync,
        };
        Some(changes.map(without).boxed())
    }
}

#[async_trait]
impl CloudProvider for Broken {
    fn name(&self) -> &str {
        self.inner.name()
    }
    async fn start(&self, context: StartContext) -> Result<()> {
        self.inner.start(context).await
    }
    async fn ended(&self) {
        self.inner.ended().await;
    }
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
    fn machines(&self) -> Option<&dyn DynMachines> {
        Some(self)
    }
}

/// Each rule, with a subject that breaks it.
pub(super) fn broken() -> Vec<(&'static str, Subject)> {
    let of = |rule, wrong| {
        let mut subject = Subject::new();
        let (cloud, common) = (subject.cloud.clone(), Arc::<Common>::default());
        subject.wrap = Box::new(move |inner| {
            let number = common.providers.fetch_add(1, Ordering::Relaxed);
            Arc::new(Broken {
                inner,
                cloud: cloud.clone(),
                wrong,
                common: common.clone(),
                number,
                seen: Mutex::default(),
                began: Arc::default(),
            })
        });
        (rule, subject)
    };
    vec![
        of("machines/made", Wrong::IsDoneTooEarly),
        of("machines/made", Wrong::HasNoId),
        of("machines/again", Wrong::MakesMore),
        of("machines/again", Wrong::CountsSteps),
        of("machines/bootstrap", Wrong::NeedsNoBootstrap),
        of("machines/bootstrap", Wrong::ShowsBootstrap),
        of("machines/many", Wrong::SharesIds),
        of("machines/restart", Wrong::IdentityInMemory),
        of("machines/status-lost", Wrong::IdentityInTheStatus),
        of("machines/cut-off", Wrong::IdentityInTheStatus),
        of("machines/deletion-cut-off", Wrong::ForgetsParts),
        of("machines/deleted", Wrong::GoneTooEarly),
        of("machines/deleted", Wrong::DeletesOnce),
        of("machines/deleted", Wrong::NeedsTheCluster),
        of("machines/never-made", Wrong::DeletesOnce),
        of("machines/deleted-early", Wrong::IgnoresTasks),
        of("machines/forgotten", Wrong::DeletesWhatIsForgotten),
        of("machines/foreign", Wrong::AdoptsByName),
        of("machines/foreign", Wrong::DeletesByName),
        of("machines/foreign", Wrong::HidesWhatIsForeign),
        of("machines/marks", Wrong::TrustsUids),
        of("machines/vanished", Wrong::MakesAgain),
        of("machines/powered-off", Wrong::OffIsLost),
        of("machines/reset", Wrong::ResetsNothing),
        of("machines/reset", Wrong::ResetsWhatIsNotThere),
        of("machines/reset", Wrong::ResetsByReplacing),
        of("machines/reset", Wrong::TrustsUids),
        of("machines/failed-task", Wrong::HidesFailures),
        of("machines/disconnected", Wrong::ErrorsAreGone),
        of("machines/disconnected", Wrong::ErrorsAreLost),
        of("machines/provider-id", Wrong::WritesIdsApart),
        of("machines/addresses", Wrong::SharesAddresses),
        of("machines/failure-domain", Wrong::IgnoresFailureDomains),
        of("machines/told", Wrong::TellsNoMachine),
        of("machines/told-after-restart", Wrong::TellsItsOwnOnly),
        of("machines/capacity", Wrong::GuessesCapacity),
        of("machines/cluster", Wrong::MovesEndpoints),
        of("machines/cluster", Wrong::LeavesEndpoints),
    ]
}
