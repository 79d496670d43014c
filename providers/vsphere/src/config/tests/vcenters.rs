//! Which vCenters there are, and where they are.

use super::*;

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
fn sections_that_stand_there_twice_both_count() {
    let text = "global: {user: u, port: 1}\nvcenter: {a: {server: vc1}}\nglobal: {password: p, port: 2}\n\
                vcenter: {b: {server: vc2}}\n";
    let config = parse(text);
    let found: Vec<_> = config.vcenters.iter().map(|vcenter| vcenter.endpoint.authority()).collect();
    assert_eq!(found, ["vc1:2", "vc2:2"]);
    let twice: Vec<_> = config.warnings().iter().map(|warning| warning.key.as_str()).collect();
    assert_eq!(twice, ["global", "vcenter"]);
}
