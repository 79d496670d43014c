//! The API on a loopback port, for `kubectl` and other programs.

use std::{io, net::SocketAddr};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{Sandbox, Service};

/// A running HTTP server; stops when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Sandbox {
    /// Serves this API over plain HTTP. `127.0.0.1:0` chooses a free port.
    ///
    /// There is no authentication: bind to loopback only.
    ///
    /// # Errors
    /// Those of binding the address.
    pub async fn serve(&self, address: SocketAddr) -> io::Result<Server> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(accept(listener, self.service(), stop.clone()));
        Ok(Server { address, stop: stop.drop_guard(), task })
    }
}

async fn accept(listener: TcpListener, service: Service, stop: CancellationToken) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    let graceful = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    continue;
                }
            },
        };
        // Watch events are small and must be sent at once
        let _ = stream.set_nodelay(true);
        let connection = builder
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service.clone()))
            .into_owned();
        let connection = graceful.watch(connection);
        let stop = stop.clone();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, stopped = stop.is_cancelled(), "connection ended");
            }
        });
    }
    drop(listener);
    // Open watches would delay the shutdown by up to half an hour
    service.inner.faults.drop_watches();
    graceful.shutdown().await;
}

impl Server {
    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig in YAML with this server as its only context, `sandbox`.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: sandbox\n\
             \x20 cluster:\n\
             \x20   server: {}\n\
             users:\n\
             - name: sandbox\n\
             \x20 user: {{}}\n\
             contexts:\n\
             - name: sandbox\n\
             \x20 context:\n\
             \x20   cluster: sandbox\n\
             \x20   user: sandbox\n\
             \x20   namespace: default\n\
             current-context: sandbox\n",
            self.url()
        )
    }

    /// Stops accepting connections, ends open watches (including those of in-process clients), and waits for
    /// requests in progress.
    pub async fn shutdown(self) {
        drop(self.stop);
        // A panic of the server was already reported by its task
        let _ = self.task.await;
    }
}
