//! Holds addresses until SIGTERM or Ctrl-C, and then releases them.
//!
//!     cargo run -p announcing --example hold -- [--interface eth0] [--for 60] [--probe] 192.0.2.5 2001:db8::5
//!
//! Needs the capabilities `NET_ADMIN` and `NET_RAW`. Prints one line for each address that it holds.
#![allow(clippy::print_stdout)]

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use announcing::{Announcer, Error, HolderId, InterfaceChoice};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "Holds addresses until SIGTERM or Ctrl-C, and then releases them")]
struct Arguments {
    /// The interface that gets the addresses [default: the one whose subnet contains the address, else that of the default
    /// route]
    #[arg(long)]
    interface: Option<InterfaceChoice>,
    /// For how many seconds at most [default: for ever]
    #[arg(long = "for")]
    limit: Option<u64>,
    /// Ask the network first whether a host has the addresses
    #[arg(long)]
    probe: bool,
    /// The addresses
    #[arg(required = true)]
    addresses: Vec<IpAddr>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let interface = arguments.interface.unwrap_or_default();
    let (announcer, me) = (Announcer::of_process(), HolderId::new("example"));
    if let Some(seconds) = arguments.limit {
        let end = Instant::now() + Duration::from_secs(seconds);
        announcer.limit(move || end.saturating_duration_since(Instant::now()));
    }
    if arguments.probe {
        let probes = arguments.addresses.iter().map(|address| announcer.probe(*address, &interface));
        futures::future::try_join_all(probes).await.map_err(|error: Error| error.to_string())?;
    }
    let holds = arguments.addresses.iter().map(|address| announcer.hold(&me, *address, &interface));
    let held = futures::future::try_join_all(holds).await.map_err(|error: Error| error.to_string())?;
    for (address, held) in arguments.addresses.iter().zip(held) {
        println!("{address} on {}", held.interface);
    }
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    announcer.release_all(&me).await?;
    println!("released");
    Ok(())
}
