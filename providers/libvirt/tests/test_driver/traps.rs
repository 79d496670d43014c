//! Pitfalls of libvirt and of its Rust layer, with tests that they are avoided.

use std::time::Duration;

use cloudprovider::{CloudProvider, Instances, NodeIdentity, StartContext};
use cloudprovider_libvirt::{Config, LibvirtProvider, virt::domain::Domain};
use tokio_util::sync::CancellationToken;

use crate::support::{Cloud, OFF, PATIENCE, RUNNING, changed, domain, host, node};

/// For a domain that does not exist, the safe layer's `state()` returns a state that is not defined. Here the
/// domain is reported as gone.
#[tokio::test]
async fn a_domain_that_is_gone_has_no_state() {
    let cloud = Cloud::start(&[vec![domain(1, "a", OFF)]]).await;
    let mut changes = cloud.changes();
    let swallowed = cloud
        .act(0, |connect| {
            let domain = connect.lookup_domain_by_name("a")?;
            domain.undefine()?;
            Ok(domain.state().is_ok())
        })
        .await;
    assert!(swallowed, "the trap has gone from the virt crate: sys::state can go too");
    changed(&mut changes, 1).await;
    assert!(cloud.is_absent(&node(1)).await);
}

/// Events must be set up before the first connection of the process, and must work on later connections too.
#[tokio::test]
async fn events_work_on_every_connection() {
    for _ in 0..5 {
        let cloud = Cloud::start(&[vec![domain(1, "a", OFF)]]).await;
        let mut changes = cloud.changes();
        cloud.to_domain("a", Domain::create).await;
        changed(&mut changes, 1).await;
    }
}

/// libvirt keeps a connection with callbacks open, so a provider that stops must deregister them.
#[tokio::test]
async fn a_stopped_provider_leaves_no_threads_behind() {
    let threads = || {
        std::fs::read_dir("/proc/self/task")
            .expect("Linux")
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|name| name.starts_with("libvirt-trap"))
            .count()
    };
    let file = host(&[domain(1, "a", OFF)]);
    let config = format!("hypervisors: [{{name: trap, uri: 'test://{}'}}]", file.path().display());
    let provider = LibvirtProvider::new(Config::parse(&config, None).expect("valid"));
    let stop = CancellationToken::new();
    provider.start(StartContext::new(stop.clone(), "c")).await.expect("starts");
    provider.lookup(&[&node(1)]).await;
    assert_eq!(threads(), 1);
    stop.cancel();
    let ended = async {
        while threads() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the thread of the connection ends");
}

/// The safe layer panics on a NUL character in some texts, and a Node can contain any text.
#[tokio::test]
async fn strange_texts_do_no_harm() {
    let cloud = Cloud::start(&[vec![domain(1, "a", RUNNING)]]).await;
    for text in ["\0", "a\0b", "libvirt:///\0", "libvirt:///a\0", "\u{202e}", &"x".repeat(100_000)] {
        let nodes = [
            NodeIdentity { name: text.to_owned(), ..NodeIdentity::default() },
            NodeIdentity { provider_id: Some(text.to_owned()), ..NodeIdentity::default() },
            NodeIdentity { system_uuid: Some(text.to_owned()), ..NodeIdentity::default() },
        ];
        for node in &nodes {
            cloud.look_up(node).await;
        }
    }
    assert!(Config::parse("hypervisors: [{name: a, uri: \"qemu:///\\0system\"}]", None).is_err());
}
