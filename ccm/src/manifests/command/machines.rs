//! The providers whose machines are served, and the lifecycle controllers.

use std::collections::BTreeSet;

use cloudprovider::{Registry, SecretName};

use super::{ManifestsCommand, argument, unknown_provider};
use crate::{
    flags::{self, LIFECYCLE, LIFECYCLE_PARTS, MachineProvider},
    manifests::{CONFIG_KEY, CONFIG_SECRET, CloudConfig, MachineOptions, content, options::config_folder},
};

impl ManifestsCommand {
    /// What is wrong where only machines are served.
    pub(super) fn faults_without_provider(&self) -> Vec<String> {
        if self.machine_provider.is_empty() && !self.lifecycle {
            return vec!["--provider cannot be empty".to_owned()];
        }
        let of_provider = [
            ("--cloud-config", self.cloud_config.is_some()),
            ("--config-secret", self.config_secret.is_some()),
            ("--config-map", self.config_map.is_some()),
            ("--machines", self.machines),
            ("--host-network-admin", self.host_network_admin),
        ];
        let given = of_provider.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(option, _)| format!("{option} is for --provider, which is not given")).collect()
    }

    /// What is wrong with `--set` where the lifecycle controllers are to run: it switches all of them off.
    pub(super) fn lifecycle_fault(&self) -> Option<String> {
        let value = self.controllers()?;
        let mut names = value.split(',').map(str::trim);
        let runs = names.any(|name| name == LIFECYCLE || LIFECYCLE_PARTS.contains(&name));
        (self.lifecycle && !runs).then(|| {
            format!(
                "--set controllers={value}: {LIFECYCLE} would not run, which --lifecycle is about; add it, or one of {}",
                LIFECYCLE_PARTS.join(" and ")
            )
        })
    }

    /// The controllers that `--set` names.
    pub(super) fn controllers(&self) -> Option<String> {
        let flags = self.set.iter().rev().map(|flag| argument(flag));
        let mut values = flags.filter_map(|flag| flag.strip_prefix("--controllers=").map(str::to_owned));
        values.next()
    }

    /// The providers whose machines are served: that of `--provider` with `--machines`, and those of `--machine-provider`.
    pub(super) fn machine_options(
        &self,
        registry: &Registry,
        secrets: &mut BTreeSet<SecretName>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<MachineOptions>, Vec<String>> {
        const OPTION: &str = "--machine-provider";
        let mut named = flags::machine_providers(OPTION, &self.machine_provider)?;
        if self.machines && !named.iter().any(|one| one.name == self.provider) {
            named.insert(0, MachineProvider { name: self.provider.clone(), config: None });
        }
        let (mut all, mut faults) = (Vec::new(), Vec::new());
        for MachineProvider { name, config } in named {
            let is_main = name == self.provider;
            let Some(types) = registry.machines(&name) else {
                let is_known = registry.names().any(|known| known == name);
                if is_known && is_main && self.machines {
                    faults.push(format!("--machines: cloud provider {name:?} has no machines"));
                } else if is_known {
                    faults.push(format!("{OPTION}: cloud provider {name:?} has no machines"));
                } else if !is_main {
                    faults.push(unknown_provider(OPTION, &name, registry));
                }
                continue;
            };
            let secret = format!("{CONFIG_SECRET}-{name}");
            let cloud_config = match config {
                Some(file) if is_main => {
                    let file = file.display();
                    faults.push(format!(
                        "{OPTION} {name}={file}: it is the provider of --provider too; expected {OPTION} {name} and \
                         --cloud-config {file}"
                    ));
                    continue;
                }
                None if is_main => CloudConfig::None,
                None => CloudConfig::Secret { name: secret, key: CONFIG_KEY.to_owned() },
                Some(file) => {
                    let option = format!("{OPTION} {name}={}", file.display());
                    let folder = config_folder(Some(&name));
                    match content::embed(&option, &file, (&name, registry), secret, &folder) {
                        Ok(embedded) => {
                            secrets.extend(embedded.wanted.secrets);
                            warnings.extend(embedded.warnings);
                            embedded.cloud_config
                        }
                        Err(fault) => {
                            faults.push(fault);
                            continue;
                        }
                    }
                }
            };
            all.push(MachineOptions { provider: name, types, cloud_config });
        }
        if faults.is_empty() { Ok(all) } else { Err(faults) }
    }

    /// Has the objects of those providers stored in the version of `--stored-version` whose kinds have it.
    pub(super) fn choose_stored_version(&self, machines: &mut [MachineOptions]) -> Result<(), String> {
        let Some(version) = &self.stored_version else { return Ok(()) };
        if machines.is_empty() {
            return Err(
                "--stored-version needs --machines, --machine-provider or --for-clusterctl".to_owned()
            );
        }
        let mut is_known = false;
        for one in machines.iter_mut() {
            if let Some(types) = one.types.stored_in(version) {
                one.types = types;
                is_known = true;
            }
        }
        if is_known {
            return Ok(());
        }
        let providers: Vec<_> = machines.iter().map(|one| one.provider.as_str()).collect();
        let mut versions: Vec<_> = machines.iter().flat_map(|one| one.types.versions()).collect();
        let mut seen = BTreeSet::new();
        versions.retain(|version| seen.insert(*version));
        Err(format!(
            "--stored-version: the kinds of {} have no version {version:?}; expected {}",
            providers.join(" and "),
            versions.join(" or ")
        ))
    }
}
