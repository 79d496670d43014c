//! The server, from the socket to the response.
//!
//! ```text
//!   listener ──> connections (TLS, limits) ──> handler ──> authentication ──> authorization ──> endpoints
//!                    │                                          │                   │
//!               certificates, trust                        TokenReview       SubjectAccessReview
//! ```

mod authentication;
mod authorization;
mod certificates;
mod client_certificate;
mod cluster_trust;
mod connections;
mod delegation;
mod endpoints;
mod files;
mod handler;
mod listener;
mod peer;
mod refusals;
mod responses;
mod seldom;
mod source;
mod threads;
mod tls;
mod trust;
mod turns;
mod user;
mod webhooks;

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use anyhow::anyhow;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{AccessMetrics, ServingOptions, Shown};
use crate::reload::ReloadReporter;
use authentication::Authenticator;
use authorization::Authorizer;
use certificates::Certificates;
use cluster_trust::ClusterTrust;
use connections::Limits;
use delegation::Delegation;
use endpoints::Endpoints;
use handler::Handler;
use listener::Listen;
use threads::Threads;
use tls::TlsSettings;
use trust::Trust;

pub use webhooks::{MadeCertificate, Webhook, WebhookServer};

/// Threads for slow work: verifying certificates, gathering metrics, reading files, resolving names.
const SLOW_THREADS: usize = 4;

/// A running server. It stops when dropped.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    /// Tasks that follow the certificate authorities of the cluster.
    following: JoinSet<anyhow::Result<()>>,
    cluster_is_known: watch::Receiver<bool>,
    _ends_with_us: DropGuard,
    /// The last field, so that it is dropped after the tasks that run on these threads.
    threads: Option<Threads>,
}

impl Serving {
    /// Starts the server without waiting for the API server: health is served while the API server is away.
    /// Until the cluster's authorities are known, credentials that only they can verify do not count. `None`:
    /// the options disable the server.
    ///
    /// # Errors
    /// A faulty option or file, with its flag, or a port that is in use.
    pub async fn start(
        options: &ServingOptions,
        shown: Shown,
        reporter: &ReloadReporter,
    ) -> anyhow::Result<Option<Self>> {
        if options.secure_port == 0 {
            tracing::info!("--secure-port=0: no health, metrics or debugging is served");
            return Ok(None);
        }
        // First of all: a second daemon on the same address must not send requests to the API server.
        let listener = listener::bind(&Listen {
            address: options.bind_address,
            port: options.secure_port,
            shares_port: options.permit_port_sharing,
            flags: "",
        })?;
        let limits = Limits::new(http2_max_streams(options)).within_open_files();
        let threads = Threads::start("secure-port", SLOW_THREADS)?;
        let (options, reporter) = (options.clone(), reporter.clone());
        let starting = async move { Self::on(listener, limits, &options, shown, &reporter).await };
        let Some(starting) = threads.run(starting) else { return Ok(None) };
        let mut serving = starting.await.map_err(|_| anyhow!("a part of the server panicked"))??;
        serving.threads = Some(threads);
        Ok(Some(serving))
    }

    /// Serves on this socket, with the current runtime.
    async fn on(
        listener: TcpListener,
        limits: Limits,
        options: &ServingOptions,
        shown: Shown,
        reporter: &ReloadReporter,
    ) -> anyhow::Result<Self> {
        let settings = TlsSettings::new(&options.tls, options.disable_http2_serving)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        let stop = CancellationToken::new();
        let ends_with_us = stop.clone().drop_guard();
        let certificates = Certificates::load(&options.certificates, options.bind_address)?;
        tasks.spawn(certificates.clone().follow(reporter.clone(), stop.clone()));
        let metrics = shown.metrics.clone();
        let mut delegation = Delegation { metrics: metrics.get()?, reporter, stop: &stop, tasks: &mut tasks };
        let client = delegation.authentication_client(&options.authentication).await?;
        let access_client = delegation.authorization_client(&options.authorization).await?;
        let trust = Trust::load(&options.authentication, client.is_some())?;
        trust::follow(&trust, &options.authentication, reporter, &stop, &mut tasks);
        let cluster_trust = client
            .clone()
            .and_then(|client| ClusterTrust::new(&trust, &options.authentication, client, reporter));
        let (known, cluster_is_known) = watch::channel(cluster_trust.is_none());
        let mut following = JoinSet::new();
        if let Some(cluster_trust) = cluster_trust {
            let stop = stop.clone();
            following.spawn(async move {
                stop.run_until_cancelled(cluster_trust.follow(known)).await.unwrap_or(Ok(()))
            });
        }
        let handler = Handler::new(
            Authenticator::new(&options.authentication, trust.clone(), client),
            Authorizer::new(&options.authorization, access_client)?,
            Endpoints::new(options, shown)?,
            metrics.get::<AccessMetrics>()?,
        );
        tracing::info!("Serving securely on {address}");
        tasks.spawn(connections::serve(
            listener,
            limits,
            connections::Tls { settings, certificates, trust },
            Arc::new(handler),
            stop.clone(),
        ));
        Ok(Self {
            address,
            stop,
            tasks,
            following,
            cluster_is_known,
            _ends_with_us: ends_with_us,
            threads: None,
        })
    }

    /// Waits until the cluster's authorities are known, or until it is certain that they cannot be read.
    ///
    /// # Errors
    /// As [`failed`](Self::failed).
    pub async fn knows_the_cluster(&mut self) -> anyhow::Result<()> {
        let mut known = self.cluster_is_known.clone();
        tokio::select! {
            // On an error the sender is gone, and the other branch returns the reason.
            Ok(_) = known.wait_for(|known| *known) => Ok(()),
            failure = self.failed() => Err(failure.unwrap_or_else(|| anyhow!("a part of the server panicked"))),
        }
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server cannot go on. The reason is either that the cluster's authorities cannot be
    /// read, and this is not tolerated, or that a part of the server panicked (`None`).
    pub async fn failed(&mut self) -> Option<anyhow::Error> {
        loop {
            tokio::select! {
                Some(ended) = self.tasks.join_next() => if ended.is_err() {
                    return None;
                },
                Some(ended) = self.following.join_next() => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return Some(error),
                    Err(_) => return None,
                },
                else => std::future::pending().await,
            }
        }
    }

    /// Accepts no new connections, finishes requests in progress within two seconds, and stops.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        while self.following.join_next().await.is_some() {}
    }
}

/// Maximum number of streams on one HTTP/2 connection.
fn http2_max_streams(options: &ServingOptions) -> u32 {
    match options.http2_max_streams_per_connection {
        0 => 100,
        streams => streams,
    }
}
