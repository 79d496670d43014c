//! The life of a load balancer.

use cloudprovider::{ErrorKind, ServicePort};
use serde_json::{Value, json};

use crate::{
    harvester::STRANGER,
    support::{CLUSTER, World, ip, service, service_ref},
};

const NONE: &str = ", announcedBy: none";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_lives_and_dies_with_its_service() {
    let Some(world) = World::start().await else { return };
    let running = world.running(&format!("{NONE}, ipPool: public, network: default/vlan8")).await;
    let mut web = world.service("web");
    assert_eq!(running.get(&web).await.expect("an answer"), None);

    let status = running.ensure(&web).await.expect("ensured");
    let address = ip(&status).to_owned();
    assert!(address.starts_with("192.0.2."), "{status:?}");
    assert_eq!(running.get(&web).await.expect("an answer"), Some(status.clone()));
    let told = running.balancers().update(CLUSTER, &web, &[]).await.expect_err("Harvester knows no Nodes");
    assert_eq!(told.kind(), ErrorKind::ImplementedElsewhere);
    let object = world.harvester.only().await.expect("an object");
    assert_eq!(object["metadata"]["name"], running.balancers().name(CLUSTER, &web));
    assert_eq!(object["metadata"]["labels"]["service.cloudprovider.kubernetes.io/uid"], "uid-of-web");
    assert_eq!(object["metadata"]["labels"]["cloudprovider.harvesterhci.io/serviceName"], "web");
    assert_eq!(
        object["metadata"]["annotations"],
        json!({
            "loadbalancer.harvesterhci.io/cluster": "guest", "loadbalancer.harvesterhci.io/namespace": world.harvester.namespace,
            "loadbalancer.harvesterhci.io/network": "default/vlan7", "loadbalancer.harvesterhci.io/project": "c-1/p-2",
        }),
        "Harvester derives all but the first"
    );
    assert_eq!(object["spec"]["workloadType"], "cluster");
    assert_eq!((&object["spec"]["ipam"], &object["spec"]["ipPool"]), (&json!("pool"), &json!("public")));
    assert_eq!(object["status"]["address"], address, "people in Harvester see it");

    // Nothing changes, and nothing is written.
    let version = object["metadata"]["resourceVersion"].clone();
    assert_eq!(running.ensure(&web).await.expect("ensured"), status);
    assert_eq!(world.harvester.only().await.expect("an object")["metadata"]["resourceVersion"], version);

    // Ports change in place, and what others wrote stays.
    web.ports.push(ServicePort {
        name: "tls".to_owned(),
        port: 443,
        node_port: Some(30443),
        ..ServicePort::default()
    });
    assert_eq!(running.ensure(&web).await.expect("ensured"), status);
    let object = world.harvester.only().await.expect("an object");
    assert_eq!(object["spec"]["listeners"][1]["backendPort"], 30443);
    assert_eq!(object["status"]["allocatedAddress"]["ip"], address);

    // It is deleted only when it is gone.
    world.harvester.script().keeps_deleted = true;
    let error = running.balancers().delete(CLUSTER, &web).await.expect_err("not yet");
    assert_eq!(error.kind(), ErrorKind::InProgress);
    assert!(running.get(&web).await.expect("an answer").is_some(), "it is still there");
    let error = running.balancers().ensure(CLUSTER, &web, &[]).await.expect_err("not yet");
    assert_eq!(error.kind(), ErrorKind::InProgress);
    world.harvester.script().keeps_deleted = false;
    running.delete(&web).await.expect("deleted");
    assert_eq!(running.get(&web).await.expect("an answer"), None);
    assert_eq!(world.harvester.only().await, None);
    running.delete(&web).await.expect("deleting what is not there succeeds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_vip_is_told_and_writes_the_status() {
    let Some(world) = World::start().await else { return };
    let running = world.running(", interface: eth1").await;
    let mut web = world.service("web");
    let error = running.ensure(&web).await.expect_err("kube-vip does the rest");
    assert_eq!(error.kind(), ErrorKind::ImplementedElsewhere);
    let object = world.harvester.only().await.expect("an object");
    let address = object["status"]["allocatedAddress"]["ip"].as_str().expect("an address").to_owned();
    let (of, change) = world.services.changes().pop().expect("a change");
    assert_eq!(of, service_ref(&web));
    let wrote = |key: &str| change.annotations[key].clone().unwrap_or_default();
    assert_eq!(wrote("kube-vip.io/loadbalancerIPs"), address);
    assert_eq!(wrote("kube-vip.io/serviceInterface"), "eth1");

    // With what was written, nothing more is written, and it counts as no wish of a person.
    web.annotations = change.annotations.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    web.labels = change.labels.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    web.load_balancer_ip = change.load_balancer_ip.flatten();
    let error = running.ensure(&web).await.expect_err("kube-vip does the rest");
    assert_eq!(error.kind(), ErrorKind::ImplementedElsewhere);
    assert_eq!(world.services.changes().len(), 1);
    assert_eq!(running.get(&web).await.expect("an answer"), Some(web.status.clone()));

    // Before the address is given back, kube-vip is told to stop.
    running.delete(&web).await.expect("deleted");
    let (_, change) = world.services.changes().pop().expect("a change");
    assert_eq!(change.annotations["kube-vip.io/loadbalancerIPs"], None);
    assert_eq!(world.harvester.only().await, None);
    // A Service that is gone needs no annotations any more.
    let gone = service("gone");
    running.delete(&gone).await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_dhcp_kube_vip_finds_the_address() {
    let Some(world) = World::start().await else { return };
    let running = world.running(", ipam: dhcp").await;
    let mut web = world.service("web");
    let error = running.ensure(&web).await.expect_err("kube-vip does the rest");
    assert_eq!(error.kind(), ErrorKind::ImplementedElsewhere);
    let (_, change) = world.services.changes().pop().expect("a change");
    assert_eq!(change.annotations["kube-vip.io/loadbalancerIPs"].as_deref(), Some("0.0.0.0"));
    let object = world.harvester.only().await.expect("an object");
    assert_eq!((&object["spec"]["ipam"], &object["status"]["address"]), (&json!("dhcp"), &Value::Null));
    // Harvester shows the address as soon as it is known here.
    let ingress =
        cloudprovider::LoadBalancerIngress { ip: Some("198.51.100.7".to_owned()), ..Default::default() };
    web.status.ingress.push(ingress);
    running.ensure(&web).await.expect_err("kube-vip does the rest");
    assert_eq!(world.harvester.only().await.expect("an object")["status"]["address"], "198.51.100.7");
    // The default of the configuration does not move a load balancer; the Service itself is refused.
    let pool = world.running("").await;
    assert_eq!(pool.ensure(&web).await.expect_err("as before").kind(), ErrorKind::ImplementedElsewhere);
    web.annotations.insert("cloudprovider.harvesterhci.io/ipam".to_owned(), "pool".to_owned());
    let error = pool.ensure(&web).await.expect_err("Harvester does not change it");
    assert!(
        error.kind() == ErrorKind::Unsupported && error.to_string().contains("from dhcp to pool"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_cannot_ask_for_an_address() {
    let Some(world) = World::start().await else { return };
    let running = world.running(NONE).await;
    let mut web = world.service("web");
    web.load_balancer_ip = Some("192.0.2.200".to_owned());
    let error = running.ensure(&web).await.expect_err("refused");
    assert!(
        error.kind() == ErrorKind::Unsupported && error.to_string().contains("spec.loadBalancerIP"),
        "{error}"
    );
    assert_eq!(world.harvester.only().await, None, "nothing is made in vain");
    web.load_balancer_ip = None;
    let status = running.ensure(&web).await.expect("ensured");
    // What Harvester gave is no other wish, as harvester-cloud-provider wrote it.
    web.load_balancer_ip = Some(ip(&status).to_owned());
    assert_eq!(running.ensure(&web).await.expect("ensured"), status);
    web.load_balancer_ip = Some("192.0.2.200".to_owned());
    assert_eq!(running.ensure(&web).await.expect_err("refused").kind(), ErrorKind::Unsupported);
}

/// Harvester's webhook overwrites annotations with every write, so writing them again would never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_there_is_no_address_nothing_is_written() {
    let Some(world) = World::start().await else { return };
    let mut web = world.service("web");
    for (name, value) in [("project", "c-9/p-9"), ("namespace", "other")] {
        web.annotations.insert(format!("cloudprovider.harvesterhci.io/{name}"), value.to_owned());
    }
    let running = world.running(&format!("{NONE}, network: default/vlan8")).await;
    world.harvester.script().is_paused = true;
    for _ in 0..5 {
        let error = running.balancers().ensure(CLUSTER, &web, &[]).await.expect_err("no address");
        assert_eq!(error.kind(), ErrorKind::InProgress, "{}", error.report());
    }
    let writes = |world: &World| {
        let calls = world.front.state().calls.clone();
        calls.into_iter().filter(|method| *method != http::Method::GET).collect::<Vec<_>>()
    };
    assert_eq!(writes(&world), [http::Method::POST]);
    // What Harvester does take until there is an address is another pool, once.
    let running = world.running(&format!("{NONE}, ipPool: second")).await;
    for _ in 0..3 {
        running.balancers().ensure(CLUSTER, &web, &[]).await.expect_err("no address");
    }
    assert_eq!(writes(&world), [http::Method::POST, http::Method::PATCH]);
    assert_eq!(world.harvester.only().await.expect("an object")["spec"]["ipPool"], "second");
}

/// A newer Harvester takes the network. It has to stay as it was created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_counts_where_harvester_takes_it() {
    let Some(world) = World::start().await else { return };
    world.harvester.say("test/takes-networks", Some("true")).await;
    let web = world.service("web");
    world.running(&format!("{NONE}, network: default/vlan8")).await.ensure(&web).await.expect("ensured");
    world.running(&format!("{NONE}, network: default/vlan9")).await.ensure(&web).await.expect("ensured");
    let object = world.harvester.only().await.expect("an object");
    assert_eq!(object["metadata"]["annotations"]["loadbalancer.harvesterhci.io/network"], "default/vlan8");
}

/// The words of Harvester's webhook reach the Service, and a later attempt succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_webhook_refuses_is_told() {
    let Some(world) = World::start().await else { return };
    let running = world.running(NONE).await;
    let web = world.service("web");
    for (annotation, bad, good, words) in [
        ("test/machine", None, Some("guest-pool1-x7k2p"), "it has no running vmis"),
        ("test/is-removed", Some("true"), None, "guest cluster is on remove"),
    ] {
        world.harvester.say(annotation, bad).await;
        let error = running.ensure(&web).await.expect_err("refused");
        assert!(error.report().contains(words), "{}", error.report());
        assert_eq!(world.harvester.only().await, None);
        world.harvester.say(annotation, good).await;
    }
    running.ensure(&web).await.expect("ensured");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_in_harvester_is_told() {
    let Some(world) = World::start().await else { return };
    let running = world.running(NONE).await;
    let web = world.service("web");
    world.harvester.script().is_paused = true;
    let error = running.balancers().ensure(CLUSTER, &web, &[]).await.expect_err("no address");
    assert_eq!(error.kind(), ErrorKind::InProgress);
    assert!(error.retry_after().is_some());
    {
        let mut script = world.harvester.script();
        script.is_paused = false;
        script.trouble = Some("no matched IPPool with requirement");
    }
    let error = running.ensure(&web).await;
    let told = match error {
        Err(error) => error,
        Ok(status) => panic!("{status:?}"),
    };
    assert_eq!(told.kind(), ErrorKind::Unavailable);
    assert!(told.to_string().contains("no matched IPPool with requirement"), "{told}");
    world.harvester.script().trouble = None;
    while let Err(error) = running.ensure(&web).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_kubeconfig_is_used_by_the_next_provider() {
    let Some(world) = World::start().await else { return };
    let web = world.service("web");
    world.write_kubeconfig(world.harvester.token(STRANGER));
    let running = world.running(NONE).await;
    assert_eq!(running.ensure(&web).await.expect_err("no rights").kind(), ErrorKind::PermissionDenied);
    // The daemon makes another provider when the file changes, because the factory reads it through its
    // input.
    world.write_kubeconfig(world.harvester.token(crate::harvester::USER));
    let running = world.running(NONE).await;
    running.ensure(&web).await.expect("ensured");
    let read = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let reads = std::sync::Arc::clone(&read);
    let input =
        cloudprovider::FactoryInput::new(world.config("")).with_reader(move |path: &std::path::Path| {
            reads.lock().push(path.file_name().unwrap_or_default().to_owned());
            std::fs::read(path)
        });
    cloudprovider_rancher::factory(&input).expect("a provider").load_balancer().expect("load balancers");
    assert_eq!(*read.lock(), ["harvester.kubeconfig", "ca.pem"]);
}
