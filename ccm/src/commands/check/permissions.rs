//! Asks the API server whether each permission is granted.

use std::collections::BTreeMap;

use cloudprovider::{CloudProvider, Registry};
use component::api_client::describe;
use controller_kit::cloud;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};

use super::{super::tools::ANSWER_WITHIN, Report};
use crate::{
    flags::Flags,
    permissions::{self, Permission},
};

/// Maximum number of requests at the same time.
const CONCURRENT: usize = 8;

/// The permissions to read the Secrets in this provider's configuration. Those that the provider can work
/// without are optional, since it already has other credentials.
pub(super) fn for_secrets(provider: &dyn CloudProvider) -> Vec<Permission> {
    let (needed, optional): (Vec<_>, Vec<_>) =
        cloud::secrets_of(provider).into_iter().partition(|secret| cloud::needs_secret(provider, secret));
    let optional = permissions::needed_for_secrets(&optional).into_iter().map(Permission::optional);
    permissions::needed_for_secrets(&needed).into_iter().chain(optional).collect()
}

/// The permissions for what this provider does with Services.
pub(super) fn for_services(flags: &Flags, provider: &dyn CloudProvider) -> Vec<Permission> {
    permissions::needed_for_service_access(flags, &cloud::service_access_needs_of(provider))
}

/// The permissions for this provider's machines.
pub(super) fn for_machines(
    flags: &Flags,
    provider: &dyn CloudProvider,
    registry: &Registry,
) -> Vec<Permission> {
    let kinds = cloud::machine_kinds_of(provider);
    let of_kinds = kinds.map(|kinds| permissions::needed_for_machines(flags, &kinds)).unwrap_or_default();
    let types = registry.machines(provider.name());
    let of_versions = types.map(|types| permissions::needed_for_conversion(flags, &types));
    of_kinds.into_iter().chain(of_versions.unwrap_or_default()).collect()
}

/// In a dry run the lifecycle controllers need nothing. People make one to see what a daemon would lack without it.
fn for_lifecycle_without_dry_run(flags: &Flags) -> Vec<Permission> {
    if !flags.misc.dry_run {
        return Vec::new();
    }
    let mut without = flags.clone();
    without.misc.dry_run = false;
    permissions::needed_for_lifecycle(&without).into_iter().map(Permission::optional).collect()
}

/// Reports each missing permission and its purpose. `for_cloud` are the permissions for the cloud's
/// configuration.
pub(super) async fn check(flags: &Flags, for_cloud: Vec<Permission>, client: &Client, report: &mut Report) {
    let user = who_are_we(client).await.unwrap_or_else(|| "the user of the kubeconfig".to_owned());
    // Our credentials cannot check the permissions of other accounts.
    let mut needed = permissions::needed(flags);
    needed.extend(for_cloud);
    needed.extend(for_lifecycle_without_dry_run(flags));
    needed.retain(|permission| permission.account.is_none());
    let answers: Vec<(Permission, Result<bool, String>)> = stream::iter(needed)
        .map(|permission| async move {
            let allowed = is_allowed(client, &permission).await;
            (permission, allowed)
        })
        .buffered(CONCURRENT)
        .collect()
        .await;
    // Requests that failed for the same reason are reported together.
    let mut unanswered: BTreeMap<String, usize> = BTreeMap::new();
    let (mut allowed, mut denied) = (0, 0);
    for (permission, answer) in answers {
        match answer {
            Ok(true) => allowed += 1,
            Ok(false) => {
                denied += 1;
                let detail = format!("{user} may not {permission}; needed for: {}", permission.needed_for);
                if permission.required {
                    report.failed("permissions", detail);
                } else {
                    report.warning("permissions", detail);
                }
            }
            Err(why) => *unanswered.entry(why).or_default() += 1,
        }
    }
    for (why, count) in unanswered {
        report.failed("permissions", format!("{count} cannot be checked: {why}"));
    }
    if denied == 0 && allowed > 0 {
        report.works("permissions", format!("{user} has all {allowed} that these flags need"));
    }
    if flags.generic.use_service_account_credentials {
        report.warning(
            "permissions",
            "with --use-service-account-credentials the controllers' own service accounts write; what they may is not checked",
        );
    }
}

async fn who_are_we(client: &Client) -> Option<String> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let (params, question) = (PostParams::default(), SelfSubjectReview::default());
    let asked = api.create(&params, &question);
    let review = tokio::time::timeout(ANSWER_WITHIN, asked).await.ok()?.ok()?;
    review.status?.user_info?.username
}

async fn is_allowed(client: &Client, permission: &Permission) -> Result<bool, String> {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: some(&permission.group),
                resource: some(&permission.resource),
                subresource: some(&permission.subresource),
                verb: some(&permission.verb),
                namespace: permission.namespace.as_deref().and_then(some),
                name: permission.resource_names.first().map(ToString::to_string),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    match tokio::time::timeout(ANSWER_WITHIN, api.create(&params, &review)).await {
        Ok(Ok(answer)) => Ok(answer.status.is_some_and(|status| status.allowed)),
        Ok(Err(error)) => Err(describe(&error)),
        Err(_) => Err(format!("no answer within {ANSWER_WITHIN:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_shows_what_the_lifecycle_would_need() {
        let needed = |flags: &[&str]| {
            let flags = crate::flags::parse(["ccm"].iter().chain(flags)).expect("good flags");
            for_lifecycle_without_dry_run(&flags)
        };
        let all = needed(&["--controllers=lifecycle", "--dry-run"]);
        assert!(all.iter().any(|one| one.resource == "machinesets" && one.verb == "create"), "{all:?}");
        assert!(all.iter().all(|one| !one.required));
        assert!(needed(&["--controllers=lifecycle"]).is_empty(), "they are among the others");
        assert!(needed(&["--cloud-provider=x", "--dry-run"]).is_empty());
    }
}
