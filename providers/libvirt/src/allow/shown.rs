//! What the section opens, for people.

use super::{Allow, Entry, VolumeRule};

impl Allow {
    /// A line for each entry: for whom it opens what.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.entries.is_empty() {
            return vec![
                "machines.allow is empty: image.url reaches public addresses, and of a hypervisor the network and \
                 the pool \"default\" are open, nothing else"
                    .to_owned(),
            ];
        }
        self.entries
            .iter()
            .enumerate()
            .map(|(number, entry)| format!("machines.allow[{number}]: {}", entry.line()))
            .collect()
    }
}

impl Entry {
    fn line(&self) -> String {
        let whose = match &self.namespaces {
            None => "every namespace".to_owned(),
            Some(names) => format!("namespace {}", names.join(", ")),
        };
        let volume = |rule: &VolumeRule| format!("{}/{}*", rule.pool, rule.prefix);
        let lists = [
            (
                "imageFolders",
                self.image_folders
                    .iter()
                    .map(|folder| folder.display().to_string())
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
            ("imageVolumes", self.image_volumes.iter().map(volume).collect::<Vec<_>>().join(", ")),
            ("imageHosts", self.image_hosts.to_string()),
        ];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let lists = lists.map(|(key, list)| format!("{key} {list}"));
        let lists: Vec<_> = lists.chain(self.places.open()).chain(self.sizes.open()).collect();
        if lists.is_empty() { format!("{whose}: nothing") } else { format!("{whose}: {}", lists.join("; ")) }
    }
}
