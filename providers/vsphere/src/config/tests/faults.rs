//! Faults that prevent the start, and their messages.

use super::*;

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
    assert_eq!(found.len(), 14, "{found:#?}");
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
fn a_file_may_say_that_there_is_no_vcenter() {
    let config = Config::parse("vcenter: {}", &Environment::default()).expect("machines alone");
    assert!(config.vcenters.is_empty());
    for text in ["vcenter:", "global: {user: a}\n"] {
        let found = problems(text);
        assert!(found[0].contains("or vcenter: {} for machines alone"), "{found:?}");
    }
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
