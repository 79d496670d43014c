//! Machines that join with data of the bootstrap part.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, api::ListParams};

use super::world::{World, in_time, until};

#[tokio::test]
async fn a_worker_gets_a_token_that_goes_once_it_has_joined() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_kubeadm_template().await;
    world.create_deployment_of("KubeadmConfigTemplate", 1).await;
    world.start().await;
    let bootstrap = world.start_bootstrap();
    in_time(&world, "a Machine with a Node", world.until_running(1)).await;

    let config = bootstrap.configs.all().first().cloned().expect("a config");
    let name = config.metadata.name.clone().expect("a name");
    let key = format!("team/{name}");
    let config = until(&bootstrap.configs, &key, |found| {
        found.and_then(|one| one.status.as_ref()).is_some_and(|status| status.data_secret_name.is_some())
    });
    let config = config.await.expect("the config");
    let status = config.status.clone().expect("a status");
    assert_eq!(status.data_secret_name.as_deref(), Some(name.as_str()));
    assert_eq!(status.initialization.data_secret_created, Some(true));
    let ready = status.conditions.iter().find(|one| one.type_ == "Ready").expect("it is ready");
    assert_eq!(ready.reason, "Ready");

    let secrets: Api<Secret> = Api::namespaced(world.management.client(), "team");
    let secret = secrets.get(&name).await.expect("the data");
    assert_eq!(secret.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
    let ByteString(value) = secret.data.as_ref().and_then(|data| data.get("value")).expect("a value").clone();
    let value = String::from_utf8(value).expect("text");
    assert!(value.starts_with("## template: jinja\n#cloud-config\n"), "{value}");
    assert!(value.contains("kubeadm join") && value.contains("10.0.0.1:6443"), "{value}");
    assert!(value.contains("node.cluster.x-k8s.io/uninitialized"), "{value}");

    // The machine has joined, so its token is not needed any more.
    let tokens: Api<Secret> = Api::namespaced(world.workload.client(), "kube-system");
    in_time(&world, "the end of the token", async {
        while !tokens.list(&ListParams::default()).await.expect("Secrets").items.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
