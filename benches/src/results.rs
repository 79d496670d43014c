//! What was measured, one line of JSON for each run, so that an interrupted bench loses nothing.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One run of one competitor in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Such as `initialize`.
    pub(crate) case: String,
    /// What was varied in it, such as `5000 Nodes`.
    pub(crate) variant: String,
    /// The manager that was measured.
    pub(crate) manager: String,
    /// Values by their name, which ends with the unit: `seconds`, `cpu_seconds`, `peak_bytes`, `requests`.
    pub(crate) values: BTreeMap<String, f64>,
}

/// The file of the measurements.
#[derive(Debug)]
pub(crate) struct Results {
    path: PathBuf,
}

impl Results {
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub(crate) fn add(&self, measurement: &Measurement) -> Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = fs::File::options().create(true).append(true).open(&self.path)?;
        writeln!(file, "{}", serde_json::to_string(measurement)?)?;
        Ok(())
    }

    /// All measurements, in the order in which they were added.
    pub(crate) fn read(&self) -> Result<Vec<Measurement>> {
        let text = fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read {}: run the bench first", self.path.display()))?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let results = Results::at(&folder.path().join("deep/results.jsonl"));
        let measurement = Measurement {
            case: "initialize".to_owned(),
            variant: "10 Nodes".to_owned(),
            manager: "ours".to_owned(),
            values: BTreeMap::from([("seconds".to_owned(), 0.25)]),
        };
        results.add(&measurement).expect("written");
        results.add(&measurement).expect("written");
        assert_eq!(results.read().expect("read"), [measurement.clone(), measurement]);
    }
}
