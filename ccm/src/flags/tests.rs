mod leader_election;
mod leader_migration;
mod shown;
mod version;

use std::{net::IpAddr, time::Duration};

use clap::Command;

use super::*;

fn flags(args: &[&str]) -> Flags {
    parse(["ccm"].iter().chain(args)).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

fn refused(args: &[&str]) -> Vec<String> {
    match parse(["ccm"].iter().chain(args)) {
        Err(CommandLineError::Faults(faults)) => faults,
        other => panic!("{args:?} is not refused: {other:?}"),
    }
}

#[test]
fn the_command_line_is_consistent() {
    pflag::finished(Flags::augment_args(Command::new("ccm"))).debug_assert();
}

#[test]
fn upstreams_spellings() {
    let flags = flags(&[
        "--cloud_provider=libvirt",
        "--node_monitor_period",
        "1m30s",
        "-v=4",
        "--cloud-provider=a_b",
        "--kube-api-qps=5.5",
        "--bind-address",
        "::1",
        "--secure-port=0x10",
        "--concurrent-node-syncs",
        "-3",
        "--cloud-config=",
        "",
        "--",
    ]);
    assert_eq!(flags.generic.cloud_provider, "a_b", "the last one wins, values are left alone");
    assert_eq!(flags.controllers.cloud_node_lifecycle.node_monitor_period, Duration::from_secs(90));
    assert_eq!(flags.global.v, 4);
    assert_eq!(flags.generic.request_limit(), Some((5.5, 30)));
    assert_eq!(flags.secure_serving.bind_address, "::1".parse::<IpAddr>().expect("an address"));
    assert_eq!(flags.secure_serving.port(), Some(16));
    assert_eq!(flags.controllers.cloud_node.concurrent_node_syncs, -3, "a value may begin with a hyphen");
    assert_eq!(flags.generic.cloud_config, None);
    assert!(flags.is_given("cloud-config") && !flags.is_given("kubeconfig"));
}

#[test]
fn verbosity_in_all_of_its_spellings() {
    for args in [&["-v", "4"][..], &["-v=4"], &["-v4"], &["--v=4"], &["--v", "4"], &["-v=9", "-v4"]] {
        assert_eq!(flags(args).global.v, 4, "{args:?}");
    }
}

#[test]
fn booleans_as_in_go() {
    for (args, expected) in [
        (&["--dry-run"][..], true),
        (&["--dry_run=T"], true),
        (&["--dry-run", "--dry-run=0"], false),
        (&["--dry-run=false", "--dry-run"], true),
    ] {
        assert_eq!(flags(args).misc.dry_run, expected, "{args:?}");
    }
}

#[test]
fn lists_replace_their_default_once_and_then_grow() {
    let paths = |args: &[&str]| flags(args).authorization.always_allow_paths;
    assert_eq!(paths(&[]), ["/healthz", "/readyz", "/livez"]);
    assert_eq!(
        paths(&["--authorization-always-allow-paths=/a,/b", "--authorization-always-allow-paths", "/c"]),
        ["/a", "/b", "/c"]
    );
    assert!(paths(&["--authorization-always-allow-paths="]).is_empty());
    assert_eq!(
        paths(&["--authorization-always-allow-paths=", "--authorization-always-allow-paths=/c"]),
        ["/c"]
    );
    let flags = flags(&[
        "--tls-sni-cert-key=a.crt,a.key",
        "--tls-sni-cert-key=b.crt,b.key:b",
        "--feature-gates=WatchList=false,AllAlpha=true",
        "--feature-gates=WatchList=true",
        "--vmodule=a=1",
        "--vmodule=b=2",
        "--node-labels=a=1,b=2",
        "--node-labels=c=",
        "--tls-curve-preferences=23,24",
        "--tls-curve-preferences=29",
        "--requestheader-uid-headers=\"a,b\"",
    ]);
    assert_eq!(flags.secure_serving.tls_sni_cert_key.len(), 2);
    assert!(flags.generic.feature_gates.enabled("WatchList"));
    assert!(flags.generic.feature_gates.enabled("LoggingAlphaOptions"));
    assert_eq!(flags.global.vmodule.len(), 2);
    assert_eq!(flags.controllers.cloud_node.node_labels.0.len(), 3);
    assert_eq!(flags.secure_serving.curves(), [23, 24, 29]);
    assert_eq!(flags.authentication.requestheader_uid_headers, ["a,b"]);
}

#[test]
fn what_is_no_flag_is_refused_in_pflags_words() {
    for (args, fault) in [
        (&["--nope"][..], "unknown flag: --nope"),
        (&["--leader-elct=true"], "unknown flag: --leader-elct (did you mean --leader-elect?)"),
        (&["foo"], "\"cloud-controller-manager\" does not take any arguments, got [\"foo\"]"),
        (&["--", "--v=4"], "\"cloud-controller-manager\" does not take any arguments, got [\"--v=4\"]"),
        (
            &["--leader-elect", "false"],
            "\"cloud-controller-manager\" does not take any arguments, got [\"false\"] (the value of a boolean flag stands behind '=': --leader-elect=false)",
        ),
        (&["--controllers"], "flag needs an argument: --controllers"),
        (&["-v"], "flag needs an argument: 'v' in -v"),
        (&["-x"], "unknown shorthand flag: 'x' in -x"),
        (&["-kubeconfig=x"], "unknown shorthand flag: 'k' in -kubeconfig=x (did you mean --kubeconfig?)"),
        (&["--=x"], "bad flag syntax: --=x"),
        (&["---v"], "bad flag syntax: ---v"),
        (
            &["--kube-api-burst=x"],
            "invalid argument \"x\" for \"--kube-api-burst\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
        (
            &["-version"],
            "invalid argument \"ersion\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"ersion\": invalid syntax",
        ),
        (
            &["--profiling=maybe"],
            "invalid argument \"maybe\" for \"--profiling\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax (expected true or false)",
        ),
        (
            &["--feature-gates=Foo=true"],
            "invalid argument \"Foo=true\" for \"--feature-gates\" flag: unrecognized feature gate: Foo",
        ),
        (
            &["--node-deletion-breaker-percent=101"],
            "invalid argument \"101\" for \"--node-deletion-breaker-percent\" flag: must be a whole number from 0 to 100",
        ),
        (
            &["--node-deletion-breaker-percent=half"],
            "invalid argument \"half\" for \"--node-deletion-breaker-percent\" flag: must be a whole number from 0 to 100",
        ),
        (
            &["--node-cidr-mask-size-ipv4=33"],
            "invalid argument \"33\" for \"--node-cidr-mask-size-ipv4\" flag: must be a whole number from 0 to 32",
        ),
        (
            &["--node-cidr-mask-size-ipv6=129"],
            "invalid argument \"129\" for \"--node-cidr-mask-size-ipv6\" flag: must be a whole number from 0 to 128",
        ),
        (
            &["--node-deletion-breaker-count=-1"],
            "invalid argument \"-1\" for \"--node-deletion-breaker-count\" flag: must be a whole number of 0 or more",
        ),
    ] {
        assert_eq!(refused(args), [fault], "{args:?}");
    }
}

#[test]
fn every_wrong_argument_is_named() {
    assert_eq!(refused(&["--nope", "foo", "-x", "--v"]).len(), 4);
    assert_eq!(refused(&["--v=x", "--secure-port=y", "--bind-address=z", "--v=4"]).len(), 3);
}

#[test]
fn help_is_no_fault() {
    for args in [&["--help"][..], &["-h"], &["--nope", "--help"]] {
        assert!(matches!(parse(["ccm"].iter().chain(args)), Err(CommandLineError::Help(_))), "{args:?}");
    }
}

#[test]
fn all_faults_at_once() {
    let faults = flags(&[
        "--concurrent-node-syncs=0",
        "--concurrent-node-lifecycle-syncs=0",
        "--controllers=*,-nope",
        "--node-monitor-period=0s",
        "--secure-port=70000",
        "--webhooks=a",
        "--tls-cipher-suites=FOO",
        "--tls-min-version=1.2",
        "--logging-format=xml",
        "--log-text-split-stream",
        "--requestheader-username-headers=,",
        "--tls-cert-file=a",
    ])
    .faults();
    for expected in [
        "--cloud-provider cannot be empty",
        "--concurrent-node-syncs must be a positive number, but is 0",
        "--concurrent-node-lifecycle-syncs must be at least 1, but got 0",
        "--node-monitor-period must be greater than 0",
        "\"nope\" is not in the list of known controllers",
        "--secure-port 70000 must be between 0 and 65535, inclusive. 0 for turning off secure port",
        "\"a\" is not in the list of known webhooks",
        "Cipher suite FOO not supported or doesn't exist",
        "unknown tls version \"1.2\"",
        "format: Invalid value: \"xml\": Unsupported log format",
        "options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
        "empty value in \"requestheader-username-headers\"",
        "--tls-cert-file and --tls-private-key-file must be given together",
    ] {
        assert!(faults.iter().any(|fault| fault.starts_with(expected)), "{expected} in {faults:#?}");
    }
    assert_eq!(faults.len(), 13, "{faults:#?}");
    let same_port = flags(&["--cloud-provider=x", "--webhook-secure-port=10258"]).faults();
    assert_eq!(same_port, ["--webhook-secure-port cannot be the same value as --secure-port"]);
}

#[test]
fn controllers_by_name_alias_and_star() {
    for (list, node, lifecycle) in [
        ("*", true, true),
        ("", false, false),
        ("*,-cloud-node", false, true),
        ("-cloud-node-controller,*", false, true),
        ("cloud-node-lifecycle", false, true),
        ("cloud-node,-cloud-node", true, false),
    ] {
        let flags = flags(&["--cloud-provider=x", &format!("--controllers={list}")]);
        assert_eq!(flags.faults(), Vec::<String>::new(), "{list}");
        assert_eq!(flags.enables(NODE_CONTROLLER), node, "{list}");
        assert_eq!(flags.enables(NODE_LIFECYCLE_CONTROLLER), lifecycle, "{list}");
    }
}

#[test]
fn no_limit_unless_asked_for() {
    let limit = |args: &[&str]| flags(args).generic.request_limit();
    assert_eq!(limit(&[]), None);
    assert_eq!(limit(&["--kube-api-burst=7"]), Some((20.0, 7)));
    assert_eq!(limit(&["--kube-api-qps=-1"]), None);
    assert_eq!(limit(&["--kube-api-qps=0"]), Some((5.0, 30)));
    assert_eq!(limit(&["--kube-api-burst=0"]), Some((20.0, 10)));
    assert_eq!(flags(&["--cloud-provider=x", "--kube-api-qps=1e-300"]).faults().len(), 1);
}

#[test]
fn the_resync_period_may_be_negative() {
    let flags = flags(&["--cloud-provider=x", "--min-resync-period=-1s"]);
    assert_eq!(flags.faults(), Vec::<String>::new());
    assert!(flags.warnings()[0].starts_with("--min-resync-period has no effect here"));
}

#[test]
fn one_warning_for_what_has_no_effect() {
    assert_eq!(flags(&[]).warnings(), Vec::<String>::new());
    for (args, beginning) in [
        (
            &["--contention-profiling", "--contention-profiling=true"][..],
            "--contention-profiling has no effect here",
        ),
        (
            &["--kube-api-content-type=application/yaml"],
            "--kube-api-content-type=application/yaml: not spoken here, so it is application/json",
        ),
        (
            &["--concurrent-node-status-updates=0", "--concurrent-node-status-updates=4"],
            "--concurrent-node-status-updates has no effect here",
        ),
        (&["--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA"], "--tls-cipher-suites: not offered here"),
        (&["--tls-curve-preferences=25,29"], "--tls-curve-preferences: not offered here: 25"),
        (
            &["--tls-curve-preferences=4588"],
            "--tls-curve-preferences: not offered here: 4588; 29, 23 and 24 are offered",
        ),
        (&["--tls-min-version=VersionTLS10"], "--tls-min-version=VersionTLS10: TLS 1.2 is the oldest"),
        (
            &["--node-sync-period=5s"],
            "Flag --node-sync-period has been deprecated, This flag is currently no-op and will be deleted.",
        ),
        (
            &["--feature-gates=DeclarativeValidation=true"],
            "setting GA feature gate DeclarativeValidation=true",
        ),
        (
            &["--controllers=*,-cloud-node,-cloud-node-lifecycle,-service,-route"],
            "--controllers: no controller runs",
        ),
        (&["--controllers="], "--controllers: no controller runs"),
        (
            &[
                "--route-reconciliation-period=10s",
                "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true",
            ],
            "--route-reconciliation-period has no effect with the feature gate",
        ),
        (
            &["--requestheader-username-headers=x"],
            "--requestheader-username-headers is set without specifying the standard X-Remote-User header",
        ),
    ] {
        let warnings = flags(args).warnings();
        assert_eq!(warnings.len(), 1, "{args:?}: {warnings:?}");
        assert!(warnings[0].starts_with(beginning), "{args:?}: {warnings:?}");
    }
    for args in [
        &["--webhook-secure-port=0"][..],
        &["--contention-profiling=false"],
        &["--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16"],
        &["--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true"],
        &["--configure-cloud-routes=false"],
        &["--concurrent-service-syncs=5", "--route-reconciliation-period=1m"],
        &["--kube-api-content-type=application/json"],
        &["--kube-api-content-type=application/vnd.kubernetes.protobuf"],
    ] {
        assert_eq!(flags(args).warnings(), Vec::<String>::new(), "{args:?}");
    }
}

#[test]
fn additional_labels_of_others_are_replaced_with_upstreams_gate() {
    for (args, expected) in [
        (&[][..], false),
        (&["--feature-gates=CloudNodeAdditionalLabelsReconciliation=true"], true),
        (&["--feature-gates=AllAlpha=true"], true),
    ] {
        assert_eq!(flags(args).generic.has_additional_labels_reconciled(), expected, "{args:?}");
    }
}

#[test]
fn the_period_of_routes_is_upstreams_where_it_is_given() {
    let gate = "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true";
    for (args, seconds) in [
        (&[][..], 300),
        (&["--route-reconciliation-period=10s"], 10),
        (&[gate], 300),
        (&["--route-reconciliation-period=10s", gate], 300),
    ] {
        assert_eq!(flags(args).generic.route_period().as_secs(), seconds, "{args:?}");
    }
    assert_eq!(
        flags(&["--cloud-provider=a", "--route-reconciliation-period=0s"]).faults(),
        ["--route-reconciliation-period must be greater than 0"]
    );
}

#[test]
fn two_flags_switch_the_route_controller_off() {
    for (args, off) in [
        (&[][..], None),
        (&["--controllers=cloud-node"], Some("--controllers")),
        (&["--configure-cloud-routes=false"], Some("--configure-cloud-routes=false")),
        (&["--configure-cloud-routes=false", "--controllers=-route"], Some("--controllers")),
    ] {
        assert_eq!(flags(args).switched_off_by(ROUTE_CONTROLLER), off, "{args:?}");
        assert_eq!(flags(args).enables(ROUTE_CONTROLLER), off.is_none(), "{args:?}");
    }
    assert!(flags(&["--configure-cloud-routes=false"]).enables(NODE_CONTROLLER));
}

#[test]
fn the_reported_version_can_be_another_one() {
    let own = format!("v{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(flags(&[]).version(), own);
    assert_eq!(flags(&[&format!("--version={own}-x")]).version(), format!("{own}-x"));
}

#[test]
fn labels_of_the_command_line_must_be_labels() {
    let faults =
        flags(&["--cloud-provider=a", "--node-labels=a b=1,example.com/x=y z,/=,ok.example.com/a="]).faults();
    assert_eq!(
        faults,
        [
            "invalid --node-labels key \"/\": the part of its key before the / is not a DNS subdomain",
            "invalid --node-labels key \"a b\": its key is not a valid label key",
            "invalid --node-labels value \"y z\" of \"example.com/x\": it holds something else than letters, digits, \
             '-', '_' and '.'",
        ]
    );
    let refused = refused(&["--node-labels=a"]);
    assert_eq!(
        refused,
        ["invalid argument \"a\" for \"--node-labels\" flag: a must be formatted as key=value"]
    );
}

#[test]
fn parts_of_the_lifecycle_by_name_and_together() {
    for (list, core, bootstrap) in [
        ("*", false, false),
        ("lifecycle", true, true),
        ("*,lifecycle", true, true),
        ("lifecycle-core", true, false),
        ("lifecycle,-lifecycle-bootstrap", true, false),
        ("-lifecycle-bootstrap,lifecycle", true, false),
        ("-lifecycle,lifecycle-bootstrap", false, true),
        ("*,-lifecycle", false, false),
    ] {
        let flags = flags(&["--cloud-provider=x", &format!("--controllers={list}")]);
        assert_eq!(flags.faults(), [""; 0], "{list}");
        let found = (flags.enables(LIFECYCLE_CORE), flags.enables(LIFECYCLE_BOOTSTRAP));
        assert_eq!(found, (core, bootstrap), "{list}");
    }
}

#[test]
fn the_lifecycle_alone_needs_no_provider() {
    let alone = flags(&["--controllers=lifecycle"]);
    assert_eq!(alone.faults(), [""; 0]);
    assert!(alone.warnings().is_empty(), "{:?}", alone.warnings());
    let with_all = flags(&["--controllers=*,lifecycle-core"]);
    assert_eq!(with_all.faults(), [""; 0]);
    assert_eq!(with_all.switched_off_by(NODE_CONTROLLER), Some("--cloud-provider, which is not given"));
    for (args, fault) in [
        (
            &["--controllers=lifecycle,cloud-node"][..],
            "--controllers: cloud-node-controller needs --cloud-provider",
        ),
        (
            &["--controllers=lifecycle,machine-controller"],
            "--controllers: machine-controller needs --cloud-provider or --machine-provider",
        ),
        (
            &["--controllers=lifecycle", "--cloud-config=/a"],
            "--cloud-config /a: it is for --cloud-provider, which is not given",
        ),
    ] {
        assert_eq!(flags(args).faults(), [fault], "{args:?}");
    }
    let with_machines = flags(&["--controllers=lifecycle", "--machine-provider=libvirt"]);
    assert_eq!(with_machines.faults(), [""; 0]);
    assert!(!with_machines.enables(MACHINE_CONTROLLER));
}

#[test]
fn faults_of_the_lifecycle_flags_name_the_flag() {
    let faults = flags(&[
        "--controllers=lifecycle",
        "--additional-sync-machine-labels=(,a",
        "--additional-sync-machine-annotations=[",
        "--bootstrap-token-ttl=1s",
        "--workload-cluster-cidrs=10.0.0.1,10.0.0.0/8",
    ])
    .faults();
    let names: Vec<_> =
        faults.iter().map(|fault| fault.split([':', ' ']).next().unwrap_or_default()).collect();
    assert_eq!(
        names,
        [
            "--additional-sync-machine-labels",
            "--additional-sync-machine-annotations",
            "--workload-cluster-cidrs",
            "--bootstrap-token-ttl",
        ]
    );
}
