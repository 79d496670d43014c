//! Machines that are reset, since they do not work.

use cloudprovider::{
    ErrorKind,
    machines::{Mark, Reset},
};
use serde_json::json;

use crate::{controller::*, support::*};

/// Asks for a reset, as the controller does.
async fn reset(running: &Running, object: &Object) -> cloudprovider::Result<Reset> {
    let part = cloudprovider::CloudProvider::machines(&*running.provider).expect("machines");
    part.reset_machine(&object.request, &object.record).await
}

#[tokio::test]
async fn a_machine_is_reset_by_one_call_and_stays_complete() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({}));
    controller.make(&mut object).await;
    vcsim.reset_counts().expect("reset");
    assert_eq!(reset(&running, &object).await.expect("an answer"), Reset::Done);
    assert_eq!(calls(&vcsim).get("soap:ResetVM_Task"), Some(&1), "{:?}", calls(&vcsim));
    let before = object.request.provider_id.clone();
    controller.make(&mut object).await;
    assert_eq!(object.request.provider_id, before);
    assert!(controller.errors.is_empty(), "{:?}", controller.errors);

    // One that is off is powered on, whatever its steps do.
    vcsim.act("worker-1", "power-off", "").expect("off");
    let is_off = async {
        loop {
            let report = controller.step(&mut object).await.expect("a step");
            if report.present().is_some_and(|machine| machine.instance.power_state.is_shutdown()) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(test_env::PATIENCE, is_off).await.expect("it is seen");
    vcsim.reset_counts().expect("reset");
    assert_eq!(reset(&running, &object).await.expect("an answer"), Reset::Done);
    let made = calls(&vcsim);
    assert_eq!(
        (made.get("soap:PowerOnVM_Task"), made.get("soap:ResetVM_Task")),
        (Some(&1), None),
        "{made:?}"
    );
    running.stop().await;
}

#[tokio::test]
async fn only_the_machine_of_the_object_is_reset() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({}));
    controller.make(&mut object).await;
    vcsim.reset_counts().expect("reset");
    let mark = object.request.mark.clone();
    let mut other = object.clone();
    other.request.mark = Mark { namespace: "team-b".into(), ..mark.clone() };
    let error = reset(&running, &other).await.expect_err("it is another object's");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let never_made = Object::new(&vcsim, 2, &json!({}));
    assert_eq!(reset(&running, &never_made).await.expect("an answer"), Reset::Absent);
    assert_eq!(calls(&vcsim).get("soap:ResetVM_Task"), None);
    running.stop().await;
}

/// Only where vCenter has said no, nothing was reset for certain.
#[tokio::test]
async fn an_error_says_whether_the_machine_may_have_been_reset() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({}));
    controller.make(&mut object).await;
    for (rule, may_have_happened) in [
        (json!({"fault": "TaskInProgress"}), false),
        (json!({"fault": "NoPermission"}), false),
        (json!({"status": 503}), true),
        (json!({"drop": true, "after": true}), true),
    ] {
        let mut rule = rule;
        rule["methods"] = json!(["soap:ResetVM_Task"]);
        rule["times"] = json!(1);
        vcsim.set_rules(&json!([rule])).expect("rules");
        vcsim.reset_counts().expect("reset");
        let error = reset(&running, &object).await.expect_err("an error");
        assert_eq!(Reset::may_have_happened(&error), may_have_happened, "{rule}: {error}");
        assert_eq!(calls(&vcsim).get("soap:ResetVM_Task"), Some(&1), "{rule}: it is asked once");
        vcsim.set_rules(&json!([])).expect("no rules");
    }
    running.stop().await;
}
