//! All that a virtual machine is, as a list of facts that can be compared one by one.

use std::{collections::BTreeMap, io::Read as _};

use anyhow::Context;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use serde_json::Value;

/// What the guest reads.
const TEXTS: [&str; 2] = ["guestinfo.metadata", "guestinfo.userdata"];

/// What a machine is, by names such as `config.hardware.device[VirtualVmxnet3 0].wakeOnLanEnabled`. What the guest reads is decoded: its
/// metadata are facts of their own.
pub(super) fn facts(machine: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    let mut facts = BTreeMap::new();
    add("", machine, &mut facts);
    for key in TEXTS {
        let name = format!("config.extraConfig[{key}]");
        let Some(text) = facts.remove(&name) else { continue };
        let text: String = serde_json::from_str(&text)?;
        let encoding = facts.get(&format!("config.extraConfig[{key}.encoding]")).cloned().unwrap_or_default();
        let text = decoded(&text, encoding.trim_matches('"')).with_context(|| name.clone())?;
        if key == "guestinfo.metadata" {
            let metadata: Value = serde_saphyr::from_str(&text).context(text)?;
            add("metadata", &metadata, &mut facts);
        } else {
            facts.insert(name, text);
        }
    }
    Ok(facts)
}

fn decoded(text: &str, encoding: &str) -> anyhow::Result<String> {
    let bytes = STANDARD.decode(text)?;
    let mut text = String::new();
    match encoding {
        "gzip+base64" => GzDecoder::new(&bytes[..]).read_to_string(&mut text)?,
        "base64" => (&bytes[..]).read_to_string(&mut text)?,
        other => anyhow::bail!("the encoding is {other:?}"),
    };
    Ok(text)
}

fn add(name: &str, value: &Value, facts: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields.iter().filter(|(field, _)| *field != "_typeName") {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                add(&name, value, facts);
            }
        }
        Value::Array(items) => {
            let mut counts = BTreeMap::<&str, usize>::new();
            for item in items {
                let kind = item["_typeName"].as_str().unwrap_or_default();
                if let ("OptionValue", Some(key)) = (kind, item["key"].as_str()) {
                    add(&format!("{name}[{key}]"), option(&item["value"]), facts);
                    continue;
                }
                let count = counts.entry(kind).or_default();
                add(&format!("{name}[{}]", format!("{kind} {count}").trim()), item, facts);
                *count += 1;
            }
        }
        Value::Null => {}
        other => {
            facts.insert(name.to_owned(), other.to_string());
        }
    }
}

/// The value of an option, which names its own type.
fn option(value: &Value) -> &Value {
    value.get("_value").unwrap_or(value)
}
