//! Reads the section.

use std::path::{Component, Path, PathBuf};

use cloudprovider::{dns, kind_of_value};
use provider_kit::{Fields, Findings};
use serde_json::Value;

use super::{Allow, Entry, VolumeRule, hosts::ImageHosts, places::Places, sizes::Sizes};
use crate::fields::mapping;

/// Folders that no image is in, and that have what only the daemon may read.
const CLOSED_FOLDERS: [&str; 5] = ["/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets"];

impl Allow {
    /// The key of the section in `machines`.
    pub(crate) const KEY: &'static str = "allow";

    /// Reads the section from the list under its key.
    pub(crate) fn read(list: Vec<(String, Value)>, problems: &mut Findings) -> Self {
        let entries = list.into_iter().filter_map(|(path, value)| Entry::read(&path, value, problems));
        Self { entries: entries.collect() }
    }
}

impl Entry {
    fn read(path: &str, value: Value, problems: &mut Findings) -> Option<Self> {
        let mut fields = mapping(path, value, problems)?;
        let entry = Self {
            namespaces: namespaces(&mut fields, problems),
            image_folders: folders(&mut fields, problems),
            image_volumes: volumes(&mut fields, problems),
            image_hosts: ImageHosts::read(&mut fields, problems),
            places: Places::read(&mut fields, problems),
            sizes: Sizes::read(&mut fields, problems),
        };
        fields.finish(problems);
        Some(entry)
    }
}

fn namespaces(fields: &mut Fields, problems: &mut Findings) -> Option<Vec<String>> {
    let had = problems.problems.len();
    let is_name = |text: &str| dns::is_label(text).then(|| text.to_owned());
    let names = fields.parsed_list("namespaces", "the name of a namespace", is_name, problems);
    if names.as_ref().is_some_and(Vec::is_empty) && problems.problems.len() == had {
        let words = "is empty; list namespaces, or leave the key out if the entry is for all";
        problems.problem(fields.path("namespaces"), words);
    }
    // A faulty list is for nobody.
    names.or_else(|| (problems.problems.len() > had).then(Vec::new))
}

fn folders(fields: &mut Fields, problems: &mut Findings) -> Vec<PathBuf> {
    let what = "the absolute path of a folder for images alone, such as /var/lib/images, without \"..\", and neither in \
                nor around /proc, /sys, /dev and /run/secrets";
    fields.parsed_list("imageFolders", what, folder, problems).unwrap_or_default()
}

fn folder(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let is_plain = path.is_absolute()
        && path.components().skip(1).all(|part| matches!(part, Component::Normal(_)))
        && !text.contains('\0');
    let is_apart = |closed: &str| !path.starts_with(closed) && !Path::new(closed).starts_with(path);
    // as it is compared: without doubled slashes
    (is_plain && CLOSED_FOLDERS.into_iter().all(is_apart)).then(|| path.components().collect())
}

fn volumes(fields: &mut Fields, problems: &mut Findings) -> Vec<VolumeRule> {
    let list = fields.list("imageVolumes", problems).unwrap_or_default();
    list.into_iter().filter_map(|(path, value)| volume(&path, value, problems)).collect()
}

fn volume(path: &str, value: Value, problems: &mut Findings) -> Option<VolumeRule> {
    if !value.is_object() {
        let words =
            format!("is {}, must be a mapping with pool and, optionally, prefix", kind_of_value(&value));
        problems.problem(path, words);
        return None;
    }
    let mut fields = mapping(path, value, problems)?;
    let pool = fields.required_text("pool", "the name of a storage pool", problems);
    let prefix = fields.text("prefix", problems).unwrap_or_default();
    fields.finish(problems);
    Some(VolumeRule { pool: pool?, prefix })
}
