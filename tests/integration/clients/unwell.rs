//! A failing API server gets no additional load.

use std::time::Duration;

use anyhow::ensure;
use ccm::api_client::ClientOptions;
use sandbox::{Action, Fault, Matcher};
use tokio::time::sleep;

use super::over;
use crate::{
    api::Api,
    daemon::InProcess,
    faults::{NODES, all_initialized, cloud_with_nodes, faults, name},
    scenarios::Trials,
    support::*,
};

pub(crate) fn trials() -> Trials {
    Trials::new()
        .sandbox("clients::retry_after_is_obeyed", retry_after)
        .sandbox("clients::an_api_server_that_refuses_everything_is_no_storm", refuses)
        .sandbox("clients::lost_watches_and_expired_versions_cost_few_lists", lost_watches)
}

async fn start(api: &Api) -> anyhow::Result<InProcess> {
    let cloud = cloud_with_nodes(api).await?;
    let parts = over(&api.daemon_client, ClientOptions::default(), cloud.provider())?;
    InProcess::start_parts(parts, &[])
}

async fn retry_after(api: &Api) -> anyhow::Result<()> {
    let daemon = start(api).await?;
    // The daemon has sent nothing yet: its tasks run only when this one waits.
    faults(api)?.inject(Fault::new(Matcher::any().resource("nodes"), Action::TooManyRequests(10)));
    sleep(Duration::from_secs(120)).await;
    let asked = api.requests.of("GET nodes");
    // A watcher retries at least every five seconds, however long an outage lasts, and never in a storm.
    ensure!((20..=40).contains(&asked), "{asked} lists in 120 s");
    faults(api)?.clear();
    let patches = Matcher::any().verb("patch").resource("nodes");
    faults(api)?.inject(Fault::new(patches, Action::TooManyRequests(10)));
    api.requests.reset();
    sleep(Duration::from_secs(120)).await;
    let asked = api.requests.of("PATCH nodes/status");
    ensure!(
        (5..=13 * NODES).contains(&asked),
        "{asked} patches in 120 s, one in 10 s for each was asked for"
    );
    faults(api)?.clear();
    all_initialized(api).await?;
    let text = daemon.metrics.text();
    ensure!(text.contains("rest_client_request_retries_total{code=\"429\""), "{text}");
    daemon.stop().await
}

async fn refuses(api: &Api) -> anyhow::Result<()> {
    for action in [Action::InternalError, Action::ServiceUnavailable, Action::ResetConnection] {
        let daemon = start(api).await?;
        faults(api)?.inject(Fault::new(Matcher::any(), action.clone()));
        api.requests.reset();
        sleep(Duration::from_secs(600)).await;
        let lists = api.requests.of("GET nodes");
        // One every five seconds: a watcher does not know whether other requests are refused too.
        ensure!(lists < 150, "{action:?}: {lists} lists in 10 minutes");
        faults(api)?.clear();
        all_initialized(api).await?;
        daemon.stop().await?;
        for number in 0..NODES {
            let delete = kube::api::DeleteParams::default();
            nodes(&api.client).delete(&name(number), &delete).await?;
        }
    }
    Ok(())
}

async fn lost_watches(api: &Api) -> anyhow::Result<()> {
    let daemon = start(api).await?;
    all_initialized(api).await?;
    api.requests.reset();
    for round in 0..20 {
        if round % 2 == 0 {
            faults(api)?.drop_watches();
        } else {
            faults(api)?.expire();
        }
        sleep(Duration::from_secs(30)).await;
    }
    // One watch after each lost connection, and one list after each expired version.
    let asked = api.requests.of("GET nodes");
    ensure!(asked < 60, "{asked} lists and watches for 20 losses");
    daemon.stop().await
}
