//! What of a template makes a rollout.

/// A reference to an object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its API group. Its version does not matter: the same object has several.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// `spec.bootstrap` of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bootstrap {
    /// `configRef`
    Config(Reference),
    /// `dataSecretName`, if there is one.
    DataSecret(Option<String>),
}

/// The fields of `spec.template.spec` whose change replaces Machines. All others, labels and annotations are written to the Machines that
/// there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// `version`, empty if there is none.
    pub version: String,
    /// `bootstrap`
    pub bootstrap: Bootstrap,
    /// `infrastructureRef`
    pub infrastructure: Reference,
    /// `failureDomain`, empty if there is none.
    pub failure_domain: String,
}

impl Template {
    /// Why Machines of this template are not up to date with `desired`, in the words of the condition `UpToDate`. Empty: they are.
    #[must_use]
    pub fn differences(&self, desired: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        if self.version != desired.version {
            differences.push(format!("Version {}, {} required", self.version, desired.version));
        }
        if self.bootstrap != desired.bootstrap {
            differences.push(match &self.bootstrap {
                Bootstrap::Config(config) => is_old(&config.kind),
                Bootstrap::DataSecret(name) => {
                    let desired = match &desired.bootstrap {
                        Bootstrap::DataSecret(name) => name.as_deref(),
                        Bootstrap::Config(_) => None,
                    };
                    let (name, desired) = (name.as_deref().unwrap_or("nil"), desired.unwrap_or("nil"));
                    format!("spec.bootstrap.dataSecretName {name}, {desired} required")
                }
            });
        }
        if self.infrastructure != desired.infrastructure {
            differences.push(is_old(&self.infrastructure.kind));
        }
        if self.failure_domain != desired.failure_domain {
            let (current, desired) = (&self.failure_domain, &desired.failure_domain);
            differences.push(format!("Failure domain {current}, {desired} required"));
        }
        differences
    }
}

/// The kind of the template is that of the object with a suffix.
fn is_old(kind: &str) -> String {
    format!("{} is not up-to-date", kind.strip_suffix("Template").unwrap_or(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(kind: &str, name: &str) -> Reference {
        Reference { group: "example.org".into(), kind: kind.into(), name: name.into() }
    }

    fn template() -> Template {
        Template {
            version: "v1.36.0".into(),
            bootstrap: Bootstrap::Config(reference("KubeadmConfigTemplate", "a")),
            infrastructure: reference("LibvirtMachineTemplate", "a"),
            failure_domain: String::new(),
        }
    }

    #[test]
    fn machines_are_replaced_for_what_cannot_be_changed_in_place() {
        let current = template();
        assert_eq!(current.differences(&current), Vec::<String>::new());
        let desired = Template {
            version: "v1.37.0".into(),
            bootstrap: Bootstrap::Config(reference("KubeadmConfigTemplate", "b")),
            infrastructure: reference("LibvirtMachineTemplate", "b"),
            failure_domain: "rack-1".into(),
        };
        assert_eq!(
            current.differences(&desired),
            [
                "Version v1.36.0, v1.37.0 required",
                "KubeadmConfig is not up-to-date",
                "LibvirtMachine is not up-to-date",
                "Failure domain , rack-1 required"
            ]
        );
    }

    #[test]
    fn another_kind_of_bootstrap_data_replaces_machines_too() {
        let with = |bootstrap| Template { bootstrap, ..template() };
        let secret = |name: Option<&str>| Bootstrap::DataSecret(name.map(Into::into));
        let of = |current, desired| with(current).differences(&with(desired));
        assert_eq!(of(secret(Some("a")), secret(Some("b"))), ["spec.bootstrap.dataSecretName a, b required"]);
        assert_eq!(of(secret(None), secret(Some("b"))), ["spec.bootstrap.dataSecretName nil, b required"]);
        assert_eq!(
            of(secret(Some("a")), template().bootstrap),
            ["spec.bootstrap.dataSecretName a, nil required"]
        );
        assert_eq!(of(template().bootstrap, secret(Some("a"))), ["KubeadmConfig is not up-to-date"]);
    }
}
