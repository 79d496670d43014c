//! The generated files about the machines of this binary's providers. `make manifests` writes them.

use std::{fs, path::Path};

use ccm::manifests::generated_machine_files;

use crate::registry;

#[test]
fn they_are_up_to_date() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let registry = registry().expect("our own providers");
    for provider in registry.names() {
        let Some(types) = registry.machines(provider) else { continue };
        for (name, text) in generated_machine_files(provider, types).expect("our own types are right") {
            let path = repository.join(&name);
            if std::env::var_os("UPDATE_DOCS").is_some() {
                fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
                fs::write(&path, &text).expect("the file can be written");
            }
            let found = fs::read_to_string(&path).unwrap_or_default();
            assert!(found == text, "{name} is stale: run `make manifests`");
        }
    }
}
