//! Whether the API server serves Cluster API's own kinds as the lifecycle controllers read them.

use cluster_api::definitions::{Provider, VERSION};
use component::api_client::describe;
use kube::Client;
use lifecycle_controllers::kinds::{INSTALL_KINDS, served_versions};

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
    let names: Vec<_> = providers.into_iter().flat_map(Provider::read_kinds).copied().collect();
    let versions = match tokio::time::timeout(ANSWER_WITHIN, served_versions(client, &names)).await {
        Ok(Ok(versions)) => versions,
        Ok(Err(error)) => {
            let why = describe(&error);
            return report
                .failed(LIFECYCLE, format!("the API server does not say which kinds it serves: {why}"));
        }
        Err(_) => {
            return report
                .failed(LIFECYCLE, format!("the API server did not answer within {ANSWER_WITHIN:?}"));
        }
    };
    let faults: Vec<_> =
        names.iter().filter_map(|name| fault(name, versions.get(name).map(Vec::as_slice))).collect();
    for fault in &faults {
        report.failed(LIFECYCLE, fault);
    }
    let good = names.len() - faults.len();
    if good > 0 {
        report.works(LIFECYCLE, format!("{good} kinds of Cluster API are served in {VERSION}"));
    }
    if flags.misc.dry_run {
        report.warning(
            LIFECYCLE,
            "with --dry-run the lifecycle controllers do nothing; what they lack without it is shown as a warning",
        );
    }
}

/// What is wrong with a definition. `served`: its versions, `None` if there is none.
fn fault(name: &str, served: Option<&[String]>) -> Option<String> {
    let Some(served) = served else {
        return Some(format!("the definition {name} is missing; install it: {INSTALL_KINDS}"));
    };
    (!served.iter().any(|version| version == VERSION)).then(|| {
        format!(
            "the definition {name} serves {}, and the lifecycle controllers need {VERSION}, which Cluster API has since 1.11",
            served.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::{Api, api::PostParams, client::Body};
    use sandbox::{Action, Fault, Matcher, Sandbox};

    use super::*;
    use crate::{
        commands::check::{Finding, Verdict},
        flags,
    };

    async fn said(sandbox: &Sandbox, controllers: &str) -> Vec<(Verdict, String)> {
        said_of(&sandbox.client(), controllers).await
    }

    async fn said_of(client: &Client, controllers: &str) -> Vec<(Verdict, String)> {
        let flags = flags::parse(["ccm", &format!("--controllers={controllers}")]).expect("good flags");
        let mut report = Report::default();
        check_definitions(&flags, client, &mut report).await;
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
                    "the definition machinesets.cluster.x-k8s.io is missing; install it: cloud-controller-manager \
                     manifests --lifecycle --only-definitions | kubectl apply -f -"
                        .to_owned()
                ),
                (Verdict::Ok, "6 kinds of Cluster API are served in v1beta2".to_owned()),
            ]
        );
        let bootstrap = said(&sandbox, "lifecycle-bootstrap").await;
        assert_eq!(bootstrap.len(), 5, "its own two kinds are missing as well: {bootstrap:?}");
        assert_eq!(said(&sandbox, "*").await, []);
        // Definitions can be read by few. That says nothing of what is served.
        let read = Matcher::any().resource("customresourcedefinitions");
        sandbox.faults().inject(Fault::new(read, Action::ErrorEvent(403)));
        assert_eq!(said(&sandbox, "lifecycle-bootstrap").await, bootstrap);
    }

    #[tokio::test]
    async fn an_api_server_that_says_nothing_is_no_good_one() {
        let away = |_: Request<Body>| async { Err::<Response<Body>, _>(std::io::Error::other("away")) };
        let said = said_of(&Client::new(tower::service_fn(away), "default"), "lifecycle").await;
        assert!(matches!(&said[..], [(Verdict::Failed, why)] if why.contains("does not say")), "{said:?}");
    }
}
