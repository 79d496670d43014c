//! Steps that are given up while their calls go on.

use std::{pin::pin, sync::Arc};

use futures::poll;
use tokio::sync::Semaphore;

use super::*;
use crate::machines::ObjectLock;

/// A cloud whose calls go on in tasks of their own. Each ends at a word of the test.
#[derive(Debug)]
struct Slow {
    object_locks: ObjectLocks,
    gate: Arc<Semaphore>,
    /// The begin and the end of each call.
    calls: Arc<Mutex<Vec<String>>>,
}

impl Slow {
    fn new() -> Self {
        let gate = Arc::new(Semaphore::new(0));
        Self { object_locks: ObjectLocks::default(), gate, calls: Arc::default() }
    }

    async fn call(&self, mark: &Mark, step: Step) {
        let (gate, calls) = (Arc::clone(&self.gate), Arc::clone(&self.calls));
        let (lock, what) = (ObjectLock::current(), format!("{step:?} of {}", mark.uid));
        let call = tokio::spawn(async move {
            let _lock = lock;
            calls.lock().push(format!("{what} begins"));
            gate.acquire().await.expect("it is not closed").forget();
            calls.lock().push(format!("{what} ends"));
        });
        call.await.expect("no panic");
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().clone()
    }
}

#[async_trait]
impl Machines for Slow {
    type MachineSpec = Value;
    type MachineStatus = ();
    type ClusterSpec = Value;
    type ClusterStatus = ();

    const KINDS: Kinds = Cloud::KINDS;

    fn object_locks(&self) -> &ObjectLocks {
        &self.object_locks
    }

    async fn ensure_machine(
        &self,
        request: &MachineRequest<Value, Value>,
        _: &mut Record<()>,
    ) -> Result<MachineReport> {
        self.call(&request.mark, Step::EnsureMachine).await;
        Ok(MachineReport::Creating(Wait::task("clone")))
    }

    async fn delete_machine(
        &self,
        request: &MachineDeletionRequest<Value, Value>,
        _: &mut Record<()>,
    ) -> Result<Deletion> {
        self.call(&request.mark, Step::DeleteMachine).await;
        Ok(Deletion::Gone)
    }

    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<Value>,
        _: &mut Record<()>,
    ) -> Result<ClusterReport> {
        self.call(&request.mark, Step::EnsureCluster).await;
        Ok(ClusterReport::done())
    }

    async fn delete_cluster(&self, request: &ClusterRequest<Value>, _: &mut Record<()>) -> Result<Deletion> {
        self.call(&request.mark, Step::DeleteCluster).await;
        Ok(Deletion::Gone)
    }

    async fn capacity(&self, _: &Value) -> Result<Capacity> {
        Ok(Capacity::default())
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    EnsureMachine,
    DeleteMachine,
    EnsureCluster,
    DeleteCluster,
}

const STEPS: [Step; 4] = [Step::EnsureMachine, Step::DeleteMachine, Step::EnsureCluster, Step::DeleteCluster];

impl Step {
    /// Makes this step of the object with this UID.
    async fn make(self, cloud: &dyn DynMachines, uid: &str) -> Result<()> {
        let machine = MachineRequest::new(
            Mark::machine(uid, "default", "prod", "one"),
            Value::Null,
            ClusterContext::new(Value::Null),
        );
        let cluster = ClusterRequest::new(Mark::cluster(uid, "default", "prod"), Value::Null);
        let mut record = Record::new(Value::Null);
        match self {
            Self::EnsureMachine => cloud.ensure_machine(&machine, &mut record).await.map(drop),
            Self::DeleteMachine => cloud.delete_machine(&machine, &mut record).await.map(drop),
            Self::EnsureCluster => cloud.ensure_cluster(&cluster, &mut record).await.map(drop),
            Self::DeleteCluster => cloud.delete_cluster(&cluster, &mut record).await.map(drop),
        }
    }
}

/// Lets the calls that have been spawned run until they wait at the gate.
async fn calls_run() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_call_of_a_step_that_was_given_up_keeps_the_next_step_of_its_object_waiting() {
    for (first, next) in STEPS.into_iter().flat_map(|first| STEPS.map(|next| (first, next))) {
        let cloud = Slow::new();
        {
            let mut given_up = pin!(first.make(&cloud, "u-1"));
            assert!(poll!(&mut given_up).is_pending());
            calls_run().await;
        }
        let mut waiting = pin!(next.make(&cloud, "u-1"));
        assert!(poll!(&mut waiting).is_pending());
        let mut of_another_object = pin!(next.make(&cloud, "u-2"));
        assert!(poll!(&mut of_another_object).is_pending());
        calls_run().await;
        let begun = [format!("{first:?} of u-1 begins"), format!("{next:?} of u-2 begins")];
        assert_eq!(cloud.calls(), begun);

        cloud.gate.add_permits(3);
        waiting.await.expect("it is made");
        let calls = cloud.calls();
        // The two may be steps of one kind.
        let end_of_first = calls.iter().position(|call| *call == format!("{first:?} of u-1 ends"));
        let begin_of_next = calls.iter().rposition(|call| *call == format!("{next:?} of u-1 begins"));
        assert!(end_of_first.is_some() && end_of_first < begin_of_next, "{calls:?}");
    }
}
