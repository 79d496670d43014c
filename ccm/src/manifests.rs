//! The deployment as Kubernetes objects. This is the only source of the subcommand `manifests`, of every file
//! in `deploy/` that says so in its first line, and of what the Helm chart is compared with.

mod clusterctl;
mod command;
mod content;
mod files;
mod monitoring;
mod options;
mod rbac;
mod webhook;
mod workload;

use cloudprovider::dns;
use component::{command_line::CommandLineError, serving::is_always_allowed, version};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::{
    controllers::lifecycle_providers,
    flags::{self, Flags},
    permissions::{self, Permission},
};

pub use clusterctl::clusterctl_metadata;
pub use command::ManifestsCommand;
pub use files::{generated_files, generated_machine_files};
pub use options::{
    CONFIG_KEY, CONFIG_SECRET, CaObject, CloudConfig, MachineOptions, ManifestOptions, MonitorAccess, NAME,
};

use machine_controller::{crds::Definitions, reboot};
use options::{has_no_election, is_key, labels};

impl ManifestOptions {
    /// The objects, in the order in which they must be created. A mapping may hold a comment about itself,
    /// see [`yaml::COMMENT`](component::yaml::COMMENT).
    ///
    /// # Errors
    /// Everything that is wrong with the options, each fault with its option.
    pub fn render(&self) -> Result<Vec<Value>, Vec<String>> {
        let flags = self.flags()?;
        let mut objects = self.definitions()?;
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels(self)},
        }));
        objects.extend(self.roles(&permissions::needed(&flags)));
        objects.extend(rbac::secret_roles(self));
        objects.extend(rbac::service_access_roles(self, &flags));
        objects.extend(rbac::machine_roles(self, &flags));
        objects.extend(rbac::lifecycle_roles(self, &flags));
        objects.extend(webhook::service(self, &flags));
        for mount in self.mounts() {
            let CloudConfig::Content { secret, text, files } = mount.cloud_config else { continue };
            let mut data = files.clone();
            data.insert(CONFIG_KEY.to_owned(), ByteString(text.clone().into_bytes()));
            objects.push(json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": secret, "namespace": self.namespace, "labels": labels(self)},
                // Not `stringData`: with it `kubectl apply` sees a change each time.
                "data": data,
            }));
        }
        objects.push(workload::workload(self, &flags));
        if self.service_monitor {
            objects.extend(monitoring::service_monitor(self));
        }
        Ok(objects)
    }

    /// The definitions of Cluster API's own kinds for the lifecycle controllers, those of the kinds of the providers' machines,
    /// and the policies about these.
    ///
    /// # Errors
    /// What cannot be said in a definition, and where the lifecycle controllers run everything that is wrong with the options.
    pub fn definitions(&self) -> Result<Vec<Value>, Vec<String>> {
        let mut all = if self.lifecycle { lifecycle_definitions(&self.flags()?)? } else { Vec::new() };
        for MachineOptions { provider, types, .. } in &self.machines {
            let fault = |error: &dyn std::fmt::Display| vec![format!("machines of {provider}: {error}")];
            let mut definitions = Definitions::of(provider, types).map_err(|error| fault(&error))?;
            definitions.set_conversion(&webhook::client(self));
            let crds = definitions.crds().into_iter().map(serde_json::to_value);
            let policies = definitions
                .policies()
                .into_iter()
                .flat_map(|(policy, binding)| [serde_json::to_value(policy), serde_json::to_value(binding)]);
            let objects = crds.chain(policies).collect::<Result<Vec<_>, _>>();
            all.extend(objects.map_err(|error| fault(&error))?);
        }
        if !self.machines.is_empty() {
            all.extend(reboot_definitions().map_err(|error| vec![error])?);
        }
        Ok(all)
    }

    /// Roles that allow these permissions and nothing else, and their bindings to the service account.
    pub fn roles(&self, permissions: &[Permission]) -> Vec<Value> {
        rbac::roles(self, permissions)
    }

    /// The flags that the daemon will parse from its arguments.
    fn flags(&self) -> Result<Flags, Vec<String>> {
        let mut faults = self.faults();
        let mut line = vec![NAME.to_owned()];
        if self.provider.is_empty() && self.machines.is_empty() && !self.lifecycle {
            // Any name is good enough here, since the permissions do not depend on it.
            line.push("--cloud-provider=any".to_owned());
        }
        line.extend(self.provider_arguments());
        match flags::parse(line.into_iter().chain(self.arguments.iter().cloned())) {
            Ok(flags) => {
                // A flag of the daemon may be called like an option of this command.
                let is_set = |fault: &str| {
                    let mut names = self.arguments.iter().filter_map(|flag| flag.split('=').next());
                    names.any(|name| fault.starts_with(name))
                };
                let named = |fault: String| if is_set(&fault) { format!("--set: {fault}") } else { fault };
                faults.extend(flags.faults().into_iter().map(named));
                faults.extend(self.misfits(&flags));
                if faults.is_empty() { Ok(flags) } else { Err(faults) }
            }
            Err(CommandLineError::Faults(wrong)) => {
                faults.extend(wrong.into_iter().map(|fault| format!("--set: {fault}")));
                Err(faults)
            }
            Err(CommandLineError::Help(_)) => {
                faults.push("--set: the daemon would print its help".to_owned());
                Err(faults)
            }
        }
    }

    /// Faults of flags that the daemon accepts but that do not work in such a deployment.
    fn misfits(&self, flags: &Flags) -> Vec<String> {
        let mut faults = Vec::new();
        if version::requested(&flags.global.version).is_some() {
            faults.push("--set version: the daemon would print its version and end".to_owned());
        }
        if has_no_election(flags) && self.replicas != Some(1) {
            faults.push(
                "--set leader-elect=false: all pods would work at the same time; give --replicas 1 too"
                    .to_owned(),
            );
        }
        if webhook::is_needed(self) && flags.webhook_serving.port().is_none() {
            faults.push(
                "--set webhook-secure-port=0: the pods convert objects of machines for the API server, which could not reach \
                 them"
                    .to_owned(),
            );
        }
        let allowed = &flags.authorization.always_allow_paths;
        let missing: Vec<_> =
            workload::PROBED.into_iter().filter(|path| !is_always_allowed(allowed, path)).collect();
        if flags.secure_serving.port().is_some() && !missing.is_empty() {
            faults.push(format!(
                "--set authorization-always-allow-paths: the pods' probes ask without credentials, so it needs {} too",
                missing.join(" and ")
            ));
        }
        faults
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut names = vec![("--name", self.name.as_str()), ("--namespace", &self.namespace)];
        names.extend(self.image_pull_secrets.iter().map(|name| ("--image-pull-secret", name.as_str())));
        names.extend(self.cloud_config.object_name().map(|name| ("--config-secret or --config-map", name)));
        names.extend(Some(("--provider", self.provider.as_str())).filter(|(_, name)| !name.is_empty()));
        names.extend(self.other_machines().map(|one| ("--machine-provider", one.provider.as_str())));
        for (option, name) in names {
            if !dns::is_label(name) {
                faults.push(format!(
                    "{option}: {name:?} is not a name; expected lower-case letters, digits and hyphens, 63 at most"
                ));
            }
        }
        for secret in &self.secrets {
            if !dns::is_label(&secret.namespace) || !dns::is_subdomain(&secret.name) {
                faults.push(format!("--secret: \"{secret}\" is not a Secret; expected NAMESPACE/NAME"));
            }
        }
        if self.image.is_empty() || self.image.contains(char::is_whitespace) {
            faults.push(format!("--image: {:?} is not the name of an image", self.image));
        }
        if let Some(key) = self.cloud_config.key().filter(|key| !is_key(key)) {
            faults.push(format!(
                "--config-key: {key:?} is not a key; expected letters, digits, hyphens, underscores and dots"
            ));
        }
        if self.replicas == Some(0) {
            faults.push("--replicas must be at least 1".to_owned());
        }
        for argument in &self.arguments {
            let name = argument.trim_start_matches('-').split('=').next().unwrap_or_default();
            let option = match name.replace('_', "-").as_str() {
                "cloud-provider" => "--provider",
                "cloud-config" => "--config-secret, --config-map or --cloud-config",
                "machine-provider" => "--machine-provider",
                _ => continue,
            };
            faults.push(format!("--set {name}: use {option}"));
        }
        faults
    }
}

/// The definitions of the machine controller's own kinds, which all providers share.
fn reboot_definitions() -> Result<Vec<Value>, String> {
    let all = reboot::definitions().map_err(|error| error.to_string())?;
    let objects = all.into_iter().map(serde_json::to_value).collect::<Result<_, _>>();
    objects.map_err(|error| format!("the kinds for reboots: {error}"))
}

/// The definitions of Cluster API's own kinds that the enabled lifecycle controllers bring.
fn lifecycle_definitions(flags: &Flags) -> Result<Vec<Value>, Vec<String>> {
    let mut all = Vec::new();
    for provider in lifecycle_providers(flags) {
        let definitions = provider.definitions().map(|all| all.into_iter().map(serde_json::to_value));
        let objects = definitions.and_then(Iterator::collect::<Result<Vec<_>, _>>);
        all.extend(objects.map_err(|error| vec![format!("the kinds of {}: {error}", provider.name())])?);
    }
    Ok(all)
}
