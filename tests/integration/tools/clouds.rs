//! `check` and `explain` with a cloud that is partly unreachable, that is shared with another cloud, or that
//! needs a Secret.

use std::fs;

use anyhow::ensure;
use tempfile::TempDir;
use test_env::{Vcsim, VcsimOptions};

use super::{PROVIDER, as_shipped, cloud_config, run};
use crate::{peers::Borrowed, scenarios::Trials, trial::Outcome};

pub(super) fn trials() -> Trials {
    Trials::new()
        .trial("tools::check_tells_of_other_clouds_and_of_hypervisors_that_are_away", mixed)
        .trial("tools::check_and_explain_read_vspheres_secret", secret)
}

/// Runs `act` while these objects exist.
fn with_objects(
    control_plane: &Borrowed,
    yaml: &str,
    act: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let file = folder.path().join("objects.yaml");
    fs::write(&file, yaml)?;
    let file = file.display().to_string();
    control_plane.kubectl_output(&["apply", "-f", &file])?;
    let outcome = act();
    control_plane.kubectl_output(&["delete", "-f", &file])?;
    outcome
}

fn mixed() -> Outcome {
    let control_plane = Borrowed::control_plane()?;
    let nodes = "apiVersion: v1\nkind: Node\nmetadata: {name: test}\nspec: {providerID: \"libvirt:///6695eb01-f6a4-8304-79aa-97f2502e193f\"}\n---\n\
                 apiVersion: v1\nkind: Node\nmetadata: {name: foreign}\nspec: {providerID: \"aws:///x/i-1\"}\n";
    Ok(with_objects(&control_plane, nodes, || check_mixed(&control_plane))?)
}

fn check_mixed(control_plane: &Borrowed) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let kubeconfig = format!("--kubeconfig={}", control_plane.kubeconfig().display());
    let good = cloud_config(folder.path())?;
    let (code, out, err) = run(&["check", PROVIDER, &good, &kubeconfig])?;
    for text in ["it has instances for 1 of 1 nodes", "are left alone: foreign", "Everything works."] {
        ensure!(code == 0 && out.contains(text), "{code}, {text}: {out}{err}");
    }
    // Every Node has a machine, but another machine could not be confirmed as absent.
    let half = folder.path().join("half.yaml");
    let away = format!("qemu+tcp://127.0.0.1:{}/system", test_env::free_port()?);
    fs::write(
        &half,
        format!("hypervisors:\n- name: kvm1\n  uri: test:///default\n- name: kvm2\n  uri: \"{away}\"\n"),
    )?;
    let config = format!("--cloud-config={}", half.display());
    let (code, out, err) = run(&["check", PROVIDER, &config, &kubeconfig])?;
    ensure!(code == 1 && out.contains("kvm2") && out.contains("1 failed"), "{code}: {out}{err}");
    ensure!(out.contains("libvirt cannot tell about machines that it does not see"), "{out}");
    ensure!(err.contains("Waiting for cloud provider libvirt to answer, 20s at most"), "{err:?}");
    // The common reason is printed once.
    let nodes = "apiVersion: v1\nkind: Node\nmetadata: {name: other-1}\n---\n\
                 apiVersion: v1\nkind: Node\nmetadata: {name: other-2}\n";
    with_objects(control_plane, nodes, || {
        let (code, out, err) = run(&["check", PROVIDER, &config, &kubeconfig])?;
        ensure!(code == 1 && out.contains("cannot tell about 2 of"), "{code}: {out}{err}");
        ensure!(out.contains("(other-1, other-2): cannot tell") && out.contains("kvm2"), "{out}");
        ensure!(out.matches("kvm2").count() == 1, "{out}");
        Ok(())
    })
}

fn secret() -> Outcome {
    let vcsim = Vcsim::start(&VcsimOptions::default())?;
    let control_plane = Borrowed::control_plane()?;
    let objects = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: vc, namespace: kube-system}}\n\
         stringData: {{127.0.0.1.username: {:?}, 127.0.0.1.password: {:?}}}\n---\n\
         apiVersion: v1\nkind: Node\nmetadata: {{name: node-0}}\n",
        vcsim.user(),
        vcsim.password()
    );
    Ok(with_objects(&control_plane, &objects, || with_secret(&control_plane, &vcsim))?)
}

fn with_secret(control_plane: &Borrowed, vcsim: &Vcsim) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.path().join("vsphere.conf");
    fs::write(
        &path,
        format!(
            "global:\n  secretName: vc\n  secretNamespace: kube-system\nvcenter:\n  vc0:\n    server: 127.0.0.1\n    \
             port: {}\n    caFile: {}\n",
            vcsim.port(),
            vcsim.ca_file().display()
        ),
    )?;
    let config = format!("--cloud-config={}", path.display());
    let flags = |tool: &'static [&'static str], kubeconfig: &str| {
        let common = ["--cloud-provider=vsphere", &config, kubeconfig].map(str::to_owned);
        tool.iter().map(ToString::to_string).chain(common).collect::<Vec<_>>()
    };
    let run =
        |tool, kubeconfig: &str| run(&flags(tool, kubeconfig).iter().map(String::as_str).collect::<Vec<_>>());
    as_shipped(
        control_plane,
        &["--provider=vsphere", &config],
        |text| text,
        |kubeconfig| {
            let (code, out, err) = run(&["check"], kubeconfig)?;
            ensure!(code == 0 && out.contains("vsphere answers"), "{code}: {out}{err}");
            ensure!(out.contains("vsphere.conf is good"), "{out}");
            // Oddities are printed, also if the configuration is refused.
            let good = fs::read_to_string(&path)?;
            fs::write(
                &path,
                format!("{good}    user: <user>\n    password: hunter2 #hunter2\n    ca-file: x\n"),
            )?;
            let (code, out, err) = run(&["check"], kubeconfig)?;
            for part in [
                "can be used; 4 things in it are to look at",
                "vcenter.vc0.user: looks like a placeholder that nobody filled in",
                "vcenter.vc0.user: stands beside Secret kube-system/vc, which is used",
                "vcenter.vc0.password: ends at a comment sign",
                "vcenter.vc0: \"ca-file\" is not known and ignored; did you mean caFile?",
                "vsphere answers",
            ] {
                ensure!(
                    code == 0 && out.contains(part) && !out.contains("hunter2"),
                    "{code}, {part}: {out}{err}"
                );
            }
            fs::write(&path, good.replace("global:", "Global:"))?;
            let (code, out, err) = run(&["check"], kubeconfig)?;
            for part in ["has no credentials", "\"Global\" is not known and ignored; did you mean global?"] {
                ensure!(code == 1 && out.contains(part), "{code}, {part}: {out}{err}");
            }
            fs::write(&path, good)?;
            let (code, out, err) = run(&["explain", "node-0"], kubeconfig)?;
            ensure!(code == 0 && out.contains("present"), "{code}: {out}{err}");
            Ok(())
        },
    )?;
    // The roles without the configuration do not include the Secret.
    as_shipped(
        control_plane,
        &["--provider=vsphere"],
        |text| text,
        |kubeconfig| {
            let (code, out, err) = run(&["check"], kubeconfig)?;
            for verb in ["list", "watch"] {
                let missing = format!("may not {verb} secrets \"vc\" in kube-system");
                ensure!(code == 1 && out.contains(&missing), "{code}: {out}{err}");
            }
            let why = "Secret kube-system/vc cannot be read: secrets \"vc\" is forbidden";
            ensure!(out.contains(why) && !out.contains("Status {"), "{out}");
            ensure!(out.matches("cannot be read").count() == 1, "{out}");
            // A user in the configuration is tried before the Secret.
            let both = fs::read_to_string(&path)?
                + &format!("    user: {:?}\n    password: {:?}\n", vcsim.user(), vcsim.password());
            fs::write(&path, both)?;
            let (code, out, err) = run(&["check"], kubeconfig)?;
            for part in ["may not list secrets \"vc\" in kube-system", "vsphere answers"] {
                ensure!(code == 0 && out.contains(part) && !out.contains("failed"), "{code}: {out}{err}");
            }
            Ok(())
        },
    )
}
