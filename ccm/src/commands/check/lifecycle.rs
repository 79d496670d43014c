//! Whether the API server serves Cluster API's own kinds as the lifecycle controllers read them.

use cluster_api::definitions::{Provider, VERSION};
use component::api_client::describe;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};

use super::{super::tools::ANSWER_WITHIN, report::Report};
use crate::{controllers::lifecycle_providers, flags::Flags};

/// What concerns the lifecycle controllers.
const LIFECYCLE: &str = "lifecycle";

/// Names the definitions of Cluster API's kinds that are missing or too old.
pub(super) async fn check_definitions(flags: &Flags, client: &Client, report: &mut Report) {
    let mut providers = lifecycle_providers(flags);
    if providers.is_empty() {
        return;
    }
    if !providers.contains(&Provider::Core) {
        // Bootstrap data are made for Machines of Clusters.
        providers.insert(0, Provider::Core);
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut served = 0_usize;
    for name in providers.into_iter().flat_map(names) {
        let found = match tokio::time::timeout(ANSWER_WITHIN, definitions.get_opt(&name)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                let why = describe(&error);
                return report.warning(LIFECYCLE, format!("the definition {name} cannot be read: {why}"));
            }
            Err(_) => {
                return report
                    .warning(LIFECYCLE, format!("the API server did not answer within {ANSWER_WITHIN:?}"));
            }
        };
        match fault(&name, found.as_ref()) {
            Some(fault) => report.failed(LIFECYCLE, fault),
            None => served += 1,
        }
    }
    if served > 0 {
        report.works(LIFECYCLE, format!("{served} kinds of Cluster API are served in {VERSION}"));
    }
}

fn names(provider: Provider) -> Vec<String> {
    // A schema that is none fails a test of `cluster-api`.
    let all = provider.definitions().unwrap_or_default().into_iter();
    // For tools alone: no controller reads MachinePools.
    let read = all.filter(|definition| definition.spec.names.kind != "MachinePool");
    read.filter_map(|definition| definition.metadata.name).collect()
}

/// What is wrong with a definition. `found`: `None` if there is none.
fn fault(name: &str, found: Option<&CustomResourceDefinition>) -> Option<String> {
    let Some(found) = found else {
        return Some(format!(
            "the definition {name} is missing; `manifests --lifecycle --only-definitions` prints it"
        ));
    };
    let served: Vec<_> =
        found.spec.versions.iter().filter(|version| version.served).map(|version| &*version.name).collect();
    (!served.contains(&VERSION)).then(|| {
        let served = if served.is_empty() { "no version".to_owned() } else { served.join(", ") };
        format!(
            "the definition {name} serves {served}, and the lifecycle controllers need {VERSION}, which Cluster API has since 1.11"
        )
    })
}

#[cfg(test)]
mod tests {
    use kube::api::PostParams;
    use sandbox::Sandbox;

    use super::*;
    use crate::{
        commands::check::{Finding, Verdict},
        flags,
    };

    async fn said(sandbox: &Sandbox, controllers: &str) -> Vec<(Verdict, String)> {
        let flags = flags::parse(["ccm", &format!("--controllers={controllers}")]).expect("good flags");
        let mut report = Report::default();
        check_definitions(&flags, &sandbox.client(), &mut report).await;
        let said = |one: &Finding| (one.verdict, one.detail.clone());
        report.findings().iter().map(said).collect()
    }

    #[tokio::test]
    async fn definitions_that_are_missing_or_too_old_are_named() {
        let sandbox = Sandbox::new();
        let definitions = Api::<CustomResourceDefinition>::all(sandbox.client());
        for mut definition in Provider::Core.definitions().expect("definitions") {
            match &*definition.spec.names.kind {
                "Machine" => definition.spec.versions[0].name = "v1beta1".to_owned(),
                "MachineSet" => continue,
                _ => {}
            }
            definitions.create(&PostParams::default(), &definition).await.expect("created");
        }
        assert_eq!(
            said(&sandbox, "lifecycle-core").await,
            [
                (
                    Verdict::Failed,
                    "the definition machines.cluster.x-k8s.io serves v1beta1, and the lifecycle controllers need v1beta2, \
                     which Cluster API has since 1.11"
                        .to_owned()
                ),
                (
                    Verdict::Failed,
                    "the definition machinesets.cluster.x-k8s.io is missing; `manifests --lifecycle \
                     --only-definitions` prints it"
                        .to_owned()
                ),
                (Verdict::Ok, "6 kinds of Cluster API are served in v1beta2".to_owned()),
            ]
        );
        let bootstrap = said(&sandbox, "lifecycle-bootstrap").await;
        assert_eq!(bootstrap.len(), 5, "its own two kinds are missing as well: {bootstrap:?}");
        assert_eq!(said(&sandbox, "*").await, []);
    }
}
