//! Machines on vCenters that are not in the configuration: their clusters name them, with credentials, or the configuration had them.

use cloudprovider::{
    CloudProvider as _, ErrorKind,
    machines::{Deletion, MachineReport},
};
use serde_json::{Value, json};
use test_env::{Vcsim, VcsimOptions};

use crate::{controller::*, identities::Secrets, support::*};

const RETRY: std::time::Duration = std::time::Duration::from_millis(100);

/// The spec of a cluster that names this vCenter, and the Secret `a`.
fn spec_of_cluster(vcsim: &Vcsim) -> Value {
    let more = json!({
        "identityRef": {"kind": "Secret", "name": "a"}, "thumbprint": vcsim.thumbprint("sha1").expect("sha1"),
    });
    merged(cluster_spec(vcsim), &more)
}

fn object(vcsim: &Vcsim, number: usize) -> Object {
    let mut object = Object::new(vcsim, number, &json!({}));
    object.request.cluster.spec = spec_of_cluster(vcsim);
    object
}

fn secrets(vcsim: &Vcsim) -> Secrets {
    let secrets = Secrets::default();
    secrets.set("default/a", vcsim.user(), vcsim.password());
    secrets
}

#[tokio::test]
async fn machines_need_no_zones_that_are_for_nodes() {
    let (Some(own), Some(named)) = (simulator(&VcsimOptions::default()), simulator(&factory_options()))
    else {
        return;
    };
    let running = Running::start_with(&with_zones(&config(&[&own])), secrets(&named)).await;
    let mut controller = Controller::new(&running);
    let mut object = object(&named, 1);
    controller.make(&mut object).await;
    controller.delete(&mut object).await;
    running.stop().await;
}

/// `ipFamily` of the configuration is for Nodes of the own cluster.
#[tokio::test]
async fn families_of_addresses_keep_no_machine_waiting() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    for family in ["ipv6", "ipv4"] {
        let text = format!("global: {{ipFamily: [{family}]}}\n{}", without_vcenter());
        let running = Running::start_with(&text, secrets(&vcsim)).await;
        let mut controller = Controller::new(&running);
        let mut object = object(&vcsim, 1);
        controller.make(&mut object).await;
        controller.delete(&mut object).await;
        running.stop().await;
    }
}

#[tokio::test]
async fn a_cluster_that_names_another_vcenter_loses_no_machine() {
    let (Some(first), Some(second)) = (simulator(&factory_options()), simulator(&factory_options())) else {
        return;
    };
    let running = Running::start_with(&without_vcenter(), secrets(&first)).await;
    let mut controller = Controller::new(&running);
    let mut object = object(&first, 1);
    controller.make(&mut object).await;

    // the same user and password are right there too
    object.request.cluster.spec = spec_of_cluster(&second);
    let error = loop {
        match controller.step(&mut object).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tokio::time::sleep(RETRY).await;
            }
            answer => break answer.expect_err("it is not lost"),
        }
    };
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{}", error.report());
    assert!(error.report().contains("was made on vCenter"), "{}", error.report());
    let part = running.provider.machines().expect("machines");
    let mut deleted = object.clone();
    deleted.request.bootstrap = None;
    let answer = part.delete_machine(&deleted.request, &mut deleted.record).await;
    assert!(!matches!(answer, Ok(Deletion::Gone)), "{answer:?}");
    assert_eq!(names(&first), [machine(0), "worker-1".to_owned()]);

    object.request.cluster.spec = spec_of_cluster(&first);
    controller.make(&mut object).await;
    controller.delete(&mut object).await;
    assert_eq!(names(&first), [machine(0)]);
    running.stop().await;
}

#[tokio::test]
async fn a_cluster_that_names_another_vcenter_meanwhile_gets_no_second_machine() {
    let (Some(first), Some(second)) = (simulator(&factory_options()), simulator(&factory_options())) else {
        return;
    };
    let running = Running::start_with(&without_vcenter(), secrets(&first)).await;
    let mut controller = Controller::new(&running);
    let mut object = object(&first, 1);
    while !calls(&first).contains_key("soap:CloneVM_Task") {
        if controller.step(&mut object).await.is_err() {
            tokio::time::sleep(RETRY).await;
        }
    }
    object.request.cluster.spec = spec_of_cluster(&second);
    for _ in 0..20 {
        let error = controller.step(&mut object).await.expect_err("it was begun on the first one");
        let is_told = error.report().contains("was made on vCenter");
        assert!(is_told || error.kind() == ErrorKind::Unavailable, "{}", error.report());
        tokio::time::sleep(RETRY).await;
    }
    assert_eq!(names(&second), [machine(0)]);
    object.request.cluster.spec = spec_of_cluster(&first);
    controller.make(&mut object).await;
    controller.delete(&mut object).await;
    running.stop().await;
}

/// The cluster names no server, and the only vCenter of the configuration is another one after a restart.
#[tokio::test]
async fn a_configuration_that_has_another_vcenter_loses_no_machine() {
    let (Some(first), Some(second)) = (simulator(&factory_options()), simulator(&factory_options())) else {
        return;
    };
    let mut object = Object::new(&first, 1, &json!({}));
    object.request.cluster.spec = json!({});
    let running = Running::start(&config(&[&first])).await;
    Controller::new(&running).make(&mut object).await;
    running.stop().await;

    let running = Running::start(&config(&[&second])).await;
    let part = running.provider.machines().expect("machines");
    let mut controller = Controller::new(&running);
    for is_deleted in [false, true] {
        let mut object = object.clone();
        let error = loop {
            let ended = if is_deleted {
                object.request.bootstrap = None;
                let answer = part.delete_machine(&object.request, &mut object.record).await;
                answer.map(|answer| answer == Deletion::Gone)
            } else {
                let answer = controller.step(&mut object).await;
                answer.map(|answer| !matches!(answer, MachineReport::Creating(_)))
            };
            match ended {
                Ok(ended) => assert!(!ended, "it is neither lost nor gone, and runs elsewhere"),
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                Err(error) => break error,
            }
            tokio::time::sleep(RETRY).await;
        };
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{}", error.report());
        assert!(error.report().contains("the finalizer stays"), "{}", error.report());
        assert!(!error.report().contains("127.0.0.1"), "the cluster names no server: {error}");
    }
    running.stop().await;
    assert_eq!(names(&first), [machine(0), "worker-1".to_owned()]);
    assert_eq!(names(&second), [machine(0)]);

    let running = Running::start(&config(&[&second, &first])).await;
    let mut controller = Controller::new(&running);
    object.request.cluster.spec = cluster_spec(&first);
    controller.make(&mut object).await;
    controller.delete(&mut object).await;
    running.stop().await;
}

#[tokio::test]
async fn a_vcenter_that_gets_another_name_is_the_same() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = Running::start_with(&without_vcenter(), secrets(&vcsim)).await;
    let mut controller = Controller::new(&running);
    let mut object = object(&vcsim, 1);
    controller.make(&mut object).await;
    vcsim.act("worker-1", "destroy", "").expect("destroyed");
    object.request.cluster.spec["server"] = json!(format!("localhost:{}", vcsim.port()));
    let lost = loop {
        match controller.step(&mut object).await {
            Ok(MachineReport::Lost { message }) => break message,
            Ok(_) => tokio::time::sleep(RETRY).await,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    assert!(lost.contains("localhost"), "{lost}");
    controller.delete(&mut object).await;
    running.stop().await;
}
