//! Which vCenters are configured, and their addresses.

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
fn a_server_in_global_is_a_vcenter_unless_an_entry_is_called_so() {
    let global = "global: {server: vc1, user: u, password: p}\nvcenter:\n";
    let own = parse(&format!("{global}  vc1: {{port: 8443}}"));
    assert_eq!((own.vcenters.len(), own.vcenters[0].endpoint.authority().as_str()), (1, "vc1:8443"));
    assert_eq!(parse(&format!("{global}  a: {{server: vc2}}")).vcenters.len(), 2);
    // the other entry lists a datacenter; global uses all datacenters, or others
    for (text, datacenters) in [
        (format!("{global}  a: {{server: vc1, datacenters: [DC1]}}"), [&["DC1"][..], &[]]),
        (
            "[Global]\nserver = vc1\nuser = u\npassword = p\n[VirtualCenter \"a\"]\nserver = vc1\n\
             datacenters = DC1\n"
                .to_owned(),
            [&["DC1"], &[]],
        ),
        (
            "global: {server: vc1, user: u, password: p, datacenters: [DC0]}\n\
             vcenter: {a: {server: vc1, datacenters: [DC1]}}"
                .to_owned(),
            [&["DC1"], &["DC0"]],
        ),
    ] {
        let found = parse(&text).vcenters;
        let names: Vec<_> = found.iter().map(|one| (one.reference.as_str(), one.server.as_str())).collect();
        assert_eq!(names, [("a", "vc1"), ("vc1", "vc1")], "{text}");
        assert_eq!([&found[0].datacenters[..], &found[1].datacenters[..]], datacenters, "{text}");
    }
}

#[test]
fn an_item_of_a_list_may_hold_several() {
    let with = |list: &str| {
        parse(&format!("vcenter: {{a: {{server: a, user: u, password: p, {list}}}}}")).vcenters.remove(0)
    };
    assert_eq!(with(r#"datacenters: ["DC0,DC1"]"#).datacenters, ["DC0", "DC1"]);
    assert_eq!(with(r#"datacenters: [" DC0 , DC1,", DC2, ""]"#).datacenters, ["DC0", "DC1", "DC2"]);
    assert_eq!(with(r#"ipFamily: ["ipv6, ipv4"]"#).families, [Family::Ipv6, Family::Ipv4]);
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
