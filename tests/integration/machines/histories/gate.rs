//! The connection of one daemon to the API server, which can be cut.

use std::sync::Arc;

use http::Request;
use kube::{Client, client::Body};
use tokio::sync::watch;

/// Lets requests through while it is open. Clones are the same gate.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(true)))
    }

    /// Requests that begin from now on wait, if it is not open.
    pub(super) fn set_open(&self, is_open: bool) {
        self.0.send_replace(is_open);
    }

    /// The same client behind the gate.
    pub(super) fn client(&self, client: &Client) -> Client {
        let parts = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, gate) = parts.clone();
            async move {
                let mut is_open = gate.0.subscribe();
                let _ = is_open.wait_for(|is_open| *is_open).await;
                client.send(request).await
            }
        });
        Client::new(service, "default")
    }
}
