//! Tests of the configuration as a whole, by subject. This file has the shared helpers.

mod address_pools;
mod allow;
mod credentials;
mod environment;
mod faults;
mod field;
mod formats;
mod machines;
mod nsx;
mod random;
mod vcenters;
mod warnings;

use std::path::Path;

use cloudprovider::SecretName;
use provider_kit::{Format, Key, Kind, Section, Settings, Shape, Value};
use secrecy::ExposeSecret as _;

use super::{
    keys::{SCHEMA, VCENTER},
    *,
};
use crate::addresses::Family;

/// All keys of the table, each with its section.
fn keys() -> impl Iterator<Item = (&'static Section, &'static Key)> {
    let keys = SCHEMA.sections.iter().flat_map(|section| section.keys.iter().map(move |key| (section, key)));
    keys.filter(|(_, key)| key.kind != Kind::Tree)
}

const MINIMAL: &str = "vcenter: {a: {server: vc1, user: u, password: p}}\n";

fn parse(text: &str) -> Config {
    Config::parse(text, &Environment::default()).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// The faults as `key: message`.
fn problems(text: &str) -> Vec<String> {
    problems_in(text, &[])
}

fn problems_in(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    match Config::parse(text, &environment.iter().copied().collect()) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(error) => error.problems().iter().map(ToString::to_string).collect(),
    }
}

fn warnings(text: &str) -> Vec<String> {
    parse(text).warnings().iter().map(ToString::to_string).collect()
}
