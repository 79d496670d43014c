//! `machines.allow`: what the objects of machines may name, by namespace.

use cloudprovider::{ConfigProblem, dns, kind_of_value};
use serde_json::{Map, Value};

use provider_kit::hints;

use crate::{glob::unescaped, moref::MoRef, words::part_means};

/// The key of the list in the section.
pub(crate) const ALLOW_KEY: &str = "allow";

/// The same, as messages name it.
pub(crate) const ALLOW: &str = "machines.allow";

/// One entry: what the objects of some namespaces may name. They may name what any of their entries lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllowEntry {
    /// The namespaces; every one if empty.
    pub(crate) namespaces: Vec<String>,
    /// The vCenters of the configuration, by their names there; every one if empty.
    pub(crate) vcenters: Vec<String>,
    /// Servers that clusters may name with an `identityRef`, beside those of the configuration.
    pub(crate) servers: Vec<WordPattern>,
    pub(crate) templates: Vec<ObjectPattern>,
    /// Whether virtual machines that are no templates count as such.
    pub(crate) machines_as_templates: bool,
    pub(crate) folders: Vec<ObjectPattern>,
    pub(crate) resource_pools: Vec<ObjectPattern>,
    pub(crate) datastores: Vec<ObjectPattern>,
    pub(crate) networks: Vec<ObjectPattern>,
    /// Virtual machines that Cluster API Provider vSphere has made and that objects may take over.
    pub(crate) take_over: Vec<ObjectPattern>,
    pub(crate) storage_policies: Vec<WordPattern>,
    /// IDs of tags.
    pub(crate) tags: Vec<WordPattern>,
    /// `VENDOR:DEVICE` in hexadecimal, or the profile of a virtual GPU.
    pub(crate) pci_devices: Vec<WordPattern>,
    pub(crate) mac_addresses: Vec<WordPattern>,
    pub(crate) vmx_keys: Vec<WordPattern>,
}

/// Objects of vCenter's inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObjectPattern {
    /// All of them.
    Everything,
    /// Those whose names from the root on match these parts, or all below such an object.
    Path { parts: Vec<String>, is_below: bool },
    /// One, by its managed object reference.
    Object(MoRef),
}

impl ObjectPattern {
    /// Whether an object with this path, from the root on and without it, is meant.
    pub(crate) fn matches(&self, object: &MoRef, path: &[String]) -> bool {
        match self {
            Self::Everything => true,
            Self::Object(one) => one == object,
            Self::Path { parts, is_below } => {
                let is_long_enough =
                    if *is_below { path.len() > parts.len() } else { path.len() == parts.len() };
                is_long_enough && parts.iter().zip(path).all(|(part, name)| part_means(part, name))
            }
        }
    }

    fn read(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Everything);
        }
        if let Some(path) = text.strip_prefix('/') {
            let (path, is_below) = path.strip_suffix("/**").map_or((path, false), |above| (above, true));
            // a slash in a name is written as in vCenter
            let parts: Vec<_> = path.split('/').map(|part| unescaped(part).into_string()).collect();
            let is_whole = parts.iter().all(|part| !part.is_empty() && !part.contains("**"));
            return is_whole.then_some(Self::Path { parts, is_below });
        }
        let (kind, id) = text.split_once(':')?;
        let is_word =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        (is_word(kind) && is_word(id)).then(|| Self::Object(MoRef::new(kind, id)))
    }
}

/// Words: one, or all that begin alike, in any letter case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WordPattern {
    start: String,
    is_prefix: bool,
}

impl WordPattern {
    /// Whether a word is meant.
    pub(crate) fn matches(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        if self.is_prefix { word.starts_with(&self.start) } else { word == self.start }
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        let (start, is_prefix) = text.strip_suffix('*').map_or((text, false), |start| (start, true));
        let is_plain = !start.contains('*') && (is_prefix || !start.is_empty());
        is_plain.then(|| Self { start: start.to_lowercase(), is_prefix })
    }

    fn is_everything(&self) -> bool {
        self.is_prefix && self.start.is_empty()
    }
}

const KEYS: [&str; 15] = [
    "namespaces",
    "vcenters",
    "servers",
    "templates",
    "machinesAsTemplates",
    "folders",
    "resourcePools",
    "datastores",
    "networks",
    "takeOver",
    "storagePolicies",
    "tags",
    "pciDevices",
    "macAddresses",
    "vmxKeys",
];

/// Reads the list. `vcenters` are the names of the configured vCenters.
pub(crate) fn read(value: &Value, vcenters: &[String], problems: &mut Vec<ConfigProblem>) -> Vec<AllowEntry> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(entries) => {
            let entries = entries.iter().enumerate();
            entries
                .filter_map(|(at, entry)| read_entry(&format!("{ALLOW}[{at}]"), entry, vcenters, problems))
                .collect()
        }
        other => {
            let words = format!("is {}, must be a list of mappings", kind_of_value(other));
            problems.push(ConfigProblem::new(ALLOW, words));
            Vec::new()
        }
    }
}

fn read_entry(
    path: &str,
    value: &Value,
    vcenters: &[String],
    problems: &mut Vec<ConfigProblem>,
) -> Option<AllowEntry> {
    let Value::Object(values) = value else {
        let words = format!("is {}, must be a mapping of keys to lists", kind_of_value(value));
        problems.push(ConfigProblem::new(path, words));
        return None;
    };
    let mut entry = Entry { path, values, problems };
    entry.check_keys();
    let namespaces = entry.texts("namespaces", "leave the key out if the entry is for every namespace");
    for (at, namespace) in namespaces.iter().enumerate().filter(|(_, name)| !dns::is_label(name)) {
        let words = format!("{namespace:?} is not the name of a namespace");
        entry.problem(&format!("namespaces[{at}]"), words);
    }
    let of_vcenters = entry.texts("vcenters", "leave the key out if the entry is for every vCenter");
    for (at, name) in of_vcenters.iter().enumerate().filter(|(_, name)| !vcenters.contains(name)) {
        let words = format!("{name:?} is no vCenter of this configuration; it has {}", vcenters.join(", "));
        entry.problem(&format!("vcenters[{at}]"), words);
    }
    Some(AllowEntry {
        namespaces,
        vcenters: of_vcenters,
        servers: entry.words("servers").into_iter().map(with_port).collect(),
        templates: entry.objects("templates"),
        machines_as_templates: entry.flag("machinesAsTemplates"),
        folders: entry.objects("folders"),
        resource_pools: entry.objects("resourcePools"),
        datastores: entry.objects("datastores"),
        networks: entry.objects("networks"),
        take_over: entry.objects("takeOver"),
        storage_policies: entry.words("storagePolicies"),
        tags: entry.words("tags"),
        pci_devices: entry.words("pciDevices"),
        mac_addresses: entry.words("macAddresses"),
        vmx_keys: entry.words("vmxKeys"),
    })
}

/// A server without a port has that of HTTPS.
fn with_port(pattern: WordPattern) -> WordPattern {
    let bare = pattern.start.trim_start_matches('[').trim_end_matches(']');
    let start = match bare.parse::<std::net::Ipv6Addr>() {
        Ok(address) if !pattern.is_prefix => format!("[{address}]:443"),
        _ if pattern.is_prefix || pattern.start.contains(':') => return pattern,
        _ => format!("{}:443", pattern.start),
    };
    WordPattern { start, ..pattern }
}

/// What is open for every namespace, for the operator.
pub(crate) fn warnings(entries: &[AllowEntry]) -> Vec<ConfigProblem> {
    let one = |(at, entry): (usize, &AllowEntry)| {
        let objects = |key, all: &[ObjectPattern]| all.contains(&ObjectPattern::Everything).then_some(key);
        let words = |key, all: &[WordPattern]| all.iter().any(WordPattern::is_everything).then_some(key);
        let open: Vec<&str> = [
            words("servers", &entry.servers),
            objects("templates", &entry.templates),
            objects("folders", &entry.folders),
            objects("resourcePools", &entry.resource_pools),
            objects("datastores", &entry.datastores),
            objects("networks", &entry.networks),
            objects("takeOver", &entry.take_over),
            words("storagePolicies", &entry.storage_policies),
            words("tags", &entry.tags),
            words("pciDevices", &entry.pci_devices),
            words("macAddresses", &entry.mac_addresses),
            words("vmxKeys", &entry.vmx_keys),
        ]
        .into_iter()
        .flatten()
        .collect();
        (entry.namespaces.is_empty() && !open.is_empty()).then(|| {
            let words = format!(
                "is open: the objects of every namespace may name all there are of {}; name namespaces, or list less, \
                 unless all who may write machines trust each other",
                open.join(", ")
            );
            ConfigProblem::new(format!("{ALLOW}[{at}]"), words)
        })
    };
    entries.iter().enumerate().filter_map(one).collect()
}

/// An entry that is read.
struct Entry<'a> {
    path: &'a str,
    values: &'a Map<String, Value>,
    problems: &'a mut Vec<ConfigProblem>,
}

impl Entry<'_> {
    fn problem(&mut self, key: &str, words: impl Into<String>) {
        self.problems.push(ConfigProblem::new(format!("{}.{key}", self.path), words));
    }

    /// An unknown key is a fault: what it was to permit would be refused, and nobody would know why.
    fn check_keys(&mut self) {
        for key in self.values.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            let words = match hints::nearest(key, KEYS) {
                Some(nearest) => format!("has an unknown key; did you mean {nearest}?"),
                None => format!("has an unknown key; known here: {}", KEYS.join(", ")),
            };
            self.problems.push(ConfigProblem::new(self.path, words));
        }
    }

    /// A list of texts. It is not empty: an empty one could be meant as all or as none.
    fn texts(&mut self, key: &str, instead: &str) -> Vec<String> {
        let items = match self.values.get(key) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.problem(key, format!("is {}, must be a list", kind_of_value(other)));
                return Vec::new();
            }
        };
        if items.is_empty() {
            self.problem(key, format!("is empty; list at least one, or {instead}"));
        }
        let mut texts = Vec::new();
        for (at, item) in items.iter().enumerate() {
            match item {
                Value::String(text) if !text.trim().is_empty() => texts.push(text.trim().to_owned()),
                other => self
                    .problem(&format!("{key}[{at}]"), format!("is {}, must be a text", kind_of_value(other))),
            }
        }
        texts
    }

    fn patterns<T>(&mut self, key: &str, read: impl Fn(&str) -> Option<T>, right: &str) -> Vec<T> {
        let texts = self.texts(key, "leave the key out");
        let mut patterns = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            match read(text) {
                Some(pattern) => patterns.push(pattern),
                None => self.problem(&format!("{key}[{at}]"), format!("{text:?} must be {right}")),
            }
        }
        patterns
    }

    fn objects(&mut self, key: &str) -> Vec<ObjectPattern> {
        let right = "a whole inventory path such as /dc1/vm/templates/*, one that ends with /** for all below, a managed object \
                     such as Folder:group-v3, or * for all";
        self.patterns(key, ObjectPattern::read, right)
    }

    fn words(&mut self, key: &str) -> Vec<WordPattern> {
        self.patterns(
            key,
            WordPattern::read,
            "a word, the beginning of words with * at its end, or * for all",
        )
    }

    fn flag(&mut self, key: &str) -> bool {
        match self.values.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) if text == "true" => true,
            Some(Value::String(text)) if text == "false" => false,
            Some(_) => {
                self.problem(key, "must be true or false");
                false
            }
        }
    }
}
