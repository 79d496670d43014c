//! The scripts that build the container image, with fake programs in place of the registry and of docker.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use crate::scenarios::Trials;

pub(crate) fn trials() -> Trials {
    Trials::new().trial("image::a_release_is_built_from_digests_alone", || Ok(release()?))
}

/// A folder with programs that come first on PATH, and the file with the base images.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> anyhow::Result<Self> {
        let stage = Self { folder: TempDir::new()? };
        fs::create_dir(stage.path("bin"))?;
        // A working tree without changes, and a docker that only prints its arguments.
        stage.program("git", "case \"$*\" in *status*) ;; *) echo 7 ;; esac")?;
        stage.program("docker", "printf '%s\\n' \"$@\"")?;
        fs::copy(script("bases"), stage.path("bases"))?;
        Ok(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n"))?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
    }

    fn run(&self, name: &str, arguments: &[&str]) -> anyhow::Result<Output> {
        let paths = std::env::var("PATH").unwrap_or_default();
        Command::new(script(name))
            .args(arguments)
            .env("PATH", format!("{}:{paths}", self.path("bin").display()))
            .env("BASES", self.path("bases"))
            .env_remove("FEATURES")
            .env_remove("DOCKER")
            .output()
            .with_context(|| format!("{name} cannot be run"))
    }

    fn bases(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.path("bases"))?)
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/image").join(name)
}

fn release() -> anyhow::Result<()> {
    let stage = Stage::new()?;
    let out = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();

    // A local build needs no pins. A release without them is refused, and all missing ones are listed.
    ensure!(stage.run("build.sh", &["ccm:1"])?.status.success());
    let refused = stage.run("build.sh", &["--release", "ccm:1"])?;
    ensure!(!refused.status.success() && out(&refused).is_empty(), "docker was asked: {}", out(&refused));
    for words in ["DEBIAN=debian:bookworm-slim has no digest", "RUST=", "SNAPSHOT=", "pin.sh"] {
        ensure!(said(&refused).contains(words), "{words:?} in {}", said(&refused));
    }

    // A registry that gives no usable answer changes nothing.
    let before = stage.bases()?;
    stage.program("skopeo", "exit 1")?;
    ensure!(!stage.run("pin.sh", &[])?.status.success(), "nothing was found");
    ensure!(stage.bases()? == before);

    stage.program("skopeo", "printf '%s' \"$*\"")?;
    for _ in 0..2 {
        let pinned = stage.run("pin.sh", &[])?;
        ensure!(pinned.status.success(), "{}", said(&pinned));
        let bases = stage.bases()?;
        let pins = bases.lines().filter(|line| line.matches("@sha256:").count() == 1).count();
        ensure!(pins == 2 && bases.contains("DEBIAN=debian:bookworm-slim@sha256:"), "{bases}");
        ensure!(bases.lines().filter(|line| line.starts_with('#')).count() > 2, "the comments stay: {bases}");
    }
    let released = stage.run("build.sh", &["--release", "ccm:1", "--push"])?;
    ensure!(released.status.success(), "{}", said(&released));
    let asked = out(&released);
    let arguments: Vec<&str> = asked.lines().collect();
    for base in stage.bases()?.lines().filter(|line| !line.starts_with('#')) {
        ensure!(arguments.contains(&base), "{base} is not among {arguments:?}");
    }
    ensure!(arguments.contains(&"--push") && arguments.contains(&"SOURCE_DATE_EPOCH=7"), "{arguments:?}");

    // One pin alone is not enough, and a tree with uncommitted changes is refused.
    fs::write(stage.path("bases"), stage.bases()?.replace("SNAPSHOT=", "SNAPSHOT=yesterday "))?;
    let refused = stage.run("build.sh", &["ccm:1"])?;
    ensure!(!refused.status.success() && said(&refused).contains("20260131T120000Z"), "{}", said(&refused));
    stage.run("pin.sh", &[])?;
    stage.program("git", "case \"$*\" in *status*) echo ' M a' ;; *) echo 7 ;; esac")?;
    let refused = stage.run("build.sh", &["--release", "ccm:1"])?;
    ensure!(!refused.status.success() && said(&refused).contains("not committed"), "{}", said(&refused));
    Ok(())
}
