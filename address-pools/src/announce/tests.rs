use std::sync::atomic::{AtomicBool, Ordering};

use cloudprovider::testing::FakeServiceAccess;

use super::*;
use crate::{
    pool::Pools,
    testing::{FakeAnnouncer, ip, ips},
};

fn held(address: &str) -> Held {
    Held { is_outside: false, ..Held::kept(&Pools::default(), "default", ip(address)) }
}

fn holds(announcer: &Arc<FakeAnnouncer>) -> Arc<Holds> {
    let holds = Holds::new(Arc::clone(announcer) as Arc<dyn Announce>);
    holds.start(Arc::new(FakeServiceAccess::new()));
    holds
}

#[tokio::test]
async fn services_share_an_address_and_leave_it_one_by_one() {
    let announcer = FakeAnnouncer::new();
    let holds = holds(&announcer);
    for uid in ["a", "b"] {
        holds.hold(holds.term(), uid, &[held("10.0.0.1")]).await.expect("held");
    }
    holds.release("a").await.expect("released");
    assert_eq!(announcer.addresses().len(), 1);
    holds.release("b").await.expect("released");
    holds.release("b").await.expect("released already");
    assert_eq!(announcer.addresses(), []);
}

#[tokio::test]
async fn a_term_that_has_ended_holds_nothing() {
    let announcer = FakeAnnouncer::new();
    let holds = holds(&announcer);
    let term = holds.term();
    holds.release_all().await.expect("released");
    assert!(holds.hold(term, "a", &[held("10.0.0.1")]).await.is_err());
    assert_eq!(announcer.addresses(), []);
}

#[tokio::test]
async fn a_generation_hands_over_to_the_latest_one_that_lives() {
    let (announcer, other) = (FakeAnnouncer::new(), FakeAnnouncer::new());
    let old = holds(&announcer);
    old.hold(old.term(), "a", &[held("10.0.0.1")]).await.expect("held");
    let refused = holds(&announcer);
    let new = holds(&announcer);
    let later = holds(&announcer);
    let _unrelated = holds(&other);
    let _not_started = Holds::new(Arc::clone(&announcer) as Arc<dyn Announce>);
    refused.stop().await;
    later.stop().await;
    assert_eq!(announcer.held()[0].holders.len(), 1);
    old.stop().await;
    assert_eq!((announcer.addresses().len(), announcer.darkened()), (1, Vec::new()));
    assert_eq!(announcer.held()[0].holders, [new.holder("a")]);
    // Whoever announces decides on the interface, as before.
    assert_eq!(announcer.addresses()[0].1, "auto");
    new.taken_over().await;
    // What the old one holds no longer cannot be held through it either.
    assert!(old.hold(0, "b", &[held("10.0.0.2")]).await.is_err());
    new.stop().await;
    assert_eq!(announcer.addresses(), []);
    assert_eq!(other.addresses(), []);
}

#[tokio::test]
async fn nothing_is_handed_over_after_the_term() {
    let announcer = FakeAnnouncer::new();
    let (old, new) = (holds(&announcer), holds(&announcer));
    old.hold(old.term(), "a", &[held("10.0.0.1")]).await.expect("held");
    let ((), old, new) = futures::join!(old.stop(), old.release_all(), new.release_all());
    old.and(new).expect("released, by whoever was first");
    assert_eq!(announcer.addresses(), []);
}

#[tokio::test]
async fn the_end_of_a_term_says_what_could_not_be_released() {
    let announcer = FakeAnnouncer::new();
    let holds = holds(&announcer);
    holds.hold(0, "a", &[held("10.0.0.1"), held("10.0.0.2")]).await.expect("held");
    announcer.fail_release.lock().insert(ip("10.0.0.1"));
    // The provider was stopped before. That nobody holds anything any more does not mean that the host has nothing.
    holds.stop().await;
    for _ in 0..2 {
        let error = holds.release_all().await.expect_err("one stays");
        assert_eq!(error.to_string(), "this host may still answer for 10.0.0.1");
    }
    assert_eq!(announcer.addresses().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_term_waits_for_a_release_under_way() {
    let announcer = FakeAnnouncer::new();
    let holds = holds(&announcer);
    holds.hold(0, "a", &[held("10.0.0.1")]).await.expect("held");
    announcer.hang_release.store(true, Ordering::Relaxed);
    let stopping = tokio::spawn({
        let holds = Arc::clone(&holds);
        async move { holds.stop().await }
    });
    tokio::task::yield_now().await;
    let soon = std::time::Duration::from_secs(2);
    tokio::time::timeout(soon, holds.release_all()).await.expect_err("it hangs");
    stopping.abort();
    stopping.await.expect_err("aborted");
    holds.release_all().await.expect_err("it was never released");
}

#[tokio::test]
async fn what_could_not_be_held_is_tried_again() {
    let announcer = FakeAnnouncer::new();
    let holds = holds(&announcer);
    announcer.broken.lock().insert(ip("10.0.0.1"));
    holds.keep(0, "a", &[held("10.0.0.1")]).await.expect_err("broken");
    assert_eq!(holds.unclaimed(|_, _| false), []);
    assert!(!holds.retry().await);
    announcer.broken.lock().clear();
    holds.keep(0, "a", &[held("10.0.0.1")]).await.expect("held");
    assert_eq!(announcer.addresses().len(), 1);
    assert!(!holds.retry().await, "nothing is left to be tried");
}

#[tokio::test]
async fn what_is_not_wanted_any_more_is_not_tried_again() {
    let announcer = FakeAnnouncer::new();
    let holds = holds(&announcer);
    let all = ips(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    announcer.broken.lock().extend(all);
    for (uid, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        holds.hold(0, uid, &[held(address)]).await.expect_err("broken");
    }
    holds.release("a").await.expect("nothing to release");
    holds.hold(0, "b", &[held("10.0.0.4")]).await.expect("held");
    announcer.broken.lock().clear();
    assert!(holds.retry().await);
    assert_eq!(announcer.held().len(), 2);
    holds.release_all().await.expect("released");
    assert!(!holds.retry().await);
    assert_eq!(announcer.addresses(), []);
}

fn on(interface: &str) -> Held {
    Held { interface: Some(interface.to_owned()), ..held("10.0.0.1") }
}

/// Each hold on eth9 waits for a permission. It fails until the interface is there.
#[derive(Debug, Default)]
struct SlowEth9 {
    announcer: FakeAnnouncer,
    may_go_on: Notify,
    is_there: AtomicBool,
}

#[async_trait]
impl Announce for SlowEth9 {
    fn limit(&self, _: Arc<dyn ServiceAccess>) {}

    async fn hold(&self, holder: &str, address: IpAddr, interface: Option<&str>) -> Result<()> {
        if interface == Some("eth9") {
            self.may_go_on.notified().await;
            if !self.is_there.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::InvalidConfiguration, "there is no interface eth9"));
            }
        }
        self.announcer.hold(holder, address, interface).await
    }

    async fn release(&self, holder: &str, address: IpAddr) -> Result<()> {
        self.announcer.release(holder, address).await
    }

    fn faults(&self) -> Vec<Fault> {
        Vec::new()
    }
}

impl SlowEth9 {
    /// Service `a` could not get its address on eth9, which is to be tried again.
    async fn failed_once() -> (Arc<Self>, Arc<Holds>) {
        let announcer = Arc::new(Self::default());
        let holds = Holds::new(Arc::clone(&announcer) as Arc<dyn Announce>);
        holds.start(Arc::new(FakeServiceAccess::new()));
        announcer.may_go_on.notify_one();
        holds.hold(0, "a", &[on("eth9")]).await.expect_err("no eth9");
        (announcer, holds)
    }

    /// Tries again, and does this while that waits.
    async fn retry_meanwhile(&self, holds: &Holds, meanwhile: impl Future<Output = ()>) -> bool {
        let meanwhile = async {
            meanwhile.await;
            self.may_go_on.notify_one();
        };
        futures::join!(holds.retry(), meanwhile).0
    }
}

#[tokio::test]
async fn what_is_given_back_during_a_try_that_fails_is_not_tried_again() {
    let (announcer, holds) = SlowEth9::failed_once().await;
    let release = async { holds.release("a").await.expect("released") };
    assert!(!announcer.retry_meanwhile(&holds, release).await);
    assert!(holds.state().all_of("a").is_empty());
}

#[tokio::test]
async fn what_is_given_back_during_a_try_that_succeeds_is_not_held() {
    let (announcer, holds) = SlowEth9::failed_once().await;
    announcer.is_there.store(true, Ordering::Relaxed);
    let release = async { holds.release("a").await.expect("released") };
    assert!(!announcer.retry_meanwhile(&holds, release).await);
    assert_eq!(announcer.announcer.addresses(), []);
    assert!(holds.state().all_of("a").is_empty());
}

#[tokio::test]
async fn an_earlier_try_changes_nothing_when_it_fails_later() {
    let (announcer, holds) = SlowEth9::failed_once().await;
    let move_it = async { holds.hold(0, "a", &[on("eth1")]).await.expect("held") };
    assert!(!announcer.retry_meanwhile(&holds, move_it).await);
    assert!(holds.is_held("a", ip("10.0.0.1")));
    assert!(!holds.retry().await, "nothing is left to be tried");
    assert_eq!(announcer.announcer.addresses(), [(ip("10.0.0.1"), "eth1".to_owned())]);
}

#[tokio::test]
async fn of_two_tries_that_fail_the_later_one_is_made_again() {
    let (announcer, holds) = SlowEth9::failed_once().await;
    let broken = &announcer.announcer.broken;
    broken.lock().insert(ip("10.0.0.1"));
    let in_vain = async { drop(holds.hold(0, "a", &[on("eth1")]).await.expect_err("broken")) };
    assert!(!announcer.retry_meanwhile(&holds, in_vain).await);
    assert!(!holds.is_held("a", ip("10.0.0.1")));
    broken.lock().clear();
    assert!(holds.retry().await);
    assert_eq!(announcer.announcer.addresses(), [(ip("10.0.0.1"), "eth1".to_owned())]);
}

#[tokio::test]
async fn an_address_that_no_pool_has_any_more_is_not_moved_later() {
    let (announcer, holds) = SlowEth9::failed_once().await;
    holds.hold(0, "a", &[on("eth1")]).await.expect("held");
    announcer.may_go_on.notify_one();
    holds.hold(0, "a", &[on("eth9")]).await.expect_err("no eth9");
    let outside = Held { is_outside: true, ..held("10.0.0.1") };
    holds.hold(0, "a", &[outside]).await.expect("it stays");
    assert!(!holds.retry().await, "nothing is left to be tried");
    assert_eq!(announcer.announcer.addresses(), [(ip("10.0.0.1"), "eth1".to_owned())]);
}
