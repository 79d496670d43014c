//! The file `--leader-migration-config`, decoded as strictly as in upstream.

use std::path::Path;

use basics::dns::is_subdomain;
use serde_json::{Map, Value};

use super::{KnownControllers, LeaderMigration};

const KIND: &str = "LeaderMigrationConfiguration";
const GROUP: &str = "controllermanager.config.k8s.io";

/// The versions, and whether they have the field `resourceLock`, which is then required.
const VERSIONS: [(&str, bool); 3] = [("v1", false), ("v1beta1", true), ("v1alpha1", true)];

impl LeaderMigration {
    /// Reads a file.
    ///
    /// # Errors
    /// All faults of the file, each with the flag, the file and the key.
    pub fn read(path: &Path, known: &KnownControllers) -> Result<Self, Vec<String>> {
        let shown = path.display();
        let faults = match std::fs::read_to_string(path) {
            Ok(text) => match Self::parse(&text, known) {
                Ok(migration) => return Ok(migration),
                Err(faults) => faults,
            },
            Err(error) => vec![format!("unable to read leader migration configuration: {error}")],
        };
        Err(faults.into_iter().map(|fault| format!("--leader-migration-config {shown}: {fault}")).collect())
    }

    /// Decodes and checks the text of such a file, YAML or JSON.
    ///
    /// # Errors
    /// All faults of the text, each with its key, in upstream's words where upstream has them.
    pub fn parse(text: &str, known: &KnownControllers) -> Result<Self, Vec<String>> {
        let options = serde_saphyr::options! { with_snippet: false };
        let value = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| vec![format!("is not one document of YAML or JSON: {error}")])?;
        let Value::Object(mut fields) = value else {
            return Err(vec![format!("Object 'Kind' is missing; must be a {KIND}")]);
        };
        let has_resource_lock = has_resource_lock(&mut fields).map_err(|fault| vec![fault])?;

        let mut faults = Faults::default();
        let lease_name = faults.text(&mut fields, "", "leaderName");
        if let Some(name) = &lease_name {
            faults.lease_name(name);
        }
        if has_resource_lock && let Some(lock) = faults.text(&mut fields, "", "resourceLock") {
            faults.resource_lock(&lock);
        }
        let listed = faults.controller_leaders(fields.remove("controllerLeaders"));
        faults.unknown("", &fields);
        match lease_name {
            Some(name) if faults.0.is_empty() => Ok(Self::new(name, listed, known)),
            _ => Err(faults.0),
        }
    }
}

/// Whether the object's version has the field `resourceLock`.
fn has_resource_lock(fields: &mut Map<String, Value>) -> Result<bool, String> {
    let mut text = |key| match fields.remove(key) {
        Some(Value::String(text)) if !text.is_empty() => Some(text),
        _ => None,
    };
    let versions = || VERSIONS.map(|(version, _)| format!("{GROUP}/{version}")).join(", ");
    let kind = text("kind").ok_or_else(|| format!("Object 'Kind' is missing; must be {KIND}"))?;
    let version = text("apiVersion")
        .ok_or_else(|| format!("Object 'apiVersion' is missing; must be one of {}", versions()))?;
    let known = VERSIONS.iter().find(|(known, _)| version == format!("{GROUP}/{known}"));
    match known {
        Some((_, has_resource_lock)) if kind == KIND => Ok(*has_resource_lock),
        _ => Err(format!(
            "no kind {kind:?} is registered for version {version:?}; must be {KIND} of one of {}",
            versions()
        )),
    }
}

/// The faults found so far.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    /// Takes a text out of `fields`. It is empty if missing. `None` if the value is not a text, which is
    /// added to the faults.
    fn text(&mut self, fields: &mut Map<String, Value>, path: &str, key: &str) -> Option<String> {
        match fields.remove(key) {
            None | Some(Value::Null) => Some(String::new()),
            Some(Value::String(text)) => Some(text),
            Some(_) => {
                self.0.push(format!("{path}{key}: Invalid value: must be a text; put it in quotes"));
                None
            }
        }
    }

    fn lease_name(&mut self, name: &str) {
        if name.is_empty() {
            self.0.push(format!("leaderName: Required value: leaderName must be set for {KIND}"));
        } else if !is_subdomain(name) {
            // As the API server judges the names of Leases.
            self.0.push(format!(
                "leaderName: Invalid value: {name:?}: no name of a Lease; it may have lower-case letters, digits, - and ."
            ));
        }
    }

    fn resource_lock(&mut self, lock: &str) {
        match lock {
            "leases" => {}
            // Upstream accepts this value here and exits as soon as it leads.
            "endpoints" => self.0.push(
                "resourceLock: Invalid value: \"endpoints\": endpoints lock is removed, migrate to leases"
                    .to_owned(),
            ),
            _ => {
                self.0.push(format!("resourceLock: Invalid value: {lock:?}: resource Lock must be 'leases'"));
            }
        }
    }

    /// The pairs of name and component.
    fn controller_leaders(&mut self, value: Option<Value>) -> Vec<(String, String)> {
        let items = match value {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.0.push("controllerLeaders: Invalid value: must be a list".to_owned());
                Vec::new()
            }
        };
        items
            .into_iter()
            .enumerate()
            .filter_map(|(index, item)| self.controller_leader(index, item))
            .collect()
    }

    fn controller_leader(&mut self, index: usize, item: Value) -> Option<(String, String)> {
        let path = format!("controllerLeaders[{index}].");
        let mut fields = match item {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            _ => {
                let path = path.trim_end_matches('.');
                self.0.push(format!("{path}: Invalid value: must have the keys name and component"));
                return None;
            }
        };
        let [component, name] = ["component", "name"].map(|key| {
            let text = self.text(&mut fields, &path, key)?;
            if text.is_empty() {
                self.0.push(format!("{path}{key}: Required value"));
            }
            Some(text)
        });
        self.unknown(&path, &fields);
        Some((name?, component?))
    }

    /// Adds a fault for each field that is left over, since it is unknown.
    fn unknown(&mut self, path: &str, fields: &Map<String, Value>) {
        self.0
            .extend(fields.keys().map(|key| format!("strict decoding error: unknown field \"{path}{key}\"")));
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Lock, tests::KNOWN},
        *,
    };

    const V1: &str = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n";
    const V1ALPHA1: &str =
        "apiVersion: controllermanager.config.k8s.io/v1alpha1\nkind: LeaderMigrationConfiguration\n";

    #[test]
    fn what_upstream_takes() {
        for text in [
            format!("{V1}leaderName: m\n"),
            format!("# a comment\n---\n{V1}leaderName: m\ncontrollerLeaders: null\n"),
            format!("{V1}leaderName: m\ncontrollerLeaders: []\n"),
            format!("{V1ALPHA1}leaderName: m\nresourceLock: leases\n"),
            V1ALPHA1.replace("v1alpha1", "v1beta1") + "leaderName: m\nresourceLock: leases\n",
            r#"{"apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration", "leaderName": "m"}"#.to_owned(),
        ] {
            let read = LeaderMigration::parse(&text, &KNOWN).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
            assert_eq!(read, LeaderMigration::new("m".to_owned(), [], &KNOWN));
        }
        let text = format!(
            "{V1}leaderName: m\ncontrollerLeaders:\n- name: service\n  component: '*'\n\
             - {{name: route-controller, component: kube-controller-manager}}\n"
        );
        let read = LeaderMigration::parse(&text, &KNOWN).expect("good");
        assert_eq!(read.lock_of("service-lb-controller"), Lock::Migration);
        assert_eq!(read.lock_of("node-route-controller"), Lock::Elsewhere);
        assert_eq!(read.lock_of("cloud-node-controller"), Lock::Main);
    }

    #[test]
    fn every_fault_names_its_key() {
        let parse = |text: &str| LeaderMigration::parse(text, &KNOWN).expect_err(text);
        for (text, expected) in [
            ("", vec!["Object 'Kind' is missing; must be a LeaderMigrationConfiguration"]),
            ("leaderName: m\n", vec!["Object 'Kind' is missing; must be LeaderMigrationConfiguration"]),
            (
                "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n",
                vec![
                    "no kind \"KubeletConfiguration\" is registered for version \"kubelet.config.k8s.io/v1beta1\"; must be \
                     LeaderMigrationConfiguration of one of controllermanager.config.k8s.io/v1, \
                     controllermanager.config.k8s.io/v1beta1, controllermanager.config.k8s.io/v1alpha1",
                ],
            ),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        for (rest, expected) in [
            ("", vec!["leaderName: Required value: leaderName must be set for LeaderMigrationConfiguration"]),
            ("leaderName: 5\n", vec!["leaderName: Invalid value: must be a text; put it in quotes"]),
            (
                "leaderName: 1-20-KCM\n",
                vec![
                    "leaderName: Invalid value: \"1-20-KCM\": no name of a Lease; it may have lower-case letters, digits, - and .",
                ],
            ),
            (
                "leaderName: m\nresourceLock: leases\n",
                vec!["strict decoding error: unknown field \"resourceLock\""],
            ),
            ("LeaderName: m\nleaderName: m\n", vec!["strict decoding error: unknown field \"LeaderName\""]),
            (
                "leaderName: m\ncontrollerLeaders: {}\n",
                vec!["controllerLeaders: Invalid value: must be a list"],
            ),
            (
                "leaderName: m\ncontrollerLeaders: [null, 7, {name: a}, {component: b, c: d}, {name: [], component: b}]\nfoo: 1\n",
                vec![
                    "controllerLeaders[0].component: Required value",
                    "controllerLeaders[0].name: Required value",
                    "controllerLeaders[1]: Invalid value: must have the keys name and component",
                    "controllerLeaders[2].component: Required value",
                    "controllerLeaders[3].name: Required value",
                    "strict decoding error: unknown field \"controllerLeaders[3].c\"",
                    "controllerLeaders[4].name: Invalid value: must be a text; put it in quotes",
                    "strict decoding error: unknown field \"foo\"",
                ],
            ),
        ] {
            assert_eq!(parse(&format!("{V1}{rest}")), expected, "{rest}");
        }
        for (lock, expected) in [
            ("", "resourceLock: Invalid value: \"\": resource Lock must be 'leases'"),
            ("resourceLock: foo\n", "resourceLock: Invalid value: \"foo\": resource Lock must be 'leases'"),
            (
                "resourceLock: endpoints\n",
                "resourceLock: Invalid value: \"endpoints\": endpoints lock is removed, migrate to leases",
            ),
        ] {
            assert_eq!(parse(&format!("{V1ALPHA1}leaderName: m\n{lock}")), [expected]);
        }
        for twice in ["leaderName: a\nleaderName: b\n", "leaderName: a\n---\nleaderName: b\n"] {
            let faults = parse(&format!("{V1}{twice}"));
            assert!(faults[0].starts_with("is not one document of YAML or JSON: "), "{faults:?}");
        }
    }

    #[test]
    fn the_flag_and_the_file_are_named() {
        let faults = LeaderMigration::read(Path::new("/nonexistent/m.yaml"), &KNOWN).expect_err("not there");
        assert_eq!(faults.len(), 1);
        let start =
            "--leader-migration-config /nonexistent/m.yaml: unable to read leader migration configuration: ";
        assert!(faults[0].starts_with(start), "{faults:?}");
    }
}
