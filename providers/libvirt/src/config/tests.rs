//! Tests of the configuration.

use proptest::prelude::*;

use super::*;

fn problems(text: &str) -> Vec<(String, String)> {
    match Config::parse(text, None) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(error) => error.problems().iter().map(|p| (p.key.clone(), p.message.clone())).collect(),
    }
}

const FULL: &str = r"
hypervisors:
- name: kvm1
  uri: qemu+tls://kvm1.example.org/system
  region: north
  zone: rack-1
  pkipath: /etc/pki/kvm
  auth:
    username: ccm
    passwordFile: secrets/password
- name: kvm2
  uri: qemu+ssh://ccm@kvm2.example.org/system
  auth: { usernameFile: /u, password: hunter2 }
addresses:
  internal: [10.0.0.0/8, 'fd00::/8']
  external: [192.0.2.0/24]
  exclude: [10.9.0.0/16]
  families: [ipv6, ipv4]
callTimeout: 1m30s
keepalive: { interval: 2s, count: 5 }
refreshInterval: 10m
";

#[test]
fn address_pools_give_load_balancers() {
    let text = "hypervisors: [{name: kvm1, uri: 'qemu:///system'}]\n";
    let without = Config::parse(text, None).expect("valid");
    let pools = "addressPools:\n  announce: true\n  pools:\n  - {name: main, addresses: [192.0.2.0/28], interface: br0}\n";
    let with = Config::parse(&format!("{text}{pools}"), None).expect("valid");
    let found = with.address_pools.clone().expect("pools");
    assert_eq!(found.announcer, address_pools::Announcer::Itself);
    for (config, has) in [(without, false), (with, true)] {
        let provider: Box<dyn cloudprovider::CloudProvider> = Box::new(crate::LibvirtProvider::new(config));
        assert_eq!(provider.load_balancer().is_some(), has);
        assert_eq!(provider.service_access_needs().claims, has);
        assert_eq!(provider.changes_host_network(), has, "it announces");
    }
    let empty: Vec<_> = problems(&format!("{text}addressPools:\n")).into_iter().map(|(key, _)| key).collect();
    assert_eq!(empty, ["addressPools"]);
    let faulty = format!("{text}addressPools: {{pools: [{{name: main, address: 7}}]}}\naddresspools: {{}}\n");
    let keys: Vec<_> = problems(&faulty).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["addressPools.pools[0].addresses", "addressPools.pools[0].address", "addresspools"]);
}

#[test]
fn a_full_configuration() {
    let config = Config::parse(FULL, Some(Path::new("/etc/ccm/libvirt.yaml"))).expect("valid");
    assert_eq!(config.hypervisors.len(), 2);
    assert_eq!(config.call_timeout, Duration::from_secs(90));
    assert_eq!(config.keepalive, Keepalive { interval: Duration::from_secs(2), count: 5 });
    assert_eq!(config.refresh_interval, Duration::from_secs(600));
    assert_eq!(config.addresses.families, [Family::Ipv6, Family::Ipv4]);
    let Some(Auth { password: Credential::File(path), .. }) = &config.hypervisors[0].auth else {
        panic!("a file")
    };
    assert_eq!(path, Path::new("/etc/ccm/secrets/password"));
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_short_configuration_has_defaults() {
    let config = Config::parse("hypervisors: [{name: a, uri: 'qemu:///system'}]", None).expect("valid");
    assert_eq!(config.call_timeout, CALL_TIMEOUT);
    assert_eq!(config.keepalive, KEEPALIVE);
    assert_eq!(config.addresses.families, [Family::Ipv4, Family::Ipv6]);
}

#[test]
fn every_fault_is_reported_at_once() {
    let text = r"
hypervisors:
- uri: nonsense
  zon: a
- name: kvm2
- name: kvm2
  uri: qemu+tls://root:hunter2@h/system
  zone: 'not a label'
  auth: { passwordFil: /p, username: 5 }
- 7
addresses: { internal: [10.0.0.0/8, 10.0.0.300], families: [ipv5] }
callTimeout: fast
keepalive: { count: 0, interval: 1500ms }
refreshInterval: 5
refreshIntervall: 5m
";
    let found = problems(text);
    let keys: Vec<_> = found.iter().map(|(key, _)| key.as_str()).collect();
    for key in [
        "hypervisors[0].name",
        "hypervisors[0].uri",
        "hypervisors[0].zon",
        "hypervisors[1].uri",
        "hypervisors[2].name",
        "hypervisors[2].uri",
        "hypervisors[2].zone",
        "hypervisors[2].auth.username",
        "hypervisors[2].auth.passwordFile",
        "hypervisors[2].auth.passwordFil",
        "hypervisors[3]",
        "addresses.internal[1]",
        "addresses.families[0]",
        "callTimeout",
        "keepalive.count",
        "keepalive.interval",
        "refreshInterval",
        "refreshIntervall",
    ] {
        assert_eq!(keys.iter().filter(|k| **k == key).count(), 1, "{key} in {found:#?}");
    }
    assert_eq!(keys.len(), 18, "{found:#?}");
    assert!(found.iter().all(|(_, message)| !message.contains("hunter2") && !message.ends_with('.')));
    let hint = |key: &str| found.iter().find(|(k, _)| k == key).map(|(_, m)| m.as_str());
    assert_eq!(hint("hypervisors[0].zon"), Some("unknown key; did you mean \"zone\"?"));
    assert_eq!(hint("refreshIntervall"), Some("unknown key; did you mean \"refreshInterval\"?"));
}

#[test]
fn positions_stay_right_behind_a_nameless_hypervisor() {
    let text = "hypervisors: [{uri: 'qemu:///a'}, {name: x, uri: 'qemu:///b'}, {name: x, uri: 'qemu:///c'}]";
    let found = problems(text);
    assert!(found.iter().any(|(key, _)| key == "hypervisors[2].name"), "{found:#?}");
}

#[test]
fn syntax_errors_tell_the_place_and_nothing_else() {
    for text in [
        "hypervisors:\n- name: a\n  auth: {password: hunter2\n",
        "password: hunter2\n  x: [",
        "a: 'hunter2\nb: *hunter2",
        "password: hunter2\npassword: hunter2\n",
        "a: \"\\qhunter2\"",
        "hunter2: *hunter2",
        "!!int hunter2",
    ] {
        let found = problems(text);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        assert!(!found[0].1.contains("hunter2"), "{found:?}");
        let debug = format!("{:?}", Config::parse(text, None).expect_err("invalid"));
        assert!(!debug.contains("hunter2"), "{debug}");
    }
}

#[test]
fn syntax_errors_say_what_is_wrong() {
    for (text, what) in [
        ("a:\n\tb: 1\n", "not valid YAML: a tab; indent with spaces (line 2, column 2)"),
        ("a: {b: c\n", "not valid YAML: a bracket is not closed (line 1, column 4)"),
        (
            "a: *x\n",
            "not valid YAML: an alias (*) of an anchor that does not exist; put the text in quotes \
             (line 1, column 4)",
        ),
        ("a: b\na: c\n", "the same key stands twice (line 2, column 1)"),
        ("a: b\n---\na: c\n", "holds more than one YAML document (line 3, column 1)"),
    ] {
        assert_eq!(problems(text)[0].1, what, "{text:?}");
    }
}

#[test]
fn a_key_at_the_wrong_level_is_told_where_it_belongs() {
    let text = "hypervisors:\n- {name: a, uri: 'qemu:///system', keepalive: {}, passwordFile: p}\nzone: z\n";
    let found = problems(text);
    let message = |key: &str| found.iter().find(|(k, _)| k == key).map(|(_, m)| m.as_str());
    assert_eq!(message("hypervisors[0].keepalive"), Some("unknown key; it belongs at the top level"));
    assert_eq!(
        message("hypervisors[0].passwordFile"),
        Some("unknown key; it belongs under auth of a hypervisor")
    );
    assert_eq!(message("zone"), Some("unknown key; it belongs under an element of hypervisors"));
}

#[test]
fn connections_that_cannot_be_meant() {
    for (text, key) in [
        ("[{name: a, uri: 'qemu:///system'}, {name: b, uri: 'qemu:///system'}]", "hypervisors[1].uri"),
        ("[{name: a, uri: 'qemu:///system', pkipath: /p}]", "hypervisors[0].pkipath"),
        ("[{name: a, uri: 'qemu+ssh://h/system', pkipath: /p}]", "hypervisors[0].pkipath"),
        ("[{name: a, uri: 'qemu+tls:///system'}]", "hypervisors[0].uri"),
        ("[{name: a, uri: 'qemu+tls://h:99999/system'}]", "hypervisors[0].uri"),
    ] {
        let found = problems(&format!("hypervisors: {text}"));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert_eq!(found[0].0, key, "{text}");
    }
}

#[test]
fn an_empty_configuration_says_what_is_needed() {
    for text in ["", "{}", "hypervisors:", "hypervisors: []"] {
        assert_eq!(problems(text)[0].0, "hypervisors", "{text:?}");
    }
    assert_eq!(problems("[]")[0].1, "is a list, must be a mapping of keys to values");
}

#[test]
fn no_secret_in_any_message() {
    for text in [
        "hypervisors: [{name: a, uri: 'qemu:///system', auth: {password: [hunter2], username: x}}]",
        "hypervisors: [{name: a, uri: 'qemu:///system', auth: hunter2}]",
        "hypervisors: [{name: a, uri: 'qemu:///system', auth: {username: ccm, password:hunter2}}]",
        "hypervisors: [{name: a, uri: 'qemu:///system', auth: {username: ccm, password hunter2}}]",
        "hypervisors: [{name: a, uri: 'qemu:///system', auth: {username: ccm, password-hunter2}}]",
        "hypervisors: [{name: a, uri: 'qemu:///system', auth: {username: ccm, passwordhunter2: }}]",
        "hypervisors:\n- name: a\n  uri: qemu:///system\n  auth:\n    username: ccm\n    password=hunter2:\n",
        "hypervisors: [{name: a, uri: 'qemu+tls://u:hunter2@h/x', auth: {password: hunter2, passwordFile: p}}]",
        "hypervisors: [{name: a, uri: 'qemu:///system', auth: {password: \"hunter2\\n\", username: x}}]",
    ] {
        let error = Config::parse(text, None).expect_err("invalid");
        assert!(!format!("{error} {error:?} {}", error.report()).contains("hunter2"), "{text}");
    }
}

#[test]
fn values_of_labels() {
    for good in ["a", "rack-1", "eu_north.1", &"x".repeat(63)] {
        assert!(is_label_value(good), "{good}");
    }
    for bad in ["", "-a", "a-", "a b", "ä", &"x".repeat(64)] {
        assert!(!is_label_value(bad), "{bad}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(text in "(?s).{0,200}") {
        let _ = Config::parse(&text, None);
    }

    #[test]
    fn nothing_panics_near_the_format(
        key in "hypervisors|name|uri|auth|password|addresses|families|keepalive|[a-z]{1,5}",
        value in "\\[\\{name: [a-z]{0,3}, uri: '[a-z:/+?@]{0,20}'\\}\\]|[0-9]{1,4}|\\{[a-z]{1,3}: 1\\}|.{0,10}",
    ) {
        let _ = Config::parse(&format!("{key}: {value}"), None);
    }
}

#[test]
fn files_belong_to_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let text = format!(
        "hypervisors:\n- {{name: a, uri: 'qemu+tls://h/system', pkipath: {}, auth: {{username: u, passwordFile: p}}}}\n",
        folder.path().display()
    );
    let input = FactoryInput::new(text).with_path(at("config.yaml"));
    let problems = |input: &FactoryInput| Config::read(input).expect_err("refused").report();
    let all = problems(&input);
    assert!(all.contains("hypervisors[0].auth.passwordFile: cannot read"), "{all}");
    for file in PKI_FILES {
        assert!(
            all.contains(&format!("hypervisors[0].pkipath: cannot read {}", at(file).display())),
            "{all}"
        );
        std::fs::write(at(file), "-----BEGIN X-----\n").expect("written");
    }
    std::fs::write(at("p"), "\n").expect("written");
    assert!(problems(&input).contains("/p: the file is empty"), "{}", problems(&input));
    std::fs::write(at("p"), "hunter2\n").expect("written");
    std::fs::write(at("clientkey.pem"), "hunter3").expect("written");
    assert!(problems(&input).ends_with("clientkey.pem is not in PEM format"), "{}", problems(&input));
    std::fs::write(at("clientkey.pem"), "Bag\n-----BEGIN X-----\n").expect("written");
    let config = Config::read(&input).expect("valid");
    std::fs::remove_file(at("p")).expect("removed");
    let Some(Auth { password: Credential::Inline(password), .. }) = &config.hypervisors[0].auth else {
        panic!("not read")
    };
    assert_eq!(password.expose_secret(), "hunter2");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn files_are_told_with_the_keys() {
    let text = "hypervisors:\n- 1\n- {name: a, uri: 'qemu+tls://h/system', zon: z, pkipath: pki, \
                auth: {username: u, passwordFile: /no/such/file}}\n";
    let error = Config::read(&FactoryInput::new(text)).expect_err("refused");
    let keys: Vec<_> = error.problems().iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "hypervisors[0]",
            "hypervisors[1].pkipath",
            "hypervisors[1].zon",
            "hypervisors[1].auth.passwordFile"
        ]
    );
}

#[test]
fn limits_are_told_as_durations_are_written() {
    let text = "hypervisors: [{name: a, uri: 'test:///default'}]\n\
                callTimeout: 1h\nrefreshInterval: 1s\n";
    let messages: Vec<String> = problems(text).into_iter().map(|(_, message)| message).collect();
    assert_eq!(messages, ["must be between 1s and 5m", "must be between 10s and 24h"]);
}

#[test]
fn odd_texts_are_told_and_stop_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("password");
    std::fs::write(&password, "hunter2 \n").expect("written");
    let text = format!(
        "hypervisors:\n- name: \u{201c}kvm1\u{201d}\n  uri: qemu:///system\n  auth: {{username: \"<user>\", passwordFile: {}}}\n\
         - name: kvm2\n  uri: test:///default\n  auth: {{username: u, password: \"hunter2\u{a0}\"}}\n",
        password.display()
    );
    let input = FactoryInput::new(text);
    let _ = Config::read(&input);
    let told: Vec<_> = input.warnings().iter().map(ToString::to_string).collect();
    for part in [
        "hypervisors[0].name: has typographic quotes",
        "hypervisors[0].auth.username: looks like a placeholder",
        "hypervisors[0].auth.passwordFile: the value in the file holds characters that copied",
        "hypervisors[1].auth.password: holds characters that copied",
    ] {
        assert!(told.iter().any(|told| told.starts_with(part)), "{part}: {told:#?}");
    }
    assert!(told.len() == 4 && told.iter().all(|told| !told.contains("hunter2")), "{told:#?}");
}

#[test]
fn routes_are_made_on_the_only_hypervisor() {
    let local = "hypervisors: [{name: a, uri: 'qemu:///system'}]\n";
    let config = |text: &str| Config::parse(text, None);
    assert!(!config(local).expect("a configuration").has_routes);
    assert!(!config(&format!("{local}routes: {{enabled: false}}\n")).expect("a configuration").has_routes);
    assert!(config(&format!("{local}routes: {{enabled: true}}\n")).expect("a configuration").has_routes);

    let remote = "hypervisors: [{name: a, uri: 'qemu+ssh://h/system'}]\nroutes: {enabled: true}\n";
    let two = "hypervisors: [{name: a, uri: 'qemu:///system'}, {name: b, uri: 'qemu+unix:///system'}]\n\
               routes: {enabled: true}\n";
    for (text, key, part) in [
        (remote, "routes.enabled", "hypervisors[0].uri leads to another host; run the daemon there"),
        (two, "routes.enabled", "a daemon on the only hypervisor; there are 2"),
        (
            &format!("{local}routes: {{enabled: 'yes'}}\n"),
            "routes.enabled",
            "is a text, must be true or false",
        ),
        (&format!("{local}routes: {{enable: true}}\n"), "routes.enable", "did you mean \"enabled\"?"),
        (&format!("{local}routes: true\n"), "routes", "must be a mapping"),
    ] {
        let found = problems(text);
        let is_told = |(at, message): &(String, String)| at == key && message.contains(part);
        assert!(found.iter().any(is_told), "{text}: {found:?}");
    }
    // a remote hypervisor is fine without routes
    let remote = "hypervisors: [{name: a, uri: 'qemu+ssh://h/system'}]\nroutes: {enabled: false}\n";
    assert!(config(remote).is_ok());
}

#[test]
fn other_files_are_named_for_what_they_are() {
    for (text, part) in [
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: {libvirt.yaml: hunter2}\n",
            "is a Kubernetes manifest of kind ConfigMap",
        ),
        ("apiVersion: v1\nkind: Config\nusers: []\n", "is a kubeconfig"),
        ("apiVersion: v1\nkind: Libvirt\nhypervisor: []\n", "did you mean \"hypervisors\"?"),
        ("kind: Libvirt\nmachines: []\n", "is missing or empty; list at least one"),
        ("hypervisors:\n- name: {{ name }}\n", "a template that nobody filled in"),
        ("hypervisors:\n- name: a\n\u{a0}\u{a0}uri: test:///default\n", "has a key with a no-break space"),
    ] {
        let found = problems(text);
        assert!(found.iter().any(|(_, message)| message.contains(part)), "{text}: {found:?}");
    }
}
