use super::*;

impl Working {
    /// Deletes a Service whose finalizer somebody has removed, while the controller cannot bring it back.
    async fn vanish(&self, name: &str) {
        let patches = Matcher::any().verb("patch").resource("services").subresource("status");
        let refused = sandbox::Fault::new(patches, sandbox::Action::InternalError);
        self.sandbox.faults().inject(refused);
        self.patch(name, json!({"metadata": {"finalizers": null}})).await;
        self.services().delete(name, &DeleteParams::default()).await.expect("deleted");
        self.sandbox.faults().clear();
    }
}

#[tokio::test(start_paused = true)]
async fn the_load_balancer_goes_before_the_finalizer() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.sandbox.reset_requests();
    working.fake.fail_next(Operation::DeleteLoadBalancer, Error::new(ErrorKind::Unavailable, "quota"));
    working.services().delete("web", &DeleteParams::default()).await.expect("deleted");
    let (get, delete) = (Operation::GetLoadBalancer, Operation::DeleteLoadBalancer);
    assert_eq!(working.calls_after(SOON).await, [get, delete]);
    assert!(working.has_finalizer("web").await);
    assert!(working.addresses("web").await.is_empty(), "before anybody else can have the address");
    assert_eq!(working.calls_after(Duration::from_secs(5)).await, [get, delete]);
    assert_eq!(working.get("web").await.finalizers(), ["example.com/other"]);
    assert!(working.addresses("web").await.is_empty() && working.fake.load_balancers().is_empty());
    assert_eq!(working.writes(), 3, "the status, the status as it is, the finalizer");
    let events = working.events().await;
    for reason in ["DeletingLoadBalancer", "SyncLoadBalancerFailed", "DeletedLoadBalancer"] {
        assert!(events.iter().any(|event| event == reason), "{reason} in {events:?}");
    }
    assert_eq!(working.calls_after(PERIOD).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_not_deleted_while_the_status_has_its_address() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.refuse_writes(1);
    working.services().delete("web", &DeleteParams::default()).await.expect("deleted");
    let (get, delete) = (Operation::GetLoadBalancer, Operation::DeleteLoadBalancer);
    assert_eq!(working.calls_after(SOON).await, [get]);
    assert_eq!(working.addresses("web").await, ["198.18.0.1"]);
    let messages = working.messages().await;
    let what = "failed to update load balancer status";
    assert!(messages.iter().any(|message| message.contains(what)), "{messages:?}");
    assert_eq!(working.calls_after(Duration::from_secs(5)).await, [get, delete]);
    assert!(working.addresses("web").await.is_empty() && !working.has_finalizer("web").await);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_wanted_again_is_not_deleted() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    // The first look fails, and the watch is lost before the Service changes back.
    working.fake.fail_next(Operation::GetLoadBalancer, quota());
    working.patch("web", json!({"spec": {"type": "NodePort"}})).await;
    tokio::time::sleep(SOON).await;
    working.lose_watch();
    working.patch("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    let get = Operation::GetLoadBalancer;
    assert_eq!(working.calls_after(Duration::from_secs(60)).await, [get, get]);
    working.sandbox.faults().clear();
    assert_eq!(working.calls_after(Duration::from_secs(60)).await, [Operation::EnsureLoadBalancer]);
    assert_eq!(working.addresses("web").await, ["198.18.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn another_type_ends_the_load_balancer() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.patch("web", json!({"spec": {"type": "NodePort"}})).await;
    let (get, delete) = (Operation::GetLoadBalancer, Operation::DeleteLoadBalancer);
    assert_eq!(working.calls_after(SOON).await, [get, delete]);
    assert!(!working.has_finalizer("web").await && working.addresses("web").await.is_empty());
    working.patch("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    assert!(working.has_finalizer("web").await);
    // Somebody removes the finalizer with the type.
    working.patch("web", json!({"metadata": {"finalizers": null}, "spec": {"type": "ClusterIP"}})).await;
    assert_eq!(working.calls_after(SOON).await, [get, delete]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_being_deleted_gets_no_finalizer() {
    let sandbox = Sandbox::new();
    let working = Working::on(sandbox, FakeCloud::new().with_load_balancers(), options());
    working.fake.fail(Operation::EnsureLoadBalancer, Fault::from(Error::new(ErrorKind::Unavailable, "x")));
    let created = working.create("web").await;
    working.services().delete(&created.name_any(), &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(PERIOD).await;
    assert!(!working.has_finalizer("web").await);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_vanished_leaves_nothing_behind() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    let busy = Error::in_progress(Duration::from_secs(40), "busy").wrap("delete");
    working.fake.fail_next(Operation::DeleteLoadBalancer, busy);
    working.vanish("web").await;
    let delete = Operation::DeleteLoadBalancer;
    assert_eq!(working.calls_after(Duration::from_secs(39)).await, [delete]);
    assert_eq!(working.calls_after(SOON).await, [delete]);
    assert!(working.fake.load_balancers().is_empty());
    let events = working.events().await;
    for reason in ["DeletingLoadBalancer", "DeleteLoadBalancerFailed", "DeletedLoadBalancer"] {
        assert!(events.iter().any(|event| event == reason), "{reason} in {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_service_of_the_same_name_the_old_load_balancer_goes_first() {
    let working = Working::start().await;
    let old = working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.vanish("web").await;
    let new = working.create("web").await;
    let (delete, ensure) = (Operation::DeleteLoadBalancer, Operation::EnsureLoadBalancer);
    assert_eq!(working.calls_after(SOON).await, [delete, ensure]);
    let names: Vec<String> = working.fake.load_balancers().into_keys().collect();
    assert_ne!(old.uid(), new.uid());
    assert_eq!(names, [default_load_balancer_name(&new.uid().expect("a UID"))]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_wants_its_load_balancer_again_gets_it() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    // The load balancer is deleted, and the finalizer stays.
    working.fake.set_latency(Duration::from_secs(1));
    working.patch("web", json!({"spec": {"type": "NodePort"}})).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    working.refuse_writes(1);
    let (get, delete) = (Operation::GetLoadBalancer, Operation::DeleteLoadBalancer);
    assert_eq!(working.calls_after(SOON).await, [get, delete]);
    assert!(working.has_finalizer("web").await && working.fake.load_balancers().is_empty());
    working.fake.set_latency(Duration::ZERO);
    working.patch("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    assert_eq!(working.fake.load_balancers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_finalizer_told_of_is_remembered_without_it() {
    let working = Working::start().await;
    let delete = Operation::DeleteLoadBalancer;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.run.abort();
    working.patch("web", json!({"spec": {"type": "ClusterIP"}})).await;
    working.fake.fail(delete, Fault::from(Error::in_progress(Duration::from_secs(60), "busy")));
    // A controller that never made it.
    let next = Working::on(working.sandbox.clone(), working.fake.clone(), options());
    tokio::time::sleep(SOON).await;
    working.patch("web", json!({"metadata": {"finalizers": null}})).await;
    next.services().delete("web", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(SOON).await;
    next.fake.mend();
    tokio::time::sleep(PERIOD).await;
    assert!(next.fake.load_balancers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn little_that_is_left_of_a_service_does_not_replace_what_is_known() {
    let service = |service_type: &str| {
        Arc::new(Service::from_json(json!({
            "metadata": {"namespace": "default", "name": "web", "uid": "u"},
            "spec": {"type": service_type, "ports": [{"port": 80}]},
        })))
    };
    let (sandbox, fake) = (Sandbox::new(), FakeCloud::new().with_load_balancers());
    Working::with(sandbox, fake, options(), TermFence::default(), |controller| {
        controller.start("default/web".to_owned(), Some(service("LoadBalancer")), Action::Ensure);
        for _ in 0..2 {
            controller.start("default/web".to_owned(), Some(service("ClusterIP")), Action::CleanUp);
            assert_eq!(controller.memories["default/web"].told.content.ports.len(), 1);
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_that_fails_is_tried_at_once_after_a_change() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    let (get, delete) = (Operation::GetLoadBalancer, Operation::DeleteLoadBalancer);
    working.fake.fail(delete, Fault::from(Error::in_progress(Duration::from_secs(500), "busy")));
    working.services().delete("web", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(working.calls_after(SOON).await, [get, delete]);
    assert_eq!(working.calls_after(Duration::from_secs(400)).await, [], "it does not change any more");
}

#[tokio::test(start_paused = true)]
async fn without_a_call_of_the_cloud_there_is_nothing_to_delete() {
    let working = Working::start().await;
    working.refuse_writes(1);
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.patch("web", json!({"metadata": {"finalizers": null}})).await;
    working.services().delete("web", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(working.calls_after(PERIOD).await, []);
}
