//! What scenarios on a cloud in the process have in common: daemons, a tape of what they do to the world outside, their death at each
//! step of it, and random histories.

mod histories;
mod in_flight;
mod kill;
mod random;
mod replicas;
mod tape;
mod trap;

use std::{sync::Arc, time::Duration};

use cloudprovider::CloudProvider;
use k8s_openapi::api::core::v1::Event;
use kube::{Client, api::ListParams};
use tokio::time::sleep;

pub(crate) use self::{
    histories::{Chronicle, Histories, Settling},
    kill::{Kill, at_every_change, at_every_step},
    random::{Trouble, pick},
    replicas::{Life, Replica, Replicas},
    tape::{Step, Tape, kind_of},
    trap::Side,
};

use crate::{api::Api, daemon::InProcess, support::eventually};

/// A daemon with this life: its client and its provider have it too.
pub(crate) fn start(
    client: &Client,
    provider: Arc<dyn CloudProvider>,
    flags: &[&str],
    life: Life,
    is_elected: bool,
) -> anyhow::Result<Replica> {
    let start = if is_elected { InProcess::start_elected } else { InProcess::start };
    Ok(Replica { process: start(client, provider, flags)?, life })
}

/// Time in which a controller would do what it should not do: long on the sandbox, where it costs nothing.
pub(crate) async fn pause(api: &Api, on_sandbox: Duration) {
    let time = if api.sandbox.is_some() { on_sandbox } else { Duration::from_millis(1_500) };
    sleep(time).await;
}

/// As [`eventually`]. A failure says what there is instead.
pub(crate) async fn eventually_or<T, F>(
    limit: Duration,
    what: &str,
    look: impl FnMut() -> F,
    describe: impl Future<Output = String>,
) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    match eventually(limit, what, look).await {
        Ok(found) => Ok(found),
        Err(error) => Err(error.context(describe.await)),
    }
}

/// The events of this component about objects, in the order in which they first happened. `about` is a field selector.
pub(crate) async fn events(
    client: &Client,
    namespace: &str,
    about: &str,
    component: &str,
) -> anyhow::Result<Vec<Event>> {
    let api = kube::Api::<Event>::namespaced(client.clone(), namespace);
    let mut events = api.list(&ListParams::default().fields(about)).await?.items;
    events.retain(|event| {
        event.source.as_ref().and_then(|source| source.component.as_deref()) == Some(component)
    });
    events.sort_by_key(|event| {
        let version = event.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
        (event.metadata.creation_timestamp.as_ref().map(|time| time.0), version)
    });
    Ok(events)
}
