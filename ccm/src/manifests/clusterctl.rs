//! What `clusterctl` installs a provider of machines from: the file `infrastructure-components.yaml` of its repository, and
//! `metadata.yaml` beside it. Templates of clusters, which are the third part, are written by hand for each provider.

use cloudprovider::MachineTypes;
use component::{program::Program, yaml};
use lifecycle_controllers::gate;
use serde_json::{Value, json};

use super::{CloudConfig, MachineOptions, ManifestOptions, NAME, labels, options::CONFIG_KEY};
use crate::flags::{LIFECYCLE, MACHINE_CONTROLLER};

/// The label by which `clusterctl` finds what belongs to a provider.
const PROVIDER_LABEL: &str = "cluster.x-k8s.io/provider";

/// The contract that the machine controller keeps.
const CONTRACT: &str = "v1beta2";

/// The name that `clusterctl` expects of the container.
const CONTAINER: &str = "manager";

impl ManifestOptions {
    /// The machine controller alone, for a management cluster: a Deployment in a namespace of its own.
    ///
    /// `clusterctl` moves each object of a namespace to that one, so nothing is needed in another namespace: the Lease is
    /// there, and the authorities of clients in `kube-system` are not read.
    pub fn for_clusterctl(provider: &str, machines: MachineTypes) -> Self {
        let namespace = format!("{provider}-infrastructure-system");
        Self {
            name: format!("{NAME}-{provider}"),
            replicas: Some(1),
            host_network: false,
            machines: vec![MachineOptions {
                provider: provider.to_owned(),
                types: machines,
                cloud_config: CloudConfig::None,
            }],
            arguments: arguments(MACHINE_CONTROLLER, &namespace),
            namespace,
            ..Self::new(provider)
        }
    }

    /// The lifecycle controllers alone, as the core provider `cluster-api` in its usual namespace. They bring the kinds of the
    /// bootstrap provider `kubeadm` too, so that one is not installed beside them.
    pub fn lifecycle_for_clusterctl() -> Self {
        Self::of_provider(&gate::CORE, LIFECYCLE)
    }

    /// One part of the lifecycle controllers, as the provider that it takes the place of.
    pub fn part_for_clusterctl(part: &gate::Part) -> Self {
        Self::of_provider(part, part.name)
    }

    fn of_provider(part: &gate::Part, controllers: &str) -> Self {
        let namespace = part.namespace;
        Self {
            name: format!("{NAME}-{controllers}"),
            namespace: namespace.to_owned(),
            replicas: Some(1),
            host_network: false,
            cloud_config: CloudConfig::None,
            lifecycle: true,
            arguments: arguments(controllers, namespace),
            ..Self::new("")
        }
    }

    /// The file `infrastructure-components.yaml`, or `core-components.yaml` or `bootstrap-components.yaml` of the lifecycle. The provider's configuration is a
    /// variable: `LIBVIRT_CONFIG_B64`, in base64, for the provider `libvirt`.
    ///
    /// # Errors
    /// Everything that is wrong with the options.
    pub fn clusterctl_components(&self) -> Result<Vec<Value>, Vec<String>> {
        let options = Self { image: canonical(&self.image), ..self.clone() };
        let mut objects = vec![json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": self.namespace, "labels": labels(self)},
        })];
        objects.extend(options.render()?);
        if let CloudConfig::Secret { name, .. } = &self.cloud_config {
            objects.push(json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": self.namespace, "labels": labels(self)},
                "data": {CONFIG_KEY: format!("${{{}}}", variable(&self.provider))},
            }));
        }
        let label = match &*self.provider {
            "" => {
                let part = gate::PARTS.into_iter().find(|part| part.namespace == self.namespace);
                part.unwrap_or(&gate::CORE).provider.label.to_owned()
            }
            provider => format!("infrastructure-{provider}"),
        };
        for object in &mut objects {
            object["metadata"]["labels"][PROVIDER_LABEL] = json!(label);
            if object["kind"] == "Deployment" {
                let pod = &mut object["spec"]["template"]["spec"];
                pod["containers"][0]["name"] = json!(CONTAINER);
                // A management cluster may have no Nodes of its control plane.
                if let Some(affinity) = pod["affinity"].as_object_mut() {
                    affinity.remove("nodeAffinity");
                }
            }
        }
        Ok(objects)
    }
}

/// The flags of a daemon with these controllers alone. The Lease is in the namespace of its pods.
fn arguments(controllers: &str, namespace: &str) -> Vec<String> {
    vec![
        format!("--controllers={controllers}"),
        format!("--leader-elect-resource-namespace={namespace}"),
        "--authentication-skip-lookup=true".to_owned(),
    ]
}

/// The image with its registry, which `clusterctl` insists on. Without one, container runtimes take Docker's.
fn canonical(image: &str) -> String {
    match image.split_once('/') {
        None => format!("docker.io/library/{image}"),
        Some((registry, _)) if registry.contains(['.', ':']) || registry == "localhost" => image.to_owned(),
        Some(_) => format!("docker.io/{image}"),
    }
}

/// The name of the variable with the provider's configuration.
fn variable(provider: &str) -> String {
    format!("{}_CONFIG_B64", provider.to_ascii_uppercase().replace('-', "_"))
}

/// The file `metadata.yaml`: which contract the versions of this program keep.
pub fn clusterctl_metadata() -> String {
    let version = Program::current().core_version();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    yaml::document(&json!({
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
        "kind": "Metadata",
        "releaseSeries": [{"major": major, "minor": minor, "contract": CONTRACT}],
    }))
}

#[cfg(test)]
mod tests {
    use cloudprovider::{DynMachines, testing::FakeCloud};

    use super::*;

    fn components() -> Vec<Value> {
        let provider = FakeCloud::named("fake").with_machines().provider();
        let kinds = provider.machines().map(DynMachines::kinds).expect("machines");
        let schemas = || {
            let provider = FakeCloud::new().with_machines().provider();
            provider.machines().map(DynMachines::schemas).expect("machines")
        };
        ManifestOptions::for_clusterctl("fake", MachineTypes::new(kinds, schemas))
            .clusterctl_components()
            .expect("good options")
    }

    #[test]
    fn clusterctl_finds_what_it_looks_for() {
        let components = components();
        let of_kind = |kind: &str| components.iter().filter(|one| one["kind"] == kind).collect::<Vec<_>>();
        assert_eq!(of_kind("CustomResourceDefinition").len(), 6, "with those of the controller");
        assert_eq!(of_kind("ValidatingAdmissionPolicy").len(), 1);
        for object in &components {
            let namespace = object["metadata"]["namespace"].as_str();
            assert!(namespace.is_none_or(|name| name == "fake-infrastructure-system"), "{object}");
            assert_eq!(object["metadata"]["labels"][PROVIDER_LABEL], "infrastructure-fake", "{object}");
        }
        let [deployment] = of_kind("Deployment")[..] else { panic!("one Deployment") };
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["name"], "manager");
        assert!(pod["affinity"].get("nodeAffinity").is_none() && pod.get("hostNetwork").is_none(), "{pod}");
        // Pods without a port of their node may share it, and need no place of an old one.
        assert_eq!(deployment["spec"]["strategy"], json!({"type": "RollingUpdate"}));
        let apart = &pod["affinity"]["podAntiAffinity"];
        assert!(apart.get("requiredDuringSchedulingIgnoredDuringExecution").is_none(), "{apart}");
        let [secret] = of_kind("Secret")[..] else { panic!("one Secret") };
        assert_eq!(secret["data"], json!({"cloud.conf": "${FAKE_CONFIG_B64}"}));
    }

    #[test]
    fn the_lifecycle_is_the_core_provider() {
        let components = ManifestOptions::lifecycle_for_clusterctl().clusterctl_components().expect("good");
        let of_kind = |kind: &str| components.iter().filter(|one| one["kind"] == kind).collect::<Vec<_>>();
        assert_eq!(of_kind("CustomResourceDefinition").len(), 11, "with those of the bootstrap provider");
        for object in &components {
            let namespace = object["metadata"]["namespace"].as_str();
            assert!(namespace.is_none_or(|name| name == "capi-system"), "{object}");
            assert_eq!(object["metadata"]["labels"][PROVIDER_LABEL], "cluster-api", "{object}");
        }
        let [deployment] = of_kind("Deployment")[..] else { panic!("one Deployment") };
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["name"], "manager");
        assert_eq!(container["args"][0], "--controllers=lifecycle", "{container}");
        assert!(of_kind("Secret").is_empty(), "there is no configuration");
    }

    #[test]
    fn an_image_has_a_registry() {
        for (image, expected) in [
            ("ccm:1", "docker.io/library/ccm:1"),
            ("me/ccm:1", "docker.io/me/ccm:1"),
            ("ghcr.io/me/ccm:1", "ghcr.io/me/ccm:1"),
            ("localhost/ccm:1", "localhost/ccm:1"),
            ("registry:5000/ccm:1", "registry:5000/ccm:1"),
        ] {
            assert_eq!(canonical(image), expected);
        }
    }

    #[test]
    fn the_contract_is_said_for_this_version() {
        let text = clusterctl_metadata();
        assert!(text.contains("contract: v1beta2") && text.contains("releaseSeries"), "{text}");
    }
}
