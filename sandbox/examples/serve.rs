//! Serves an empty sandbox on a loopback port until interrupted, for trials with `kubectl`.
//!
//! `cargo run -p sandbox --example serve -- 127.0.0.1:8001 sandbox.kubeconfig` writes a kubeconfig for it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::{fs, net::SocketAddr, process::ExitCode};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8001".to_owned());
    let kubeconfig = args.next().unwrap_or_else(|| "sandbox.kubeconfig".to_owned());
    let socket: SocketAddr = address.parse().map_err(|_| {
        format!("the first argument, {address:?}, is to be an address of loopback with a port, such as 127.0.0.1:8001")
    })?;
    let server = sandbox::Sandbox::new().serve(socket).await;
    let server =
        server.map_err(|error| format!("nothing can be served on {address}, the first argument: {error}"))?;
    fs::write(&kubeconfig, server.kubeconfig()).map_err(|error| {
        format!("the kubeconfig {kubeconfig}, the second argument, cannot be written: {error}")
    })?;
    println!("serving on {address} until interrupted; its kubeconfig is {kubeconfig}");
    std::future::pending::<()>().await;
    server.shutdown().await;
    Ok(())
}
