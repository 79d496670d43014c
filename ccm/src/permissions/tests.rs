use std::collections::BTreeSet;

use cloudprovider::machines::{ForeignVersion, Kind};

use super::*;

fn texts(args: &[&str]) -> Vec<String> {
    let flags = crate::flags::parse(["ccm", "--cloud-provider=any"].iter().chain(args));
    needed(&flags.expect("good flags")).iter().map(ToString::to_string).collect()
}

#[test]
fn nodes_are_read_for_a_cloud_provider_only() {
    let line = ["ccm", "--machine-provider=any=file", "--controllers=machine-controller"];
    let needed = needed(&crate::flags::parse(line).expect("good flags"));
    let texts: Vec<_> = needed.iter().map(ToString::to_string).collect();
    assert!(!texts.iter().any(|text| text.contains(" nodes")), "{texts:#?}");
}

fn given(args: &[&str]) -> Vec<Permission> {
    given_to_accounts(&crate::flags::parse(["ccm"].iter().chain(args)).expect("good flags"))
}

#[test]
fn only_what_the_flags_ask_for() {
    let all = texts(&[]);
    for text in [
        "list nodes",
        "patch nodes/status",
        "delete nodes",
        "list services",
        "watch services",
        "patch services/status",
        "get leases.coordination.k8s.io in kube-node-lease",
        "create events",
        "create leases.coordination.k8s.io in kube-system",
        "update leases.coordination.k8s.io \"cloud-controller-manager\" in kube-system",
        "create subjectaccessreviews.authorization.k8s.io",
        "get configmaps \"extension-apiserver-authentication\" in kube-system",
    ] {
        assert!(all.iter().any(|known| known == text), "{text} in {all:#?}");
    }
    let migrating = texts(&["--enable-leader-migration"]);
    for verb in ["get", "update", "watch"] {
        let second = format!(
            "{verb} leases.coordination.k8s.io \"cloud-provider-extraction-migration\" in kube-system"
        );
        assert!(migrating.contains(&second) && !all.contains(&second), "{migrating:#?}");
    }
    let few = texts(&["--leader-elect=false", "--secure-port=0", "--controllers=cloud-node"]);
    assert_eq!(
        few,
        ["list nodes", "watch nodes", "patch nodes", "patch nodes/status", "create events", "patch events",]
    );
    let accounts = texts(&["--use-service-account-credentials"]);
    let more: Vec<_> = accounts.iter().filter(|text| !all.contains(text)).collect();
    assert_eq!(
        more,
        [
            "get serviceaccounts \"node-controller\" in kube-system",
            "create serviceaccounts in kube-system",
            "create serviceaccounts/token \"node-controller\" in kube-system",
            "get leases.coordination.k8s.io in kube-node-lease for the service account kube-system/node-controller",
            "get serviceaccounts \"service-controller\" in kube-system",
            "create serviceaccounts/token \"service-controller\" in kube-system",
            "get serviceaccounts \"route-controller\" in kube-system",
            "create serviceaccounts/token \"route-controller\" in kube-system",
        ]
    );
    let fewer: Vec<_> = all.iter().filter(|text| !accounts.contains(text)).collect();
    assert_eq!(
        fewer,
        [
            "patch nodes",
            "patch nodes/status",
            "delete nodes",
            "get leases.coordination.k8s.io in kube-node-lease",
            "patch services/status",
        ]
    );
    let dry = texts(&["--use-service-account-credentials", "--dry-run"]);
    assert_eq!(dry, texts(&["--dry-run"]), "as itself");
    let writes: Vec<_> = dry.iter().filter(|text| !text.contains("reviews")).collect();
    assert!(
        writes.iter().all(|text| ["get ", "list ", "watch "].iter().any(|verb| text.starts_with(verb))),
        "{dry:#?}"
    );
    assert!(dry.iter().all(|text| all.contains(text)), "{dry:#?}");
    let own = "--use-service-account-credentials";
    assert_eq!(given(&[own]).len(), 11);
    assert_eq!(given(&[own, "--configure-cloud-routes=false"]).len(), 8);
    assert_eq!(given(&[own, "--controllers=cloud-node"]).len(), 4);
    assert!(given(&[]).is_empty() && given(&["--use-service-account-credentials", "--dry-run"]).is_empty());
    for asked in [all, accounts] {
        let once: BTreeSet<&String> = asked.iter().collect();
        assert_eq!(once.len(), asked.len(), "nothing is asked for twice: {asked:#?}");
    }
}

#[test]
fn what_a_provider_does_with_services() {
    let map = cloudprovider::ConfigMapName { namespace: "kube-system".into(), name: "kubevip".into() };
    let needs = ServiceAccessNeeds { claims: true, changes: true, config_maps: vec![map] };
    let texts = |needs: &ServiceAccessNeeds, args: &[&str]| -> Vec<String> {
        let flags = crate::flags::parse(["ccm"].iter().chain(args)).expect("good flags");
        needed_for_service_access(&flags, needs).iter().map(ToString::to_string).collect()
    };
    let own = texts(&needs, &[]);
    assert_eq!(
        own,
        [
            "list ipaddresses.networking.k8s.io",
            "get ipaddresses.networking.k8s.io",
            "get endpointslices.discovery.k8s.io \"kubernetes\" in default",
            "create ipaddresses.networking.k8s.io",
            "patch ipaddresses.networking.k8s.io",
            "delete ipaddresses.networking.k8s.io",
            "patch services",
            "list configmaps \"kubevip\" in kube-system",
            "watch configmaps \"kubevip\" in kube-system",
        ]
    );
    let accounts = texts(&needs, &["--use-service-account-credentials"]);
    let of_account = accounts.iter().filter(|text| text.ends_with("kube-system/service-controller"));
    assert_eq!(of_account.count(), 4, "{accounts:#?}");
    let dry = texts(&needs, &["--dry-run"]);
    assert_eq!(dry, [&own[..3], &own[7..]].concat());
    assert!(texts(&ServiceAccessNeeds::default(), &[]).is_empty());
}

#[test]
fn what_machines_need() {
    let kinds = Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));
    let texts = |args: &[&str]| -> Vec<String> {
        let flags = crate::flags::parse(["ccm"].iter().chain(args)).expect("good flags");
        let core = needed(&flags)
            .into_iter()
            .filter(|one| one.group == "cluster.x-k8s.io" || one.resource == "secrets");
        core.chain(needed_for_machines(&flags, &kinds)).map(|one| one.to_string()).collect()
    };
    assert!(texts(&[]).is_empty(), "the machine controller runs only if it is asked for");
    let core = [
        "list machines.cluster.x-k8s.io",
        "watch machines.cluster.x-k8s.io",
        "list clusters.cluster.x-k8s.io",
        "watch clusters.cluster.x-k8s.io",
        "get secrets",
    ];
    let own = [
        "list mymachines",
        "watch mymachines",
        "get mymachines",
        "patch mymachines",
        "patch mymachines/status",
        "list myclusters",
        "watch myclusters",
        "get myclusters",
        "patch myclusters",
        "patch myclusters/status",
        "list mymachinetemplates",
        "watch mymachinetemplates",
        "patch mymachinetemplates/status",
    ]
    .map(|text| format!("{text}.infrastructure.cluster.x-k8s.io"));
    let reboots = [
        "list rebootremediations.infrastructure.cluster.x-k8s.io",
        "watch rebootremediations.infrastructure.cluster.x-k8s.io",
        "patch rebootremediations/status.infrastructure.cluster.x-k8s.io",
        "get machines.cluster.x-k8s.io",
        "patch machines/status.cluster.x-k8s.io",
    ];
    let all = core.map(str::to_owned).into_iter().chain(own).chain(reboots.map(str::to_owned));
    let all: Vec<String> = all.collect();
    assert_eq!(texts(&["--controllers=*,machine-controller"]), all);
    let one = texts(&["--controllers=machine-controller", "--namespace=team-a"]);
    assert_eq!(one, all.iter().map(|text| format!("{text} in team-a")).collect::<Vec<_>>());
    let dry = texts(&["--controllers=machine-controller", "--dry-run"]);
    assert!(dry.len() == 16 && !dry.iter().any(|text| text.starts_with("patch")), "{dry:#?}");
    let account = texts(&["--controllers=machine-controller", "--use-service-account-credentials"]);
    let of_account = account.iter().filter(|text| text.ends_with("kube-system/machine-controller")).count();
    assert_eq!(of_account, all.len() + 2, "events too: {account:#?}");
}

#[test]
fn secrets_that_clusters_name_are_followed() {
    let kinds = Kinds::new("v1", Kind::new("A", "as"), Kind::new("B", "bs")).with_secrets();
    let texts = |args: &[&str]| -> Vec<String> {
        let flags = ["ccm", "--controllers=machine-controller"];
        let flags = crate::flags::parse(flags.iter().chain(args)).expect("good flags");
        let all = needed_for_machines(&flags, &kinds).into_iter();
        all.filter(|one| one.resource == "secrets").map(|one| one.to_string()).collect()
    };
    assert_eq!(texts(&[]), ["list secrets", "watch secrets"]);
    let one = [
        "list secrets in lab",
        "list secrets in kube-system",
        "watch secrets in lab",
        "watch secrets in kube-system",
    ];
    assert_eq!(texts(&["--namespace=lab"]), one);
    assert_eq!(
        texts(&["--namespace=kube-system"]),
        ["list secrets in kube-system", "watch secrets in kube-system"]
    );
    let of_daemon = texts(&["--use-service-account-credentials"]);
    assert_eq!(of_daemon, ["list secrets", "watch secrets"], "the provider has no other account");
}

#[test]
fn what_further_kinds_of_machines_need() {
    const FURTHER: &[AuxiliaryKind] = &[
        AuxiliaryKind::new("example.org", "v1", Kind::new("Pool", "pools")).cluster_scoped(),
        AuxiliaryKind::new("example.org", "v1", Kind::new("Guest", "guests")).made(),
        AuxiliaryKind::new("example.org", "v1", Kind::new("Zone", "zones"))
            .cluster_scoped()
            .status_only()
            .with_left_finalizers(&["other.example.org"]),
    ];
    let kinds = Kinds::new("v1", Kind::new("A", "as"), Kind::new("B", "bs")).with_auxiliary(FURTHER);
    let texts = |args: &[&str]| -> Vec<String> {
        let flags = ["ccm", "--controllers=machine-controller", "--namespace=team-a"];
        let flags = crate::flags::parse(flags.iter().chain(args)).expect("good flags");
        let all = needed_for_machines(&flags, &kinds).into_iter();
        all.filter(|one| one.group == "example.org").map(|one| one.to_string()).collect()
    };
    let pools = ["list", "watch"].map(|verb| format!("{verb} pools.example.org"));
    let guests = ["list", "watch", "get", "create", "patch", "delete"]
        .map(|verb| format!("{verb} guests.example.org in team-a"));
    let status = "patch guests/status.example.org in team-a".to_owned();
    let zones = ["list zones", "watch zones", "patch zones/status", "patch zones"]
        .map(|text| format!("{text}.example.org"));
    assert_eq!(texts(&[]), [&pools[..], &guests[..], &[status], &zones].concat());
    assert_eq!(texts(&["--dry-run"]), [&pools[..], &guests[..3], &zones[..2]].concat());
}

#[test]
fn what_a_webhook_needs_for_its_authority() {
    let types = MachineTypes::new(Kinds::new("v1", Kind::new("A", "as"), Kind::new("B", "bs")), || {
        unreachable!("nobody asks for the schemas")
    });
    let types = types.with_older(|| ForeignVersion::new("v0", "v1beta1", Vec::new()), |object, _| Ok(object));
    let texts = |args: &[&str]| -> BTreeSet<String> {
        let flags = ["ccm", "--controllers=machine-controller"];
        let flags = crate::flags::parse(flags.iter().chain(args)).expect("good flags");
        let all = needed_for_conversion(&flags, &types).into_iter();
        all.map(|one| format!("{} {}", one.verb, one.resource)).collect()
    };
    let set = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect::<BTreeSet<_>>();
    let definitions = ["list customresourcedefinitions", "watch customresourcedefinitions"];
    let own = [
        "patch customresourcedefinitions",
        "create secrets",
        "get secrets",
        "list secrets",
        "watch secrets",
        "update secrets",
    ];
    assert_eq!(texts(&[]), set(&[&definitions[..], &own].concat()));
    assert_eq!(
        texts(&["--webhook-cert-dir=/certificates"]),
        set(&definitions),
        "a person writes the authority"
    );
    for nowhere in ["--webhook-secure-port=0", "--dry-run"] {
        assert!(texts(&[nowhere]).is_empty());
    }
}

#[test]
fn of_secrets_those_that_are_named() {
    let name = SecretName { namespace: "vault".into(), name: "vc".into() };
    let texts: Vec<_> = needed_for_secrets(&[name]).iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["list secrets \"vc\" in vault", "watch secrets \"vc\" in vault"]);
}

fn lifecycle(args: &[&str]) -> Vec<Permission> {
    let flags = crate::flags::parse(["ccm", "--cloud-provider=any"].iter().chain(args)).expect("good flags");
    needed_for_lifecycle(&flags)
}

#[test]
fn what_lifecycle_controllers_need() {
    let texts = |args: &[&str]| lifecycle(args).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(texts(&["--controllers=*,machine-controller"]).is_empty(), "they run only if they are named");
    let core = texts(&["--controllers=lifecycle-core"]);
    for text in [
        "create machines.cluster.x-k8s.io",
        "patch machines/status.cluster.x-k8s.io",
        "update clusters/finalizers.cluster.x-k8s.io",
        "patch *.infrastructure.cluster.x-k8s.io",
        "list *.controlplane.cluster.x-k8s.io",
        "create secrets",
        "get customresourcedefinitions.apiextensions.k8s.io",
        "list coreproviders.operator.cluster.x-k8s.io",
        "update leases.coordination.k8s.io \"controller-leader-election-capi\"",
    ] {
        assert!(core.iter().any(|known| known == text), "{text} in {core:#?}");
    }
    assert!(!core.iter().any(|text| text == "delete secrets" || text.contains("bootstrapproviders")));
    let bootstrap = texts(&["--controllers=lifecycle-bootstrap"]);
    for text in [
        "create secrets",
        "patch kubeadmconfigs/status.bootstrap.cluster.x-k8s.io",
        "list bootstrapproviders.operator.cluster.x-k8s.io",
        "update leases.coordination.k8s.io \"kubeadm-bootstrap-manager-leader-election-capi\"",
    ] {
        assert!(bootstrap.iter().any(|known| known == text), "{text} in {bootstrap:#?}");
    }
    for text in
        ["infrastructure", "delete secrets", "patch secrets", "list configmaps", "customresourcedefinitions"]
    {
        assert!(!bootstrap.iter().any(|known| known.contains(text)), "{text} in {bootstrap:#?}");
    }
    let replaces = |text: &&String| text.starts_with("update ") && !text.contains("/finalizers");
    let replaces: BTreeSet<_> = core.iter().chain(&bootstrap).filter(replaces).cloned().collect();
    let leases = ["controller-leader-election-capi", "kubeadm-bootstrap-manager-leader-election-capi"];
    let leases = leases.map(|lease| format!("update leases.coordination.k8s.io \"{lease}\""));
    let of_addons = ["update *.addons.cluster.x-k8s.io".to_owned()];
    assert_eq!(replaces, leases.into_iter().chain(of_addons).collect(), "everything else is patched");
    let both: BTreeSet<_> = texts(&["--controllers=lifecycle"]).into_iter().collect();
    assert_eq!(both, core.iter().chain(&bootstrap).cloned().collect());
    assert_eq!(texts(&["--controllers=lifecycle,-lifecycle-bootstrap"]), core);
}

#[test]
fn a_dry_run_of_lifecycle_controllers_needs_nothing() {
    assert_eq!(lifecycle(&["--controllers=lifecycle", "--dry-run"]), []);
}

#[test]
fn lifecycle_controllers_of_one_namespace_reach_no_other() {
    let all = lifecycle(&["--controllers=lifecycle", "--namespace=team"]);
    let everywhere: BTreeSet<_> =
        all.iter().filter(|one| one.namespace.is_none()).map(|one| one.resource.to_string()).collect();
    let expected = [
        "bootstrapproviders",
        "coreproviders",
        "customresourcedefinitions",
        "deployments",
        "leases",
        "namespaces",
        "providers",
    ];
    assert_eq!(everywhere, expected.map(str::to_owned).into());
    assert!(all.iter().any(|one| one.to_string() == "patch secrets in team"));
}

#[test]
fn the_accounts_of_lifecycle_controllers_get_all_that_they_use() {
    let all = lifecycle(&["--controllers=lifecycle", "--use-service-account-credentials"]);
    let (leases, others): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.resource == "leases");
    assert!(leases.iter().all(|one| one.account.is_none()), "by the daemon, as its own");
    let accounts: BTreeSet<_> = others.iter().filter_map(|one| one.account.as_deref()).collect();
    assert_eq!(accounts, ["lifecycle-bootstrap", "lifecycle-core"].into());
    assert!(others.iter().all(|one| one.account.is_some()));
}
