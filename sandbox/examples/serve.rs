//! Serves an empty sandbox on a loopback port until interrupted, for trials with `kubectl`.
//!
//! `cargo run -p sandbox --example serve -- 127.0.0.1:8001 sandbox.kubeconfig` writes a kubeconfig for it.

use std::{error::Error, fs, net::SocketAddr};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let address: SocketAddr = args.next().as_deref().unwrap_or("127.0.0.1:8001").parse()?;
    let kubeconfig = args.next().unwrap_or_else(|| "sandbox.kubeconfig".to_owned());
    let server = sandbox::Sandbox::new().serve(address).await?;
    fs::write(kubeconfig, server.kubeconfig())?;
    std::future::pending::<()>().await;
    server.shutdown().await;
    Ok(())
}
