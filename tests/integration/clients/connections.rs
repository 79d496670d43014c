//! The connection to the API server: half-open connections, and proxies.

use std::{fs, net::Ipv4Addr, time::Duration};

use anyhow::{Context, ensure};
use ccm::api_client::{ClientOptions, connect};
use kube::api::ListParams;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::{from_file, initialized};
use crate::{
    api::Api, daemon::InProcess, fake_cloud::FakeCloud, forwarder::Forwarder, scenarios::Trials, support::*,
};

pub(crate) fn trials() -> Trials {
    Trials::new()
        .api_server("clients::connections_that_lead_nowhere_are_given_up", swallowed)
        .api_server("clients::the_api_server_is_reached_through_a_proxy", proxies)
}

async fn swallowed(api: &Api) -> anyhow::Result<()> {
    // A watch may be silent for up to 90 s.
    let limit = Duration::from_secs(200);
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let forwarder = Forwarder::start(control_plane.port()).await?;
    let folder = TempDir::new()?;
    let path = folder.path().join("kubeconfig");
    let direct = fs::read_to_string(control_plane.kubeconfig())?;
    fs::write(&path, direct.replace(&control_plane.url(), &forwarder.url()))?;
    let cloud = FakeCloud::new();
    let parts = from_file(&path, ClientOptions::default(), cloud.provider()).await?;
    let daemon = InProcess::run_parts(parts, &[], true)?;
    let initialized = async |number| initialized(api, &cloud, number, limit).await;
    initialized(1).await?;
    forwarder.swallow();
    initialized(2).await?;
    ensure!(daemon.leads(), "it leads all the time");
    daemon.stop().await
}

async fn proxies(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let folder = TempDir::new()?;
    let path = folder.path().join("kubeconfig");
    let direct = fs::read_to_string(control_plane.kubeconfig())?;
    for scheme in ["http", "socks5"] {
        let (port, proxy) = proxy(scheme).await?;
        let server = format!("server: {}", control_plane.url());
        let lists = async |user: &str| {
            let with_proxy = format!("{server}\n    proxy-url: {scheme}://{user}127.0.0.1:{port}");
            fs::write(&path, direct.replace(&server, &with_proxy))?;
            let (client, _) = connect(Some(&path), "").await?;
            nodes(&client).list(&ListParams::default()).await?;
            anyhow::Ok(())
        };
        lists("u:hunter2@").await.with_context(|| scheme)?;
        let error = lists("u:wrong@").await.err().context("the proxy wants another password")?;
        ensure!(!format!("{error:#}").contains("wrong"), "{error:#}");
        proxy.abort();
        lists("u:hunter2@").await.err().context("without the proxy there is no way")?;
    }
    Ok(())
}

/// A proxy on this port for the user `u` with the password `hunter2`.
async fn proxy(scheme: &'static str) -> anyhow::Result<(u16, JoinHandle<()>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(
                async move { if scheme == "http" { tunnel(stream).await } else { socks(stream).await } },
            );
        }
    });
    Ok((port, accepting))
}

async fn tunnel(stream: TcpStream) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(stream.read_line(&mut head).await? > 0, "the head ends early");
    }
    if !head.contains("Basic dTpodW50ZXIy") {
        stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await?;
        return Ok(());
    }
    let to = head.split(' ').nth(1).context("an address")?;
    let mut server = TcpStream::connect(to).await?;
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut stream, &mut server).await?;
    Ok(())
}

/// SOCKS5 (RFC 1928) with a user name and a password (RFC 1929).
async fn socks(mut stream: TcpStream) -> anyhow::Result<()> {
    let part = async |stream: &mut TcpStream, length: usize| {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await?;
        anyhow::Ok(bytes)
    };
    let methods = part(&mut stream, 2).await?[1];
    part(&mut stream, methods.into()).await?;
    stream.write_all(&[5, 2]).await?;
    let length = part(&mut stream, 2).await?[1];
    let user = part(&mut stream, length.into()).await?;
    let length = part(&mut stream, 1).await?[0];
    let password = part(&mut stream, length.into()).await?;
    let is_right = user == b"u" && password == b"hunter2";
    stream.write_all(&[1, u8::from(!is_right)]).await?;
    ensure!(is_right);
    // An IPv4 address.
    let request = part(&mut stream, 10).await?;
    ensure!(request[..4] == [5, 1, 0, 1], "{request:?}");
    let port = u16::from_be_bytes([request[8], request[9]]);
    let address = Ipv4Addr::new(request[4], request[5], request[6], request[7]);
    let mut server = TcpStream::connect((address, port)).await?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    copy_bidirectional(&mut stream, &mut server).await?;
    Ok(())
}
