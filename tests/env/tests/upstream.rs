//! The script that prints the changes between two versions of the Go framework.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

type Outcome = Result<(), Box<dyn Error>>;

fn changes(cache: &Path, arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("upstream/changes.sh");
    Ok(Command::new(script).args(arguments).env("CCM_TEST_CACHE", cache).output()?)
}

/// Stores the facts of a version in the script's cache.
fn remember(cache: &Path, version: &str, facts: &str) -> Outcome {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("upstream/dump.go");
    let digest = String::from_utf8(Command::new("sha256sum").arg(program).output()?.stdout)?;
    fs::write(cache.join(format!("upstream-{version}-{}.tsv", &digest[..16])), facts)?;
    Ok(())
}

#[test]
fn old_values_stand_above_new_ones() -> Outcome {
    if Command::new("go").arg("version").output().is_err() {
        return Ok(());
    }
    let cache = std::env::temp_dir().join(format!("ccm-upstream-{}", std::process::id()));
    fs::create_dir_all(&cache)?;
    let old = "flag\ta\tdefault\t2\nflag\tb\tdefault\t1\ngate\tG\tstage\tBETA\n";
    let new = "flag\ta\tdefault\t1\nflag\tb\tdefault\t1\nmetric\tm\thelp\tcounts\n";
    remember(&cache, "v0.1.0", old)?;
    remember(&cache, "v0.2.0", new)?;
    let output = changes(&cache, &["1.1.0", "v0.2.0"])?;
    let expected =
        "- flag\ta\tdefault\t2\n+ flag\ta\tdefault\t1\n- gate\tG\tstage\tBETA\n+ metric\tm\thelp\tcounts\n";
    assert_eq!(String::from_utf8(output.stdout)?, expected);
    assert_eq!(output.status.code(), Some(1));

    let same = changes(&cache, &["0.1.0", "0.1.0"])?;
    assert_eq!((same.status.code(), same.stdout.len()), (Some(0), 0));
    let one = changes(&cache, &["0.1.0"])?;
    assert_eq!((one.status.code(), String::from_utf8(one.stdout)?.as_str()), (Some(0), old));
    let wrong = changes(&cache, &["latest", "0.1.0"])?;
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8(wrong.stderr)?.contains("latest is no version such as 0.37.2"));
    assert_eq!(changes(&cache, &[])?.status.code(), Some(2));
    fs::remove_dir_all(&cache)?;
    Ok(())
}

/// The `go` program does not find the version, or finds another one than requested.
#[test]
fn what_is_of_another_version_is_not_kept() -> Outcome {
    let folder = std::env::temp_dir().join(format!("ccm-upstream-go-{}", std::process::id()));
    let (cache, programs) = (folder.join("cache"), folder.join("bin"));
    fs::create_dir_all(&cache)?;
    fs::create_dir_all(&programs)?;
    let go = programs.join("go");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH")?);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("upstream/changes.sh");
    for (get, resolved, works) in
        [("false", "v0.1.0", false), ("true", "v0.2.0", false), ("true", "v0.1.0", true)]
    {
        let text =
            format!("#!/bin/sh\ncase $1 in get) {get} ;; list) echo {resolved} ;; run) echo facts ;; esac\n");
        fs::write(&go, text)?;
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755))?;
        let output =
            Command::new(&script).arg("0.1.0").env("CCM_TEST_CACHE", &cache).env("PATH", &path).output()?;
        let expected = if works { 0 } else { 2 };
        assert_eq!(output.status.code(), Some(expected), "{get} {resolved}");
        assert_eq!(fs::read_dir(&cache)?.count(), usize::from(works), "{get} {resolved}");
    }
    fs::remove_dir_all(&folder)?;
    Ok(())
}
