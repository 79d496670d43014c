//! How the API server reaches the daemon for conversions: by a Service of all its pods.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    ServiceReference, WebhookClientConfig,
};

use lifecycle_controllers::gate;
use machine_controller::crds::{CONVERSION_PATH, DEFINITIONS_CHECK};
use serde_json::{Value, json};

use super::{
    ManifestOptions,
    options::{labels, selector},
};
use crate::flags::Flags;

/// The Service's name is that of the daemon with this suffix.
const SUFFIX: &str = "-webhook";

/// The name of the container's port.
pub(super) const PORT_NAME: &str = "webhook";

/// The port of the container, if the webhook is served.
pub(super) fn port(options: &ManifestOptions, flags: &Flags) -> Option<u16> {
    is_needed(options).then(|| flags.webhook_serving.port()).flatten()
}

/// Whether objects are converted: they have an older version too.
pub(super) fn is_needed(options: &ManifestOptions) -> bool {
    options.machines.iter().any(|machines| machines.types.older.is_some())
}

/// The checks of `/readyz` that do not keep a pod from its Service, as a query. Objects have to be converted where a kind is missing
/// or another manager works, too: what is wrong with one kind must not stop the others.
pub(super) fn readiness_query(options: &ManifestOptions, flags: &Flags) -> String {
    if port(options, flags).is_none() {
        return String::new();
    }
    let providers = options.machines.iter().map(|machines| machines.provider.as_str());
    let kinds: Vec<String> = match options.machines.len() {
        1 => vec!["machine-kinds".to_owned()],
        _ => providers.map(|provider| format!("machine-kinds-{provider}")).collect(),
    };
    let parts = gate::PARTS.into_iter().filter(|part| flags.enables(part.name));
    let of_parts = parts.flat_map(|part| [part.check_name(), part.kinds_check_name()]);
    let checks = [DEFINITIONS_CHECK.to_owned()].into_iter().chain(kinds).chain(of_parts);
    let query: Vec<String> = checks.map(|check| format!("exclude={check}")).collect();
    format!("?{}", query.join("&"))
}

/// The Service, if the webhook is served.
pub(super) fn service(options: &ManifestOptions, flags: &Flags) -> Option<Value> {
    port(options, flags)?;
    Some(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": format!("{}{SUFFIX}", options.name),
            "namespace": options.namespace,
            "labels": labels(options),
        },
        "spec": {
            "selector": selector(options),
            "ports": [{"name": PORT_NAME, "port": 443, "protocol": "TCP", "targetPort": PORT_NAME}],
        },
    }))
}

/// What the definitions say about it. The daemon adds its authority.
pub(super) fn client(options: &ManifestOptions) -> WebhookClientConfig {
    let service = ServiceReference {
        name: format!("{}{SUFFIX}", options.name),
        namespace: options.namespace.clone(),
        path: Some(CONVERSION_PATH.to_owned()),
        port: None,
    };
    WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() }
}

#[cfg(test)]
mod tests {
    use cloudprovider::{
        DynMachines, MachineTypes,
        machines::{ForeignVersion, Kinds, Schemas},
        testing::FakeCloud,
    };

    use super::*;
    use crate::manifests::{CloudConfig, MachineOptions};

    fn kinds() -> Kinds {
        FakeCloud::new().with_machines().provider().machines().map(DynMachines::kinds).expect("machines")
    }

    fn schemas() -> Schemas {
        FakeCloud::new().with_machines().provider().machines().map(DynMachines::schemas).expect("machines")
    }

    fn options(providers: &[&str], has_older: bool) -> ManifestOptions {
        let types = MachineTypes::new(kinds(), schemas);
        let older: fn() -> ForeignVersion = || ForeignVersion::new("v0", "v1beta1", Vec::new());
        let types = if has_older { types.with_older(older, |object, _| Ok(object.clone())) } else { types };
        let machines = providers.iter().map(|provider| MachineOptions {
            provider: (*provider).to_owned(),
            types,
            cloud_config: CloudConfig::None,
        });
        ManifestOptions { machines: machines.collect(), ..ManifestOptions::new("fake") }
    }

    #[test]
    fn only_pods_that_can_answer_are_asked_and_one_kind_does_not_stop_the_others() {
        let flags = crate::flags::parse(["ccm", "--cloud-provider=fake"]).expect("good flags");
        let one = options(&["fake"], true);
        let service = service(&one, &flags).expect("a Service");
        assert_eq!(service["spec"].get("publishNotReadyAddresses"), None);
        let query = |options: &ManifestOptions| readiness_query(options, &flags);
        assert_eq!(query(&one), "?exclude=conversion-definitions&exclude=machine-kinds");
        assert_eq!(
            query(&options(&["fake", "other"], true)),
            "?exclude=conversion-definitions&exclude=machine-kinds-fake&exclude=machine-kinds-other"
        );
        assert_eq!(query(&options(&["fake"], false)), "", "nothing is converted");
        let flags = crate::flags::parse(["ccm", "--cloud-provider=fake", "--controllers=*,lifecycle"]);
        assert_eq!(
            readiness_query(&one, &flags.expect("good flags")),
            "?exclude=conversion-definitions&exclude=machine-kinds&exclude=lifecycle-core-lease\
             &exclude=lifecycle-core-kinds&exclude=lifecycle-bootstrap-lease&exclude=lifecycle-bootstrap-kinds",
            "a manager that holds its Lease converts nothing"
        );
    }
}
