//! The daemon with the libvirt provider, for hypervisors of libvirt's test driver. That driver refuses uploads, which is
//! overlooked: seeds are volumes without content. Everything else is as in the shipped daemon.
//!
//! Beside `--cloud-config=FILE` it writes how often each operation of libvirt was called, by hypervisor, into `counts.json`
//! in the folder of that file.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Weak},
    time::Duration,
};

use cloudprovider::{CloudProvider, FactoryInput, Registry, Result};
use cloudprovider_libvirt::{Config, LibvirtProvider, NAME, machine_types, measured};

/// The file of the counts.
const COUNTS: &str = "counts.json";

/// How often the calls are written into the file.
const INTERVAL: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    ccm::app::main(|| {
        let mut registry = Registry::new();
        registry.register(NAME, factory)?;
        registry.register_machines(NAME, machine_types())?;
        Ok(registry)
    })
}

fn factory(input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
    let provider = Arc::new(measured::provider_on_test_driver(Config::read(input)?));
    if let Some(folder) = input.config_path.as_deref().and_then(Path::parent) {
        let path = folder.join(COUNTS);
        let provider = Arc::downgrade(&provider);
        std::thread::spawn(move || write_counts(&provider, &path));
    }
    Ok(provider)
}

/// Writes until the provider is gone. The reader never sees half a file.
fn write_counts(provider: &Weak<LibvirtProvider>, path: &Path) {
    let next: PathBuf = path.with_extension("next");
    while let Some(provider) = provider.upgrade() {
        let counts: BTreeMap<_, _> =
            provider.hypervisors().map(|one| (one.name().to_owned(), one.call_counts())).collect();
        drop(provider);
        // The next time may go better.
        let _ = serde_json::to_vec(&counts)
            .map(|text| fs::write(&next, text).and_then(|()| fs::rename(&next, path)));
        std::thread::sleep(INTERVAL);
    }
}
