//! The configuration of the vSphere provider, in both formats: no text makes the readers panic or hang.

#![no_main]

use cloudprovider_vsphere::{Config, Environment};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let environment = Environment::default();
    let _ = Config::parse(text, &environment);
    // most texts are YAML by their beginning, so INI gets a beginning of its own
    let _ = Config::parse(&format!("[VirtualCenter \"vc1\"]\n{text}"), &environment);
});
