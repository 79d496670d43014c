//! libvirt's events arrive as changes, without delay.

use cloudprovider::{ErrorKind, InstanceChange, PowerState};
use cloudprovider_libvirt::{
    METADATA_NAMESPACE,
    virt::{domain::Domain, sys},
};
use futures::StreamExt;

use crate::support::{Cloud, OFF, PATIENCE, RUNNING, becomes, changed, domain, new_node, node};

#[tokio::test]
async fn power_is_pushed() {
    let cloud = Cloud::start(&[vec![domain(1, "a", RUNNING)]]).await;
    let mut changes = cloud.changes();
    let calls = cloud.total_calls();
    for (work, power) in [
        ("stop", PowerState::Off),
        ("start", PowerState::Running),
        ("suspend", PowerState::Paused),
        ("resume", PowerState::Running),
    ] {
        match work {
            "stop" => cloud.to_domain("a", Domain::destroy).await,
            "start" => cloud.to_domain("a", Domain::create).await,
            "suspend" => cloud.to_domain("a", Domain::suspend).await,
            _ => cloud.to_domain("a", Domain::resume).await,
        }
        becomes(&cloud, &mut changes, 1, power).await;
    }
    assert!(cloud.total_calls() - calls <= 4 * 8, "{:?}", cloud.calls());
    assert_eq!(cloud.calls()["list_domains"], 1, "events need no listing");
}

#[tokio::test]
async fn an_address_of_one_domain_leaves_the_others_theirs() {
    let cloud = Cloud::start(&[vec![domain(1, "a", RUNNING), domain(2, "b", OFF)]]).await;
    let before = cloud.present(&node(1)).await.metadata.addresses;
    let mut changes = cloud.changes();
    cloud.to_domain("b", Domain::create).await;
    while cloud.present(&node(2)).await.metadata.addresses.is_empty() {
        changed(&mut changes, 2).await;
    }
    assert_eq!(cloud.present(&node(1)).await.metadata.addresses, before);
    assert!(!before.is_empty());
}

#[tokio::test]
async fn coming_and_going_is_pushed() {
    let cloud = Cloud::start(&[vec![domain(1, "a", OFF)]]).await;
    let mut changes = cloud.changes();
    let xml = domain(2, "b", OFF);
    cloud.act(0, move |connect| connect.define_domain_xml(&xml).map(drop)).await;
    changed(&mut changes, 2).await;
    assert_eq!(cloud.present(&node(2)).await.power_state, PowerState::Off);
    cloud.to_domain("b", Domain::undefine).await;
    changed(&mut changes, 2).await;
    assert!(cloud.is_absent(&node(2)).await);
    assert!(!cloud.is_absent(&node(1)).await);
}

#[tokio::test]
async fn a_new_name_and_new_metadata_are_pushed() {
    let cloud = Cloud::start(&[vec![domain(1, "a", OFF)]]).await;
    let mut changes = cloud.changes();
    cloud.to_domain("a", |domain| domain.rename("b", 0).map(drop)).await;
    changed(&mut changes, 1).await;
    assert!(cloud.is_absent(&new_node("a", "")).await);
    cloud.present(&new_node("b", "")).await;
    cloud
        .to_domain("b", |domain| {
            domain
                .set_metadata(
                    sys::VIR_DOMAIN_METADATA_ELEMENT.cast_signed(),
                    Some("<instance type='m.tiny'/>"),
                    Some("ccm"),
                    Some(METADATA_NAMESPACE),
                    sys::VIR_DOMAIN_AFFECT_CONFIG,
                )
                .map(drop)
        })
        .await;
    changed(&mut changes, 1).await;
    let instance = cloud.present(&new_node("b", "")).await;
    assert_eq!(instance.metadata.instance_type.as_deref(), Some("m.tiny"));
}

#[tokio::test]
async fn the_first_listing_is_a_resync_and_the_end_ends_the_stream() {
    let cloud = Cloud::begin(&[vec![domain(1, "a", OFF)]], "").await;
    let mut changes = cloud.changes();
    let first = tokio::time::timeout(PATIENCE, changes.next()).await.expect("in time");
    assert_eq!(first, Some(InstanceChange::Resync));
    cloud.stop();
    let end = async { while changes.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, end).await.expect("ends");
    let error = cloud.unknown(&node(1)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
