use std::sync::Arc;

use parking_lot::Mutex;
use sandbox::{Action, Fault, Matcher, Sandbox};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

use super::{super::clock::tests::Machine, *};
use crate::{
    events::{EventMetrics, event_recorder},
    metrics::MetricSet as _,
};

const SECOND: Duration = Duration::from_secs(1);

fn elector(sandbox: &Sandbox, identity: &str, clock: Clock) -> Elector {
    let options = LeaderElectionOptions {
        identity: identity.to_owned(),
        namespace: "kube-system".to_owned(),
        name: "ccm".to_owned(),
        lease_duration: 15 * SECOND,
        renew_deadline: 10 * SECOND,
        retry_period: 2 * SECOND,
    };
    let metrics = ElectionMetrics::unregistered().expect("metrics");
    let event_metrics = EventMetrics::unregistered().expect("metrics");
    let daemon = EventObject::lease("kube-system", "ccm", "");
    let (events, _) = event_recorder("ccm", sandbox.client(), daemon, event_metrics);
    Elector::new(sandbox.client(), options, &events, metrics).with_clock(clock)
}

/// The leader's machine is suspended while another candidate waits on a machine that is not.
#[tokio::test(start_paused = true)]
async fn a_leader_that_slept_has_lost_and_writes_nothing() {
    let (sandbox, stop) = (Sandbox::new(), CancellationToken::new());
    let machine = Arc::new(Machine::default());
    let sleeper = elector(&sandbox, "sleeper", Clock::of(machine.clone()));
    let mut leadership = sleeper.acquire(&stop).await.expect("the first one leads");
    let fence = leadership.fence().clone();
    assert!(timeout(60 * SECOND, leadership.renew()).await.is_err(), "it goes on leading");
    assert!(fence.is_open());
    machine.suspend(13 * SECOND);
    assert!(!fence.is_open(), "at once");
    let (woke, sent) = (Instant::now(), sandbox.requests().values().sum::<u64>());
    timeout(3 * SECOND, leadership.renew()).await.expect("it has lost");
    assert!(woke.elapsed() <= 2 * SECOND, "{:?}", woke.elapsed());
    assert_eq!(sandbox.requests().values().sum::<u64>(), sent, "not even a renewal");
}

#[tokio::test(start_paused = true)]
async fn a_leap_of_the_time_of_day_costs_one_renewal() {
    let (sandbox, stop) = (Sandbox::new(), CancellationToken::new());
    let machine = Arc::new(Machine::default());
    let leader = elector(&sandbox, "leader", Clock::of(machine.clone()));
    let mut leadership = leader.acquire(&stop).await.expect("it leads");
    let fence = leadership.fence().clone();
    machine.set_wall(3600);
    assert!(!fence.is_open());
    assert!(timeout(3 * SECOND, leadership.renew()).await.is_err(), "it leads on");
    assert!(fence.is_open(), "renewed");
}

#[tokio::test(start_paused = true)]
async fn a_leap_of_the_time_of_day_is_followed_by_a_renewal_at_once() {
    let (sandbox, stop) = (Sandbox::new(), CancellationToken::new());
    let machine = Arc::new(Machine::default());
    let leader = elector(&sandbox, "leader", Clock::of(machine.clone()));
    let mut leadership = leader.acquire(&stop).await.expect("it leads");
    let fence = leadership.fence().clone();
    assert!(timeout(SECOND / 2, leadership.renew()).await.is_err(), "it leads");
    let renewals = || sandbox.requests_matching(&Matcher::any().verb("update").resource("leases")).len();
    let before = renewals();
    let leaps = async {
        tokio::time::sleep(SECOND / 2).await;
        machine.set_wall(3600);
        assert!(!fence.is_open());
        tokio::time::sleep(SECOND / 4).await;
    };
    tokio::select! {
        () = leadership.renew() => panic!("it leads on"),
        () = leaps => {}
    }
    assert!(fence.is_open(), "renewed");
    assert_eq!(renewals(), before + 1);
    // If the API server does not answer, retries come at the same rate as without a leap.
    sandbox.faults().inject(Fault::new(Matcher::any().resource("leases"), Action::ServiceUnavailable));
    machine.set_wall(3600);
    let asked = || sandbox.requests().values().sum::<u64>();
    let before = asked();
    assert!(timeout(5 * SECOND, leadership.renew()).await.is_err(), "it leads on");
    let tries = asked() - before;
    assert!(
        (4..=8).contains(&tries),
        "{tries}: one at once and one each two seconds, a renewal and a look each"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_standby_slept_through_counts_where_nobody_renewed() {
    let (sandbox, stop) = (Sandbox::new(), CancellationToken::new());
    let leader = elector(&sandbox, "leader", Clock::system());
    let mut leadership = leader.acquire(&stop).await.expect("it leads");
    let machine = Arc::new(Machine::default());
    let standby = elector(&sandbox, "standby", Clock::of(machine.clone()));
    let status = standby.status();
    let standby = tokio::spawn(async move { standby.acquire(&stop).await.is_some() });
    assert!(timeout(20 * SECOND, leadership.renew()).await.is_err(), "it goes on leading");
    assert_eq!(status.to_json()["holder"], "leader");
    // The standby's longest pause is 4.4 s. After it, the standby has seen the last renewal, whose term
    // is not over yet.
    tokio::time::sleep(5 * SECOND).await;
    machine.suspend(60 * SECOND);
    assert!(timeout(5 * SECOND, standby).await.expect("soon").expect("it ends"));
}

#[tokio::test(start_paused = true)]
async fn nobody_else_leads_while_the_leader_says_that_it_leads_alone() {
    let (sandbox, stop) = (Sandbox::new(), CancellationToken::new());
    let leader = elector(&sandbox, "leader", Clock::system());
    let mut leadership = leader.acquire(&stop).await.expect("it leads");
    let fence = leadership.fence().clone();
    let standby = elector(&sandbox, "standby", Clock::system());
    let mut standby = tokio::spawn(async move {
        let leads = standby.acquire(&stop).await.is_some();
        (leads, Instant::now())
    });
    assert!(timeout(20 * SECOND, leadership.renew()).await.is_err(), "it goes on leading");
    // From here on it cannot renew.
    let (stopped, mut alone_until) = (Instant::now(), Instant::now());
    let (leads, took_over) = loop {
        let alone_for = fence.alone_for();
        if !alone_for.is_zero() {
            alone_until = alone_until.max(Instant::now() + alone_for);
        }
        if let Ok(standby) = timeout(SECOND / 20, &mut standby).await {
            break standby.expect("it ends");
        }
    };
    assert!(leads && took_over >= alone_until, "{:?} too early", alone_until - took_over);
    let alone_for = alone_until - stopped;
    assert!((12 * SECOND..=15 * SECOND).contains(&alone_for), "{alone_for:?}");
    assert_eq!(fence.alone_for(), Duration::ZERO);
}

/// Keeps the messages of the log.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> Layer<S> for Kept {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            if field.name() == "message" {
                self.0.lock().push(format!("{value:?}"));
            }
        });
    }
}

/// As in a namespace that is being deleted.
#[tokio::test(start_paused = true)]
async fn a_lease_that_can_be_read_and_not_created_is_one_line_of_the_log() {
    let (sandbox, stop, kept) = (Sandbox::new(), CancellationToken::new(), Kept::default());
    let _logging = tracing::subscriber::set_default(tracing_subscriber::registry().with(kept.clone()));
    let creations = Matcher::any().verb("create").resource("leases");
    sandbox.faults().inject(Fault::new(creations.clone(), Action::ErrorEvent(403)));
    let candidate = elector(&sandbox, "candidate", Clock::of(Arc::new(Machine::default())));
    let lifting = async {
        while sandbox.requests_matching(&creations).len() < 10 {
            tokio::time::sleep(SECOND).await;
        }
        sandbox.faults().clear();
    };
    let (leadership, ()) = tokio::join!(candidate.acquire(&stop), lifting);
    assert!(leadership.is_some());
    let said = kept.0.lock().clone();
    let count = |text: &str| said.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("cannot take part in the leader election"), 1, "{said:?}");
    assert_eq!(count("takes part in the leader election again"), 1, "{said:?}");
}
