//! How one failing node affects a batch.

use super::{
    super::{
        batches::{HANG_TIMEOUT, MORE_CALLS},
        guarded::CALL_TIMEOUT,
    },
    *,
};

#[tokio::test(start_paused = true)]
async fn a_fault_costs_its_node_alone() {
    for (bad, kind, words) in [
        (
            "panic",
            ErrorKind::Internal,
            "lookup: the cloud provider panicked over this node; the log says more",
        ),
        ("short", ErrorKind::Internal, "lookup: the cloud provider gave 0 answers for 1 nodes"),
        ("hang", ErrorKind::Timeout, "lookup: no answer within 5s"),
    ] {
        let names = ["a", "b", bad, "c"];
        let answers = cloud().lookup(&nodes(&names)).await;
        assert_eq!(without_answer(&nodes(&names), &answers), [bad]);
        let error = error_of(&answers[2]);
        assert_eq!((error.kind(), error.report().as_str()), (kind, words));
    }
    let alone = cloud().lookup(&nodes(&["hang"])).await;
    assert_eq!(error_of(&alone[0]).report(), "lookup: no answer within 60s");
}

#[tokio::test(start_paused = true)]
async fn each_answer_has_the_time_of_its_own_call() {
    let (fake, cloud) = watched();
    fake.set_latency(Duration::from_secs(2));
    let began = Instant::now();
    let (answers, times) = cloud.lookup_timed(&nodes(&["panic", "a", "b", "c"])).await;
    let calls: Vec<(u64, u64)> =
        times.iter().map(|time| ((time.sent - began).as_secs(), (time.ended - began).as_secs())).collect();
    assert!(matches!(answers[0], InstanceLookup::Unknown(_)));
    // All nodes take [0, 2], the second half [2, 4], the first half [4, 6], and then its halves.
    assert_eq!(calls[1..], [(6, 8), (2, 4), (2, 4)]);
}

#[tokio::test(start_paused = true)]
async fn one_node_of_thousands_is_found_and_then_asked_about_apart() {
    let (fake, cloud) = watched();
    let nodes = many(5000, &[(4321, "panic")]);
    for most_calls in [1 + 2 * 13, 2, 2] {
        let answers = cloud.lookup(&nodes).await;
        assert_eq!(without_answer(&nodes, &answers), ["panic-4321"]);
        let calls = calls(&fake);
        assert!(calls <= most_calls, "{calls} calls");
    }
    // Another batch with this node is spared too, and a look-up of this node alone costs one call.
    let few = [nodes[1].clone(), nodes[4321].clone()];
    assert_eq!(without_answer(&few, &cloud.lookup(&few).await), ["panic-4321"]);
    assert_eq!(calls(&fake), 2);
    cloud.lookup(&few[1..]).await;
    assert_eq!(calls(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn many_such_nodes_are_found_in_bounded_steps() {
    let (fake, cloud) = watched();
    let others: Vec<(usize, &str)> = (0..60).map(|i| (i * 16 + i % 7, "panic")).collect();
    let nodes = many(1000, &others);
    let mut left = usize::MAX;
    for round in 0.. {
        let answers = cloud.lookup(&nodes).await;
        let calls = calls(&fake);
        assert!(calls <= 2 + MORE_CALLS as usize, "{calls} calls");
        left = without_answer(&nodes, &answers).len();
        assert!(left >= 60, "who spoils the others is asked about");
        if left == 60 {
            break;
        }
        assert!(round < 20, "{left} nodes are without an answer");
    }
    assert_eq!(left, 60);
    // The provider is fixed.
    let mended: Vec<Arc<Node>> =
        nodes.iter().map(|n| node(&n.name().replace("panic", "mended"), None)).collect();
    assert!(without_answer(&mended, &cloud.lookup(&mended).await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_always_panics_is_not_asked_for_ever() {
    let (fake, cloud) = watched();
    fake.fail(Operation::Lookup, Fault::Panic);
    let nodes = many(1000, &[]);
    for _ in 0..10 {
        assert_eq!(without_answer(&nodes, &cloud.lookup(&nodes).await).len(), 1000);
        let calls = calls(&fake);
        assert!(calls <= 2 + MORE_CALLS as usize, "{calls} calls");
    }
    fake.fail(Operation::Lookup, None);
    assert!(without_answer(&nodes, &cloud.lookup(&nodes).await).is_empty());
    assert!(calls(&fake) <= 2);
    cloud.lookup(&nodes).await;
    assert_eq!(calls(&fake), 1, "nobody is asked about apart any more");
}

#[tokio::test(start_paused = true)]
async fn one_node_that_hangs_costs_the_others_seconds() {
    let (_, cloud) = watched();
    let nodes = many(1000, &[(77, "hang")]);
    let mut took = Vec::new();
    for _ in 0..4 {
        let began = Instant::now();
        let answers = cloud.lookup(&nodes).await;
        took.push((began.elapsed(), without_answer(&nodes, &answers).len()));
    }
    assert!(took[0].0 <= CALL_TIMEOUT + 6 * HANG_TIMEOUT, "{took:?}");
    assert!(took[0].1 < 100, "most are answered: {took:?}");
    assert_eq!(took[3], (HANG_TIMEOUT, 1), "{took:?}");
    // If no node gets an answer, no single node is at fault, and each call has its full time.
    let (_, cloud) = watched();
    for _ in 0..2 {
        let began = Instant::now();
        cloud.lookup(&many(1, &[(0, "hang")])).await;
        assert_eq!(began.elapsed(), CALL_TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn one_node_that_hangs_is_found_where_the_others_take_their_time() {
    for place in [77, 1900] {
        let (fake, cloud) = watched();
        fake.set_latency_per_node(Duration::from_millis(7));
        let nodes = many(2500, &[(place, "hang")]);
        let mut left = Vec::new();
        for _ in 0..6 {
            // A look-up of a single node that changed, which takes no time.
            cloud.lookup(&nodes[..1]).await;
            left.push(without_answer(&nodes, &cloud.lookup(&nodes).await).len());
        }
        assert!(left[0] <= 1250 && left[5] == 1, "{place}: {left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_node_of_thousands_that_hangs_is_found_however_long_the_others_take() {
    for (milliseconds, place) in [(7, 77), (7, 4900), (11, 77), (11, 4900)] {
        let (fake, cloud) = watched();
        fake.set_latency_per_node(Duration::from_millis(milliseconds));
        let nodes = many(5000, &[(place, "hang")]);
        cloud.lookup(&nodes[..1]).await;
        let mut left = Vec::new();
        for _ in 0..6 {
            let began = Instant::now();
            left.push(without_answer(&nodes, &cloud.lookup(&nodes).await).len());
            assert!(began.elapsed() <= 4 * CALL_TIMEOUT, "{:?}", began.elapsed());
        }
        assert_eq!(left[5], 1, "{milliseconds} ms, {place}: {left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_asked_about_with_the_others_again_after_a_while() {
    let (fake, cloud) = watched();
    cloud.lookup(&many(2, &[(0, "panic")])).await;
    assert_eq!(calls(&fake), 3);
    tokio::time::advance(Duration::from_secs(3600)).await;
    cloud.lookup(&many(2, &[])).await;
    cloud.lookup(&many(2, &[(0, "panic")])).await;
    assert_eq!(calls(&fake), 1 + 3);
}
