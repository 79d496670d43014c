//! `--feature-gates`: the known gates and their settings.

mod metrics;

use std::collections::BTreeMap;

pub use metrics::FeatureMetrics;

use super::values::boolean;

/// The maturity of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off by default.
    Alpha,
    /// Usually on by default.
    Beta,
    /// Stable. The gate will be removed.
    Ga,
    /// The gate will be removed, and the feature with it.
    Deprecated,
}

impl Stage {
    /// The value of the label `stage` in `kubernetes_feature_enabled`. It is empty for a stable feature.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

/// A gate that a program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// The maturity of the feature.
    pub stage: Stage,
    /// Its setting without the flag.
    pub default: bool,
    /// Whether it can only be set to its default.
    pub locked: bool,
}

/// The gates that a program knows.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownGates {
    /// Sorted by name.
    pub gates: &'static [Gate],
    /// Removed gates that old manifests still set, each with the reason.
    pub gone: &'static [(&'static str, &'static str)],
}

/// A gate and its setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGate {
    /// Its name.
    pub name: &'static str,
    /// The maturity of the feature.
    pub stage: Stage,
    /// Its setting without the flag.
    pub default: bool,
    /// Its present setting.
    pub enabled: bool,
}

/// The settings of all gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    known: &'static KnownGates,
    /// The settings in the flag.
    set: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// All gates with their defaults.
    pub fn new(known: &'static KnownGates) -> Self {
        Self { known, set: BTreeMap::new() }
    }

    /// Parses `A=true,B=false`. If a gate appears twice, the last setting counts.
    ///
    /// # Errors
    /// All faults, in upstream's words.
    pub fn parse(text: &str, known: &'static KnownGates) -> Result<Self, String> {
        let mut faults = Vec::new();
        let mut gates = Self::new(known);
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let Some((name, value)) = item.split_once('=') else {
                faults.push(format!("missing bool value for {}", item.trim()));
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let value = match boolean(value) {
                Ok(value) => value,
                Err(error) => {
                    faults.push(format!("invalid value of {name}={value}, err: {error}"));
                    continue;
                }
            };
            match known.gates.iter().find(|gate| gate.name == name) {
                Some(gate) => {
                    gates.set.insert(gate.name, value);
                }
                None => faults.push(format!("unrecognized feature gate: {name}{}", hint(name, known))),
            }
        }
        let locked = known.gates.iter().filter(|gate| gate.locked);
        for gate in locked {
            if let Some(value) = gates.set.get(gate.name).filter(|value| **value != gate.default) {
                faults.push(format!(
                    "cannot set feature gate {} to {value}, feature is locked to {}",
                    gate.name, gate.default
                ));
            }
        }
        if faults.is_empty() { Ok(gates) } else { Err(faults.join(", ")) }
    }

    /// Every gate, sorted by name.
    pub fn all(&self) -> impl Iterator<Item = FeatureGate> + '_ {
        self.known.gates.iter().map(|gate| {
            // A gate's own setting takes precedence over the setting of its stage.
            let by_stage = match gate.stage {
                Stage::Alpha => self.set.get("AllAlpha"),
                Stage::Beta => self.set.get("AllBeta"),
                Stage::Ga | Stage::Deprecated => None,
            };
            let of_stage = by_stage.filter(|_| !["AllAlpha", "AllBeta"].contains(&gate.name));
            let enabled = self.set.get(gate.name).or(of_stage).copied().unwrap_or(gate.default);
            FeatureGate { name: gate.name, stage: gate.stage, default: gate.default, enabled }
        })
    }

    /// Whether the gate of this name is on. An unknown gate is off.
    pub fn enabled(&self, name: &str) -> bool {
        self.all().any(|gate| gate.name == name && gate.enabled)
    }

    /// Upstream's warnings about gates that will be removed.
    pub fn warnings(&self) -> Vec<String> {
        let going = |(name, value): (&&str, &bool)| {
            let stage = self.known.gates.iter().find(|gate| gate.name == *name)?.stage;
            let stage = match stage {
                Stage::Ga => "GA",
                Stage::Deprecated => "deprecated",
                Stage::Alpha | Stage::Beta => return None,
            };
            Some(format!(
                "setting {stage} feature gate {name}={value}. It will be removed in a future release."
            ))
        };
        self.set.iter().filter_map(going).collect()
    }
}

/// The advice for an unknown gate.
fn hint(name: &str, known: &KnownGates) -> String {
    if let Some((_, why)) = known.gone.iter().find(|(gone, _)| *gone == name) {
        return format!(" (the gate is gone and can be dropped from --feature-gates: {why})");
    }
    let likeness = |gate: &&Gate| strsim::jaro_winkler(gate.name, name);
    match known.gates.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))) {
        Some(gate) if likeness(&gate) > 0.9 => format!(" (did you mean {}?)", gate.name),
        _ => String::new(),
    }
}
