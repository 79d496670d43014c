//! A relay between a provider and a simulator, to cut the connection.

use std::io;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Passes connections on while it is open.
pub(crate) struct Relay {
    port: u16,
    is_open: watch::Sender<bool>,
}

impl Relay {
    /// A relay to this port of this machine.
    pub(crate) async fn start(to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (is_open, open) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, to, open.clone()));
            }
        });
        Ok(Self { port, is_open })
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Lets connections through, or cuts those that there are and every new one.
    pub(crate) fn open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }
}

async fn pass(mut client: TcpStream, to: u16, mut open: watch::Receiver<bool>) {
    if *open.borrow_and_update()
        && let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await
    {
        tokio::select! {
            _ = copy_bidirectional(&mut client, &mut server) => {}
            _ = open.changed() => {}
        }
    }
}
