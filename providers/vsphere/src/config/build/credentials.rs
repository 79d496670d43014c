//! Decides where the credentials of a vCenter come from, of all the places that the configuration can name.

use std::path::{Path, PathBuf};

use cloudprovider::{SecretName, TextOddity};
use provider_kit::Format;

use super::{
    super::{
        CredentialPlaces, SecretPlace,
        keys::{GLOBAL, SCHEMA, VCENTER},
        names,
    },
    Builder,
};

/// The folder where CPI looks for credentials if none are configured.
const DEFAULT_SECRETS_DIRECTORY: &str = "/etc/cloud/secrets";

/// Effect of an invalid Secret name if there are user and password.
const NO_SECRET: &str = "no Secret is used, but user and password of the configuration";

/// Effect of an invalid Secret name in `global` on a vCenter that names a Secret itself.
const NOT_FOR_ALL: &str = "a vCenter that names a Secret of its own does not look at it";

/// The Secret that a section names.
enum NamedSecret {
    /// No Secret, or only its name or its namespace.
    None,
    /// A name and a namespace that are not valid for a Secret.
    Unusable,
    /// A Secret in the cluster.
    Object(SecretName),
}

impl Builder<'_> {
    pub(super) fn credentials(&mut self, name: &str) -> CredentialPlaces {
        let user = self.inherited_text(name, "user");
        let password = self.inherited_text(name, "password");
        let inline = user.zip(password);
        let own = self.named_secret(VCENTER, name, inline.is_some(), NO_SECRET);
        // As in CPI, the Secret of the vCenter's own section hides the one in global, even if its name is
        // invalid.
        let effect = if matches!(own, NamedSecret::None) { NO_SECRET } else { NOT_FOR_ALL };
        let global = self.named_secret(GLOBAL, "", inline.is_some(), effect);
        let directory = self.settings.text((GLOBAL, "", "secretsDirectory")).map(PathBuf::from);
        let secret = match (own, global, directory) {
            (NamedSecret::Object(own), _, _) => Some(SecretPlace::Object(own)),
            (NamedSecret::Unusable, _, _) | (NamedSecret::None, NamedSecret::Unusable, None) => None,
            (NamedSecret::None, NamedSecret::Object(_) | NamedSecret::Unusable, Some(_)) => {
                let origin = self.settings.origin((GLOBAL, "", "secretsDirectory"));
                if inline.is_none() {
                    self.problem_once(origin, "stands beside the name of a Secret; give one of the two");
                } else {
                    self.warn_once(origin, "stands beside the name of a Secret; neither is used");
                }
                None
            }
            (NamedSecret::None, NamedSecret::Object(global), None) => Some(SecretPlace::Object(global)),
            (NamedSecret::None, NamedSecret::None, directory) => directory.map(SecretPlace::Directory),
        };
        // the folder that CPI uses without being configured to
        let secret = secret.or_else(|| {
            let default = Path::new(DEFAULT_SECRETS_DIRECTORY);
            (inline.is_none() && default.is_dir()).then(|| SecretPlace::Directory(default.to_owned()))
        });
        if secret.is_none() && inline.is_none() && self.findings.problems.is_empty() {
            self.missing_credentials(name);
        }
        let mut is_inline_first = secret.is_none();
        if let (Some(secret), Some(((user, origin), (password, _)))) = (&secret, &inline) {
            is_inline_first = self.is_inline_first(name, user, password);
            let words = if is_inline_first {
                format!(
                    "stands beside {secret}: this user and its password are used, and {secret} where vCenter refuses them"
                )
            } else {
                format!(
                    "stands beside {secret}, which is used; this user and its password are for what it lacks or vCenter refuses"
                )
            };
            self.warn_once(origin.clone(), words);
        }
        let inline = inline.map(|((user, _), (password, _))| (user, password.into()));
        CredentialPlaces { secret, inline, is_inline_first }
    }

    /// Whether user and password are tried before a Secret. As in CPI, this is so if they are in the
    /// vCenter's own section, or in `global` and `global` is this vCenter. CPI does not use any others if
    /// there is a Secret.
    fn is_inline_first(&self, name: &str, user: &str, password: &str) -> bool {
        let place = if self.settings.has_section(VCENTER, name) { (VCENTER, name) } else { (GLOBAL, "") };
        let has_both =
            ["user", "password"].iter().all(|key| self.settings.text((place.0, place.1, *key)).is_some());
        let is_filled_in = |oddity| oddity != Some(TextOddity::Placeholder);
        has_both && is_filled_in(TextOddity::of(user)) && is_filled_in(TextOddity::in_secret(password))
    }

    fn missing_credentials(&mut self, name: &str) {
        let place = if self.settings.has_section(VCENTER, name) {
            self.settings.section_origin(VCENTER, name)
        } else {
            self.settings.section_origin(GLOBAL, "")
        };
        let key = |key: &'static str| match self.settings.format() {
            Format::Yaml => key,
            Format::Ini => {
                SCHEMA.section(GLOBAL).and_then(|global| global.key(key)).map_or(key, |known| known.ini)
            }
        };
        let has = |key| self.inherited_text(name, key).is_some();
        let message = match (has("user"), has("password"), has("secretName"), has("secretNamespace")) {
            (true, false, ..) => {
                let begins = match self.settings.format() {
                    Format::Yaml => "# ! or &, or is ~ or null,",
                    Format::Ini => "# or ;",
                };
                format!(
                    "has a {} and no {}; one that begins with {begins} must stand in double quotes",
                    key("user"),
                    key("password")
                )
            }
            (false, true, ..) => format!("has a {} and no {}", key("password"), key("user")),
            (_, _, true, false) => format!("has a {} and no {}", key("secretName"), key("secretNamespace")),
            (_, _, false, true) => format!("has a {} and no {}", key("secretNamespace"), key("secretName")),
            _ => format!(
                "has no credentials; give {} and {} of a Secret, or a {}, or {} and {}",
                key("secretName"),
                key("secretNamespace"),
                key("secretsDirectory"),
                key("user"),
                key("password")
            ),
        };
        self.findings.problem(place, message);
    }

    /// The Secret whose name and namespace are both given. Invalid names are a fault, but only a warning if
    /// `has_others`: there are credentials without a Secret. The warning ends with `effect`.
    fn named_secret(
        &mut self,
        section: &str,
        section_name: &str,
        has_others: bool,
        effect: &str,
    ) -> NamedSecret {
        let text = |key: &str| self.settings.text((section, section_name, key)).map(str::to_owned);
        match (text("secretNamespace"), text("secretName")) {
            (Some(namespace), Some(name)) => {
                let faults = [
                    ("secretNamespace", names::namespace_fault(&namespace)),
                    ("secretName", names::secret_fault(&name)),
                ];
                let is_name = faults.iter().all(|(_, fault)| fault.is_none());
                for (key, fault) in faults {
                    let Some(fault) = fault else { continue };
                    let origin = self.settings.origin((section, section_name, key));
                    if has_others {
                        self.warn_once(origin, format!("{fault}; {effect}"));
                    } else {
                        self.problem_once(origin, fault);
                    }
                }
                if is_name {
                    NamedSecret::Object(SecretName { namespace, name })
                } else {
                    NamedSecret::Unusable
                }
            }
            (Some(_), None) => {
                let origin = self.settings.origin((section, section_name, "secretNamespace"));
                self.warn_once(origin, "has no effect without the Secret's name");
                NamedSecret::None
            }
            (None, Some(_)) => {
                let origin = self.settings.origin((section, section_name, "secretName"));
                self.warn_once(origin, "has no effect without the Secret's namespace");
                NamedSecret::None
            }
            (None, None) => NamedSecret::None,
        }
    }
}
