//! Differences from another program that the documentation has in a table: its first column names them, and the others say why.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};

/// The page about machines of the vSphere provider.
pub(crate) const VSPHERE_MACHINES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/providers/vsphere/machines.md");

/// The page with what differs from Cluster API Provider vSphere.
pub(crate) const BESIDE_CAPV: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/providers/vsphere/machines-beside-capv.md");

/// What is different, beside the table.
pub(crate) struct Differences {
    wanted: Vec<String>,
    seen: BTreeSet<usize>,
    unknown: Vec<String>,
}

impl Differences {
    /// With the table below this title. Its first column has names between backticks, in which a star stands for anything.
    pub(crate) fn documented(file: &str, title: &str) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.to_owned())?;
        let (_, section) = text.split_once(title).with_context(|| format!("no {title:?} in {file}"))?;
        let rows = section.lines().skip_while(|line| !line.starts_with('|'));
        let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
        let first = rows.filter_map(|row| row.split('|').nth(1));
        let wanted = first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
        Ok(Self { wanted, seen: BTreeSet::new(), unknown: Vec::new() })
    }

    /// Notes what both say of one thing.
    pub(crate) fn see(&mut self, name: &str, theirs: Option<&String>, ours: Option<&String>) {
        if theirs == ours {
            return;
        }
        let rows = self.wanted.iter().enumerate().filter(|(_, pattern)| is_one(name, pattern));
        let rows: Vec<usize> = rows.map(|(row, _)| row).collect();
        if rows.is_empty() {
            self.unknown.push(format!("{name}: theirs {theirs:?}, ours {ours:?}"));
        }
        self.seen.extend(rows);
    }

    /// That each difference is in the table, and each name in the table is one.
    pub(crate) fn check(self) -> Result<()> {
        let Self { wanted, seen, unknown } = self;
        ensure!(unknown.is_empty(), "differences that nobody wanted:\n{}", unknown.join("\n"));
        let unused = wanted.iter().enumerate().filter(|(row, _)| !seen.contains(row));
        let unused: Vec<&String> = unused.map(|(_, pattern)| pattern).collect();
        ensure!(unused.is_empty(), "no difference any more: {unused:?}");
        Ok(())
    }
}

/// Whether this is the name of such a thing. A star stands for anything.
pub(crate) fn is_one(name: &str, pattern: &str) -> bool {
    let Some((start, after)) = pattern.split_once('*') else { return name == pattern };
    let Some(rest) = name.strip_prefix(start) else { return false };
    (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|end| is_one(end, after)))
}
