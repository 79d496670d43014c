//! The configuration of the Rancher provider, in both formats: no text makes the readers panic or hang, and no message
//! holds a secret.

#![no_main]

use cloudprovider::FactoryInput;
use cloudprovider_rancher::{Config, Environment};
use libfuzzer_sys::fuzz_target;

/// A secret that no message holds by chance.
const SECRET: &str = "Xhunter2X";

fuzz_target!(|text: &str| {
    let texts = [
        text.to_owned(),
        // most texts are YAML by their beginning, so gcfg gets a beginning of its own
        format!("[Global]\ncattle-secret-key = \"{SECRET}\"\n{text}"),
        format!("secretKey: {SECRET}\n{text}"),
    ];
    for text in texts {
        // No file is read: a text may name any.
        let input = FactoryInput::new(text).with_reader(|_| Err(std::io::ErrorKind::NotFound.into()));
        let told = match Config::read(&input, &Environment::default()) {
            Ok(config) => format!("{config:?} {:?}", input.warnings()),
            Err(error) => format!("{error} {error:?} {:?}", input.warnings()),
        };
        assert!(!told.contains(SECRET), "the secret is told");
    }
});
