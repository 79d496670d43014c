//! The daemon as its binary runs it: from a command line.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, anyhow};
use ccm::{daemon, flags};
use cloudprovider::Registry;
use cloudprovider_libvirt::{Config, LibvirtProvider, NAME};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct Daemon {
    command_line: Vec<String>,
    provider: Arc<LibvirtProvider>,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Daemon {
    /// Starts the daemon with these files and with a free loopback port. Every other flag has its default.
    pub(crate) fn start(cloud_config: &Path, kubeconfig: &Path) -> anyhow::Result<Self> {
        // A free port and not the default one, which another daemon on this machine may use.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let command_line = vec![
            "cloud-controller-manager".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cloud-provider={NAME}"),
            format!("--cloud-config={}", cloud_config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        let flags = flags::parse(command_line.iter().cloned())?;

        // Each connection to the test driver has domains of its own, so the demo uses the provider's
        // connections.
        let text = std::fs::read_to_string(cloud_config)?;
        let provider = Arc::new(LibvirtProvider::new(Config::parse(&text, Some(cloud_config))?));
        let handed_out = Mutex::new(Some(provider.clone()));
        let mut registry = Registry::new();
        registry.register(NAME, move |_| {
            let provider = handed_out.lock().take();
            let taken = || cloudprovider::Error::new(cloudprovider::ErrorKind::Conflict, "made already");
            Ok(provider.ok_or_else(taken)?)
        })?;

        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { daemon::run(&flags, &registry, stop).await }
        });
        Ok(Self { command_line, provider, stop, task })
    }

    pub(crate) fn command_line(&self) -> String {
        self.command_line.join(" ")
    }

    pub(crate) fn provider(&self) -> &LibvirtProvider {
        &self.provider
    }

    /// Waits until the daemon ends without being stopped, and returns why.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await.context("the daemon ended") {
            Ok(Ok(())) => anyhow!("the daemon ended"),
            Ok(Err(error)) | Err(error) => error.context("the daemon ended"),
        }
    }

    /// Stops it as SIGTERM does.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        // The outcome does not matter, because the cluster and the cloud end too.
        let _ = self.task.await;
    }
}
