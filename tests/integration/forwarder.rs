//! Another address of the API server, whose connections can be cut or stalled.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use tokio::{
    io::{copy, copy_bidirectional, sink},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Forwards connections to a port of 127.0.0.1, until dropped.
pub(crate) struct Forwarder {
    port: u16,
    accepting: JoinHandle<()>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    open: AtomicUsize,
    cut: Mutex<CancellationToken>,
    swallowed: Mutex<CancellationToken>,
}

impl Forwarder {
    /// Starts to forward connections to another port of 127.0.0.1.
    pub(crate) async fn start(to: u16) -> anyhow::Result<Self> {
        Self::listen(0, to).await
    }

    /// The same, listening on this port.
    pub(crate) async fn listen(port: u16, to: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        let state = Arc::<State>::default();
        let accepting = tokio::spawn({
            let state = state.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(pass_on(stream, to, state.clone()));
                }
            }
        });
        Ok(Self { port, accepting, state })
    }

    /// Its URL, as in a kubeconfig.
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.state.open.load(Ordering::Relaxed)
    }

    /// Breaks the open connections.
    pub(crate) fn cut(&self) {
        std::mem::take(&mut *self.state.cut.lock()).cancel();
    }

    /// Stalls the open connections from now on, without closing them. New connections work.
    pub(crate) fn swallow(&self) {
        std::mem::take(&mut *self.state.swallowed.lock()).cancel();
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn pass_on(mut stream: TcpStream, to: u16, state: Arc<State>) {
    let cut = state.cut.lock().clone();
    let swallowed = state.swallowed.lock().clone();
    state.open.fetch_add(1, Ordering::Relaxed);
    if let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await {
        let passing = copy_bidirectional(&mut stream, &mut server);
        if let Some(None) = cut.run_until_cancelled(swallowed.run_until_cancelled(passing)).await {
            // Read what is sent, so that TCP acknowledges it.
            cut.run_until_cancelled(copy(&mut stream, &mut sink())).await;
        }
    }
    state.open.fetch_sub(1, Ordering::Relaxed);
}
