use super::*;
use crate::testing::{FakeAnnouncer, ip};

fn held(address: &str) -> Held {
    Held { address: ip(address), interface: None, sharing_key: None, is_outside: false, replaces: None }
}

#[tokio::test]
async fn services_share_an_address_and_leave_it_one_by_one() {
    let announcer = FakeAnnouncer::new();
    let holds = Holds::new(Arc::clone(&announcer) as Arc<dyn Announce>);
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
    let holds = Holds::new(Arc::clone(&announcer) as Arc<dyn Announce>);
    let term = holds.term();
    holds.release_all().await;
    assert!(holds.hold(term, "a", &[held("10.0.0.1")]).await.is_err());
    assert_eq!(announcer.addresses(), []);
}

#[test]
fn the_uid_is_in_the_holder() {
    for (holder, uid) in
        [("address-pools/3/a-b", Some("a-b")), ("address-pools/a", None), ("other/3/a", None)]
    {
        assert_eq!(uid_of(holder), uid);
    }
}
