use std::{path::Path, sync::Arc};

use clap::Parser;
use cloudprovider::{CloudProvider, ConfigProblem, Error, FactoryInput, Result, testing::FakeCloud};
use component::yaml::without_comments;
use serde_json::json;

use super::*;

mod machine_providers;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    command: ManifestsCommand,
}

fn command(arguments: &[&str]) -> ManifestsCommand {
    Line::parse_from(["manifests"].iter().chain(arguments)).command
}

/// A provider whose configuration names this Secret in the namespace `vault`, or none.
fn cloud(secret: Option<&str>) -> Arc<dyn CloudProvider> {
    let secret = secret.map(|name| SecretName { namespace: "vault".into(), name: name.to_owned() });
    FakeCloud::named("libvirt").with_secrets(secret).provider()
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    let factory = |input: &FactoryInput| -> Result<Arc<dyn CloudProvider>> {
        match input.config.as_deref() {
            Some("odd") => {
                input.warn(ConfigProblem::new("colour", "is not known"));
                Ok(cloud(None))
            }
            Some("bad") => Err(Error::invalid_configuration(vec![ConfigProblem::new("uri", "missing")])),
            // A configuration that names files. Files beside the configuration have relative names.
            Some(text) if text.starts_with("files ") => {
                let folder = input.config_path.as_deref().and_then(Path::parent).expect("a folder");
                let unreadable = |name: &&str| input.read_file(folder.join(name)).is_err();
                let missing: Vec<_> = text.split(' ').skip(1).filter(unreadable).collect();
                let problem = |name: &&str| ConfigProblem::new(*name, "cannot be read");
                match missing[..] {
                    [] => Ok(cloud(None)),
                    _ => Err(Error::invalid_configuration(missing.iter().map(problem).collect())),
                }
            }
            config => Ok(cloud(config)),
        }
    };
    registry.register("libvirt", factory).expect("free");
    registry
}

fn faults(arguments: &[&str]) -> Vec<String> {
    command(arguments).run(&registry()).expect_err("faulty")
}

#[test]
fn a_provider_has_to_be_one_that_there_is() {
    assert_eq!(
        faults(&["--provider=libvrit"]),
        ["--provider: unknown cloud provider \"libvrit\" (known: libvirt)"]
    );
}

#[test]
fn secrets_that_the_configuration_names_can_be_read() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let config = format!("--cloud-config={}", file.path().display());
    std::fs::write(file.path(), "vc").expect("written");
    let run = |arguments: &[&str]| {
        let (options, warnings) =
            command(&[&["--provider=libvirt"], arguments].concat()).options(&registry()).expect("good");
        let objects = options.render().expect("good");
        let roles = objects.iter().filter(|object| {
            object["kind"] == "Role" && object["metadata"]["name"] == "cloud-controller-manager-secrets"
        });
        let found: Vec<_> = roles
            .map(|role| {
                let names: Vec<_> = role["rules"]
                    .as_array()
                    .expect("rules")
                    .iter()
                    .map(|rule| rule["resourceNames"][0].as_str().expect("a name").to_owned())
                    .collect();
                format!("{}: {}", role["metadata"]["namespace"].as_str().expect("one"), names.join(","))
            })
            .collect();
        (found.join("; "), warnings)
    };
    assert_eq!(run(&[]), (String::new(), Vec::new()));
    assert_eq!(run(&[&config]), ("vault: vc".to_owned(), Vec::new()));
    let (found, _) = run(&[&config, "--secret=vault/b.c", "--secret=kube-system/a", "--secret=vault/vc"]);
    assert_eq!(found, "kube-system: a; vault: b.c,vc");
    std::fs::write(file.path(), "bad").expect("written");
    let found = faults(&["--provider=libvirt", &config, "--replicas=0"]);
    assert!(found[0].starts_with("--cloud-config ") && found[0].contains("uri: missing"), "{found:?}");
    std::fs::write(file.path(), "odd").expect("written");
    let (_, warnings) = run(&[&config]);
    assert!(warnings.len() == 1 && warnings[0].ends_with(": colour: is not known"), "{warnings:?}");
    std::fs::write(file.path(), b"b\0a\0d\0").expect("written");
    let found = faults(&["--provider=libvirt", &config]);
    assert!(found[0].contains("UTF-16"), "{found:?}");
    for wrong in ["vc", "a/", "/b", "A/b", "a/b/c"] {
        let found = faults(&["--provider=libvirt", "--secret", wrong]);
        assert!(found[0].starts_with("--secret: ") && found[0].contains("NAMESPACE/NAME"), "{found:?}");
    }
}

#[test]
fn files_beside_the_configuration_come_along() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("my.yaml");
    let config = format!("--cloud-config={}", path.display());
    std::fs::write(folder.path().join("password"), "hunter2").expect("written");
    std::fs::write(folder.path().join("ca.pem"), "CA").expect("written");
    std::fs::write(&path, "files password /etc/cloud-config/ca.pem /no/such/key sub/x").expect("written");
    let arguments = ["--provider=libvirt", &config];
    let (options, warnings) = command(&arguments).options(&registry()).expect("good");
    let objects = options.render().expect("good");
    let secret = objects.iter().find(|object| object["kind"] == "Secret").expect("a Secret");
    let data = secret["data"].as_object().expect("data");
    assert_eq!(data.keys().collect::<Vec<_>>(), ["ca.pem", "cloud.conf", "password"]);
    assert_eq!(data["password"], "aHVudGVyMg==");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("/no/such/key") && warnings[1].contains("/etc/cloud-config/sub/x"));
    // A file that is missing here would be missing in the pods.
    std::fs::remove_file(folder.path().join("password")).expect("removed");
    let found = faults(&arguments);
    assert!(found.len() == 1 && found[0].contains("password: cannot be read"), "{found:?}");
}

#[test]
fn flags_that_cannot_work_in_pods_are_refused() {
    for word in ["version", "version=raw"] {
        let found = faults(&["--provider=libvirt", &format!("--set={word}")]);
        assert!(found.len() == 1 && found[0].starts_with("--set version: "), "{found:?}");
    }
    let found = faults(&["--provider=libvirt", "--set=namespace=Team_A"]);
    let word = "--set: --namespace: \"Team_A\"";
    assert!(found.len() == 1 && found[0].starts_with(word), "not that of the pods: {found:?}");
    let found = faults(&["--provider=libvirt", "--set=leader-elect-resource-name=Bad_Name"]);
    let word = "--set: --leader-elect-resource-name: \"Bad_Name\" is not a name; expected";
    assert!(found.len() == 1 && found[0].starts_with(word), "{found:?}");
    let alone = ["--provider=libvirt", "--set=leader-elect=false"];
    for more in [&[][..], &["--replicas=3"]] {
        let found = faults(&[&alone[..], more].concat());
        assert!(found[0].starts_with("--set leader-elect=false: ") && found.len() == 1, "{found:?}");
    }
    let workload = |arguments: &[&str]| {
        let (options, _) = command(arguments).options(&registry()).expect("good");
        options.render().expect("good").pop().expect("a workload")
    };
    let one = workload(&[&alone[..], &["--replicas=1"]].concat());
    assert_eq!(one["spec"]["strategy"]["type"], "Recreate");
    let elected = workload(&["--provider=libvirt", "--replicas=1"]);
    assert_eq!(elected["spec"]["strategy"]["type"], "RollingUpdate");
    // A dry run writes nothing.
    workload(&[&alone[..], &["--set=dry-run=true"]].concat());

    let paths = "--set=authorization-always-allow-paths=/metrics,/readyz";
    let found = faults(&["--provider=libvirt", paths]);
    assert!(found[0].contains("always-allow-paths") && found[0].contains("needs /livez too"), "{found:?}");
    workload(&["--provider=libvirt", "--set=authorization-always-allow-paths=/metrics,/livez,/readyz"]);
    workload(&["--provider=libvirt", "--set=authorization-always-allow-paths=/*"]);
    workload(&["--provider=libvirt", paths, "--set=secure-port=0"]);
}

#[test]
fn all_faults_are_named_at_once() {
    let found = faults(&[
        "--provider=Lib",
        "--namespace=a/b",
        "--image=",
        "--config-key=a/b",
        "--replicas=0",
        "--set=cloud-config=/x",
        "--set=concurrent-node-syncs=0",
    ]);
    for option in [
        "--provider",
        "--namespace",
        "--image",
        "--config-key",
        "--replicas",
        "--set cloud-config",
        "--set: --concurrent-node-syncs",
    ] {
        assert!(found.iter().any(|fault| fault.starts_with(option)), "{option} in {found:?}");
    }
    assert!(faults(&["--provider="])[0].starts_with("--provider cannot be empty"));
    assert!(faults(&["--provider=libvirt", "--set=no-such-flag=1"])[0].contains("--no-such-flag"));
    for nameless in ["--set=", "--set=--", "--set==4"] {
        let found = faults(&["--provider=libvirt", nameless]);
        assert!(found[0].starts_with("--set: must be FLAG=VALUE"), "{found:?}");
    }
    assert!(faults(&["--provider=libvirt", "--cloud-config=/no/such"])[0].contains("/no/such"));
    for address in ["api", "api:", ":6443", "api:0", "a b:1", "api:99999"] {
        assert!(faults(&["--provider=libvirt", "--api-server", address])[0].contains("HOST:PORT"));
    }
}

#[test]
fn flags_reach_the_daemon_and_its_roles() {
    let options = command(&[
        "--provider=libvirt",
        "--set=v=4",
        "--set",
        "--leader-elect-resource-name=mine",
        "--set=leader-elect-resource-namespace=locks",
        "--api-server=[fd00::1]:6443",
    ])
    .options(&registry())
    .expect("good options")
    .0;
    let objects: Vec<_> = options.render().expect("good options").iter().map(without_comments).collect();
    let container = &objects.last().expect("objects")["spec"]["template"]["spec"]["containers"][0];
    let arguments: Vec<_> =
        container["args"].as_array().expect("a list").iter().filter_map(|a| a.as_str()).collect();
    assert_eq!(
        arguments,
        [
            "--cloud-provider=libvirt",
            "--cloud-config=/etc/cloud-config/cloud.conf",
            "--v=4",
            "--leader-elect-resource-name=mine",
            "--leader-elect-resource-namespace=locks",
        ]
    );
    assert_eq!(container["env"][0]["value"], "fd00::1");
    let role = objects
        .iter()
        .find(|object| object["kind"] == "Role" && object["metadata"]["namespace"] == "locks")
        .expect("a role where the Lease is");
    assert!(role["rules"].as_array().expect("rules").iter().any(|rule| rule["resourceNames"][0] == "mine"));
}

#[test]
fn whom_prometheus_shows_its_token_is_chosen() {
    let options = |arguments: &[&str]| {
        command(&[&["--provider=libvirt", "--service-monitor"], arguments].concat()).options(&registry())
    };
    let (alone, warnings) = options(&[]).expect("accepted");
    assert_eq!(alone.monitor_access, MonitorAccess::NoToken);
    assert!(warnings.iter().any(|warning| warning.contains("--service-monitor-ca")), "{warnings:?}");
    for (paths, is_allowed) in [
        ("/healthz,/metrics", true),
        ("healthz,metrics", true),
        ("/metric*", true),
        ("/metrics/*", false),
        ("/*", true),
        ("/metricsx", false),
    ] {
        let (_, warnings) =
            options(&[&format!("--set=authorization-always-allow-paths={paths}")]).expect("accepted");
        assert_eq!(warnings.is_empty(), is_allowed, "{paths}: {warnings:?}");
    }
    let (unverified, warnings) = options(&["--service-monitor-unverified"]).expect("accepted");
    assert_eq!((unverified.monitor_access, warnings.len()), (MonitorAccess::Unverified, 0));
    let (verified, warnings) = options(&["--service-monitor-ca=configmap/ca/ca.crt"]).expect("accepted");
    let ca = CaObject::ConfigMap { name: "ca".into(), key: "ca.crt".into() };
    assert_eq!(verified.monitor_access, MonitorAccess::Verified { ca, server_name: String::new() });
    assert!(warnings.is_empty());
    for ca in ["tls", "secret/tls", "secret//key", "pod/a/b", "secret/a/b/c"] {
        let faults = options(&[&format!("--service-monitor-ca={ca}")]).expect_err("refused");
        assert!(faults.iter().any(|fault| fault.contains("secret/NAME/KEY")), "{faults:?}");
    }
}

#[test]
fn the_network_of_the_host_is_changed_by_root_with_two_capabilities() {
    let registry = registry();
    let options = |arguments: &[&str]| {
        command(&[&["--provider=libvirt"], arguments].concat()).options(&registry).map(|(options, _)| options)
    };
    let pod = |options: &ManifestOptions| {
        let objects = options.render().expect("good options");
        let workload = objects.iter().find(|object| object["kind"] == "DaemonSet").expect("one");
        workload["spec"]["template"]["spec"].clone()
    };
    let usual = pod(&options(&[]).expect("accepted"));
    assert_eq!(usual["securityContext"]["runAsUser"], 65_532);
    assert_eq!(usual["containers"][0]["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    let admin = pod(&options(&["--host-network-admin"]).expect("accepted"));
    assert_eq!(admin["securityContext"]["runAsUser"], 0);
    assert_eq!(admin["hostNetwork"], true);
    assert_eq!(
        admin["containers"][0]["securityContext"]["capabilities"],
        json!({"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]})
    );
}

/// A registry with a provider that has machines, and one without.
fn with_machines() -> Registry {
    fn schemas() -> cloudprovider::machines::Schemas {
        let provider = FakeCloud::new().with_machines().provider();
        provider.machines().expect("machines").schemas()
    }
    let provider = FakeCloud::new().with_machines().provider();
    let kinds = provider.machines().expect("machines").kinds();
    let mut registry = registry();
    registry.register("fake", |_: &FactoryInput| Ok(FakeCloud::new().provider())).expect("free");
    registry.register_machines("fake", cloudprovider::MachineTypes::new(kinds, schemas)).expect("free");
    registry
}

#[test]
fn machines_bring_their_kinds_and_permissions() {
    let rendered = |more: &[&str]| {
        let arguments: Vec<&str> =
            ["--provider=fake", "--no-cloud-config"].iter().chain(more).copied().collect();
        command(&arguments).run(&with_machines()).expect("good options").0
    };
    let names = |text: &str| -> Vec<String> {
        let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
        let read = |document: &str| serde_saphyr::from_str::<serde_json::Value>(document).expect("YAML");
        let name =
            |one: serde_json::Value| format!("{} {}", one["kind"], one["metadata"]["name"]).replace('"', "");
        documents.map(read).map(name).collect()
    };
    let definitions = names(&rendered(&["--machines", "--only-definitions"]));
    assert_eq!(
        definitions[..4],
        ["fakemachines", "fakemachinetemplates", "fakeclusters", "fakeclustertemplates"]
            .map(|plural| format!("CustomResourceDefinition {plural}.infrastructure.cluster.x-k8s.io"))
    );
    assert_eq!(
        definitions[6..],
        ["rebootremediations", "rebootremediationtemplates"]
            .map(|plural| format!("CustomResourceDefinition {plural}.infrastructure.cluster.x-k8s.io")),
        "{definitions:?}"
    );
    let all = rendered(&["--machines"]);
    assert!(names(&all).starts_with(&definitions), "the kinds come first");
    let roles = "ClusterRole cloud-controller-manager-machines".to_owned();
    assert!(names(&all).contains(&roles) && all.contains("--controllers=*,machine-controller"), "{all}");
    assert!(!names(&rendered(&[])).contains(&roles));
    let alone = rendered(&["--machines", "--set=controllers=machine-controller", "--set=namespace=team-a"]);
    assert!(
        names(&alone).contains(&"Role cloud-controller-manager-machines".to_owned()),
        "{:?}",
        names(&alone)
    );
    assert!(alone.contains("--controllers=machine-controller") && !alone.contains("*,machine-controller"));
    let faults =
        command(&["--provider=libvirt", "--machines"]).run(&with_machines()).expect_err("no machines");
    assert_eq!(faults, ["--machines: cloud provider \"libvirt\" has no machines"]);
}

#[test]
fn the_machine_controller_runs_where_its_kinds_and_permissions_are() {
    for (options, words) in [
        (&["--set=controllers=*,machine-controller"][..], "machine-controller needs --machines"),
        (
            &["--machines", "--set=controllers=*"],
            "machine-controller would not run, which --machines is about",
        ),
        (
            &["--for-clusterctl", "--set=controllers=*,-machine-controller"],
            "machine-controller would not run, which --for-clusterctl is about",
        ),
    ] {
        let all = [&["--provider=fake"], options].concat();
        let faults = command(&all).run(&with_machines()).expect_err("a contradiction");
        assert!(faults.len() == 1 && faults[0].contains(words), "{faults:?}");
    }
}

#[test]
fn clusterctl_gets_its_components() {
    let run =
        |arguments: &[&str]| command(&[arguments, &["--for-clusterctl"]].concat()).run(&with_machines());
    let (text, warnings) =
        run(&["--provider=fake", "--image=ghcr.io/me/ccm:1", "--set=v=4"]).expect("good options");
    for words in ["kind: Namespace", "name: manager", "ghcr.io/me/ccm:1", "--v=4", "${FAKE_CONFIG_B64}"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    assert!(warnings.is_empty(), "{warnings:?}");
    let faults = run(&["--provider=libvirt"]).expect_err("no machines");
    assert_eq!(faults, ["--for-clusterctl: cloud provider \"libvirt\" has no machines"]);
    let (core, _) = run(&["--lifecycle", "--set=v=4"]).expect("good options");
    for words in ["cluster.x-k8s.io/provider: cluster-api", "namespace: capi-system", "--v=4"] {
        assert!(core.contains(words), "{words} is not in {core}");
    }
    let (bootstrap, _) =
        run(&["--lifecycle", "--set=controllers=lifecycle-bootstrap"]).expect("good options");
    for words in [
        "cluster.x-k8s.io/provider: bootstrap-kubeadm",
        "namespace: capi-kubeadm-bootstrap-system",
        "name: kubeadmconfigs.bootstrap.cluster.x-k8s.io",
    ] {
        assert!(bootstrap.contains(words), "{words} is not in {bootstrap}");
    }
    assert!(!bootstrap.contains("machinedeployments.cluster.x-k8s.io"), "{bootstrap}");
    let (core, _) = run(&["--lifecycle", "--set=controllers=lifecycle-core"]).expect("good options");
    assert!(core.contains("cluster.x-k8s.io/provider: cluster-api") && !core.contains("kubeadmconfigs."));
    let faults = run(&["--lifecycle", "--set=controllers=lifecycle-bootstrap,*"]).expect_err("several");
    assert!(faults[0].contains("expected lifecycle, or one of lifecycle-core and"), "{faults:?}");
    let faults = run(&["--lifecycle", "--provider=fake"]).expect_err("two providers");
    assert!(faults[0].contains("each provider by itself"), "{faults:?}");
    let faults = run(&["--provider=fak"]).expect_err("unknown");
    assert!(faults[0].starts_with("--provider: unknown cloud provider \"fak\""), "{faults:?}");
}

#[test]
fn the_lifecycle_runs_alone_or_beside_others_with_its_permissions() {
    let rendered = |arguments: &[&str]| {
        let (yaml, _) = command(arguments).run(&registry()).unwrap_or_else(|faults| panic!("{faults:?}"));
        yaml
    };
    let alone = rendered(&["--lifecycle"]);
    assert!(alone.contains("[--controllers=lifecycle]") && !alone.contains("--cloud-provider"), "{alone}");
    assert!(!alone.contains("resources: [nodes]"), "no Nodes are read without a provider");
    for text in [
        "resources: [machinedeployments]",
        "resources: [kubeadmconfigs]",
        "resourceNames: [controller-leader-election-capi]",
        "cluster.x-k8s.io/aggregate-to-manager:",
    ] {
        assert!(alone.contains(text), "{text} in {alone}");
    }
    let beside = rendered(&["--provider=libvirt", "--lifecycle"]);
    assert!(
        beside.contains("--controllers=*,lifecycle") && beside.contains("resources: [nodes]"),
        "{beside}"
    );
    let bootstrap = rendered(&["--lifecycle", "--set=controllers=lifecycle-bootstrap"]);
    assert!(!bootstrap.contains("aggregate-to-manager") && !bootstrap.contains("[machinedeployments]"));
    let kinds = |arguments: &[&str]| {
        let yaml = rendered(&[&["--lifecycle"], arguments].concat());
        let is_name = |line: &&str| line.starts_with("  name: ") && line.ends_with(".cluster.x-k8s.io");
        let names = yaml.lines().filter(is_name).map(|line| line.trim_start_matches("  name: ").to_owned());
        names.collect::<Vec<_>>()
    };
    let all = kinds(&["--only-definitions"]);
    assert_eq!(all.len(), 11, "{all:?}");
    assert!(all.iter().any(|name| name == "machinedeployments.cluster.x-k8s.io"), "{all:?}");
    assert_eq!(kinds(&[]), all, "with everything else as well");
    assert_eq!(
        kinds(&["--set=controllers=lifecycle-bootstrap"]),
        ["kubeadmconfigs.bootstrap.cluster.x-k8s.io", "kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io"]
    );
    let one = rendered(&["--lifecycle", "--set=namespace=team"]);
    assert!(one.contains("kind: RoleBinding") && one.contains("namespace: team"), "{one}");
    assert!(!rendered(&["--provider=libvirt"]).contains("cluster.x-k8s.io"), "only if it is asked for");
    assert_eq!(
        faults(&["--lifecycle", "--provider=libvirt", "--set=controllers=*"]),
        ["--set controllers=*: lifecycle would not run, which --lifecycle is about; add it, or one of \
             lifecycle-core and lifecycle-bootstrap"]
    );
}
