//! The Nodes forward what arrives for a load balancer address, wherever it arrives.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, ensure};
use serde_json::json;
use test_env::KubeProxy;

use super::{
    cluster::{Cluster, SERVICE_ECHO, SERVICE_HTTP},
    lan::{CLIENT, CLUSTER_CIDR, INTERFACE, Knock, Knocking, Lan, STRANGER},
};
use crate::{api::Api, support::eventually};

const SOON: Duration = Duration::from_secs(20);
/// Enough for each of three backends to be chosen: it fails once in 10^12 runs.
const REQUESTS: usize = 70;
/// Requests that show that other backends are not chosen.
const FEW: usize = 15;
const ADDRESSES: [&str; 2] = ["10.30.0.200", "fd30::200"];
const SERVICE: &str = "web";

/// The addresses of the load balancer are put on a Node and into the status by hand.
pub(super) async fn by_hand(api: &Api) -> anyhow::Result<()> {
    let lan = Lan::start()?;
    let cluster = Cluster::new(&api.client).await?;
    let outcome = scenario(api, &lan, &cluster).await;
    cluster.clear().await?;
    outcome
}

/// Starts a kube-proxy on each Node, with the API server's own role for it.
pub(super) fn start_proxies(api: &Api, lan: &Lan) -> Result<Vec<KubeProxy>, test_env::StartError> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let kubeconfig = control_plane.kubeconfig_for("system:kube-proxy", &[])?;
    let mut proxies = Vec::new();
    for node in &lan.nodes {
        node.netns.relay(control_plane.port())?;
        proxies.push(KubeProxy::start(&node.netns, &node.name, &kubeconfig, CLUSTER_CIDR)?);
    }
    Ok(proxies)
}

async fn scenario(api: &Api, lan: &Lan, cluster: &Cluster) -> anyhow::Result<()> {
    for (number, node) in lan.nodes.iter().enumerate() {
        cluster.register(number + 1, node).await?;
    }
    let mut proxies = start_proxies(api, lan)?;
    let outcome = forwards(lan, cluster).await;
    outcome.with_context(|| format!("the log of the first kube-proxy: {}", proxies[0].process().log_tail()))
}

async fn forwards(lan: &Lan, cluster: &Cluster) -> anyhow::Result<()> {
    cluster.create_service(SERVICE, &json!({})).await?;
    let all: Vec<_> = lan.nodes.iter().collect();
    cluster.set_endpoints(SERVICE, &all).await?;
    cluster.set_ingress(SERVICE, &ADDRESSES).await?;
    for (address, length) in ADDRESSES.iter().zip([32, 128]) {
        lan.nodes[0].netns.ip(&format!("address add {address}/{length} dev {INTERFACE}"))?;
    }
    let names = |nodes: &[usize]| nodes.iter().map(|n| lan.nodes[*n].name.clone()).collect::<BTreeSet<_>>();
    for (address, from) in ADDRESSES.into_iter().zip(CLIENT) {
        answers(lan, from, address).await?;
        answer_exactly(lan, from, address, &names(&[0, 1, 2])).await?;
    }

    drains(lan, cluster).await?;

    let ranges = CLIENT.iter().zip([32, 128]).map(|(ip, length)| format!("{ip}/{length}"));
    let ranges: Vec<String> = ranges.collect();
    cluster.change_service(SERVICE, &json!({"spec": {"loadBalancerSourceRanges": ranges}})).await?;
    for ((address, from), stranger) in ADDRESSES.into_iter().zip(CLIENT).zip(STRANGER) {
        refuses(lan, stranger, address).await?;
        answers(lan, from, address).await?;
        ensure!(lan.echo(stranger, address, SERVICE_ECHO).await.is_err(), "UDP from {stranger}");
    }
    cluster.change_service(SERVICE, &json!({"spec": {"loadBalancerSourceRanges": null}})).await?;
    for (address, stranger) in ADDRESSES.into_iter().zip(STRANGER) {
        answers(lan, stranger, address).await?;
    }

    cluster.change_service(SERVICE, &json!({"spec": {"externalTrafficPolicy": "Local"}})).await?;
    for (address, from) in ADDRESSES.into_iter().zip(CLIENT) {
        let what = format!("{address} is answered by the Node that has it, which sees the client's address");
        eventually(SOON, &what, async || {
            let local = format!("{} {from}", lan.nodes[0].name);
            Ok((lan.curl(from, address, SERVICE_HTTP).await.ok() == Some(local)).then_some(()))
        })
        .await?;
        answer_exactly(lan, from, address, &names(&[0])).await?;
    }
    cluster.change_service(SERVICE, &json!({"spec": {"externalTrafficPolicy": "Cluster"}})).await?;

    cluster.services().delete(SERVICE, &kube::api::DeleteParams::default()).await?;
    for (address, from) in ADDRESSES.into_iter().zip(CLIENT) {
        refuses(lan, from, address).await?;
    }
    Ok(())
}

/// No request fails while a backend leaves, and none reaches it afterwards.
async fn drains(lan: &Lan, cluster: &Cluster) -> anyhow::Result<()> {
    /// As long as kube-proxy has the old rules, one of three requests reaches the backend.
    const MANY: usize = 40;
    let leaving = &lan.nodes[2].name;
    let is_leaving = |knock: &Knock| knock.outcome.as_ref() == Ok(leaving);
    let mut knocking = Vec::new();
    for address in ADDRESSES {
        knocking.push(lan.knock(address, SERVICE_HTTP)?);
    }
    let all_answer = async || {
        let each = knocking.iter().map(Knocking::so_far).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(each.iter().all(|knocks| knocks.iter().any(is_leaving)).then_some(()))
    };
    eventually(SOON, "the backend answers before it leaves", all_answer).await?;
    cluster.set_endpoints(SERVICE, &[&lan.nodes[0], &lan.nodes[1]]).await?;
    // kube-proxy needs a moment.
    let none_reaches_it = async || {
        let each = knocking.iter().map(Knocking::so_far).collect::<anyhow::Result<Vec<_>>>()?;
        let is_drained = |knocks: &Vec<Knock>| knocks.iter().rev().take(MANY).all(|knock| !is_leaving(knock));
        Ok(each.iter().all(is_drained).then_some(()))
    };
    eventually(SOON, "no request reaches the backend that has left", none_reaches_it).await?;
    for knocking in knocking {
        let before = knocking.so_far()?.len();
        eventually(SOON, "more requests", async || {
            Ok((knocking.so_far()?.len() > before + MANY).then_some(()))
        })
        .await?;
        let knocks = knocking.end()?;
        let failed: Vec<_> = knocks.iter().filter(|knock| knock.outcome.is_err()).collect();
        ensure!(failed.is_empty(), "of {} requests failed {failed:?}", knocks.len());
        let late = knocks[before..].iter().filter(|knock| is_leaving(knock)).count();
        ensure!(late == 0, "{late} of {} requests reached {leaving} later", knocks.len() - before);
        ensure!(knocks.len() > before, "no requests");
    }
    cluster.set_endpoints(SERVICE, &lan.nodes.iter().collect::<Vec<_>>()).await
}

/// Waits until a request is answered.
pub(super) async fn answers(lan: &Lan, from: &str, address: &str) -> anyhow::Result<()> {
    eventually(SOON, &format!("{address} answers {from}"), async || {
        Ok(lan.curl(from, address, SERVICE_HTTP).await.ok().map(drop))
    })
    .await
}

/// Waits until a request is not answered.
pub(super) async fn refuses(lan: &Lan, from: &str, address: &str) -> anyhow::Result<()> {
    eventually(SOON, &format!("{address} does not answer {from}"), async || {
        Ok(lan.curl(from, address, SERVICE_HTTP).await.is_err().then_some(()))
    })
    .await
}

/// Makes requests by TCP and by UDP until each of these Nodes' backends has answered, and some more. Fails if a
/// request fails or another one answers.
pub(super) async fn answer_exactly(
    lan: &Lan,
    from: &str,
    address: &str,
    names: &BTreeSet<String>,
) -> anyhow::Result<()> {
    let (mut tcp, mut udp) = (BTreeSet::new(), BTreeSet::new());
    for request in 0..REQUESTS {
        if request >= FEW && tcp == *names && udp == *names {
            break;
        }
        let answer = lan.curl(from, address, SERVICE_HTTP).await.context("TCP")?;
        tcp.insert(answer.split(' ').next().unwrap_or_default().to_owned());
        udp.insert(lan.echo(from, address, SERVICE_ECHO).await.context("UDP")?);
    }
    ensure!(tcp == *names && udp == *names, "{address} is answered by {tcp:?}, and UDP by {udp:?}");
    Ok(())
}
