//! `test-env PEER...`: starts real peers for manual tests, and prints how to reach them.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use test_env::{
    ControlPlane, ControlPlaneOptions, Kubelet, KubeletOptions, Libvirtd, MicroGuest, MicroGuestOptions,
};

const USAGE: &str = "usage: test-env PEER...
peers, started in this order and ended together:
  control-plane    etcd and kube-apiserver
  kubelet=NAME     a kubelet with --cloud-provider=external, in the control plane
  libvirtd         an isolated libvirtd
  guest=NAME       a small virtual machine in it
";

fn main() -> Result<ExitCode> {
    let peers: Vec<String> = std::env::args().skip(1).collect();
    let mut out = io::stdout().lock();
    if peers.is_empty() || peers.iter().any(|peer| peer == "-h" || peer == "--help") {
        out.write_all(USAGE.as_bytes())?;
        return Ok(ExitCode::from(u8::from(peers.is_empty()) * 2));
    }

    let mut control_plane = None;
    let mut kubelets = Vec::new();
    let mut libvirtd = None;
    for peer in &peers {
        let (kind, name) = peer.split_once('=').unwrap_or((peer, ""));
        match kind {
            "control-plane" => {
                let started = ControlPlane::start(&ControlPlaneOptions::default())?;
                writeln!(out, "export KUBECONFIG={}", started.kubeconfig().display())?;
                control_plane = Some(started);
            }
            "kubelet" => {
                let control_plane =
                    control_plane.as_ref().context("a kubelet needs control-plane before it")?;
                kubelets.push(Kubelet::start(control_plane, name, &KubeletOptions::default())?);
                writeln!(out, "# Node {name} is registered")?;
            }
            "libvirtd" => {
                let started = Libvirtd::start()?;
                writeln!(out, "export LIBVIRT_DEFAULT_URI='{}'", started.uri())?;
                libvirtd = Some(started);
            }
            "guest" => {
                let libvirtd = libvirtd.as_ref().context("a guest needs libvirtd before it")?;
                let guest = MicroGuest::define(libvirtd, name, &MicroGuestOptions::default())?;
                guest.start()?;
                writeln!(out, "# domain {name} is {}", guest.uuid())?;
            }
            _ => bail!("no peer {peer}\n{USAGE}"),
        }
        out.flush()?;
    }
    writeln!(out, "# Enter or Ctrl-C ends everything")?;
    io::stdin().lock().read_line(&mut String::new())?;
    Ok(ExitCode::SUCCESS)
}
