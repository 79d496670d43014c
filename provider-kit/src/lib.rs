//! What providers have in common beside the contract: how they read their configuration.
//!
//! ```text
//!   YAML ────> yaml::Node ─┐
//!   gcfg ────> Document ───┼──> Settings (by the table of keys in a Schema) ──> the provider's own Config
//!   environment ───────────┘
//! ```
//!
//! A provider whose keys are flat writes them into a table ([`Schema`], [`Section`], [`Key`]) and gets both file formats and the
//! environment from it. Where formats of other programs must keep their meaning, a [`Dialect`] says how. A provider whose
//! configuration has lists and mappings of its own reads it with [`Fields`].
//!
//! All readers collect every fault ([`Findings`]) instead of stopping at the first one. Each has the place where the operator
//! wrote the key, and none has a value that may be a secret. An unknown key is answered with the one that was probably meant
//! ([`hints`]).
//!
//! ```
//! use provider_kit::{Dialect, Environment, Findings, Key, Kind, Schema, Section, Settings, yaml::Node};
//!
//! const KEYS: &[Key] = &[
//!     Key::new("url", "url", Kind::Text).env("CLOUD_URL").means("Where the cloud is."),
//!     Key::new("password", "password", Kind::Secret),
//! ];
//! const SECTIONS: &[Section] = &[Section::new("", "Global", KEYS)];
//! static SCHEMA: Schema = Schema { sections: SECTIONS, dialect: Dialect::STRICT };
//!
//! let mut findings = Findings::default();
//! let root = Node::strict("url: https://cloud.example.org\npasword: hunter2\n").expect("YAML");
//! let mut settings = Settings::from_yaml(&SCHEMA, root.into_entries().expect("a mapping"), &mut findings);
//! Environment::of_process().apply(&mut settings, &mut findings);
//! assert_eq!(settings.text("url"), Some("https://cloud.example.org"));
//! assert_eq!(findings.problems[0].to_string(), "pasword: unknown key; did you mean password?");
//! ```

mod environment;
mod fields;
mod findings;
pub mod hints;
mod keys;
mod read;
mod settings;
mod values;
pub mod yaml;

pub use environment::Environment;
pub use fields::{Fields, Homes};
pub use findings::Findings;
pub use keys::{Dialect, Format, Key, Schema, Section, Shape};
pub use read::split;
pub use settings::{At, Setting, Settings};
pub use values::{Kind, Value, Words};
