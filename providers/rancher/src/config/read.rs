//! Reads a configuration text into [`Settings`].

use cloudprovider::{
    gcfg::{self, Cut},
    manifest_in_place_of_config, yaml_fault_cause, yaml_syntax_fault,
};
use serde_json::{Map, Value};

use super::{
    keys::{self, KEYS, Kind},
    settings::{Environment, Findings, Settings},
};

/// Reads the text, in the format that it has, and the environment below it. `None` if the text cannot be read
/// at all.
pub(super) fn read(text: &str, environment: &Environment, findings: &mut Findings) -> Option<Settings> {
    let mut settings = if is_gcfg(text) { read_gcfg(text, findings)? } else { read_yaml(text, findings)? };
    environment.apply(&mut settings, findings);
    Some(settings)
}

/// A gcfg file begins with a section, and a YAML file of ours with a key.
fn is_gcfg(text: &str) -> bool {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().map(str::trim_start);
    lines
        .find(|line| !line.is_empty() && !line.starts_with(['#', ';']))
        .is_some_and(|line| line.starts_with('['))
}

fn read_gcfg(text: &str, findings: &mut Findings) -> Option<Settings> {
    let mut settings = Settings::of_gcfg();
    let document = match gcfg::parse(text) {
        Ok(document) => document,
        Err(faults) => {
            for fault in faults {
                findings.problem(format!("line {}", fault.line), fault.message);
            }
            return None;
        }
    };
    for section in document.sections {
        let known: Vec<_> =
            KEYS.iter().filter(|key| key.section.eq_ignore_ascii_case(&section.name)).collect();
        // Files of the old manager were never read, so an unknown name is no reason to refuse one.
        let Some(first) = known.first() else {
            if section.name.eq_ignore_ascii_case(address_pools::Config::KEY) {
                findings.problem("", "address pools can be given in YAML only; write the file in YAML");
                continue;
            }
            let mut sections: Vec<_> = KEYS.iter().map(|key| key.section).collect();
            sections.dedup();
            let hint = keys::hint(&section.name, sections.into_iter());
            findings.warning("", format!("holds an unknown section, which is ignored; {hint}"));
            continue;
        };
        let place = format!("[{}]", first.section);
        for variable in section.variables {
            let found = known.iter().find(|key| key.variable.eq_ignore_ascii_case(&variable.name));
            let Some(key) = found else {
                let hint = keys::hint(&variable.name, known.iter().map(|key| key.variable));
                let name = if keys::is_plain(&variable.name) { &variable.name } else { "a name" };
                findings.warning(&place, format!("{name} is not known and ignored; {hint}"));
                continue;
            };
            let origin = format!("{place} {}", key.variable);
            if matches!((variable.cut, key.kind), (Cut::Tight, _) | (Cut::Spaced, Kind::Secret)) {
                findings.warning(
                    &origin,
                    "ends at a comment sign (# or ;); if the sign belongs to the value, put the value in double quotes",
                );
            }
            match variable.value {
                Some(text) => settings.set(key, text, origin, findings),
                // In gcfg a name alone is true.
                None if key.kind == Kind::Flag => settings.set(key, "true".to_owned(), origin, findings),
                None => settings.refuse(key, origin, "needs a value; write name = value", findings),
            }
        }
    }
    Some(settings)
}

fn read_yaml(text: &str, findings: &mut Findings) -> Option<Settings> {
    let mut settings = Settings::default();
    // The library's own words may quote the text, which may hold a secret. So only the place is shown.
    let options = serde_saphyr::options! { with_snippet: false };
    let value = match serde_saphyr::from_str_with_options::<Value>(text, options) {
        Ok(value) => value,
        Err(error) => {
            let what = yaml_fault(&error);
            let place = error.location().map(|place| (place.line(), place.column()));
            let shown =
                place.map_or(String::new(), |(line, column)| format!(" (line {line}, column {column})"));
            let line = place.map(|(line, _)| usize::try_from(line).unwrap_or(usize::MAX));
            let cause = line.and_then(|line| yaml_fault_cause(text, line));
            findings.problem(
                "",
                format!("{what}{shown}{}", cause.map_or(String::new(), |cause| format!("; {cause}"))),
            );
            return None;
        }
    };
    match value {
        Value::Null => {}
        Value::Object(map) => {
            if let (Some(Value::String(kind)), true) = (map.get("kind"), map.contains_key("metadata")) {
                findings.problem("", manifest_in_place_of_config(kind));
                return None;
            }
            read_mapping("", map, &mut settings, findings);
        }
        _ => {
            findings.problem("", "must be a mapping of keys to values, or gcfg with a [Global] section");
            return None;
        }
    }
    Some(settings)
}

/// A fixed message about what is wrong with the text.
fn yaml_fault(error: &serde_saphyr::Error) -> &'static str {
    if matches!(error.without_snippet(), serde_saphyr::Error::DuplicateMappingKey { .. }) {
        return "the same key stands twice";
    }
    yaml_syntax_fault(&error.without_snippet().to_string())
}

fn read_mapping(path: &str, map: Map<String, Value>, settings: &mut Settings, findings: &mut Findings) {
    let full = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, value) in map {
        let origin = full(&name);
        if origin == address_pools::Config::KEY {
            settings.address_pools = Some(value);
            continue;
        }
        if keys::is_mapping(&origin) {
            match value {
                Value::Object(map) => read_mapping(&origin, map, settings, findings),
                Value::Null => {}
                _ => findings.problem(origin, "must be a mapping of keys to values"),
            }
            continue;
        }
        let Some(key) = keys::find(&origin) else {
            let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
            let here = KEYS.iter().filter_map(|key| key.name.strip_prefix(&prefix));
            let mut here: Vec<_> = here.filter_map(|rest| rest.split('.').next()).collect();
            here.dedup();
            let hint = keys::hint(&name, here.into_iter());
            let shown = if keys::is_plain(&name) { origin } else { path.to_owned() };
            findings.problem(shown, format!("unknown key; {hint}"));
            continue;
        };
        match (value, key.kind) {
            (Value::Null, _) => {}
            (Value::String(text), _) => settings.set(key, text, origin, findings),
            (Value::Bool(flag), Kind::Flag) => settings.set(key, flag.to_string(), origin, findings),
            (Value::Number(number), Kind::Number) => settings.set(key, number.to_string(), origin, findings),
            (_, Kind::Text | Kind::Secret) => {
                settings.refuse(key, origin, "must be a text; put it in quotes", findings);
            }
            (_, Kind::Flag) => settings.refuse(key, origin, "must be true or false", findings),
            (_, Kind::Number) => settings.refuse(key, origin, "must be a whole number", findings),
            (_, Kind::Duration) => {
                settings.refuse(key, origin, "must be a duration such as 5s or 1m30s", findings);
            }
        }
    }
}
