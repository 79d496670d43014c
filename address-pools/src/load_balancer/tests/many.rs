//! Work that grows with the number of Services, and no faster.

use futures::{StreamExt as _, stream};

use super::*;

#[tokio::test(start_paused = true)]
async fn ten_thousand_services_take_one_call_each() {
    const SERVICES: usize = 10_000;
    let cluster = FakeServiceAccess::new();
    let daemon = Daemon::start(&cluster, r#"{"pools": [{"name": "main", "addresses": ["10.0.0.0/16"]}]}"#);
    let all: Vec<_> = (0..SERVICES).map(|number| service(&format!("s{number}"))).collect();
    let ensured = stream::iter(&all).map(|service| daemon.ensure(service)).buffer_unordered(64);
    let ensured: Vec<_> = ensured.collect().await;
    assert!(ensured.iter().all(Result::is_ok));
    let calls = cluster.calls();
    assert_eq!(calls.iter().filter(|call| matches!(call, AccessCall::WriteClaim(_))).count(), SERVICES);
    assert_eq!(calls.len(), SERVICES + 1, "the claims are read once");
    let claims = cluster.stored_claims();
    // All of them are the lowest ones.
    assert_eq!((claims.len(), claims.keys().max().copied()), (SERVICES, Some(ip("10.0.39.15"))));
    cluster.forget_calls();
    for service in &all {
        daemon.ensure(service).await.expect("a status");
    }
    assert_eq!(cluster.calls(), []);
    for service in all.iter().rev() {
        daemon.delete(service).await.expect("deleted");
    }
    assert_eq!(cluster.calls().len(), SERVICES);
    assert!(cluster.stored_claims().is_empty());
}
