//! The webhook that converts objects between versions, at a port of this host. The manifests lead to it by a Service, which no
//! daemon outside of a pod has.

use std::{net::TcpListener, time::Duration};

use machine_controller::crds::CONVERSION_PATH;
use serde_json::{Value, json};

use crate::support::eventually;

/// How long a daemon that ended may hold its port.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

/// Where the webhook of one daemon is, also after a restart.
pub(crate) struct Webhook {
    port: u16,
}

impl Webhook {
    /// At a port that no other daemon of this host has.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self { port: test_env::free_port()? })
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}{CONVERSION_PATH}", self.port)
    }

    /// The flags for the daemon.
    pub(crate) fn flags(&self) -> [String; 2] {
        ["--webhook-bind-address=127.0.0.1".to_owned(), format!("--webhook-secure-port={}", self.port)]
    }

    /// Waits until nobody listens there. The kernel frees the ports of a process that ended at once; the threads of a webhook inside this
    /// process end a moment after its daemon.
    pub(crate) async fn is_free(&self) -> anyhow::Result<()> {
        eventually(RELEASE_TIMEOUT, "the port is free", || async {
            Ok(TcpListener::bind(("127.0.0.1", self.port)).ok().map(drop))
        })
        .await
    }

    /// Leads a definition of several versions here. Other objects stay as they are.
    pub(crate) fn lead_here(&self, object: &mut Value) {
        if let Some(client) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
            *client = json!({"url": self.url()});
        }
    }
}
