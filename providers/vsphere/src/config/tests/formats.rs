//! Both formats and the environment give the same configuration.

use super::*;

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
        (Kind::Duration | Kind::Tree, _) => panic!("no such key"),
        (Kind::Text | Kind::Secret, name) => {
            (format!("'{name} #1'"), format!("\"{name} #1\""), text(&format!("{name} #1")))
        }
    }
}

#[test]
fn every_key_is_read_alike_from_both_formats_and_the_environment() {
    for (section, key) in keys() {
        let (yaml, ini, expected) = sample(key);
        let is_named = section.shape == Shape::Named;
        let name = if is_named { "x.y" } else { "" };
        let yaml = if is_named {
            format!("{}:\n  x.y:\n    {}: {yaml}\n", section.yaml, key.name)
        } else {
            format!("{}:\n  {}: {yaml}\n", section.yaml, key.name)
        };
        let header = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let ini_text = format!("[{}{header}]\n{} = {ini}\n", section.ini, key.ini);
        let shouted =
            format!("[{}{header}]\n{} = {ini}\n", section.ini.to_uppercase(), key.ini.to_uppercase());
        let read = |settings: Settings, findings: Findings| {
            assert!(findings.problems.is_empty() && findings.warnings.is_empty(), "{findings:?}");
            settings.get((section.yaml, name, key.name)).unwrap_or_else(|| panic!("{key:?}")).value.clone()
        };
        let mut findings = Findings::default();
        let settings = read::read_yaml(&yaml, false, &mut findings);
        assert!(read(settings, findings) == expected, "{yaml}");
        for text in [&ini_text, &shouted] {
            let mut findings = Findings::default();
            let settings = Settings::from_gcfg(&SCHEMA, text, &mut findings);
            assert!(read(settings, findings) == expected, "{text}");
        }
        if !key.env.is_empty() {
            let raw = match &expected {
                Value::Text(text) => text.clone(),
                Value::Flag(_) => "1".to_owned(),
                Value::Number(number) => number.to_string(),
                Value::List(items) => items.join(","),
                Value::Tags(_) | Value::Duration(_) => panic!("no variable holds them"),
            };
            let variables = match section.yaml {
                VCENTER => {
                    vec![
                        ("VSPHERE_VCENTER_a".to_owned(), name.to_owned()),
                        (format!("VCENTER_a_{}", key.env), raw),
                    ]
                }
                _ => vec![(key.env.to_owned(), raw)],
            };
            let environment: Environment = variables.into_iter().collect();
            let (mut settings, mut findings) = (Settings::new(&SCHEMA, Format::Yaml), Findings::default());
            crate::config::environment::apply(&environment, &mut settings, &mut findings);
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
        let [only] = config.warnings() else { panic!("{:?}", config.warnings()) };
        assert!(
            only.key.ends_with("user") && only.message.starts_with("stands beside Secret kube-system/vc-b")
        );
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
