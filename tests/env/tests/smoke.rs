//! Peers end with the process that started them, even if it is killed.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn Error>>;

#[test]
fn a_killed_process_leaves_no_control_plane() -> Outcome {
    dies_with_its_starter("control-plane")
}

#[test]
fn a_killed_process_leaves_no_libvirtd() -> Outcome {
    dies_with_its_starter("libvirtd")
}

fn dies_with_its_starter(peer: &str) -> Outcome {
    let mut starter = Command::new(env!("CARGO_BIN_EXE_test-env"))
        .arg(peer)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(starter.stdout.take().ok_or("no output")?);
    let mut said = String::new();
    output.read_line(&mut said)?;
    if said.is_empty() {
        let errors = String::from_utf8_lossy(&starter.wait_with_output()?.stderr).into_owned();
        if errors.contains("not available on this machine") && std::env::var_os("CI").is_none() {
            writeln!(std::io::stderr(), "SKIPPED: {errors}")?;
            return Ok(());
        }
        return Err(errors.into());
    }

    // the command line of every process of the peer contains a file in its folder
    let begin = said.find("ccm-test-").ok_or("no folder named")?;
    let folder: String = said[begin..].chars().take_while(|&c| c != '/').collect();
    assert!(processes_naming(&folder)? >= 1, "nothing runs in {folder}");

    starter.kill()?;
    starter.wait()?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while processes_naming(&folder)? > 0 {
        assert!(Instant::now() < deadline, "something still runs in {folder}");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The number of processes with `text` in their command line. Dead processes have no command line.
fn processes_naming(text: &str) -> Result<usize, Box<dyn Error>> {
    let lines =
        fs::read_dir("/proc")?.flatten().filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    Ok(lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count())
}
