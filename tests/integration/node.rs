//! Scenarios of the node controller.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use ccm::controllers::node::NodeMetrics;
use cloudprovider::{
    Error, NodeAddress,
    testing::{FakeInstance, Operation},
};
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
    client::Body,
};
use parking_lot::Mutex;
use sandbox::kubelet;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    api::Api,
    daemon::InProcess,
    fake_cloud::{FakeCloud, Fault, Lookups, running, unavailable},
    scenarios::Trials,
    support::*,
};

const SOON: Duration = Duration::from_secs(20);

pub(crate) fn trials() -> Trials {
    Trials::new()
        .both("a_new_node_becomes_complete", complete)
        .sandbox("a_node_says_why_it_waits", says_why)
        .sandbox("an_incomplete_instance_keeps_the_taint", incomplete)
        .sandbox("a_provided_node_ip_must_match", provided_node_ip)
        .sandbox("nodes_of_other_clouds_are_left_alone", foreign)
        .both("addresses_and_labels_follow_the_cloud", follows)
        .sandbox("additional_labels_of_others_are_replaced_with_upstreams_gate", replaced)
        .sandbox("a_panicking_provider_stops_nobody", panics)
        .sandbox("a_provider_that_panics_over_one_node_stops_no_other", panics_over_one)
        .both("an_instance_without_an_id_is_enough_for_a_node_that_has_one", without_id)
        .both("an_answer_about_an_older_node_of_the_same_name_does_not_count", name_reused)
        .previous("a_new_node_becomes_complete", complete)
        .sandbox("a_settled_hour_costs_no_writes", settled_hour)
        .sandbox("what_others_write_meanwhile_costs_no_refused_write", written_by_others)
}

/// Another client annotates the Node after the daemon's first write, and the daemon has seen that before it
/// writes again.
async fn written_by_others(api: &Api) -> anyhow::Result<()> {
    let written = Arc::<Mutex<Vec<(String, u16)>>>::default();
    let noted = Arc::clone(&written);
    let (daemon, somebody) = (api.daemon_client.clone(), kube::Api::<Node>::all(api.client.clone()));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (daemon, somebody, noted) = (daemon.clone(), somebody.clone(), Arc::clone(&noted));
        async move {
            let is_patch = request.method() == Method::PATCH;
            let path = request.uri().path().to_owned();
            let answer: Response<Body> = daemon.send(request).await?;
            if is_patch {
                let status = answer.status().as_u16();
                noted.lock().push((path.clone(), status));
            }
            if is_patch && path.ends_with("/status") {
                let patch =
                    Patch::Merge(json!({"metadata": {"annotations": {"example.com/by": "somebody"}}}));
                somebody.patch("n1", &PatchParams::default(), &patch).await?;
                sleep(Duration::from_millis(50)).await;
            }
            Ok::<_, kube::Error>(answer)
        }
    });
    let cloud = FakeCloud::new();
    cloud.put(&uuid(1), running(1));
    let daemon = InProcess::start(&Client::new(service, "default"), cloud.provider(), &[])?;
    kubelet::register(&api.client, &kubelet::node("n1", &uuid(1))).await?;
    let node = node_becomes(&api.client, "n1", SOON, "initialized", is_initialized).await?;
    daemon.stop().await?;
    ensure!(node.metadata.annotations.is_some_and(|all| all.contains_key("example.com/by")));
    let written = written.lock().clone();
    let expected = [("/api/v1/nodes/n1/status".to_owned(), 200), ("/api/v1/nodes/n1".to_owned(), 200)];
    ensure!(written == expected, "{written:?}");
    Ok(())
}

async fn complete(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    let mut machine = running(1);
    machine.metadata.additional_labels = [
        ("example.com/rack".to_owned(), "7".to_owned()),
        ("kubernetes.io/os".to_owned(), "dropped".to_owned()),
        ("example.com/taken".to_owned(), "cloud".to_owned()),
    ]
    .into();
    cloud.put(&uuid(1), machine);
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;

    let mut node = kubelet::node_of_real_size("n1", &uuid(1));
    node.metadata.labels.get_or_insert_default().insert("example.com/taken".into(), "mine".into());
    let posted = kubelet::register(&api.client, &node).await?;
    let mut history = History::record(&api.client, &posted)?;
    let done = node_becomes(&api.client, "n1", SOON, "initialized", is_initialized).await?;

    ensure!(provider_id(&done) == Some(format!("fake:///{}", uuid(1))));
    let found = addresses(&done);
    ensure!(found == ["InternalIP 10.0.0.2", "InternalIP fd00::2", "Hostname n1"], "{found:?}");
    for (key, value) in [
        ("node.kubernetes.io/instance-type", "2c-4096m"),
        ("beta.kubernetes.io/instance-type", "2c-4096m"),
        ("topology.kubernetes.io/zone", "rack-a"),
        ("failure-domain.beta.kubernetes.io/zone", "rack-a"),
        ("topology.kubernetes.io/region", "lab"),
        ("failure-domain.beta.kubernetes.io/region", "lab"),
        ("example.com/rack", "7"),
        ("example.com/taken", "mine"),
        ("kubernetes.io/os", "linux"),
    ] {
        ensure!(label(&done, key) == Some(value), "{key} is {:?}", label(&done, key));
    }
    ensure!(has_taint(&done, "node.kubernetes.io/not-ready"), "other taints stay");
    check_order(&history.up_to(&done).await?)?;

    let synced = event(&api.client, "default", "n1", "Synced").await?;
    ensure!(synced.message.as_deref() == Some("Node synced successfully"));
    ensure!(synced.source.and_then(|s| s.component).as_deref() == Some("cloud-node-controller"));
    ensure!(synced.type_.as_deref() == Some("Normal"));
    ensure!(synced.involved_object.uid == posted.metadata.uid);
    ensure!(daemon.counted::<NodeMetrics>().taint_removal_delay.get_sample_count() == 1);
    ensure!(daemon.counted::<NodeMetrics>().initial_node_sync_delay.get_sample_count() == 1);
    let writes = api.requests.writes();
    ensure!(
        writes == [("PATCH nodes".to_owned(), 1), ("PATCH nodes/status".to_owned(), 1)].into(),
        "{writes:?}"
    );
    daemon.stop().await
}

/// As upstream's reconciliation of additional labels: a Node that is initialised gets the cloud's value.
async fn replaced(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    let mut machine = running(1);
    machine.metadata.additional_labels = [("example.com/taken".to_owned(), "cloud".to_owned())].into();
    cloud.put(&uuid(1), machine);
    let gate = "--feature-gates=CloudNodeAdditionalLabelsReconciliation=true";
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[gate])?;
    let mut node = kubelet::node_of_real_size("n1", &uuid(1));
    let labels = node.metadata.labels.get_or_insert_default();
    labels.extend(
        [("example.com/taken", "mine"), ("example.com/own", "mine")].map(|(k, v)| (k.into(), v.into())),
    );
    kubelet::register(&api.client, &node).await?;
    let done = node_becomes(&api.client, "n1", SOON, "labelled by the cloud", |node| {
        is_initialized(node) && label(node, "example.com/taken") == Some("cloud")
    })
    .await?;
    ensure!(label(&done, "example.com/own") == Some("mine"), "a label that the cloud does not give stays");
    daemon.stop().await
}

async fn says_why(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    cloud.fail_lookups(unavailable("the management network is down"));
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
    kubelet::register(&api.client, &kubelet::node("n1", &uuid(1))).await?;

    let condition_is = |reason: &'static str, words: &'static str| {
        move |node: &_| {
            condition(node, "CloudProviderInitialized").is_some_and(|(status, why, message)| {
                status == "False" && why == reason && message.contains(words)
            })
        }
    };
    let unavailable = condition_is("ProviderUnavailable", "the management network is down");
    node_becomes(&api.client, "n1", SOON, "says that the cloud is away", unavailable).await?;
    let warning = event(&api.client, "default", "n1", "InitializationFailed").await?;
    ensure!(warning.type_.as_deref() == Some("Warning"));
    ensure!(warning.message.as_deref().is_some_and(|m| m.contains("the management network is down")));
    ensure!(
        daemon.counted::<NodeMetrics>().uninitialized_nodes.with_label_values(&["ProviderUnavailable"]).get()
            == 1
    );

    // The same fault is written only once.
    api.requests.reset();
    sleep(Duration::from_secs(5)).await;
    ensure!(api.requests.of("PATCH nodes/status") == 0, "the condition is written once");

    cloud.fail_lookups(None);
    node_becomes(
        &api.client,
        "n1",
        SOON,
        "says that it has no instance",
        condition_is("InstanceNotFound", "fake"),
    )
    .await?;
    ensure!(!is_initialized(&nodes(&api.client).get("n1").await?));

    // A change that the cloud pushes ends the wait at once, whatever the backoff.
    cloud.put(&uuid(1), running(1));
    let done = node_becomes(&api.client, "n1", Duration::from_secs(3), "initialized", is_initialized).await?;
    ensure!(condition_status(&done, "CloudProviderInitialized").as_deref() == Some("True"));
    ensure!(
        daemon.counted::<NodeMetrics>().uninitialized_nodes.with_label_values(&["InstanceNotFound"]).get()
            == 0
    );
    daemon.stop().await
}

async fn incomplete(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    cloud.put(
        &uuid(1),
        running(1).with_incomplete(Error::in_progress(Duration::from_secs(1), "no DHCP lease yet")),
    );
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
    kubelet::register(&api.client, &kubelet::node("n1", &uuid(1))).await?;
    let waits = |node: &_| {
        condition(node, "CloudProviderInitialized")
            .is_some_and(|(status, _, words)| status == "False" && words == "no DHCP lease yet")
    };
    let node = node_becomes(&api.client, "n1", SOON, "says what is missing", waits).await?;
    ensure!(!is_initialized(&node) && provider_id(&node).is_none(), "nothing is written before all is known");
    cloud.change(&uuid(1), |machine| machine.incomplete = None);
    node_becomes(&api.client, "n1", SOON, "initialized", is_initialized).await?;
    daemon.stop().await
}

async fn provided_node_ip(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    cloud.put(&uuid(1), running(1));
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
    let mut node = kubelet::node("n1", &uuid(1));
    let annotation = "alpha.kubernetes.io/provided-node-ip";
    node.metadata.annotations.get_or_insert_default().insert(annotation.into(), "192.0.2.7".into());
    kubelet::register(&api.client, &node).await?;
    let mismatch = |node: &_| {
        condition(node, "CloudProviderInitialized").is_some_and(|(_, reason, words)| {
            reason == "ProvidedNodeIPMismatch"
                && words.contains("failed to get node address from cloud provider that matches ip: 192.0.2.7")
        })
    };
    node_becomes(&api.client, "n1", SOON, "says that no address matches", mismatch).await?;
    merge(&api.client, "n1", json!({"metadata": {"annotations": {annotation: "fd00::2"}}})).await?;
    let done = node_becomes(&api.client, "n1", SOON, "initialized", is_initialized).await?;
    ensure!(addresses(&done) == ["InternalIP fd00::2", "Hostname n1"], "{:?}", addresses(&done));
    daemon.stop().await
}

async fn foreign(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    // The cloud would find a machine for each of them.
    cloud.ignore_provider_ids();
    for number in [1, 3] {
        cloud.put(&uuid(number), running(number));
    }
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &["--node-deletion-minimum-age=0s"])?;
    let mut node = kubelet::node("n1", &uuid(1));
    node.spec.get_or_insert_default().provider_id = Some("aws:///eu-1/i-0".into());
    kubelet::register(&api.client, &node).await?;
    // Not Ready, unknown to the cloud, without a lease: upstream would delete it.
    kubelet::register(&api.client, &kubelet::node("without-id", &uuid(2))).await?;
    // The ID has our scheme, and an invalid rest.
    let mut broken = kubelet::node("broken", &uuid(3));
    broken.spec.get_or_insert_default().provider_id = Some(format!("fake://{}", uuid(3)));
    kubelet::register(&api.client, &broken).await?;
    set_ready_unknown(&api.client, "n1").await?;
    set_ready_unknown(&api.client, "without-id").await?;
    set_ready_unknown(&api.client, "broken").await?;
    node_becomes(&api.client, "broken", SOON, "says what is wrong with its ID", |node| {
        condition(node, "CloudProviderInitialized").is_some_and(|(status, why, message)| {
            status == "False" && why == "InvalidNode" && message.contains("is not of the form")
        })
    })
    .await?;
    event(&api.client, "default", "broken", "InitializationFailed").await?;
    let waiting =
        |reason| daemon.counted::<NodeMetrics>().uninitialized_nodes.with_label_values(&[reason]).get();
    ensure!((waiting("ForeignProviderID"), waiting("InvalidNode")) == (1, 1), "{}", daemon.metrics.text());
    node_stays(&api.client, "n1", Duration::from_secs(15)).await?;
    let node = nodes(&api.client).get("n1").await?;
    ensure!(!is_initialized(&node) && condition(&node, "CloudProviderInitialized").is_none());
    for name in ["without-id", "broken"] {
        ensure!(!is_initialized(&nodes(&api.client).get(name).await?), "{name}");
    }
    // Its own cloud-controller-manager initialises it.
    merge(&api.client, "n1", json!({"spec": {"taints": []}})).await?;
    eventually(SOON, "the node waits no more", || async {
        Ok((waiting("ForeignProviderID") == 0).then_some(()))
    })
    .await?;
    daemon.stop().await
}

async fn follows(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    cloud.put(&uuid(1), running(1));
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
    kubelet::register(&api.client, &kubelet::node("n1", &uuid(1))).await?;
    node_becomes(&api.client, "n1", SOON, "initialized", is_initialized).await?;

    cloud.change(&uuid(1), |machine| {
        machine.metadata.addresses =
            vec![NodeAddress::internal_ip("10.9.9.9"), NodeAddress::external_ip("203.0.113.9")];
        machine.metadata.zone = Some("rack-b".into());
    });
    let moved = |node: &_| {
        addresses(node) == ["InternalIP 10.9.9.9", "ExternalIP 203.0.113.9", "Hostname n1"]
            && label(node, "topology.kubernetes.io/zone") == Some("rack-b")
            && label(node, "failure-domain.beta.kubernetes.io/zone") == Some("rack-b")
    };
    node_becomes(&api.client, "n1", SOON, "follows the cloud", moved).await?;

    // A label that an operator changes is corrected, and the beta label with it.
    sleep(Duration::from_secs(16)).await;
    merge(
        &api.client,
        "n1",
        json!({"metadata": {"labels": {
            "topology.kubernetes.io/zone": "elsewhere", "failure-domain.beta.kubernetes.io/zone": null,
        }}}),
    )
    .await?;
    node_becomes(&api.client, "n1", SOON, "is corrected", moved).await?;

    // Repeated changes are corrected only now and then, so that the two do not overwrite each other in turns.
    api.requests.reset();
    let began = Instant::now();
    for _ in 0..20 {
        merge(
            &api.client,
            "n1",
            json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "elsewhere"}}}),
        )
        .await?;
        sleep(Duration::from_millis(500)).await;
    }
    // One every 15 s, however long the changes took.
    let (corrections, most) = (api.requests.of("PATCH nodes"), 1 + began.elapsed().as_secs() / 15);
    ensure!(u64::try_from(corrections)? <= most, "{corrections} corrections in {:?}", began.elapsed());
    daemon.stop().await
}

async fn panics(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    cloud.put(&uuid(1), running(1));
    cloud.fail_lookups(Fault::Panic);
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
    kubelet::register(&api.client, &kubelet::node("n1", &uuid(1))).await?;
    let says_so = |node: &_| {
        condition(node, "CloudProviderInitialized")
            .is_some_and(|(_, _, words)| words.contains("the cloud provider panicked"))
    };
    node_becomes(&api.client, "n1", SOON, "says that the provider panicked", says_so).await?;
    cloud.fail_lookups(None);
    node_becomes(&api.client, "n1", SOON, "initialized", is_initialized).await?;
    daemon.stop().await
}

/// The provider panics in every batch with that Node: of new Nodes, of Nodes to compare, and of Nodes to
/// judge.
async fn panics_over_one(api: &Api) -> anyhow::Result<()> {
    const NODES: usize = 20;
    const POISONED: usize = 7;
    let cloud = FakeCloud::new();
    cloud.fail_instance(&uuid(POISONED), Fault::Panic);
    for number in 0..NODES {
        cloud.put(&uuid(number), running(number));
        kubelet::register(&api.client, &kubelet::node(&format!("n{number}"), &uuid(number))).await?;
    }
    let flags = ["--node-deletion-minimum-age=0s", "--node-deletion-grace-period=1s"];
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &flags)?;
    for number in (0..NODES).filter(|number| *number != POISONED) {
        node_becomes(&api.client, &format!("n{number}"), SOON, "initialized", is_initialized).await?;
    }
    let poisoned = format!("n{POISONED}");
    let says_so = |kind: &'static str, status: &'static str| {
        move |node: &_| {
            condition(node, kind).is_some_and(|(now, reason, words)| {
                (now.as_str(), reason.as_str()) == (status, "ProviderError")
                    && words.contains("the cloud provider panicked over this node")
            })
        }
    };
    let waits = says_so("CloudProviderInitialized", "False");
    node_becomes(&api.client, &poisoned, SOON, "says that the provider panics over it", waits).await?;
    event(&api.client, "default", &poisoned, "InitializationFailed").await?;

    cloud.change(&uuid(1), |machine| {
        machine.metadata.addresses = vec![NodeAddress::internal_ip("10.9.9.9")];
    });
    cloud.fail_lookups(None);
    node_becomes(&api.client, "n1", SOON, "follows the cloud", |node| {
        addresses(node) == ["InternalIP 10.9.9.9", "Hostname n1"]
    })
    .await?;
    cloud.fail_instance(&uuid(POISONED), None);
    node_becomes(&api.client, &poisoned, Duration::from_secs(60), "initialized", is_initialized).await?;

    cloud.fail_instance(&uuid(POISONED), Fault::Panic);
    set_ready_unknown(&api.client, &poisoned).await?;
    set_ready_unknown(&api.client, "n3").await?;
    cloud.remove(&uuid(3));
    node_vanishes(&api.client, "n3", Duration::from_secs(60)).await?;
    let in_doubt = says_so("CloudProviderInstanceExists", "Unknown");
    node_becomes(&api.client, &poisoned, SOON, "is in doubt", in_doubt).await?;
    daemon.stop().await
}

/// Upstream's rule: the provider ID cannot be added later, so a Node without one waits.
async fn without_id(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    for number in [1, 2] {
        cloud.put(&uuid(number), FakeInstance { has_provider_id: false, ..running(number) });
    }
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
    let mut with = kubelet::node("with", &uuid(1));
    with.spec.get_or_insert_default().provider_id = Some(format!("fake:///{}", uuid(1)));
    kubelet::register(&api.client, &with).await?;
    kubelet::register(&api.client, &kubelet::node("without", &uuid(2))).await?;
    let with = node_becomes(&api.client, "with", SOON, "initialized", is_initialized).await?;
    ensure!(provider_id(&with) == Some(format!("fake:///{}", uuid(1))), "it keeps its own");
    ensure!(label(&with, "topology.kubernetes.io/zone") == Some("rack-a"));
    let waits = |node: &_| {
        condition(node, "CloudProviderInitialized").is_some_and(|(status, reason, words)| {
            status == "False" && reason == "ProviderIDMissing" && words.contains("cloud provider fake")
        })
    };
    let without = node_becomes(&api.client, "without", SOON, "says what is missing", waits).await?;
    ensure!(!is_initialized(&without) && addresses(&without) == ["Hostname without"], "nothing is written");
    cloud.change(&uuid(2), |machine| machine.has_provider_id = true);
    node_becomes(&api.client, "without", SOON, "initialized", is_initialized).await?;
    daemon.stop().await
}

async fn name_reused(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    cloud.put(&uuid(1), running(1));
    cloud.put(&uuid(2), running(2));
    let held = cloud.hold(Operation::Lookup);
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
    kubelet::register(&api.client, &kubelet::node("n1", &uuid(1))).await?;
    eventually(SOON, "the first one is being looked up", || async {
        Ok(cloud.calls().iter().any(|call| call.nodes == ["n1"]).then_some(()))
    })
    .await?;
    nodes(&api.client).delete("n1", &DeleteParams::default()).await?;
    kubelet::register(&api.client, &kubelet::node("n1", &uuid(2))).await?;
    drop(held);
    let done = node_becomes(&api.client, "n1", SOON, "initialized", is_initialized).await?;
    ensure!(provider_id(&done) == Some(format!("fake:///{}", uuid(2))), "{:?}", provider_id(&done));
    daemon.stop().await
}

/// For an hour, kubelets send heartbeats and nothing else happens.
async fn settled_hour(api: &Api) -> anyhow::Result<()> {
    const NODES: usize = 100;
    let cloud = FakeCloud::new();
    for number in 0..NODES {
        cloud.put(&uuid(number), running(number));
        kubelet::register(&api.client, &kubelet::node(&format!("n{number}"), &uuid(number))).await?;
    }
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
    for number in 0..NODES {
        let name = format!("n{number}");
        node_becomes(&api.client, &name, SOON, "initialized", is_initialized).await?;
        kubelet::heartbeat(&api.client, &name, true).await?;
    }
    sleep(Duration::from_secs(60)).await;
    api.requests.reset();
    for _ in 0..12 {
        for number in 0..NODES {
            kubelet::heartbeat(&api.client, &format!("n{number}"), true).await?;
        }
        sleep(Duration::from_secs(300)).await;
    }
    ensure!(api.requests.writes().is_empty(), "{:?}", api.requests.writes());
    ensure!(api.requests.of("POST events") + api.requests.of("PATCH events") == 0, "no events either");
    ensure!(cloud.lookups() > 0);
    daemon.stop().await
}
