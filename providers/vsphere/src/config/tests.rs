//! Tests of the configuration as a whole.

use std::path::Path;

use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::{
    keys::{KEYS, Key, Kind, Section},
    settings::{Settings, Value},
    *,
};

fn parse(text: &str) -> Config {
    Config::parse(text, &Environment::default()).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// The faults as `key: message`.
fn problems(text: &str) -> Vec<String> {
    problems_in(text, &[])
}

fn problems_in(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    match Config::parse(text, &environment.iter().copied().collect()) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(error) => error.problems().iter().map(ToString::to_string).collect(),
    }
}

fn warnings(text: &str) -> Vec<String> {
    parse(text).warnings().iter().map(ToString::to_string).collect()
}

/// A value for a key in each format, and what it is read as.
fn sample(key: &Key) -> (String, String, Value) {
    let text = |text: &str| Value::Text(text.to_owned());
    let list = |items: &[&str]| Value::List(items.iter().map(|item| (*item).to_owned()).collect());
    match (key.kind, key.name) {
        (Kind::Flag, _) => ("true".into(), "yes".into(), Value::Flag(true)),
        (Kind::Number, _) => ("8443".into(), "8443".into(), Value::Number(8443)),
        (Kind::List, "ipFamily") => ("[ipv6, ipv4]".into(), "ipv6, ipv4".into(), list(&["ipv6", "ipv4"])),
        (Kind::List, _) => (
            "[DC0, 'Datacenter:dc-2']".into(),
            "DC0,Datacenter:dc-2".into(),
            list(&["DC0", "Datacenter:dc-2"]),
        ),
        (Kind::Commas, _) => {
            ("10.0.0.0/8, fd00::/8".into(), "10.0.0.0/8,fd00::/8".into(), list(&["10.0.0.0/8", "fd00::/8"]))
        }
        (Kind::Tags, _) => (
            "{a: b, c: '1'}".into(),
            r#""{\"a\":\"b\",\"c\":\"1\"}""#.into(),
            Value::Tags([("a", "b"), ("c", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()),
        ),
        (Kind::Text | Kind::Secret, name) => {
            (format!("'{name} #1'"), format!("\"{name} #1\""), text(&format!("{name} #1")))
        }
    }
}

#[test]
fn every_key_is_read_alike_from_both_formats_and_the_environment() {
    for key in KEYS {
        let (yaml, ini, expected) = sample(key);
        let name = if key.section.is_named() { "x.y" } else { "" };
        let yaml = if key.section.is_named() {
            format!("{}:\n  x.y:\n    {}: {yaml}\n", key.section.yaml(), key.name)
        } else {
            format!("{}:\n  {}: {yaml}\n", key.section.yaml(), key.name)
        };
        let header = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let ini_text = format!("[{}{header}]\n{} = {ini}\n", key.section.ini(), key.ini);
        let shouted =
            format!("[{}{header}]\n{} = {ini}\n", key.section.ini().to_uppercase(), key.ini.to_uppercase());
        let read = |settings: Settings, findings: Findings| {
            assert!(findings.problems.is_empty() && findings.warnings.is_empty(), "{findings:?}");
            settings.get(key.section, name, key.name).unwrap_or_else(|| panic!("{key:?}")).value.clone()
        };
        let mut findings = Findings::default();
        let settings = read_yaml::read(&yaml, &mut findings);
        assert!(read(settings, findings) == expected, "{yaml}");
        for text in [&ini_text, &shouted] {
            let mut findings = Findings::default();
            let settings = read_ini::read(text, &mut findings);
            assert!(read(settings, findings) == expected, "{text}");
        }
        if !key.env.is_empty() {
            let raw = match &expected {
                Value::Text(text) => text.clone(),
                Value::Flag(_) => "1".to_owned(),
                Value::Number(number) => number.to_string(),
                Value::List(items) => items.join(","),
                Value::Tags(_) => panic!("no variable holds tags"),
            };
            let variables = match key.section {
                Section::VCenter => {
                    vec![
                        ("VSPHERE_VCENTER_a".to_owned(), name.to_owned()),
                        (format!("VCENTER_a_{}", key.env), raw),
                    ]
                }
                _ => vec![(key.env.to_owned(), raw)],
            };
            let environment: Environment = variables.into_iter().collect();
            let (mut settings, mut findings) = (Settings::default(), Findings::default());
            environment.apply(&mut settings, &mut findings);
            assert!(read(settings, findings) == expected, "{}", key.env);
        }
    }
}

const FULL_YAML: &str = r#"
apiVersion: v1
kind: Config
global:
  port: 8443
  user: admin
  password: 007
  datacenters: [DC0, DC1]
  caFile: /etc/ca.pem:/etc/more.pem
  ipFamily: [ipv6]
vcenter:
  a:
    server: vc1.example.org
    insecureFlag: true
  b:
    server: fd00::1
    user: other
    password: "p # p"
    port: 443
    datacenters:
      - "Datacenter:datacenter-3"
    thumbprint: AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA
    ipFamily: [ipv4, ipv6]
    secretName: vc-b
    secretNamespace: kube-system
labels:
  zone: k8s-zone
  region: k8s-region
nodes:
  internalNetworkSubnetCidr: 10.0.0.1/8,fd00::/8
  externalNetworkSubnetCidr: 192.0.2.0/24
  internalVmNetworkName: VM Network
  externalVmNetworkName: Public
  excludeInternalNetworkSubnetCidr: 10.9.0.0/16
  excludeExternalNetworkSubnetCidr: 192.0.2.1/32
"#;

const FULL_INI: &str = r#"
; the same in the other format
[Global]
port = 8443
user = admin
password = 007
datacenters = DC0, DC1
ca-file = /etc/ca.pem:/etc/more.pem
ip-family = ipv6

[VirtualCenter "a"]
server = vc1.example.org
insecure-flag

[VirtualCenter "b"]
server = fd00::1
user = other
password = "p # p"
port = 443
datacenters = Datacenter:datacenter-3
thumbprint = AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA
ip-family = ipv4,ipv6
secret-name = vc-b
secret-namespace = kube-system

[Labels]
zone = k8s-zone
region = k8s-region

[Nodes]
internal-network-subnet-cidr = 10.0.0.1/8,fd00::/8
external-network-subnet-cidr = 192.0.2.0/24
internal-vm-network-name = VM Network
external-vm-network-name = Public
exclude-internal-network-subnet-cidr = 10.9.0.0/16
exclude-external-network-subnet-cidr = 192.0.2.1/32
"#;

#[test]
fn a_full_configuration_means_the_same_in_both_formats() {
    for text in [FULL_YAML, FULL_INI] {
        let config = parse(text);
        assert_eq!(config.warnings(), []);
        let [a, b] = config.vcenters.as_slice() else { panic!("two") };
        assert_eq!((a.reference.as_str(), a.server.as_str()), ("a", "vc1.example.org"));
        assert_eq!(
            (a.endpoint.host.as_str(), a.endpoint.port, a.endpoint.insecure),
            ("vc1.example.org", 8443, true)
        );
        assert_eq!(a.datacenters, ["DC0", "DC1"]);
        assert_eq!(a.endpoint.ca_files, [Path::new("/etc/ca.pem"), Path::new("/etc/more.pem")]);
        assert_eq!(a.families, [Family::Ipv6]);
        assert_eq!(a.credentials.secret, None);
        let (user, password) = a.credentials.inline.as_ref().expect("inline");
        assert_eq!((user.as_str(), password.expose_secret()), ("admin", "007"));
        assert_eq!(b.endpoint.authority(), "[fd00::1]:443");
        assert!(b.endpoint.thumbprint.is_some() && !b.endpoint.insecure);
        assert_eq!(b.datacenters, ["Datacenter:datacenter-3"]);
        assert_eq!(b.families, [Family::Ipv4, Family::Ipv6]);
        let name = SecretName { namespace: "kube-system".into(), name: "vc-b".into() };
        assert_eq!(b.credentials.secret, Some(SecretPlace::Object(name)));
        assert_eq!(b.credentials.inline.as_ref().expect("inline").1.expose_secret(), "p # p");
        assert_eq!(config.labels.zone.as_deref(), Some("k8s-zone"));
        assert_eq!(config.labels.region.as_deref(), Some("k8s-region"));
        assert!(config.labels.follow_moves);
        let texts = |networks: &[ipnet::IpNet]| networks.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&config.addresses.internal.networks), ["10.0.0.0/8", "fd00::/8"]);
        assert_eq!(texts(&config.addresses.external.networks), ["192.0.2.0/24"]);
        assert_eq!(texts(&config.addresses.internal.exclude), ["10.9.0.0/16"]);
        assert_eq!(texts(&config.addresses.external.exclude), ["192.0.2.1/32"]);
        assert_eq!(config.addresses.internal.network_name.as_deref(), Some("VM Network"));
        assert_eq!(config.addresses.external.network_name.as_deref(), Some("Public"));
        assert!(!config.addresses.all && !config.skip_node_deletion);
        assert_eq!(config.nsx.notice(), None);
        assert!(!format!("{config:?}").contains("007"));
    }
}

#[test]
fn one_vcenter_in_global_is_enough() {
    for text in [
        "global: {server: 10.0.0.1, user: u, password: p}",
        "[Global]\nserver = 10.0.0.1\nuser = u\npassword = p\n",
    ] {
        let config = parse(text);
        assert_eq!(config.vcenters.len(), 1);
        let only = &config.vcenters[0];
        assert_eq!(
            (only.reference.as_str(), only.endpoint.authority().as_str()),
            ("10.0.0.1", "10.0.0.1:443")
        );
        assert_eq!(only.families, [Family::Ipv4]);
    }
}

#[test]
fn a_server_in_global_that_has_an_entry_of_its_own_is_not_taken_twice() {
    let global = "global: {server: vc1, user: u, password: p}\nvcenter:\n";
    assert_eq!(parse(&format!("{global}  vc1: {{port: 8443}}")).vcenters[0].endpoint.authority(), "vc1:8443");
    assert_eq!(parse(&format!("{global}  a: {{server: vc1}}")).vcenters.len(), 1);
    assert_eq!(parse(&format!("{global}  a: {{server: vc2}}")).vcenters.len(), 2);
}

#[test]
fn a_section_of_ini_is_called_by_its_server() {
    let config =
        parse("[Global]\nuser = u\npassword = p\n[VirtualCenter \"vc1\"]\n[VirtualCenter \"fd00::2\"]\n");
    let hosts: Vec<_> = config.vcenters.iter().map(|vcenter| vcenter.endpoint.authority()).collect();
    assert_eq!(hosts, ["[fd00::2]:443", "vc1:443"]);
}

#[test]
fn credentials_come_from_where_they_are() {
    let object = |namespace: &str, name: &str| {
        Some(SecretPlace::Object(SecretName { namespace: namespace.into(), name: name.into() }))
    };
    let directory = Some(SecretPlace::Directory("/secrets".into()));
    for (global, own, secret, has_inline) in [
        ("secretName: s, secretNamespace: n", "", object("n", "s"), false),
        ("secretName: s, secretNamespace: n", "secretName: t, secretNamespace: m", object("m", "t"), false),
        ("secretName: s, secretNamespace: n", "secretName: t", object("n", "s"), false),
        ("secretName: s, secretNamespace: n", "user: u, password: p", object("n", "s"), true),
        ("secretsDirectory: /secrets", "", directory.clone(), false),
        ("secretsDirectory: /secrets", "secretName: t, secretNamespace: m", object("m", "t"), false),
        ("secretsDirectory: /secrets, secretName: s", "", directory.clone(), false),
        (
            "secretsDirectory: /secrets, secretName: s, secretNamespace: n, user: u, password: p",
            "",
            None,
            true,
        ),
        ("user: u", "password: p", None, true),
        ("user: u, password: p, secretName: s", "", None, true),
    ] {
        let config = parse(&format!("global: {{{global}}}\nvcenter: {{a: {{server: vc1, {own}}}}}"));
        let places = &config.vcenters[0].credentials;
        assert_eq!((&places.secret, places.inline.is_some()), (&secret, has_inline), "{global} {own}");
    }
}

#[test]
fn missing_credentials_say_which() {
    let vcenter = "vcenter: {a: {server: vc1}}";
    for (global, part) in [
        ("{}", "vcenter.a: has no credentials; give secretName and secretNamespace of a Secret"),
        ("{user: u}", "vcenter.a: has a user and no password"),
        ("{password: p}", "vcenter.a: has a password and no user"),
        ("{secretName: s}", "vcenter.a: has a secretName and no secretNamespace"),
        ("{secretNamespace: s}", "vcenter.a: has a secretNamespace and no secretName"),
        (
            "{secretName: s, secretNamespace: n, secretsDirectory: /s}",
            "global.secretsDirectory: stands beside the name of a Secret; give one of the two",
        ),
    ] {
        let found = problems(&format!("global: {global}\n{vcenter}"));
        assert!(found.iter().any(|problem| problem.starts_with(part)), "{global}: {found:?}");
    }
    let ini = problems("[VirtualCenter \"vc1\"]\n");
    assert!(
        ini[0].starts_with("[VirtualCenter \"vc1\"]: has no credentials; give secret-name and"),
        "{ini:?}"
    );
}

#[test]
fn every_fault_is_reported_at_once() {
    let text = r"
global:
  port: https
  insecureFlag: maybe
  datacenters: DC0
  user: [hunter2]
  password: {hunter2: hunter2}
vcenter:
  a:
    server: https://vc1.example.org/sdk
    port: 99999
    thumbprint: hunter2
  b:
    server: vc2:8443
    ipFamily: [ipv5]
  c: {}
  d: hunter2
labels: hunter2
nodes:
  internalNetworkSubnetCidr: 10.0.0.0/8,10.0.0.0/99
  excludeExternalNetworkSubnetCidr: [10.0.0.0/8]
";
    let found = problems(text);
    for part in [
        "global.port: must be a whole number",
        "global.insecureFlag: must be true or false",
        "global.datacenters: must be a list of texts, each on a line of its own behind a dash",
        "global.user: is a list, must be a text",
        "global.password: is a mapping, must be a text",
        "vcenter.a.server: must be a host name or an IP address alone, without https:// and without a path",
        "vcenter.a.port: must be a port number, 1 to 65535",
        "vcenter.a.thumbprint: must be the SHA-1 or SHA-256",
        "vcenter.b.server: must be a host name or an IP address alone; the port has a key of its own",
        "vcenter.b.ipFamily: \"ipv5\" is not an IP family; known: ipv4, ipv6",
        "vcenter.c.server: is missing",
        "vcenter.d: is a single value, must be a mapping",
        "labels: is a single value, must be a mapping",
        "nodes.internalNetworkSubnetCidr: \"10.0.0.0/99\" is not a network",
        "nodes.excludeExternalNetworkSubnetCidr: is a list, must be one text; join several with commas",
    ] {
        assert_eq!(
            found.iter().filter(|problem| problem.starts_with(part)).count(),
            1,
            "{part} in {found:#?}"
        );
    }
    assert_eq!(found.len(), 15, "{found:#?}");
    assert!(found.iter().all(|problem| !problem.contains("hunter2")), "{found:#?}");
}

#[test]
fn every_fault_of_an_ini_file_too() {
    let text = "[Global]\ninsecure-flag = maybe\nport = https\nuser\nsoap-roundtrip-count = many\n\
                [VirtualCenter]\n[VirtualCenter \"a b\"]\nip-family = ipv4,ipv9\n[Nodes]\n\
                internal-network-subnet-cidr = 10.0.0.0/8,,\n";
    let found = problems(text);
    for part in [
        "[Global] insecure-flag: must be true, yes, on, 1, false, no, off or 0",
        "[Global] port: must be a whole number",
        "[Global] user: needs a value; write name = value",
        "[Global] soap-roundtrip-count: must be a whole number",
        "[VirtualCenter]: needs a name; write [VirtualCenter \"name\"]",
        "[VirtualCenter \"a b\"]: must be a host name or an IP address",
        "[VirtualCenter \"a b\"] ip-family: \"ipv9\" is not an IP family",
        "[Nodes] internal-network-subnet-cidr: \"\" is not a network",
    ] {
        assert!(found.iter().any(|problem| problem.starts_with(part)), "{part} in {found:#?}");
    }
    assert!(found.iter().all(|problem| !problem.contains("hunter2")), "{found:#?}");
}

#[test]
fn a_text_that_is_neither_says_what_is_wanted() {
    for (text, part) in [
        ("", "no vCenter is given; write vcenter:"),
        ("# nothing\n", "no vCenter is given"),
        (
            "user = hunter2",
            "is a single value, must be a YAML mapping that begins with a key such as vcenter:",
        ),
        ("- hunter2", "is a list, must be a YAML mapping"),
        ("global:\n\tuser: hunter2\n", "not valid YAML: a tab; indent with spaces (line 2, column 2)"),
        ("[Global\nuser = hunter2", "line 1: lacks the ]"),
        ("; c\n\n [Global]\nuser: hunter2", "line 4: has a : behind a name; write name = value"),
        ("[Labels]\nzone = z", "no vCenter is given; write a section [VirtualCenter"),
        (
            "vcenter: {server: vc1, user: u}",
            "vcenter.server: is a single value, must be a mapping: below vcenter comes",
        ),
        ("vcenter: [a]", "vcenter: is a list, must be a mapping of names to mappings"),
        ("Global: {server: a}", "no vCenter is given"),
    ] {
        let found = problems(text);
        assert!(found[0].starts_with(part), "{text:?}: {found:?}");
        assert!(found.iter().all(|problem| !problem.contains("hunter2")), "{found:?}");
    }
}

const MINIMAL: &str = "vcenter: {a: {server: vc1, user: u, password: p}}\n";

#[test]
fn what_has_no_effect_is_warned_of() {
    for (text, part) in [
        ("globl: {}", "\"globl\" is not known and ignored; did you mean global?"),
        ("colour: red", "\"colour\" is not known and ignored; known here: global, vcenter,"),
        (
            "global: {insecure-flag: true}",
            "global: \"insecure-flag\" is not known and ignored; did you mean insecureFlag?",
        ),
        ("global: {insecureFlag: true, insecureFlag: false}", "global: has the same key twice"),
        ("labels: {zone: a}", "labels: names one of zone and region"),
        ("global: {secretName: s}", "global.secretName: has no effect without the Secret's namespace"),
    ] {
        let found = warnings(&format!("{MINIMAL}{text}\n"));
        assert!(found.len() == 1 && found[0].starts_with(part), "{text}: {found:?}");
    }
    for harmless in
        ["apiVersion: v1", "kind: x", "metadata: {name: x}", "global:", "nodes: {}", "vcenters-x: ~"]
    {
        let found = warnings(&format!("{MINIMAL}{harmless}\n"));
        assert_eq!(found.len(), usize::from(harmless.starts_with("vcenters")), "{harmless}: {found:?}");
    }
    let ini = "[Global]\nuser = u\npassword = a#b\nsecret = s\n[VirtualCenter \"vc1\"]\n[Global \"x\"]\nuser = y\n[Disk]\n";
    let found = warnings(ini);
    for part in [
        "[Global] password: ends at a comment sign",
        "[Global]: an unknown name, not shown",
        "[Global]: takes no name in quotes",
        "\"Disk\" is not known and ignored",
    ] {
        assert!(found.iter().any(|warning| warning.starts_with(part)), "{part} in {found:#?}");
    }
    assert_eq!(parse(ini).vcenters[0].credentials.inline.as_ref().expect("inline").0, "u");
}

#[test]
fn a_value_in_the_place_of_a_key_is_not_shown() {
    for text in [
        "hunter2: x",
        "global: {passwordhunter2: }",
        "global: {'password=hunter2': x}",
        "vcenter: {b: {hunter2: ~}}",
    ] {
        let text = format!("{text}\n{}", if text.starts_with("vcenter") { "" } else { MINIMAL });
        let outcome = Config::parse(&text, &Environment::default());
        let told = match &outcome {
            Ok(config) => format!("{:?}", config.warnings()),
            Err(error) => error.report(),
        };
        assert!(!told.contains("hunter2"), "{text}: {told}");
    }
}

#[test]
fn the_environment_overrides_the_file() {
    let environment: Environment = [
        ("VSPHERE_VCENTER_PORT", "8443"),
        ("VSPHERE_USER", "env"),
        ("VSPHERE_PASSWORD", "a=b"),
        ("VSPHERE_INSECURE", "T"),
        ("VSPHERE_DATACENTER", "X,Y"),
        ("VSPHERE_LABEL_ZONE", "z"),
        ("VSPHERE_LABEL_REGION", "r"),
        ("VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR", "10.0.0.0/8"),
        ("VSPHERE_VCENTER_one", "a"),
        ("VCENTER_one_PORT", "9443"),
        ("VSPHERE_VCENTER_two", "vc2"),
        ("VCENTER_two_USERNAME", "second"),
        ("VCENTER_two_IP_FAMILY", "ipv6"),
        ("VSPHERE_VCENTER_three", "c"),
        ("VCENTER_three_SERVER", "vc3"),
        ("VSPHERE_CAFILE", ""),
        ("SKIP_NODE_DELETION", ""),
    ]
    .into_iter()
    .collect();
    let text = "global: {user: file, password: file, caFile: /ca}\nvcenter: {a: {server: vc1}}\n";
    let config = Config::parse(text, &environment).expect("valid");
    let all: Vec<_> = config
        .vcenters
        .iter()
        .map(|vcenter| {
            let (user, password) = vcenter.credentials.inline.as_ref().expect("inline");
            format!(
                "{} {} {user}/{}",
                vcenter.reference,
                vcenter.endpoint.authority(),
                password.expose_secret()
            )
        })
        .collect();
    assert_eq!(all, ["a vc1:9443 env/a=b", "c vc3:8443 env/a=b", "vc2 vc2:8443 second/a=b"]);
    assert!(config.vcenters.iter().all(|vcenter| vcenter.endpoint.insecure));
    assert!(config.vcenters.iter().all(|vcenter| vcenter.endpoint.ca_files == [Path::new("/ca")]));
    assert_eq!(config.vcenters[0].datacenters, ["X", "Y"]);
    assert_eq!(config.vcenters[2].families, [Family::Ipv6]);
    assert_eq!(config.labels.zone.as_deref(), Some("z"));
    assert_eq!(config.addresses.internal.networks.len(), 1);
    assert!(config.skip_node_deletion);
}

#[test]
fn the_environment_alone_is_a_configuration() {
    let environment: Environment =
        [("VSPHERE_VCENTER", "vc1"), ("VSPHERE_USER", "u"), ("VSPHERE_PASSWORD", "p")].into_iter().collect();
    assert_eq!(Config::parse("", &environment).expect("valid").vcenters[0].server, "vc1");
}

#[test]
fn faults_of_the_environment_name_the_variable() {
    let found = problems_in(
        MINIMAL,
        &[("VSPHERE_INSECURE", "hunter2"), ("VSPHERE_VCENTER_PORT", "hunter2"), ("VSPHERE_VCENTER_x", "a/b")],
    );
    assert_eq!(
        found,
        [
            "VSPHERE_VCENTER_PORT: must be a whole number",
            "VSPHERE_INSECURE: must be true or false",
            "VSPHERE_VCENTER_x: must be a host name or an IP address alone, without https:// and without a path",
        ]
    );
    assert_eq!(format!("{:?}", Environment::of_process()), "Environment(***)");
}

#[test]
fn nsx_is_accepted_and_told_to_do_nothing() {
    let text = format!(
        "{MINIMAL}nsxt: {{host: nsx, user: u, password: p}}\nloadBalancer: {{size: SMALL, lbServiceId: x, \
         tcpAppProfileName: t, udpAppProfileName: u, ipPoolName: pool, tags: {{a: b}}}}\n\
         loadBalancerClass: {{public: {{ipPoolName: q}}}}\nroute: {{routerPath: /infra/tier-1s/x}}\n"
    );
    let config = parse(&text);
    assert_eq!(config.warnings(), []);
    assert_eq!(config.nsx, NsxParts { load_balancer: true, routes: true, manager: true });
    let notice = config.nsx.notice().expect("a notice");
    assert!(notice.contains("left alone") && notice.contains("no routes"), "{notice}");
    for (parts, part) in [
        ((true, false, true), "load balancers are configured"),
        ((false, true, true), "routes are configured"),
        ((false, false, true), "an NSX manager is configured"),
    ] {
        let (load_balancer, routes, manager) = parts;
        assert!(NsxParts { load_balancer, routes, manager }.notice().expect("a notice").contains(part));
    }
}

#[test]
fn faults_in_nsx_are_told_and_stop_nothing() {
    for (text, part) in [
        ("nsxt: {user: u}", "nsxt.password: is missing; user needs it"),
        ("nsxt: {host: h}", "nsxt: has no credentials"),
        ("nsxt: {user: u, password: p}", "nsxt.host: is missing"),
        ("nsxt: {host: h, vmcAccessToken: t}", "nsxt.vmcAuthHost: is missing"),
        ("nsxt: {host: h, clientAuthKeyFile: t}", "nsxt.clientAuthCertFile: is missing"),
        ("nsxt: {host: h, secretName: t}", "nsxt.secretNamespace: is missing"),
        ("loadBalancer: {size: HUGE}", "loadBalancer.size: must be one of DLB, LARGE, MEDIUM, SMALL, XLARGE"),
        ("loadBalancer: {size: SMALL}", "loadBalancer: needs lbServiceId or tier1GatewayPath"),
        ("loadBalancer: {size: SMALL}", "loadBalancer: needs ipPoolName or ipPoolId"),
        ("loadBalancer: {ipPoolName: a, ipPoolId: b}", "loadBalancer: has ipPoolName and ipPoolId"),
        ("loadBalancer: {tags: [a], snatDisabled: x}", "loadBalancer.tags: is a list, must be a mapping"),
        ("nsxt: hunter2", "nsxt: is a single value"),
        ("route: {}", "route.routerPath: is missing"),
    ] {
        let found = warnings(&format!("{MINIMAL}{text}\n"));
        assert!(found.iter().any(|warning| warning.starts_with(part)), "{text}: {found:#?}");
    }
}

#[test]
fn servers_that_can_be_meant() {
    let with = |server: &str| format!("vcenter: {{a: {{server: '{server}', user: u, password: p}}}}");
    for (server, authority) in [
        ("vc1", "vc1:443"),
        ("VC-1.example.org", "VC-1.example.org:443"),
        ("10.0.0.1", "10.0.0.1:443"),
        ("fd00::1", "[fd00::1]:443"),
        ("[fd00::1]", "[fd00::1]:443"),
        ("vc_1", "vc_1:443"),
    ] {
        assert_eq!(parse(&with(server)).vcenters[0].endpoint.authority(), authority);
    }
    for server in
        ["a b", "http://a", "a/sdk", "a:443", "[fd00::1]:443", "u@a", "-a", "a?b", "a#b", "fe80::1%eth0"]
    {
        assert_eq!(problems(&with(server)).len(), 1, "{server}");
    }
}

#[test]
fn formats_are_told_apart_by_their_beginning() {
    for text in ["[Global]", "\u{feff}[Global]", "# c\n; c\n\n  [Global]\n"] {
        assert!(is_ini(text), "{text:?}");
    }
    for text in ["", "global:", "---\nglobal:", "# [Global]\nglobal:", "{}"] {
        assert!(!is_ini(text), "{text:?}");
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_no_password_is_told(text in "(?s).{0,200}", key in 0..KEYS.len(), value in "[^\n]{0,20}") {
        let _ = Config::parse(&text, &Environment::default());
        let key = &KEYS[key];
        for text in [
            format!("{}: {{{}: {value}}}\n{MINIMAL}", key.section.yaml(), key.name),
            format!("[{} \"x\"]\n{} = {value}\n", key.section.ini(), key.ini),
            format!("[{}]\n{} = {value}\n", key.section.ini(), key.ini),
        ] {
            let _ = Config::parse(&text, &Environment::default());
        }
    }

    #[test]
    fn secrets_stay_secret(password in "[a-zA-Z0-9]{12,20}", junk in "[a-z]{0,3}[:=\\[\\]{}'\"#;&*!|>%@,-]{0,3}") {
        for text in [
            format!("vcenter: {{a: {{server: 'x y', user: u, password: {junk}{password}}}}}"),
            format!("vcenter:\n  a:\n    password: {password}\n    server: {junk}{password}/\n"),
            format!("[Global]\npassword = {password}{junk}\nport = {password}\n"),
            format!("[Global]\npassword {junk} {password}\n"),
            format!("{junk}{password}"),
        ] {
            if let Err(error) = Config::parse(&text, &Environment::default()) {
                let told = format!("{error} {error:?}");
                prop_assert!(!told.contains(&password), "{}\n{}", text, told);
            }
        }
    }
}
