use std::{sync::mpsc, time::Instant};

use cloudprovider::{
    CloudProvider, StartContext,
    machines::{Mark, ObjectLocks},
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Config, LibvirtProvider};

const PATIENCE: Duration = test_env::PATIENCE;
const SHORT: Work = Work::Short(PATIENCE);

/// A provider with a hypervisor of libvirt's test driver. Stopped when dropped.
struct Cloud {
    provider: LibvirtProvider,
    stop: CancellationToken,
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn cloud(uri: &str) -> Cloud {
    let config = format!("hypervisors:\n- {{name: kvm1, uri: '{uri}'}}\n");
    let provider = LibvirtProvider::new(Config::parse(&config, None).expect("valid"));
    let stop = CancellationToken::new();
    provider.start(StartContext::new(stop.clone(), "kubernetes")).await.expect("starts");
    Cloud { provider, stop }
}

async fn live(cloud: &Cloud) -> WorkerPool {
    let handle = cloud.provider.hypervisor("kvm1").expect("configured");
    let began = Instant::now();
    while !handle.is_live() {
        assert!(began.elapsed() < PATIENCE, "not live");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    WorkerPool::new(handle.0)
}

fn pools(link: &mut Link) -> Result<usize, Failure> {
    link.call(Operation::ListPools, |connect| connect.list_all_storage_pools(0).map(|pools| pools.len()))
}

#[tokio::test]
async fn work_has_the_connection_of_the_provider_and_is_counted() {
    let cloud = cloud("test:///default").await;
    let workers = live(&cloud).await;
    assert_eq!(workers.run(SHORT, pools).await, Ok(1));
    assert_eq!(workers.run(SHORT, pools).await, Ok(1));
    assert_eq!(cloud.provider.call_counts()["list_pools"], 2);
    assert_eq!(workers.idle.lock().len(), 1, "one thread has done both");
}

#[tokio::test]
async fn only_a_few_threads_work_at_once_also_if_nobody_waits_for_them_any_more() {
    let cloud = cloud("test:///default").await;
    let workers = live(&cloud).await;
    let (began, begins) = mpsc::channel();
    let mut releases = Vec::new();
    for _ in 0..MAX_SHORT {
        let (release, wait) = mpsc::channel::<()>();
        releases.push(release);
        let began = began.clone();
        let work = workers.run(SHORT, move |_| {
            began.send(()).expect("the test waits");
            Ok(wait.recv().is_err())
        });
        // the caller loses its patience; the thread goes on
        tokio::time::timeout(Duration::from_millis(50), work).await.expect_err("it waits");
    }
    assert_eq!(begins.iter().take(MAX_SHORT).count(), MAX_SHORT);
    let soon = Duration::from_millis(100);
    tokio::time::timeout(soon, workers.run(SHORT, pools)).await.expect_err("no place");
    for kind in [Work::Upload(PATIENCE), Work::Copy] {
        assert_eq!(workers.run(kind, pools).await, Ok(1), "{kind:?} has places of its own");
    }
    releases.pop();
    assert_eq!(tokio::time::timeout(PATIENCE, workers.run(SHORT, pools)).await, Ok(Ok(1)));
}

/// Each call tells whose it is when it begins, and ends at a word of the test.
#[tokio::test]
async fn a_namespace_with_many_calls_delays_another_one_by_one_turn() {
    let cloud = cloud("test:///default").await;
    let workers = Arc::new(live(&cloud).await);
    let (began, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let (end, ends) = mpsc::channel::<()>();
    let ends = Arc::new(Mutex::new(ends));
    let call = |namespace: &'static str| {
        let (began, ends, workers) = (began.clone(), Arc::clone(&ends), Arc::clone(&workers));
        let work = move |_: &mut Link| {
            began.send(namespace).expect("the test waits");
            // an error is the end of all
            let _ = ends.lock().recv();
            Ok(())
        };
        Box::pin(async move { in_turn_of(namespace, workers.run(SHORT, work)).await })
    };
    let mut calls = vec![tokio::spawn(call("first"))];
    for _ in 1..MAX_SHORT {
        calls.push(tokio::spawn(call("first")));
    }
    for _ in 0..MAX_SHORT {
        assert_eq!(begins.recv().await, Some("first"));
    }
    let mut waiting: Vec<_> = std::iter::repeat_with(|| call("team-a")).take(1000).collect();
    waiting.push(call("team-b"));
    for one in &mut waiting {
        assert!(futures::poll!(one.as_mut()).is_pending(), "all places are taken");
    }
    calls.extend(waiting.into_iter().map(tokio::spawn));
    for namespace in ["team-a", "team-b", "team-a", "team-a"] {
        end.send(()).expect("a call waits for it");
        assert_eq!(begins.recv().await, Some(namespace));
    }
    drop(end);
    for call in calls {
        call.await.expect("no panic").expect("it is served");
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_given_up() {
    let cloud = cloud("test:///default").await;
    let workers = live(&cloud).await;
    let (release, wait) = mpsc::channel::<()>();
    let limit = Duration::from_millis(50);
    let hangs = workers.run(Work::Short(limit), move |link| {
        link.call(Operation::ListPools, move |_| {
            wait.recv().ok();
            Ok(())
        })
    });
    let failure = hangs.await.expect_err("too long");
    assert_eq!((failure.kind, workers.abandoned.get()), (ErrorKind::Timeout, 1));
    assert!(workers.idle.lock().is_empty());
    assert_eq!(workers.run(SHORT, pools).await, Ok(1), "with another thread");
    drop(release);
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_keeps_the_lock_of_its_object() {
    let cloud = cloud("test:///default").await;
    let workers = live(&cloud).await;
    let (locks, mark) = (ObjectLocks::default(), Mark::machine("u-1", "default", "prod", "one"));
    let (release, wait) = mpsc::channel::<()>();
    let (began, begins) = oneshot::channel();
    let work = workers.run(SHORT, move |_| {
        began.send(()).expect("the test waits");
        Ok(wait.recv().is_err())
    });
    let lock = locks.lock(&mark).await.expect("it is free");
    // the step is given up once its call has begun
    tokio::select! {
        answer = lock.scope(work) => panic!("{answer:?}"),
        began = begins => began.expect("it begins"),
    }
    let mut next = Box::pin(locks.lock(&mark));
    assert!(futures::poll!(&mut next).is_pending());
    drop(release);
    next.await.expect("the call has ended");
}

#[tokio::test]
async fn without_a_connection_the_reason_is_told() {
    let cloud = cloud("qemu+unix:///system?socket=/nowhere/at/all").await;
    let handle = cloud.provider.hypervisor("kvm1").expect("configured");
    let failure = WorkerPool::new(handle.0).run(SHORT, pools).await.expect_err("nobody is there");
    assert_eq!(failure.kind, ErrorKind::Unavailable);
    assert!(failure.message.contains("kvm1"), "{}", failure.message);
}

#[tokio::test]
async fn a_provider_that_stops_does_not_wait_for_idle_threads() {
    let cloud = cloud("test:///default").await;
    let workers = live(&cloud).await;
    assert_eq!(workers.run(SHORT, pools).await, Ok(1));
    workers.close();
    cloud.stop.cancel();
    tokio::time::timeout(PATIENCE, cloud.provider.ended()).await.expect("no thread is left");
    let failure = workers.run(SHORT, pools).await.expect_err("closed");
    assert_eq!(failure.message, "the provider has stopped");
}
