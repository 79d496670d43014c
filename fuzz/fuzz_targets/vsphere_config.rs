//! The configuration of the vSphere provider, in both formats: no text makes the readers panic or hang, and no message
//! holds a password.

#![no_main]

use cloudprovider_vsphere::{Config, Environment};
use libfuzzer_sys::fuzz_target;

/// A password that no message holds by chance.
const PASSWORD: &str = "Xhunter2X";

fuzz_target!(|text: &str| {
    let environment = Environment::default();
    let texts = [
        text.to_owned(),
        // most texts are YAML by their beginning, so INI gets a beginning of its own
        format!("[VirtualCenter \"vc1\"]\n{text}"),
        format!("[Global]\npassword = \"{PASSWORD}\"\n{text}"),
        format!("global: {{password: {PASSWORD}}}\n{text}"),
    ];
    for text in texts {
        let told = match Config::parse(&text, &environment) {
            Ok(config) => format!("{config:?} {:?}", config.warnings()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!told.contains(PASSWORD), "the password is told");
    }
});
