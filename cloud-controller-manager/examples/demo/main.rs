//! The whole daemon at work, on a machine that has no cloud and no cluster.
//!
//! `make demo` runs it. `DEMO=keep make demo` goes on serving afterwards, for a look with `kubectl`.
//!
//! | Part | What it is here |
//! |---|---|
//! | Kubernetes API | the sandbox, over HTTP on a loopback port |
//! | cloud | two hypervisors of libvirt's own test driver, with 50 domains each |
//! | kubelets, kube-controller-manager | played, in `kubelets.rs` and `control_plane.rs` |
//! | cloud-controller-manager | the daemon itself: its flags, its client, its provider, its controllers |
//!
//! Logs are off. `RUST_LOG=ccm=info,component=info` and the like switch them on.

mod cloud;
mod control_plane;
mod daemon;
mod kubelets;
mod nodes;
mod screen;
mod story;

use std::{io, process::ExitCode, time::Duration};

use anyhow::bail;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::screen::Screen;

/// What a shell reports for a program that a signal ended: this plus the signal's number.
const ENDED_BY_SIGNAL: u8 = 128;

/// How long a clean end may take. What is stuck after that ends with the process.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(io::stderr).init();
    match start() {
        Ok(code) => code,
        Err(error) => {
            Screen::failure(&format!("the demo failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<ExitCode> {
    let keep = match std::env::var("DEMO").unwrap_or_default().as_str() {
        "" => false,
        "keep" => true,
        other => bail!("DEMO is {other:?}; it is either not set or \"keep\""),
    };
    // As in the daemon's main: the installation fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(keep));
    // A thread that is stuck in a call must not keep the process running.
    runtime.shutdown_background();
    outcome
}

async fn run(keep: bool) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut ended = async || {
        tokio::select! {
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = terminate.recv() => SignalKind::terminate(),
        }
    };

    let screen = Screen::new();
    // Dropping the stage ends everything on it and removes the temporary files.
    let mut stage = tokio::select! {
        stage = story::set_the_stage(&screen) => stage?,
        signal = ended() => return Ok(exit_code(signal)),
    };
    tokio::select! {
        outcome = story::tell(&screen, &mut stage) => outcome?,
        signal = ended() => return Ok(exit_code(signal)),
    }
    if keep {
        story::say_what_to_try(&screen, &stage);
        tokio::select! {
            _ = ended() => {}
            error = stage.daemon.ended() => return Err(error),
        }
    }
    // The demo does not fail if the daemon does not stop in time.
    let _ = tokio::time::timeout(STOP_TIMEOUT, stage.stop()).await;
    Ok(ExitCode::SUCCESS)
}

fn exit_code(signal: SignalKind) -> ExitCode {
    ExitCode::from(u8::try_from(signal.as_raw_value()).map_or(u8::MAX, |number| ENDED_BY_SIGNAL + number))
}
