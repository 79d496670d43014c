//! `--feature-gates`: what the gates that a program knows are set to.

mod metrics;

use std::collections::BTreeMap;

pub use metrics::FeatureMetrics;

use super::values::boolean;

/// How far a feature has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for.
    Alpha,
    /// Mostly on.
    Beta,
    /// Here to stay; the gate goes.
    Ga,
    /// The gate goes, and the feature with it.
    Deprecated,
}

impl Stage {
    /// As in the `stage` label of `kubernetes_feature_enabled`: nothing for a feature that is here to stay.
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
    /// How far the feature has come.
    pub stage: Stage,
    /// What it is without a flag.
    pub default: bool,
    /// Whether it cannot be set to anything else than its default.
    pub locked: bool,
}

/// The gates that a program knows.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownGates {
    /// Sorted by name.
    pub gates: &'static [Gate],
    /// Gates that old manifests still set, each with what became of it.
    pub gone: &'static [(&'static str, &'static str)],
}

/// A gate and what it is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGate {
    /// Its name.
    pub name: &'static str,
    /// How far the feature has come.
    pub stage: Stage,
    /// What it is without a flag.
    pub default: bool,
    /// What it is.
    pub enabled: bool,
}

/// What every gate is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    known: &'static KnownGates,
    /// As in the flag.
    set: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// All gates as they are without the flag.
    pub fn new(known: &'static KnownGates) -> Self {
        Self { known, set: BTreeMap::new() }
    }

    /// Reads `A=true,B=false`. Of a gate that is there twice the last counts.
    ///
    /// # Errors
    /// Every fault, in upstream's words.
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
            // A gate's own setting counts more than the one of its stage.
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

    /// Whether the gate of this name is on; one that nobody knows is off.
    pub fn enabled(&self, name: &str) -> bool {
        self.all().any(|gate| gate.name == name && gate.enabled)
    }

    /// What upstream warns of: gates that will not be there for ever.
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

/// What to do about a gate that nobody knows.
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
