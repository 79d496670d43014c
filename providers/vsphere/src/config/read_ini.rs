//! Reads the INI format into [`Settings`].

use std::collections::BTreeMap;

use cloudprovider::gcfg::{self, Cut};

use super::{
    allow::ALLOW_KEY,
    hints,
    keys::{Key, Kind, Section, not_a_number},
    read_yaml::split,
    settings::{Findings, Format, Settings, Value, with_oddity},
};

pub(crate) fn read(text: &str, findings: &mut Findings) -> Settings {
    let mut settings = Settings::new(Format::Ini);
    let document = match gcfg::parse(text) {
        Ok(document) => document,
        Err(faults) => {
            for fault in faults {
                findings.problem(format!("line {}", fault.line), fault.message);
            }
            return settings;
        }
    };
    for section in document.sections {
        let found = Section::ALL.into_iter().find(|known| known.ini().eq_ignore_ascii_case(&section.name));
        let Some(kind) = found else {
            findings.warning("", hints::unknown_section(&section.name, Format::Ini));
            continue;
        };
        let name = match (kind.is_named(), section.subsection) {
            (true, Some(name)) => name,
            (false, None) => String::new(),
            (true, None) => {
                let example = format!("[{} \"name\"]", kind.ini());
                findings.fault(kind, format!("[{}]", kind.ini()), format!("needs a name; write {example}"));
                continue;
            }
            (false, Some(_)) => {
                findings
                    .warning(format!("[{}]", kind.ini()), "takes no name in quotes; all below it is ignored");
                continue;
            }
        };
        settings.open(kind, &name);
        let place = settings.section_origin(kind, &name);
        for variable in section.variables {
            if kind == Section::Machines && variable.name.eq_ignore_ascii_case(ALLOW_KEY) {
                let words = "can be given in the YAML format only; write the file in that format";
                findings.problem(format!("{place} {ALLOW_KEY}"), words);
                continue;
            }
            let Some(key) = kind.keys().find(|known| known.ini.eq_ignore_ascii_case(&variable.name)) else {
                let known: Vec<_> = kind.keys().map(|key| key.ini).collect();
                findings.warning(&place, hints::unknown(&variable.name, &known));
                continue;
            };
            let origin = format!("{place} {}", key.ini);
            match variable.cut {
                Cut::No => {}
                // values other than secrets are often followed by such a comment
                Cut::Spaced if key.kind != Kind::Secret => {}
                Cut::Tight | Cut::Spaced => findings.warning(
                    &origin,
                    "ends at a comment sign (# or ;); if the sign belongs to the value, put the value in double quotes",
                ),
            }
            match read_value(key, variable.value.as_deref()) {
                Ok(value) => {
                    findings.note_oddity(key, &value, &origin);
                    settings.set(key, &name, value, origin);
                }
                Err(message) => {
                    findings.fault(kind, origin, with_oddity(message, key, variable.value.as_deref()));
                }
            }
        }
    }
    settings
}

/// Reads a value. `None` is a name alone.
fn read_value(key: &Key, text: Option<&str>) -> Result<Value, &'static str> {
    const WANTS_FLAG: &str = "must be true, yes, on, 1, false, no, off or 0";
    let Some(text) = text else {
        return match key.kind {
            Kind::Flag => Ok(Value::Flag(true)),
            _ => Err("needs a value; write name = value"),
        };
    };
    match key.kind {
        Kind::Text | Kind::Secret => Ok(Value::Text(text.to_owned())),
        Kind::Flag => flag(text).map(Value::Flag).ok_or(WANTS_FLAG),
        // CPI reads the port as a text, and treats an empty one as not set
        Kind::Number if text.is_empty() => Ok(Value::Text(String::new())),
        Kind::Number => number(text).map(Value::Number).ok_or_else(|| not_a_number(key, text)),
        Kind::List | Kind::Commas => Ok(Value::List(split(text))),
        Kind::Tags if text.is_empty() => Ok(Value::Tags(BTreeMap::new())),
        Kind::Tags => serde_json::from_str(text)
            .map(Value::Tags)
            .map_err(|_| r#"must be a JSON object of texts in double quotes: "{\"name\":\"value\"}""#),
    }
}

/// Parses gcfg's boolean words, in any letter case.
pub(crate) fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Parses a number as gcfg does: decimal, with leading zeros allowed, or hexadecimal after `0x`.
pub(crate) fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    digits.bytes().all(|b| b.is_ascii_alphanumeric()).then(|| u64::from_str_radix(digits, radix).ok())?
}
