//! The pools as they are now.

use std::{sync::Arc, time::Duration};

use cloudprovider::{ConfigMapName, Error, ErrorKind, Result, ServiceAccess};
use futures::StreamExt as _;
use tokio::{sync::watch, time::timeout};

use crate::{config::Source, kube_vip, pool::Pools};

/// How long a Service waits for the first content of the `ConfigMap`.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);

/// The pools, which may be in a `ConfigMap` that changes.
#[derive(Debug)]
pub(crate) struct CurrentPools {
    config_map: Option<ConfigMapName>,
    state: watch::Sender<State>,
}

#[derive(Clone, Debug)]
enum State {
    /// The `ConfigMap` has not been read yet.
    Unread,
    /// It could never be read.
    Failed(Error),
    Known(Arc<Pools>),
}

impl CurrentPools {
    pub(crate) fn new(source: Source) -> Self {
        let (config_map, state) = match source {
            Source::Own(pools) => (None, State::Known(Arc::new(pools))),
            Source::KubeVip(name) => (Some(name), State::Unread),
        };
        Self { config_map, state: watch::Sender::new(state) }
    }

    /// The `ConfigMap` with the pools.
    pub(crate) fn config_map(&self) -> Option<&ConfigMapName> {
        self.config_map.as_ref()
    }

    /// The pools. Waits a moment for the first content of a `ConfigMap`.
    pub(crate) async fn get(&self) -> Result<Arc<Pools>> {
        let mut state = self.state.subscribe();
        let read = state.wait_for(|state| !matches!(state, State::Unread));
        let state = timeout(FIRST_TIMEOUT, read).await.ok().and_then(Result::ok);
        let name = || self.config_map.as_ref().map(ToString::to_string).unwrap_or_default();
        match state.as_deref() {
            Some(State::Known(pools)) => Ok(Arc::clone(pools)),
            Some(State::Failed(error)) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("the pools in ConfigMap {} cannot be read", name()),
            )
            .with_source(error.clone())),
            Some(State::Unread) | None => Err(Error::new(
                ErrorKind::Unavailable,
                format!("ConfigMap {} with the pools has not been read yet", name()),
            )),
        }
    }

    /// The pools, if they are known.
    pub(crate) fn known(&self) -> Option<Arc<Pools>> {
        match &*self.state.borrow() {
            State::Known(pools) => Some(Arc::clone(pools)),
            State::Unread | State::Failed(_) => None,
        }
    }

    /// Takes other pools. Services that wait may get an address now.
    fn change(&self, services: &dyn ServiceAccess, pools: Pools) {
        let before = self.known();
        let has_changed = before.is_none_or(|before| *before != pools);
        self.state.send_replace(State::Known(Arc::new(pools)));
        if has_changed {
            services.retry_waiting();
        }
    }

    /// Follows the `ConfigMap`, if the pools are in one.
    pub(crate) async fn follow(&self, services: &dyn ServiceAccess) {
        let Some(name) = &self.config_map else { return };
        let mut versions = services.follow_config_map(name);
        while let Some(version) = versions.next().await {
            match version {
                Ok(Some(data)) => {
                    let (pools, problems) = kube_vip::read(name, &data);
                    for problem in problems {
                        tracing::warn!(config_map = %name, key = problem.key, "{}", problem.message);
                    }
                    tracing::info!(config_map = %name, pools = pools.pools.len(), "address pools read");
                    self.change(services, pools);
                }
                Ok(None) => {
                    tracing::warn!(config_map = %name, "there is no such ConfigMap, so there are no address pools");
                    let origin = format!("ConfigMap {name}, which does not exist");
                    self.change(services, Pools { origin, ..Pools::default() });
                }
                Err(error) => {
                    tracing::warn!(config_map = %name, error = error.report(), "cannot read the address pools");
                    self.state.send_modify(|state| {
                        // What was read before still holds.
                        if !matches!(state, State::Known(_)) {
                            *state = State::Failed(error);
                        }
                    });
                }
            }
        }
    }
}
