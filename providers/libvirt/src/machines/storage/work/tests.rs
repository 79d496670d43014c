use tokio::sync::oneshot;

use super::*;

fn key(base: &str) -> WorkKey {
    key_of("default", base)
}

fn key_of(namespace: &str, base: &str) -> WorkKey {
    WorkKey {
        kind: Kind::Import,
        namespace: namespace.to_owned(),
        hypervisor: "kvm1".to_owned(),
        pool: "pool".to_owned(),
        base: base.to_owned(),
    }
}

/// Work, and who was woken so far.
fn new() -> (LongWork, Arc<Mutex<Vec<Vec<String>>>>, CancellationToken) {
    let woken = Arc::<Mutex<Vec<Vec<String>>>>::default();
    let wake = { Arc::clone(&woken) };
    let wake: Wake = Arc::new(move |machines| wake.lock().push(machines));
    let stop = CancellationToken::new();
    (LongWork::new(wake, stop.clone(), TaskTracker::new()), woken, stop)
}

impl LongWork {
    /// How much runs, and how much waits.
    pub(in super::super) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        let count =
            |is_meant: fn(&Entry) -> bool| state.entries.values().filter(|entry| is_meant(entry)).count();
        (
            count(|entry| matches!(entry, Entry::Running { .. })),
            count(|entry| matches!(entry, Entry::Waiting { .. })),
        )
    }
}

fn failed(standing: WorkStatus) -> Error {
    match standing {
        WorkStatus::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

fn message(standing: WorkStatus) -> String {
    match standing {
        WorkStatus::Running(wait) => wait.message.into_owned(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn all_who_ask_share_one_task_and_are_woken_when_it_ends() {
    let (work, woken, _stop) = new();
    let (finish, finished) = oneshot::channel::<()>();
    let progress = Progress::new("import of a");
    let task = async move { finished.await.map_err(|_| Error::unsupported("dropped")) };
    assert_eq!(message(work.begin(key("a"), "m1", Arc::clone(&progress), task)), "import of a");
    let never = async { unreachable!("a second task") };
    assert_eq!(message(work.begin(key("a"), "m2", Progress::new("other"), never)), "import of a");
    progress.set_total(100);
    for (more, percent) in [(9, 0), (1, 10), (85, 90), (5, 100), (50, 100)] {
        progress.add(more);
        assert_eq!(message(work.status(&key("a"), "m3", &progress)), format!("import of a, {percent} %"));
    }
    assert!(
        matches!(work.status(&key("b"), "m4", &progress), WorkStatus::Idle)
            && work.is_imported("kvm1", "pool", "a")
    );
    finish.send(()).expect("it waits");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(
        matches!(work.status(&key("a"), "m1", &Progress::new("import")), WorkStatus::Idle)
            && !work.is_imported("kvm1", "pool", "a")
    );
    assert_eq!(*woken.lock(), [["m1", "m2", "m3"].map(str::to_owned)]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_to_all_and_tried_again_after_a_pause_that_grows() {
    let (work, woken, _stop) = new();
    let fails = || async { Err(Error::new(ErrorKind::NotFound, "the server says 404")) };
    let mut began = Vec::new();
    for _ in 0..4 {
        while !matches!(work.begin(key("a"), "m1", Progress::new("import"), fails()), WorkStatus::Running(_))
        {
            let error = failed(work.status(&key("a"), "m2", &Progress::new("import")));
            let elsewhere = work.status(&key("a"), "m3", &Progress::new("import from elsewhere"));
            assert!(matches!(elsewhere, WorkStatus::Idle), "that has not failed");
            assert_eq!((error.kind(), error.report().as_str()), (ErrorKind::NotFound, "the server says 404"));
            tokio::time::sleep(error.retry_after().expect("a time")).await;
        }
        began.push(Instant::now());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let pauses: Vec<_> = began.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(pauses, [5, 10, 20]);
    assert_eq!(woken.lock().len(), 4);
    // Nobody asks any more: it is forgotten.
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    assert!(matches!(work.status(&key("b"), "m1", &Progress::new("import")), WorkStatus::Idle));
    assert!(work.state().entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure() {
    let (work, woken, _stop) = new();
    work.begin(key("a"), "m1", Progress::new("import"), async { panic!("a fault") });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(failed(work.status(&key("a"), "m1", &Progress::new("import"))).kind(), ErrorKind::Internal);
    assert_eq!(woken.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_ends_with_the_provider() {
    let (work, woken, stop) = new();
    work.begin(key("a"), "m1", Progress::new("import"), std::future::pending());
    stop.cancel();
    work.0.tasks.close();
    work.0.tasks.wait().await;
    assert!(woken.lock().is_empty());
}

#[test]
fn work_of_unknown_size_tells_how_much_is_done() {
    let progress = Progress::new("import");
    progress.add(UNKNOWN_STEP - 1);
    assert_eq!(progress.message(), "import");
    progress.add(2 * UNKNOWN_STEP);
    assert_eq!(progress.message(), "import, 2 GiB");
}
