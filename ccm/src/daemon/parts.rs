//! What the daemon is put together from.

use std::{fmt, sync::Arc};

use cloudprovider::{CloudProvider, MachineTypes};
use component::{
    api_client::ApiServer,
    debug_state::DebugState,
    health::HealthChecks,
    metrics::Metrics,
    serving::{ServingOptions, SetVerbosity},
};
use controller_kit::clients::Clients;
use kube::Client;

use super::ProviderParts;
use crate::metrics::new_metrics;

/// What the daemon is put together from. [`run`](super::run) takes it from the flags, and a test as it needs it.
#[derive(Clone)]
pub struct Parts {
    /// The clients of the parts.
    pub clients: Clients,
    /// Where the clients come from. If it is given, the daemon waits for it and follows changes of its configuration.
    pub api_server: Option<ApiServer>,
    /// The provider of `--cloud-provider`. `None`: only machines are served.
    pub provider: Option<ProviderParts>,
    /// Further providers, of which only the machines are served.
    pub machine_providers: Vec<ProviderParts>,
    /// The types of the machines that are served, whose objects may have to be converted.
    pub machine_types: Vec<MachineTypes>,
    /// The metrics.
    pub metrics: Metrics,
    /// Where parts register their health checks.
    pub health: HealthChecks,
    /// Where parts register what they show on `/debug/state`.
    pub debug_state: DebugState,
    /// The options of the secure port. `None` for no secure port.
    pub serving: Option<ServingOptions>,
    /// For the secure port: changes the verbosity of the log.
    pub set_verbosity: Option<SetVerbosity>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (provider, machine_providers) = (&self.provider, &self.machine_providers);
        let mut shown = f.debug_struct("Parts");
        shown
            .field("provider", provider)
            .field("machine_providers", machine_providers)
            .finish_non_exhaustive()
    }
}

impl Parts {
    /// Uses one client for everything, and makes all other parts new.
    ///
    /// # Errors
    /// As [`new_metrics`].
    pub fn new(client: Client, provider: Arc<dyn CloudProvider>) -> anyhow::Result<Self> {
        Self::with(Clients::same(&client), provider)
    }

    /// Uses these clients, and makes all other parts new.
    ///
    /// # Errors
    /// As [`new_metrics`].
    pub fn with(clients: Clients, provider: Arc<dyn CloudProvider>) -> anyhow::Result<Self> {
        Ok(Self { provider: Some(provider.into()), ..Self::without_provider(clients)? })
    }

    /// As [`with`](Self::with), for the caller to set the providers.
    ///
    /// # Errors
    /// As [`new_metrics`].
    pub fn without_provider(clients: Clients) -> anyhow::Result<Self> {
        Ok(Self {
            clients,
            api_server: None,
            provider: None,
            machine_providers: Vec::new(),
            machine_types: Vec::new(),
            metrics: new_metrics()?,
            health: HealthChecks::new(),
            debug_state: DebugState::new(),
            serving: None,
            set_verbosity: None,
        })
    }
}
