//! The ends of terms and of the controller.

use component::leader_election::Fence;

use super::*;

#[tokio::test(start_paused = true)]
async fn after_its_term_the_cloud_is_not_called() {
    let (sandbox, fake) = (Sandbox::new(), FakeCloud::new().with_load_balancers());
    let closed = TermFence::from(Fence::default());
    let working = Working::with(sandbox, fake, options(), closed, |_| {});
    working.create("web").await;
    assert_eq!(working.calls_after(Duration::from_secs(10)).await, []);
    let tries = working.writes();
    assert!((1..=20).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_the_work_under_way_ends() {
    let (sandbox, fake) = (Sandbox::new(), FakeCloud::new().with_load_balancers());
    fake.set_latency(Duration::from_secs(4));
    let panics = |controller: &mut ServiceController| {
        controller.tasks.spawn(async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            panic!("in a task");
        });
    };
    let working = Working::with(sandbox, fake, options(), TermFence::default(), panics);
    tokio::time::sleep(SOON).await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.create("late").await;
    tokio::time::sleep(SOON * 2).await;
    assert!(working.run.is_finished());
    assert_eq!(working.addresses("web").await, ["198.18.0.1"]);
    assert_eq!(working.fake.load_balancers().len(), 1, "nothing is begun");
}
