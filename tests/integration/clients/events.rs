//! Events that occur too often, as they are stored in the end.

use std::time::Duration;

use anyhow::ensure;
use ccm::{
    events::{EventMetrics, EventObject, EventType, event_recorder},
    metrics::MetricSet as _,
};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use tokio_util::sync::CancellationToken;

use crate::{api::Api, scenarios::Trials, support::*};

pub(crate) fn trials() -> Trials {
    Trials::new().both("clients::similar_events_are_combined", combined)
}

/// client-go's limits: from the tenth different message on they are combined into one event, and a burst of
/// 25 is written.
async fn combined(api: &Api) -> anyhow::Result<()> {
    let metrics = EventMetrics::unregistered()?;
    let object = EventObject::lease("kube-system", "combined", "");
    let (recorder, writer) = event_recorder(
        "cloud-controller-manager",
        api.daemon_client.clone(),
        object.clone(),
        metrics.clone(),
    );
    for number in 1..=30 {
        recorder.record(object.clone(), EventType::Warning, "Similar", format!("number {number}"));
    }
    let stop = CancellationToken::new();
    let writing = tokio::spawn(writer.run(stop.clone()));
    let dropped = metrics.events_dropped.with_label_values(&["rate_limited"]);
    eventually(Duration::from_secs(60), "all are dealt with", || async {
        Ok((dropped.get() == 5).then_some(()))
    })
    .await?;

    let events = kube::Api::<Event>::namespaced(api.client.clone(), "kube-system");
    let similar = |event: &Event| event.reason.as_deref() == Some("Similar");
    let found: Vec<_> =
        events.list(&ListParams::default()).await?.items.into_iter().filter(similar).collect();
    let mut seen: Vec<_> = found.iter().map(|event| (event.message.as_deref(), event.count)).collect();
    seen.sort_unstable();
    let alone: Vec<String> = (1..10).map(|number| format!("number {number}")).collect();
    let mut expected = vec![(Some("(combined from similar events): number 25"), Some(16))];
    expected.extend(alone.iter().map(|message| (Some(message.as_str()), Some(1))));
    ensure!(seen == expected, "{seen:?}");
    stop.cancel();
    Ok(writing.await?)
}
