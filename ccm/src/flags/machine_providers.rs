//! Whose machines are served: the providers of `--machine-provider`, or without that flag the one of `--cloud-provider`.

use std::path::PathBuf;

use super::{
    Flags, LIFECYCLE_PARTS, MACHINE_CONTROLLER,
    controllers::{self, names},
};

/// A provider whose machines are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineProvider {
    /// Its name.
    pub name: String,
    /// Its configuration file.
    pub config: Option<PathBuf>,
}

impl MachineProvider {
    /// Reads `NAME` or `NAME=FILE`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, config) = text.split_once('=').map_or((text, None), |(name, file)| (name, Some(file)));
        if name.is_empty() || config == Some("") {
            return Err(format!("{text:?} is not of the form NAME or NAME=FILE"));
        }
        Ok(Self { name: name.to_owned(), config: config.map(PathBuf::from) })
    }

    /// As it is given in the flag.
    fn shown(&self) -> String {
        match &self.config {
            Some(file) => format!("{}={}", self.name, file.display()),
            None => self.name.clone(),
        }
    }
}

/// Whose machines are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedMachines {
    /// Those of the provider of `--cloud-provider`.
    pub of_main: bool,
    /// Whether `--machine-provider` names that provider, which must have machines then.
    pub is_main_named: bool,
    /// The providers of `--machine-provider` that are not the one of `--cloud-provider`.
    pub others: Vec<MachineProvider>,
}

/// The providers that these values of `--machine-provider` name, each once.
///
/// # Errors
/// Every value that cannot be read, and every provider with different files. `flag` is the name in the messages.
pub fn machine_providers(flag: &str, values: &[String]) -> Result<Vec<MachineProvider>, Vec<String>> {
    let (mut providers, mut faults) = (Vec::<MachineProvider>::new(), Vec::new());
    for value in values {
        match MachineProvider::parse(value) {
            Err(fault) => faults.push(format!("{flag}: {fault}")),
            Ok(provider) => match providers.iter().find(|known| known.name == provider.name) {
                None => providers.push(provider),
                Some(known) if *known == provider => {}
                Some(known) => faults.push(format!(
                    "{flag}: {} and {}: a provider has one configuration",
                    known.shown(),
                    provider.shown()
                )),
            },
        }
    }
    if faults.is_empty() { Ok(providers) } else { Err(faults) }
}

impl Flags {
    /// The provider of `--cloud-provider`, which serves Nodes, Services and routes. `None`: only machines are served.
    pub fn cloud_provider(&self) -> Option<&str> {
        Some(&*self.generic.cloud_provider).filter(|name| !name.is_empty())
    }

    /// The providers of `--machine-provider`. The file of one that is the provider of `--cloud-provider` too is that of
    /// `--cloud-config`. Values with faults are left out.
    pub fn machine_providers(&self) -> Vec<MachineProvider> {
        let values = &self.controllers.machine.machine_provider;
        let mut providers = Vec::<MachineProvider>::new();
        for provider in values.iter().filter_map(|value| MachineProvider::parse(value).ok()) {
            if !providers.iter().any(|known| known.name == provider.name) {
                providers.push(provider);
            }
        }
        for provider in &mut providers {
            if self.cloud_provider() == Some(&provider.name) {
                provider.config.clone_from(&self.generic.cloud_config);
            }
        }
        providers
    }

    /// Whose machines would be served if the machine controller ran.
    pub fn named_machines(&self) -> ServedMachines {
        let providers = self.machine_providers();
        let is_main = |one: &MachineProvider| self.cloud_provider() == Some(&one.name);
        let is_main_named = providers.iter().any(is_main);
        ServedMachines {
            of_main: providers.is_empty() || is_main_named,
            is_main_named,
            others: providers.into_iter().filter(|one| !is_main(one)).collect(),
        }
    }

    /// Whose machines are served. Nobody's if the machine controller does not run.
    pub fn served_machines(&self) -> ServedMachines {
        if self.enables(MACHINE_CONTROLLER) { self.named_machines() } else { ServedMachines::default() }
    }

    /// What is wrong with the providers that the flags name.
    pub(super) fn faults_of_providers(&self) -> Vec<String> {
        const FLAG: &str = "--machine-provider";
        let values = &self.controllers.machine.machine_provider;
        if values.is_empty() {
            let is_missing = self.cloud_provider().is_none();
            if is_missing && self.runs_lifecycle() {
                return self.faults_of_lifecycle_alone();
            }
            return is_missing.then(|| "--cloud-provider cannot be empty".to_owned()).into_iter().collect();
        }
        let providers = match machine_providers(FLAG, values) {
            Ok(providers) => providers,
            Err(faults) => return faults,
        };
        let mut faults = Vec::new();
        let Some(cloud_provider) = self.cloud_provider() else {
            if let Some(file) = &self.generic.cloud_config {
                let file = file.display();
                faults.push(format!(
                    "--cloud-config {file}: it is for --cloud-provider, which is not given; expected {FLAG}=NAME={file}"
                ));
            }
            let by_name = self.named_controllers_of_clouds().filter(|name| *name != MACHINE_CONTROLLER);
            faults.extend(by_name.map(|name| format!("--controllers: {name} needs --cloud-provider")));
            if !self.enables(MACHINE_CONTROLLER) && !self.runs_lifecycle() {
                faults.push(format!(
                    "{FLAG}: --controllers does not name {MACHINE_CONTROLLER}, so nothing would run"
                ));
            }
            return faults;
        };
        let same = providers.iter().find(|one| one.name == cloud_provider);
        if let Some(other) =
            same.filter(|one| one.config.is_some() && one.config != self.generic.cloud_config)
        {
            faults.push(format!(
                "{FLAG}={}: {cloud_provider} is the provider of --cloud-provider too, and has one configuration: that of \
                 --cloud-config; expected {FLAG}={cloud_provider}",
                other.shown()
            ));
        }
        faults
    }

    /// A warning where `--machine-provider` has no effect.
    pub(super) fn warning_of_providers(&self) -> Option<String> {
        let is_idle =
            !self.controllers.machine.machine_provider.is_empty() && !self.enables(MACHINE_CONTROLLER);
        is_idle.then(|| {
            format!("--machine-provider has no effect: --controllers does not name {MACHINE_CONTROLLER}")
        })
    }

    /// A warning where `*` asks for controllers that need a provider, and none is named. Those of other flags run.
    pub(super) fn warning_of_all_without_cloud(&self) -> Option<String> {
        let list = &self.generic.controllers;
        let is_idle = |name: &&str| controllers::enables(list, name) && self.has_no_cloud_for(name);
        let idle: Vec<_> = controllers::CONTROLLERS.iter().map(|one| one.name).filter(is_idle).collect();
        (list.iter().any(|name| name == "*") && !idle.is_empty()).then(|| {
            format!(
                "--controllers={}: {} do not run, since they need --cloud-provider, which is not given; give it, or leave out \
                 the *",
                list.join(","),
                idle.join(", ")
            )
        })
    }

    /// Whether a part of Cluster API's own controllers runs, which needs no provider.
    pub fn runs_lifecycle(&self) -> bool {
        LIFECYCLE_PARTS.into_iter().any(|part| controllers::enables(&self.generic.controllers, part))
    }

    /// What is wrong where no provider is named, and only Cluster API's own controllers run.
    fn faults_of_lifecycle_alone(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(file) = &self.generic.cloud_config {
            faults.push(format!(
                "--cloud-config {}: it is for --cloud-provider, which is not given",
                file.display()
            ));
        }
        faults.extend(self.named_controllers_of_clouds().map(|name| match name {
            MACHINE_CONTROLLER => {
                format!("--controllers: {name} needs --cloud-provider or --machine-provider")
            }
            _ => format!("--controllers: {name} needs --cloud-provider"),
        }));
        faults
    }

    /// The controllers in `--controllers` that need a provider.
    fn named_controllers_of_clouds(&self) -> impl Iterator<Item = &'static str> {
        names(&self.generic.controllers).filter(|name| !LIFECYCLE_PARTS.contains(name))
    }

    /// Whether a controller that needs a provider has none.
    pub(super) fn has_no_cloud_for(&self, controller: &str) -> bool {
        if self.cloud_provider().is_some() || LIFECYCLE_PARTS.contains(&controller) {
            return false;
        }
        let has_machines = !self.machine_providers().is_empty();
        // Without all of these there is a fault, and the permissions follow the other flags.
        let has_none = has_machines || self.runs_lifecycle();
        has_none && !(has_machines && controller == MACHINE_CONTROLLER)
    }
}

#[cfg(test)]
mod tests;
