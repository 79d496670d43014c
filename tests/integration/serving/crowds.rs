//! Many concurrent requests, and many connections without requests.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::{net::TcpStream, process::Command};

use super::{Server, curl::Curl, options, options_with};
use crate::{api::Api, forwarder::Forwarder, lag::Stopwatch, scenarios::Trials, trial::runtime};

pub(super) fn trials() -> Trials {
    Trials::new()
        .api_server("serving::a_flood_of_requests_takes_few_connections", flood)
        .trial("serving::silent_connections_keep_nobody_out", || Ok(runtime(false)?.block_on(silent())?))
}

/// Each concurrent review takes at most one connection; the limit of reviews is per client, and there are two
/// clients.
const CONNECTIONS: usize = 2 * 16;

/// Each request needs a review of its own, since it is for a new path.
async fn flood(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let forwarder = Forwarder::start(control_plane.port()).await?;
    let folder = TempDir::new()?;
    let path = folder.path().join("kubeconfig");
    let direct = fs::read_to_string(control_plane.kubeconfig())?;
    fs::write(&path, direct.replace(&control_plane.url(), &forwarder.url()))?;
    let server = Server::start(&options_with(&path)?).await?;
    let before = forwarder.open();

    let (most, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let curl = |url: String| async move {
        let fixed =
            ["-sk", "--http2", "-Z", "--parallel-max", "40", "-o", "/dev/null", "-w", "%{http_code}\n"];
        let output = Command::new("curl").args(fixed).arg(url).kill_on_drop(true).output().await?;
        anyhow::Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let floods = (0..3).map(|flood| server.url(&format!("/flood-{flood}-[1-400]")));
    let floods = futures::future::try_join_all(floods.map(curl));
    let watch = async {
        loop {
            most.fetch_max(forwarder.open(), Ordering::Relaxed);
            let healthy = Curl::get(&server.url("/healthz")).expect(200).await;
            if let Err(error) = healthy {
                return error;
            }
        }
    };
    let answers = tokio::select! {
        answers = floods => answers?.concat(),
        error = watch => return Err(error),
    };
    let count = |code: &str| answers.lines().filter(|line| *line == code).count();
    ensure!(count("403") == 1200, "{} of 1200 were answered: {answers}", count("403"));
    // The limit is a burst of 400 and 200 a second.
    ensure!(start.elapsed() >= Duration::from_secs(3), "too fast: {:?}", start.elapsed());
    let most = most.load(Ordering::Relaxed);
    ensure!(most <= before + CONNECTIONS, "{most} connections to the API server");
    // Afterwards the server works normally.
    Curl::get(&server.url("/metrics")).token(control_plane.admin_token()).expect(200).await?;
    Ok(())
}

async fn silent() -> anyhow::Result<()> {
    /// More connections than may be open at once.
    const MANY: usize = 300;
    let server = Server::start(&options()?).await?;
    let mut open = Vec::new();
    for _ in 0..MANY {
        open.push(TcpStream::connect(server.serving.address()).await?);
    }
    for path in ["/livez", "/healthz", "/readyz"] {
        let stopwatch = Stopwatch::start();
        Curl::get(&server.url(path)).expect(200).await?;
        stopwatch.within(Duration::from_secs(5), &format!("{path} beside {MANY} silent connections"))?;
    }
    drop(open);
    Ok(())
}
