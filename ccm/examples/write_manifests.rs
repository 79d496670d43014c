//! Writes the generated files of `deploy/`: `make manifests`.

#![allow(clippy::print_stdout, reason = "it talks to a person")]

use std::{fs, path::Path};

use anyhow::{Context as _, anyhow};
use ccm::manifests::generated_files;

fn main() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for (name, text) in generated_files().map_err(|faults| anyhow!(faults.join("; ")))? {
        let path = folder.join(&name);
        if fs::read_to_string(&path).is_ok_and(|found| found == text) {
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("deploy/{name}");
    }
    Ok(())
}
