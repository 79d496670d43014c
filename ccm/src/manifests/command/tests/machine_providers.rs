//! `--machine-provider`: the machines of several providers.

use cloudprovider::{
    MachineTypes,
    machines::{ForeignVersion, Kind, KindDefinition, Kinds},
};
use serde_json::Value;

use super::*;

/// Two providers with machines, of which one has kinds in a group of its own, and one without. Each takes any configuration.
/// That of `own` names a Secret, and those of both read the file `password` beside them.
fn providers() -> Registry {
    let mut registry = with_machines();
    let factory = |input: &FactoryInput| {
        let folder = input.config_path.as_deref().and_then(Path::parent).expect("a folder");
        input.read_file(folder.join("password")).map_err(|error| {
            Error::invalid_configuration(vec![ConfigProblem::new("password", error.to_string())])
        })?;
        let secret = SecretName { namespace: "vault".into(), name: "own".into() };
        Ok(FakeCloud::named("own").with_secrets(Some(secret)).provider())
    };
    registry.register("own", factory).expect("free");
    let kinds =
        Kinds::new("v1", Kind::new("OwnMachine", "ownmachines"), Kind::new("OwnCluster", "ownclusters"));
    let types = registry.machines("fake").expect("it has machines");
    let types = MachineTypes::new(kinds.in_group("own.example.com"), types.schemas);
    registry.register_machines("own", types).expect("free");
    registry
}

/// The same kinds, with an older version.
fn with_older(types: &MachineTypes) -> MachineTypes {
    let older = || {
        let kinds = [
            ("FakeMachine", "fakemachines"),
            ("FakeMachineTemplate", "fakemachinetemplates"),
            ("FakeCluster", "fakeclusters"),
            ("FakeClusterTemplate", "fakeclustertemplates"),
        ];
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let kinds = kinds
            .map(|(kind, plural)| KindDefinition::new(Kind::new(kind, plural), "Something.", any.clone()));
        ForeignVersion::new("v0", "v1beta1", kinds.into())
    };
    (*types).with_older(older, |object, _| Ok(object))
}

fn objects(arguments: &[&str]) -> Vec<Value> {
    let (options, warnings) = command(arguments).options(&providers()).expect("good");
    assert!(warnings.is_empty(), "{warnings:?}");
    options.render().expect("good")
}

fn only<'o>(objects: &'o [Value], kind: &str, name: &str) -> &'o Value {
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    let mut found = objects.iter().filter(is_it);
    let one = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "more than one {kind} {name}");
    one
}

fn container(objects: &[Value]) -> (Value, Value) {
    let workload = only(objects, "DaemonSet", "cloud-controller-manager");
    let pod = &workload["spec"]["template"]["spec"];
    (pod["containers"][0].clone(), pod["volumes"].clone())
}

#[test]
fn each_provider_brings_its_kinds_permissions_and_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("own.yaml");
    std::fs::write(&file, "text").expect("written");
    std::fs::write(folder.path().join("password"), "hunter2").expect("written");
    let own = format!("--machine-provider=own={}", file.display());
    let objects = objects(&["--machine-provider=fake", &own]);
    for name in [
        "fakemachines.infrastructure.cluster.x-k8s.io",
        "ownmachines.own.example.com",
        "ownclustertemplates.own.example.com",
    ] {
        only(&objects, "CustomResourceDefinition", name);
    }
    let roles = only(&objects, "ClusterRole", "cloud-controller-manager-machines")["rules"].to_string();
    assert!(roles.contains("fakemachines") && roles.contains("ownmachines"), "{roles}");
    let core = only(&objects, "ClusterRole", "cloud-controller-manager-machines-core");
    assert_eq!(core["rules"][0]["apiGroups"], json!(["own.example.com"]));
    let nodes = only(&objects, "ClusterRole", "cloud-controller-manager")["rules"].to_string();
    assert!(!nodes.contains("nodes/status"), "there is no provider for Nodes: {nodes}");
    let secrets = only(&objects, "Role", "cloud-controller-manager-secrets");
    assert_eq!(secrets["rules"][0]["resourceNames"], json!(["own"]));
    let secret = only(&objects, "Secret", "cloud-config-own");
    assert_eq!(secret["data"], json!({"cloud.conf": "dGV4dA==", "password": "aHVudGVyMg=="}));
    let (container, volumes) = container(&objects);
    assert_eq!(
        container["args"],
        json!([
            "--machine-provider=fake=/etc/cloud-config-fake/cloud.conf",
            "--machine-provider=own=/etc/cloud-config-own/cloud.conf",
            "--controllers=machine-controller",
        ])
    );
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    for (number, name) in ["cloud-config-fake", "cloud-config-own"].into_iter().enumerate() {
        assert_eq!((&mounts[number]["name"], &volumes[number]["name"]), (&json!(name), &json!(name)));
        assert_eq!(mounts[number]["mountPath"], format!("/etc/{name}"));
        assert_eq!(volumes[number]["secret"]["secretName"], name);
    }
}

#[test]
fn the_machines_of_the_provider_of_nodes_need_no_file() {
    let both = ["--provider=fake", "--machines", "--machine-provider=own"];
    let same = ["--provider=fake", "--machine-provider=fake", "--machine-provider=own"];
    for arguments in [both, same] {
        let (container, volumes) = container(&objects(&arguments));
        assert_eq!(
            container["args"],
            json!([
                "--cloud-provider=fake",
                "--cloud-config=/etc/cloud-config/cloud.conf",
                "--machine-provider=fake",
                "--machine-provider=own=/etc/cloud-config-own/cloud.conf",
                "--controllers=*,machine-controller",
            ])
        );
        assert_eq!(volumes.as_array().map(Vec::len), Some(2));
    }
    let (container, _) = container(&objects(&["--provider=libvirt", "--machine-provider=own"]));
    let args = container["args"].to_string();
    assert!(
        !args.contains("--machine-provider=libvirt") && args.contains("--cloud-provider=libvirt"),
        "{args}"
    );
}

#[test]
fn the_definitions_of_all_alone() {
    let arguments = ["--machine-provider=fake", "--machine-provider=own", "--only-definitions"];
    let (text, _) = command(&arguments).run(&providers()).expect("good");
    assert!(text.contains("FakeMachine") && text.contains("OwnMachine") && !text.contains("kind: DaemonSet"));
}

#[test]
fn each_fault_names_its_option() {
    for (arguments, fault) in [
        (&[][..], "--provider cannot be empty"),
        (
            &["--machine-provider=fak"],
            "--machine-provider: unknown cloud provider \"fak\" (known: fake, libvirt, own)",
        ),
        (&["--machine-provider=libvirt"], "--machine-provider: cloud provider \"libvirt\" has no machines"),
        (&["--machine-provider==x"], "--machine-provider: \"=x\" is not of the form NAME or NAME=FILE"),
        (
            &["--machine-provider=own", "--machine-provider=own=/a"],
            "--machine-provider: own and own=/a: a provider has one configuration",
        ),
        (
            &["--provider=own", "--machine-provider=own=/a"],
            "--machine-provider own=/a: it is the provider of --provider too; expected --machine-provider own and \
             --cloud-config /a",
        ),
        (
            &["--machine-provider=own", "--config-secret=a"],
            "--config-secret is for --provider, which is not given",
        ),
        (
            &["--machine-provider=own", "--set=machine-provider=x"],
            "--set machine-provider: use --machine-provider",
        ),
        (
            &["--machine-provider=own", "--set=controllers=*"],
            "--set controllers=*: machine-controller would not run, which --machine-provider is about; add it",
        ),
        (
            &["--provider=fake", "--only-definitions"],
            "--only-definitions needs --machines, --machine-provider or --lifecycle",
        ),
    ] {
        let faults = command(arguments).run(&providers()).expect_err("faulty");
        assert!(faults.iter().any(|found| found == fault), "{arguments:?}: {faults:?}");
    }
    let faults = command(&["--machine-provider=own=/no/such"]).run(&providers()).expect_err("no file");
    assert!(faults[0].starts_with("--machine-provider own=/no/such: the file cannot be read"), "{faults:?}");
}

#[test]
fn kinds_that_are_converted_need_the_port_for_it() {
    let (mut options, _) = command(&["--machine-provider=fake"]).options(&providers()).expect("good");
    options.arguments.push("--webhook-secure-port=0".to_owned());
    options.render().expect("nothing is converted");
    options.machines[0].types = with_older(&options.machines[0].types);
    let faults = options.render().expect_err("nothing would convert");
    assert!(faults.len() == 1 && faults[0].starts_with("--set webhook-secure-port=0: "), "{faults:?}");
}

/// A registry in which the kinds of `fake` have an older version.
fn in_two_versions() -> Registry {
    let types = providers().machines("fake").expect("it has machines");
    let mut registry = Registry::new();
    registry.register("fake", |_: &FactoryInput| Ok(FakeCloud::new().provider())).expect("free");
    registry.register_machines("fake", with_older(&types)).expect("free");
    registry
}

/// The version in which each kind is stored, if all agree.
fn stored(arguments: &[&str]) -> String {
    let (text, _) = command(arguments).run(&in_two_versions()).expect("good");
    let mut stored: Vec<String> = Vec::new();
    for object in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(object).expect("YAML");
        if object["kind"] != "CustomResourceDefinition" {
            continue;
        }
        let versions = object["spec"]["versions"].as_array().expect("versions");
        let is_the_controllers =
            object["spec"]["names"]["kind"].as_str().is_some_and(|kind| kind.starts_with("Reboot"));
        assert_eq!(versions.len(), if is_the_controllers { 1 } else { 2 });
        if is_the_controllers {
            continue;
        }
        let storing = versions.iter().filter(|version| version["storage"] == true);
        stored.extend(storing.map(|version| version["name"].as_str().unwrap_or_default().to_owned()));
    }
    assert_eq!(stored.len(), 4, "{stored:?}");
    stored.dedup();
    stored.join(" and ")
}

#[test]
fn the_stored_version_can_be_chosen() {
    for arguments in [
        &["--provider=fake", "--machines"][..],
        &["--machine-provider=fake", "--only-definitions"],
        &["--provider=fake", "--for-clusterctl"],
    ] {
        let version = in_two_versions().machines("fake").expect("machines").kinds.version;
        assert_eq!(stored(arguments), version, "{arguments:?}");
        for version in [version, "v0"] {
            let option = format!("--stored-version={version}");
            assert_eq!(stored(&[arguments, &[&option]].concat()), version, "{arguments:?}");
        }
    }
}

#[test]
fn a_version_that_cannot_be_stored_is_refused() {
    let version = in_two_versions().machines("fake").expect("machines").kinds.version;
    let unknown =
        format!("--stored-version: the kinds of fake have no version \"v7\"; expected {version} or v0");
    for (arguments, registry, fault) in [
        (&["--provider=fake", "--machines", "--stored-version=v7"][..], in_two_versions(), unknown.clone()),
        (&["--provider=fake", "--for-clusterctl", "--stored-version=v7"], in_two_versions(), unknown),
        (
            &["--provider=fake", "--stored-version=v0"],
            in_two_versions(),
            "--stored-version needs --machines, --machine-provider or --for-clusterctl".to_owned(),
        ),
        (
            &["--provider=fake", "--machines", "--stored-version=v0"],
            providers(),
            format!("--stored-version: the kinds of fake have no version \"v0\"; expected {version}"),
        ),
        (
            &["--provider=fake", "--machines", "--stored-version="],
            in_two_versions(),
            format!("--stored-version: the kinds of fake have no version \"\"; expected {version} or v0"),
        ),
    ] {
        let faults = command(arguments).run(&registry).expect_err("faulty");
        assert_eq!(faults, [fault], "{arguments:?}");
    }
}

/// With several providers, it is about those whose kinds have that version.
#[test]
fn a_version_that_one_of_two_providers_has_is_stored_there() {
    let types = providers().machines("own").expect("it has machines");
    let mut registry = in_two_versions();
    registry.register("own", |_: &FactoryInput| Ok(FakeCloud::named("own").provider())).expect("free");
    registry.register_machines("own", types).expect("free");
    let arguments = ["--machine-provider=fake", "--machine-provider=own", "--stored-version=v0"];
    let (options, _) = command(&arguments).options(&registry).expect("good");
    let stored: Vec<_> = options.machines.iter().map(|one| one.types.stored_version()).collect();
    assert_eq!(stored, ["v0", "v1"]);
    let arguments = ["--machine-provider=fake", "--machine-provider=own", "--stored-version=v7"];
    let faults = command(&arguments).options(&registry).expect_err("nobody has it");
    let version = in_two_versions().machines("fake").expect("machines").kinds.version;
    let mut versions = vec![version, "v0", "v1"];
    versions.dedup();
    let expected = format!(
        "--stored-version: the kinds of fake and own have no version \"v7\"; expected {}",
        versions.join(" or ")
    );
    assert_eq!(faults, [expected]);
}
