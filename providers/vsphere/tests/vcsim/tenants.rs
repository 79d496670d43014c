//! Two tenants on one vCenter: what the objects of a namespace may name with the credentials of the configuration.

use cloudprovider::{
    CloudProvider as _, ErrorKind,
    machines::{AuxiliaryObject, ClusterRequest, Deletion, Mark, Objects, Record},
};
use serde_json::{Value, json};
use test_env::{Vcsim, VcsimOptions};

use crate::{controller::*, identities::Secrets, support::*, take_over};

/// A machine of another namespace.
fn of_namespace(vcsim: &Vcsim, namespace: &str, number: usize, more: &Value) -> Object {
    let mut object = Object::new(vcsim, number, more);
    let Mark { uid, cluster, .. } = object.request.mark.clone();
    object.request.mark = Mark::machine(uid, namespace, cluster, format!("{namespace}-{number}"));
    object
}

/// The error of a step.
async fn refused(running: &Running, mut object: Object) -> (ErrorKind, String) {
    let error = Controller::new(running).step(&mut object).await.expect_err("it is refused");
    (error.kind(), error.report())
}

/// Starts with this list of what objects may name.
async fn allowing(vcsim: &Vcsim, allow: &str) -> Running {
    let running = Running::start(&format!("{}machines:\n  allow: {allow}\n", closed_config(&[vcsim]))).await;
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    running
}

/// The managed object ID of a virtual machine.
fn moref(vcsim: &Vcsim, name: &str) -> String {
    let all = vcsim.inventory().expect("an inventory");
    let found = all.iter().find(|one| one["name"] == name).expect("a machine");
    let reference = found["ref"].as_str().expect("a reference");
    reference.rsplit(':').next().expect("an ID").to_owned()
}

#[tokio::test]
async fn the_machine_of_another_namespace_is_no_template() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut victim = of_namespace(&vcsim, "team-b", 7, &json!({}));
    Controller::new(&running).make(&mut victim).await;
    let moref = moref(&vcsim, "team-b-7");
    let words = [
        "team-b-7",
        "team-b-*",
        "/DC0/vm/team-b-7",
        "/DC0/vm/team-?-7",
        "DC0/vm/team-b-7",
        moref.as_str(),
        victim.request.mark.uid.as_str(),
    ];
    for word in words {
        for namespace in ["default", "team-b"] {
            let object = of_namespace(&vcsim, namespace, 1, &json!({"template": word}));
            let (kind, words) = refused(&running, object).await;
            assert!(!words.contains("secret"), "{words}");
            match kind {
                ErrorKind::PermissionDenied => assert!(words.contains("spec.template: "), "{words}"),
                // a word that leads nowhere
                kind => assert_eq!(kind, ErrorKind::NotFound, "{word}: {words}"),
            }
        }
    }
    assert_eq!(names(&vcsim).len(), 2, "nothing was cloned");
    // one that this session cannot see the mark of any more has still what it was given for its first boot
    vcsim.act("team-b-7", "reconfigure", "cloud-controller-manager.mark=").expect("no mark");
    let (kind, words) = refused(&running, Object::new(&vcsim, 1, &json!({"template": "team-b-7"}))).await;
    assert_eq!(kind, ErrorKind::PermissionDenied, "{words}");
    running.stop().await;
}

#[tokio::test]
async fn a_machine_of_capv_is_no_template() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    take_over::clone(&vcsim, false);
    let running = started(&vcsim).await;
    running
        .eventually(&take_over::known_by(take_over::BIOS_UUID), "seen", |answer| present(answer).is_some())
        .await;
    let vm = |uid: &str, spec: Value| {
        let vm = AuxiliaryObject::new("cp-1").in_namespace("team-b").with_uid(uid).with_spec(spec);
        Objects::of([(take_over::kind(&running), vm)])
    };
    for objects in [
        vm(take_over::VM_UID, json!({})),
        vm(take_over::OTHER_UID, json!({"biosUUID": take_over::BIOS_UUID})),
    ] {
        let mut object = Object::new(&vcsim, 2, &json!({"template": "worker-1"}));
        object.request.objects = objects;
        let (kind, words) = refused(&running, object).await;
        assert_eq!(kind, ErrorKind::PermissionDenied, "{words}");
        assert!(words.contains("it is the virtual machine of another object"), "{words}");
        assert!(!words.contains("cp-1") && !words.contains("team-b"), "{words}");
    }
    vcsim.act("worker-1", "reconfigure", "guestinfo.metadata=e30=").expect("its network");
    let (kind, words) = refused(&running, Object::new(&vcsim, 2, &json!({"template": "worker-1"}))).await;
    assert_eq!(kind, ErrorKind::PermissionDenied, "{words}");
    assert!(words.contains("machine of Cluster API"), "{words}");
    running.stop().await;
}

#[tokio::test]
async fn a_virtual_machine_is_a_template_only_where_the_configuration_says_so() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let entry =
        "[{templates: ['*'], folders: ['*'], resourcePools: ['*'], datastores: ['*'], networks: ['*']}]";
    let running = allowing(&vcsim, entry).await;
    let (kind, words) = refused(&running, Object::new(&vcsim, 1, &json!({}))).await;
    assert_eq!(kind, ErrorKind::PermissionDenied, "{words}");
    assert!(
        words.contains("a virtual machine that is no template") && words.contains("machinesAsTemplates"),
        "{words}"
    );
    running.stop().await;

    // the same with credentials that a cluster names
    let secrets = Secrets::default();
    secrets.set("default/prod", vcsim.user(), vcsim.password());
    let running = Running::start_with(&closed_config(&[&vcsim]), secrets).await;
    let mut object = Object::new(&vcsim, 1, &json!({}));
    let named = json!({"identityRef": {"kind": "Secret", "name": "prod"}});
    object.request.cluster.spec = merged(object.request.cluster.spec.clone(), &named);
    let mut controller = Controller::new(&running);
    let words = loop {
        match controller.step(&mut object).await {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => break error.report(),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            Ok(report) => panic!("{report:?}"),
        }
    };
    assert!(words.contains("machinesAsTemplates"), "{words}");
    assert_eq!(names(&vcsim), [machine(0)]);
    running.stop().await;
}

#[tokio::test]
async fn without_an_entry_nothing_may_be_named() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    for allow in
        ["[]", "[{namespaces: [team-b], templates: ['*'], networks: ['*'], machinesAsTemplates: true}]"]
    {
        let running = allowing(&vcsim, allow).await;
        let (kind, words) = refused(&running, Object::new(&vcsim, 1, &json!({}))).await;
        assert_eq!(kind, ErrorKind::PermissionDenied, "{words}");
        assert!(words.contains("no entry is for this namespace and vCenter"), "{words}");
        running.stop().await;
    }
    assert_eq!(names(&vcsim), [machine(0)]);
}

#[tokio::test]
async fn an_entry_and_the_defaults_of_the_datacenter_are_enough() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let allow = "[{namespaces: [default], templates: [/DC0/vm/*], networks: [/DC0/network/VM Network], machinesAsTemplates: true}]";
    let running = allowing(&vcsim, allow).await;
    // another spelling of the default is the default
    for (number, more) in [
        (1, json!({"folder": "", "resourcePool": "", "datastore": ""})),
        (
            2,
            json!({"folder": "/DC0/vm", "resourcePool": "/DC0/host/DC0_C0/Resources", "datastore": "LocalDS_0"}),
        ),
    ] {
        let mut object = Object::new(&vcsim, number, &more);
        let mut controller = Controller::new(&running);
        controller.make(&mut object).await;
        assert!(controller.errors.is_empty(), "{:?}", controller.errors);
        controller.delete(&mut object).await;
    }
    for (more, field) in [
        (
            json!({"network": {"devices": [{"networkName": "DC0_DVPG0", "dhcp4": true}]}}),
            "spec.network.devices[0].networkName: ",
        ),
        (
            json!({"network": {"devices": [{"networkName": "/DC0/network/DC0_DVPG0", "dhcp4": true}]}}),
            "spec.network.devices[0].networkName: ",
        ),
        (json!({"storagePolicyName": "gold"}), "spec.storagePolicyName: "),
        (json!({"tagIDs": ["urn:vmomi:InventoryServiceTag:1:GLOBAL"]}), "spec.tagIDs[0]: "),
        (
            json!({"customVMXKeys": {"RemoteDisplay.vnc.enabled": "TRUE"}}),
            "spec.customVMXKeys[RemoteDisplay.vnc.enabled]: ",
        ),
        (json!({"pciDevices": [{"vendorId": 1, "deviceId": 2}]}), "spec.pciDevices[0]: "),
    ] {
        let (kind, words) = refused(&running, Object::new(&vcsim, 3, &more)).await;
        assert_eq!(kind, ErrorKind::PermissionDenied, "{words}");
        assert!(words.contains(field), "{words}");
    }
    // what is not there is told, and nothing of what is
    for more in
        [json!({"folder": "nowhere"}), json!({"template": "nowhere"}), json!({"datastore": "nowhere"})]
    {
        let (kind, words) = refused(&running, Object::new(&vcsim, 3, &more)).await;
        assert_eq!(kind, ErrorKind::NotFound, "{words}");
        assert!(words.contains("\"nowhere\"") && !words.contains("it has"), "{words}");
    }
    assert_eq!(names(&vcsim), [machine(0)]);
    running.stop().await;
}

#[tokio::test]
async fn pools_and_datastores_are_those_of_the_list_whatever_they_are_called() {
    let Some(vcsim) = simulator(&VcsimOptions { clusters: 2, ..factory_options() }) else { return };
    let allow = "[{templates: ['*'], networks: ['*'], machinesAsTemplates: true, \
                 resourcePools: [/DC0/host/DC0_C1/Resources], datastores: ['Datastore:none'], folders: [/DC0/vm]}]";
    let running = allowing(&vcsim, allow).await;
    for (word, expected) in [
        ("DC0_C0/Resources", ErrorKind::PermissionDenied),
        ("/DC0/host/DC0_C0/Resources", ErrorKind::PermissionDenied),
        ("DC0_C[0]/Resource[s]", ErrorKind::PermissionDenied),
        ("DC0_C0/*", ErrorKind::PermissionDenied),
        // the cluster stands for its pool
        ("DC0_C0", ErrorKind::PermissionDenied),
        ("/DC0/host/*_C0", ErrorKind::PermissionDenied),
        // which ones these are is not said
        ("DC0_C?/Resource[s]", ErrorKind::InvalidInput),
    ] {
        let (kind, words) = refused(&running, Object::new(&vcsim, 1, &json!({"resourcePool": word}))).await;
        assert_eq!(kind, expected, "{word}: {words}");
        assert!(words.contains("spec.resourcePool: ") && !words.contains("DC0_C1"), "{words}");
    }
    for datastore in ["LocalDS_0", ""] {
        let more = json!({"resourcePool": "DC0_C1/Resources", "datastore": datastore});
        let (kind, words) = refused(&running, Object::new(&vcsim, 1, &more)).await;
        assert_eq!(kind, ErrorKind::PermissionDenied, "{words}");
        assert!(words.contains("spec.datastore: "), "{words}");
    }
    running.stop().await;
}

#[tokio::test]
async fn nobody_takes_over_what_is_not_listed() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    take_over::clone(&vcsim, true);
    let open = "templates: ['*'], folders: ['*'], resourcePools: ['*'], datastores: ['*'], networks: ['*']";
    for (list, may) in [("[/DC0/vm/other/**]", false), ("[/DC0/vm/worker-*]", true)] {
        let running = allowing(&vcsim, &format!("[{{{open}, takeOver: {list}}}]")).await;
        running
            .eventually(&take_over::known_by(take_over::BIOS_UUID), "seen", |answer| {
                present(answer).is_some()
            })
            .await;
        let mut object = Object::new(&vcsim, 1, &json!({}));
        let owner = object.request.object_uid.clone();
        let vm = AuxiliaryObject::new("worker-1").in_namespace("default").with_uid(take_over::OTHER_UID);
        let vm = vm.with_owners([owner]).with_spec(json!({"biosUUID": take_over::BIOS_UUID}));
        object.request.objects = Objects::of([(take_over::kind(&running), vm)]);
        object.request.provider_id = Some(format!("vsphere://{}", take_over::BIOS_UUID));
        object.request.is_provisioned = true;
        let part = running.provider.machines().expect("machines");
        let identified = part.identify_machine(&object.request).await;
        assert_eq!(identified.is_ok(), may, "{identified:?}");
        // whoever fixes the identity by other means gets no further
        object.request.mark.uid = take_over::VM_UID.to_owned();
        if !may {
            let error = Controller::new(&running).step(&mut object).await.expect_err("not taken over");
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", error.report());
            let mut record = object.record.clone();
            let answer = part.delete_machine(&object.request, &mut record).await;
            assert!(!matches!(answer, Ok(Deletion::Gone)), "{answer:?}");
            assert_eq!(names(&vcsim).len(), 2, "it is still there");
        }
        running.stop().await;
    }
}

/// The error of a step of a cluster of a namespace, which names this Secret and server.
async fn cluster_error(
    running: &Running,
    namespace: &str,
    number: usize,
    secret: &str,
    server: &str,
) -> (ErrorKind, String) {
    let uid = format!("4d3c2b1a-0000-4000-8000-cccc{number:08x}");
    let spec = json!({"server": server, "identityRef": {"kind": "Secret", "name": secret}});
    let request = ClusterRequest::new(Mark::cluster(uid, namespace, format!("c-{number}")), spec);
    let part = running.provider.machines().expect("machines");
    let error =
        part.ensure_cluster(&request, &mut Record::default()).await.expect_err("nobody listens there");
    (error.kind(), error.report())
}

#[tokio::test]
async fn the_secrets_and_sessions_of_a_namespace_are_bounded() {
    let secrets = Secrets::default();
    let running = Running::start_with(&without_vcenter(), secrets.clone()).await;
    for number in 0..32 {
        let name = format!("s-{number}");
        let (kind, words) = cluster_error(&running, "team-a", number, &name, "127.0.0.1:1").await;
        assert_ne!(kind, ErrorKind::PermissionDenied, "{words}");
    }
    let (kind, words) = cluster_error(&running, "team-a", 32, "s-32", "127.0.0.1:1").await;
    assert_eq!(kind, ErrorKind::PermissionDenied, "{words}");
    assert!(words.contains("namespace team-a name 32 Secrets already"), "{words}");
    let (kind, words) = cluster_error(&running, "team-b", 33, "s-32", "127.0.0.1:1").await;
    assert_ne!(kind, ErrorKind::PermissionDenied, "{words}");
    // an object that goes makes room
    let part = running.provider.machines().expect("machines");
    part.forget(&format!("4d3c2b1a-0000-4000-8000-cccc{:08x}", 0));
    let (kind, words) = cluster_error(&running, "team-a", 32, "s-32", "127.0.0.1:1").await;
    assert_ne!(kind, ErrorKind::PermissionDenied, "{words}");

    secrets.set("team-c/one", "somebody", "hunter2");
    // the Secret is read a moment after it was named
    let mut refused = None;
    for number in 100..200 {
        let server = format!("127.0.0.1:{number}");
        loop {
            let (kind, words) = cluster_error(&running, "team-c", number, "one", &server).await;
            if words.contains("has not been read yet") {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                continue;
            }
            if kind == ErrorKind::PermissionDenied {
                refused = Some((number, words));
            }
            break;
        }
        if refused.is_some() {
            break;
        }
    }
    let (number, words) = refused.expect("it is bounded");
    assert_eq!(number, 132, "{words}");
    assert!(words.contains("namespace team-c have 32 sessions"), "{words}");
    running.stop().await;
}

#[tokio::test]
async fn credentials_are_not_sent_to_a_server_that_is_not_listed() {
    let secrets = Secrets::default();
    secrets.set("team-a/one", "somebody", "hunter2");
    let allow = "vcenter: {}\nmachines:\n  allow: [{namespaces: [team-b], servers: ['*']}]\n";
    let running = Running::start_with(allow, secrets).await;
    let (kind, words) = cluster_error(&running, "team-a", 1, "one", "evil.example.org").await;
    assert_eq!(kind, ErrorKind::PermissionDenied, "{words}");
    assert!(words.contains("spec.server: \"evil.example.org:443\" is no vCenter"), "{words}");
    running.stop().await;
}
