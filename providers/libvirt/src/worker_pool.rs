//! The pool of workers that make the calls of machines at a hypervisor. Each worker opens a connection of its
//! own when it first needs one.
//!
//! The actor's worker serves look-ups alone: a call for a machine, such as a copy of an image, takes longer.
//! At most a few workers of the pool are busy at one hypervisor, so that libvirtd has threads left for
//! others. Namespaces take turns, so one with thousands of machines does not hold up another one.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use cloudprovider::{ErrorKind, FairPermit, FairPermits, PermitsClosed, machines::ObjectLock};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use virt::{connect::Connect, storage_pool::StoragePool};

use crate::{
    calls::{Calls, Failure, Operation},
    config::{HypervisorConfig, Keepalive},
    hypervisor::{Command, Hypervisor},
    session::open_connection,
    uri,
    worker::{AbandonedThreads, Worker},
};

/// Threads that do short work at the same time.
const MAX_SHORT: usize = 3;
/// Threads that upload images at the same time.
pub(crate) const MAX_UPLOADS: usize = 2;
/// Threads that wait for copies at the same time.
pub(crate) const MAX_COPIES: usize = 2;
/// Abandoned threads that still wait for an answer. With so many the pool takes no more work.
const MAX_ABANDONED: usize = 8;
/// How often a caller checks whether a call is past its time limit.
const TICK: Duration = Duration::from_millis(20);

tokio::task_local! {
    static NAMESPACE: Namespace;
}

/// The namespace in whose turn a call waits for its permit. Empty for the daemon's own work.
pub(crate) type Namespace = Arc<str>;

/// Runs `work`, all of whose calls wait for their permits in the turn of this namespace. A task that it
/// spawns needs this again.
pub(crate) async fn in_turn_of<T>(namespace: &str, work: impl Future<Output = T>) -> T {
    NAMESPACE.scope(Arc::from(namespace), work).await
}

fn current_namespace() -> Namespace {
    NAMESPACE.try_with(Arc::clone).unwrap_or_default()
}

/// What kind of work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A few calls. Each may take as long as given here.
    Short(Duration),
    /// Many calls, which together may take minutes. Each may take as long as given here.
    Upload(Duration),
    /// One call that may take minutes. It is waited for as long as the connection lives, which the keepalive
    /// watches.
    Copy,
}

/// The connection of a worker.
pub(crate) struct Link {
    connect: Option<Connect>,
    /// The pools that were looked up on this connection.
    pools: HashMap<String, StoragePool>,
    config: HypervisorConfig,
    keepalive: Keepalive,
    calls: Calls,
}

impl Link {
    /// Makes one call.
    pub(crate) fn call<T>(
        &mut self,
        operation: Operation,
        call: impl FnOnce(&Connect) -> Result<T, virt::error::Error>,
    ) -> Result<T, Failure> {
        let connect = match &self.connect {
            Some(connect) => connect,
            None => self.connect.insert(open_connection(&self.config, self.keepalive, &self.calls)?.0),
        };
        self.calls.call(operation, || call(connect)).map_err(|mut failure| {
            failure.lost |= connect.is_alive() == Ok(false);
            failure
        })
    }

    /// Whether the storage pool with this name was looked up before.
    pub(crate) fn knows_pool(&self, name: &str) -> bool {
        self.pools.contains_key(name)
    }

    /// The storage pool with this name. It is looked up once for each connection.
    pub(crate) fn pool(&mut self, name: &str) -> Result<StoragePool, Failure> {
        if let Some(known) = self.pools.get(name) {
            return Ok(known.clone());
        }
        let pool = self.call(Operation::LookupPool, |connect| connect.lookup_storage_pool_by_name(name))?;
        self.pools.insert(name.to_owned(), pool.clone());
        Ok(pool)
    }

    /// Looks a pool up again the next time, since libvirt does not have this one.
    pub(crate) fn forget_pool(&mut self, name: &str) {
        self.pools.remove(name);
    }

    /// Drops a connection that was lost while nothing was asked.
    fn check(&mut self) {
        if self.connect.take_if(|connect| connect.is_alive() == Ok(false)).is_some() {
            self.pools.clear();
        }
    }
}

/// A worker, and how far its current call is.
struct PooledWorker {
    worker: Worker<Link>,
    calls: Calls,
}

/// The workers for one hypervisor.
pub(crate) struct WorkerPool {
    hypervisor: Arc<Hypervisor>,
    idle: Mutex<Vec<PooledWorker>>,
    short: FairPermits<Namespace>,
    uploads: FairPermits<Namespace>,
    copies: FairPermits<Namespace>,
    abandoned: AbandonedThreads,
}

impl WorkerPool {
    /// No thread is started yet.
    pub(crate) fn new(hypervisor: Arc<Hypervisor>) -> Self {
        Self {
            hypervisor,
            idle: Mutex::default(),
            short: FairPermits::new(MAX_SHORT),
            uploads: FairPermits::new(MAX_UPLOADS),
            copies: FairPermits::new(MAX_COPIES),
            abandoned: AbandonedThreads::default(),
        }
    }

    /// The hypervisor.
    pub(crate) fn hypervisor(&self) -> &Arc<Hypervisor> {
        &self.hypervisor
    }

    /// Runs `work` on a thread with a connection, and waits for it. If the caller stops waiting, the work
    /// goes on to its end, and keeps its permit.
    ///
    /// # Errors
    /// What `work` returns; why there is no connection; [`ErrorKind::Timeout`] if a call takes too long, in
    /// which case it is not known whether it takes effect.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        kind: Work,
        work: impl FnOnce(&mut Link) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (permits, limit) = match kind {
            Work::Short(limit) => (&self.short, Some(limit)),
            Work::Upload(limit) => (&self.uploads, Some(limit)),
            Work::Copy => (&self.copies, None),
        };
        let permit = permits.acquire(current_namespace()).await;
        let permit = permit
            .map_err(|PermitsClosed| Failure::lost(ErrorKind::Unavailable, "the provider has stopped"))?;
        let staleness = self.hypervisor.staleness(&self.hypervisor.state().status);
        if let Some(staleness) = staleness {
            return Err(Failure::lost(staleness.kind(), staleness.to_string()));
        }
        if self.abandoned.get() >= MAX_ABANDONED {
            let words = format!("{MAX_ABANDONED} earlier calls have not come back yet");
            return Err(Failure::lost(ErrorKind::Unavailable, words));
        }
        let pooled = match self.take_idle() {
            Some(pooled) => pooled,
            None => self.start().await?,
        };
        self.run_on(pooled, permit, limit, work).await
    }

    /// Ends the workers as soon as their work has ended, and takes no more.
    pub(crate) fn close(&self) {
        self.short.close();
        self.uploads.close();
        self.copies.close();
        self.idle.lock().clear();
    }

    /// Keeps a worker for the next work.
    fn keep(&self, pooled: PooledWorker) {
        let mut idle = self.idle.lock();
        // under the lock, since `close` comes once
        if !self.short.is_closed() {
            idle.push(pooled);
        }
    }

    async fn run_on<T: Send + 'static>(
        &self,
        pooled: PooledWorker,
        permit: FairPermit<Namespace>,
        limit: Option<Duration>,
        work: impl FnOnce(&mut Link) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        // An abandoned call keeps it.
        let lock = ObjectLock::current();
        let mut answer = pooled.worker.run(move |link: &mut Link| {
            link.check();
            let result = work(link);
            drop((permit, lock));
            result
        });
        loop {
            match tokio::time::timeout(TICK, &mut answer).await {
                Ok(Ok(result)) => {
                    if !result.as_ref().is_err_and(|failure| failure.lost) {
                        self.keep(pooled);
                    }
                    return result;
                }
                Ok(Err(_)) => {
                    return Err(Failure::lost(ErrorKind::Internal, "a thread for machines has died"));
                }
                Err(_) => {
                    let waiting = pooled.calls.progress.waiting();
                    if let Some(limit) = limit.filter(|limit| waiting > *limit) {
                        pooled.worker.abandon(&self.abandoned);
                        let words = format!("libvirt has not answered within {} s", limit.as_secs());
                        return Err(Failure::lost(ErrorKind::Timeout, words));
                    }
                }
            }
        }
    }

    fn take_idle(&self) -> Option<PooledWorker> {
        self.idle.lock().pop()
    }

    async fn start(&self) -> Result<PooledWorker, Failure> {
        let hypervisor = &self.hypervisor;
        let connect = self.shared_connection().await?;
        let calls = Calls { counts: Arc::clone(&hypervisor.counts), ..Calls::default() };
        let link = Link {
            connect,
            pools: HashMap::new(),
            config: hypervisor.config.clone(),
            keepalive: hypervisor.settings.keepalive,
            calls: calls.clone(),
        };
        let name = format!("libvirt-{}-machines", hypervisor.name());
        let worker = Worker::spawn(name, hypervisor.workers(), move || link)
            .map_err(|error| Failure::lost(ErrorKind::Internal, format!("cannot start a thread: {error}")))?;
        Ok(PooledWorker { worker, calls })
    }

    /// The actor's own connection if the driver is in this process, where each connection has a world of its
    /// own.
    async fn shared_connection(&self) -> Result<Option<Connect>, Failure> {
        if !uri::is_in_process(&self.hypervisor.config.uri) {
            return Ok(None);
        }
        let (sender, receiver) = oneshot::channel();
        let lend = Box::new(move |connect: &Connect| drop(sender.send(connect.clone())));
        // if it cannot be sent, the sender is dropped with it
        let _ = self.hypervisor.commands.send(Command::Borrow(lend));
        match receiver.await {
            Ok(connect) => Ok(Some(connect)),
            Err(_) => Err(Failure::lost(ErrorKind::Unavailable, "the connection has ended")),
        }
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").field("hypervisor", &self.hypervisor.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
