use cloudprovider::ErrorKind;

use super::*;
use crate::Config;

const ENTRIES: &str = "
machines:
  allow:
  - imageVolumes: [{pool: images}]
    imageHosts: [10.1.0.0/16]
  - namespaces: [team-a, team-b]
    imageFolders: [/images/, /images/inner]
    imageVolumes: [{pool: default, prefix: golden-}]
    imageHosts: ['mirror:8080']
  - namespaces: [team-a]
    imageFolders: [/a]
";

fn config(section: &str) -> std::result::Result<Config, Vec<(String, String)>> {
    let text = format!("hypervisors: [{{name: a, uri: 'qemu:///system'}}]\n{section}");
    let read = Config::parse(&text, None);
    read.map_err(|error| error.problems().iter().map(|p| (p.key.clone(), p.message.clone())).collect())
}

fn allow() -> Allow {
    config(ENTRIES).expect("valid").allow
}

#[test]
fn nothing_is_allowed_by_default() {
    for section in ["", "machines:", "machines: {allow: []}", "machines: {allow: [{}]}"] {
        let allow = config(section).expect("valid").allow;
        let allowed = allow.of("team-a");
        let file = allowed.image_file("f", "/images/a").expect_err(section);
        let volume = allowed.image_volume("f", "default", "a").expect_err(section);
        assert_eq!([file.kind(), volume.kind()], [ErrorKind::PermissionDenied; 2]);
        assert_eq!(allowed.image_hosts(), ImageHosts::default());
    }
}

#[test]
fn an_object_may_name_the_union_of_the_entries_for_its_namespace() {
    let allow = allow();
    for (namespace, folder, has_it) in [
        ("team-a", "/a", true),
        ("team-b", "/a", false),
        ("team-a", "/images", true),
        ("team-b", "/images", true),
        ("team", "/images", false),
        ("team-ab", "/images", false),
        ("", "/images", false),
        ("Team-a", "/images", false),
    ] {
        let found = allow.of(namespace).image_file("f", &format!("{folder}/x"));
        assert_eq!(found.is_ok(), has_it, "{namespace} {folder}");
    }
    assert!(allow.of("team-b").image_volume("f", "default", "golden-1").is_ok());
    assert!(allow.of("other").image_volume("f", "default", "golden-1").is_err());
    assert!(allow.of("other").image_volume("f", "images", "anything").is_ok());
    let address = "10.1.2.3".parse().expect("an address");
    for (namespace, has_mirror) in [("team-a", true), ("other", false)] {
        let hosts = allow.of(namespace).image_hosts();
        assert!(hosts.has_address(address, 80));
        assert_eq!(hosts.has_name("mirror", 8080), has_mirror);
    }
}

#[test]
fn files_are_below_a_folder_by_whole_names() {
    let (allow, field) = (allow(), "spec.image.file");
    let allowed = allow.of("team-b");
    for (path, folder, rest) in [
        ("/images/a.qcow2", "/images", "a.qcow2"),
        ("/images//b/./c", "/images", "b/c"),
        ("//images/a", "/images", "a"),
        ("/images/inner/a", "/images", "inner/a"),
    ] {
        let below = FileBelow { folder: folder.into(), path: rest.into() };
        assert_eq!(allowed.image_file(field, path).expect(path), below);
    }
    let refusal = "spec.image.file: objects of this namespace may not name this file; which they may is in the \
                   configuration of the provider, machines.allow, under imageFolders";
    for path in [
        "/etc/shadow",
        "/proc/self/environ",
        "/images",
        "/images/",
        "/imagesx/a",
        "/image",
        "/",
        "/nowhere/at/all",
    ] {
        let error = allowed.image_file(field, path).expect_err(path);
        assert_eq!((error.kind(), error.report().as_str()), (ErrorKind::PermissionDenied, refusal), "{path}");
    }
    for (path, words) in [
        ("images/a", "must be an absolute path"),
        ("", "must be an absolute path"),
        ("/images/../etc/shadow", "must not hold \"..\""),
        ("/images/inner/../a", "must not hold \"..\""),
        ("/images/..", "must not hold \"..\""),
    ] {
        let error = allowed.image_file(field, path).expect_err(path);
        assert_eq!((error.kind(), error.report()), (ErrorKind::InvalidInput, format!("{field}: {words}")));
    }
}

#[test]
fn volumes_of_machines_are_never_images() {
    let (allow, field) = (allow(), "spec.image.volume");
    let allowed = allow.of("team-a");
    for name in ["ccm-5d0b-seed", "CCM-5d0b-seed", "cCm-image-sha256-00-raw.0123456789abcdef", "ccm-"] {
        let error = allowed.image_volume(field, "images", name).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.report().starts_with("spec.image.volume: volumes whose names begin with \"ccm-\" are"));
    }
    for (pool, name, is_allowed) in [
        ("images", "ccm", true),
        ("images", "debian-ccm-1", true),
        ("images", "€cm-", true),
        ("default", "golden-12", true),
        ("default", "golden", false),
        ("default", "Golden-12", false),
        ("Images", "a", false),
        ("other", "golden-12", false),
    ] {
        assert_eq!(allowed.image_volume(field, pool, name).is_ok(), is_allowed, "{pool} {name}");
    }
}

#[test]
fn faults_name_their_key() {
    let at = |key: &str| format!("machines.allow[0]{key}");
    let folder = "the absolute path of a folder for images alone";
    for (entry, key, words) in [
        ("{namespaces: []}", at(".namespaces"), "is empty; list namespaces, or leave the key out"),
        ("{namespaces: [Not]}", at(".namespaces[0]"), "\"Not\" is not the name of a namespace"),
        ("{namespaces: team-a}", at(".namespaces"), "is a text, must be a list"),
        ("{imageFolders: /images}", at(".imageFolders"), "must be a list"),
        ("{imageFolders: [images]}", at(".imageFolders[0]"), folder),
        ("{imageFolders: [/]}", at(".imageFolders[0]"), folder),
        ("{imageFolders: [/a/../b]}", at(".imageFolders[0]"), folder),
        ("{imageFolders: [/proc/1/root]}", at(".imageFolders[0]"), folder),
        ("{imageFolders: [/var/run]}", at(".imageFolders[0]"), folder),
        ("{imageFolders: [7]}", at(".imageFolders[0]"), folder),
        (
            "{imageVolumes: [default]}",
            at(".imageVolumes[0]"),
            "must be a mapping with pool and, optionally, prefix",
        ),
        ("{imageVolumes: [{prefix: a}]}", at(".imageVolumes[0].pool"), "is missing"),
        ("{imageVolumes: [{pool: a, prefx: a}]}", at(".imageVolumes[0].prefx"), "did you mean \"prefix\"?"),
        (
            "{imageHosts: ['http://a/']}",
            at(".imageHosts[0]"),
            "is not a host, a host with a port, or a range",
        ),
        ("{imagefolders: []}", at(".imagefolders"), "did you mean \"imageFolders\"?"),
        ("team-a", at(""), "must be a mapping"),
        ("{networks: lan}", at(".networks"), "must be a list"),
        ("{macAddresses: yes-please}", at(".macAddresses"), "must be true or false"),
        ("{hypervisors: [z]}", at(".hypervisors[0]"), "is the name of no element of hypervisors"),
    ] {
        let found = config(&format!("machines: {{allow: [{entry}]}}")).expect_err(entry);
        let [(found, message)] = &found[..] else { panic!("{entry}: {found:?}") };
        assert!(*found == key && message.contains(words), "{entry}: {found}: {message}");
    }
    for (section, key, words) in [
        ("machines: {allow: {}}", "machines.allow", "must be a list"),
        ("imageFolders: [/a]", "imageFolders", "it belongs under an element of machines.allow"),
        ("allow: []", "allow", "it belongs under machines"),
    ] {
        let found = config(section).expect_err(section);
        assert!(found[0].0 == key && found[0].1.contains(words), "{section}: {found:?}");
    }
}

/// What a namespace may name of hypervisors: `N` network lan, `B` bridge br0, `D` device eth1, `P` the same
/// for itself, `S` pool fast, `M` a MAC address, `1` and `2` the hypervisors.
fn places(section: &str, namespace: &str) -> String {
    let text =
        format!("hypervisors: [{{name: a, uri: 'test:///a'}}, {{name: b, uri: 'test:///b'}}]\n{section}");
    let config = Config::parse(&text, None).expect(section);
    let allowed = config.allow.of(namespace);
    let answers = [
        ('N', allowed.network("f", "lan")),
        ('B', allowed.bridge("f", "br0")),
        ('D', allowed.macvtap_device("f", "eth1", false)),
        ('P', allowed.macvtap_device("f", "eth1", true)),
        ('S', allowed.pool("f", "fast")),
        ('M', allowed.mac_address("f")),
        ('1', allowed.hypervisor("f", "a")),
        ('2', allowed.hypervisor("f", "b")),
    ];
    allowed.network("f", "default").expect("the network of machines that name none");
    allowed.pool("f", "default").expect("the pool of disks that name none");
    let is_open = |(letter, answer): (char, Result<()>)| match answer {
        Ok(()) => Some(letter),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            None
        }
    };
    answers.into_iter().filter_map(is_open).collect()
}

#[test]
fn places_of_hypervisors_are_open_to_those_namespaces_for_which_they_are_listed() {
    assert_eq!(places("", "team-a"), "12", "without a list all hypervisors are open");
    let section = "
machines:
  allow:
  - {networks: [lan], hypervisors: [a]}
  - namespaces: [team-a]
    bridges: [br0]
    macvtapDevices: [eth1]
    pools: [fast]
  - {namespaces: [team-b], macAddresses: true, macvtapPassthrough: true, macvtapDevices: [eth1], hypervisors: [b]}
  - {namespaces: [team-c], macvtapPassthrough: true}
";
    assert_eq!(places(section, "team-a"), "NBDS1");
    assert_eq!(places(section, "team-b"), "NDPM12");
    assert_eq!(places(section, "team-c"), "N1");
    let reserved = "machines: {allow: [{namespaces: [team-a], hypervisors: [a, b]}]}";
    assert_eq!(places(reserved, "team-a"), "12");
    assert_eq!(
        places(reserved, "team-b"),
        "",
        "what is listed for one namespace alone is closed to the others"
    );
}

#[test]
fn names_are_compared_whole() {
    let allow =
        config("machines: {allow: [{networks: [lan, ''], bridges: [br0]}]}").expect_err("an empty name");
    assert_eq!(allow[0].0, "machines.allow[0].networks[1]");
    let config = config("machines: {allow: [{networks: [lan], bridges: ['*']}]}").expect("valid");
    let allowed = config.allow.of("team-a");
    for name in ["Lan", "lan ", "la", "lan0", " default", "Default", "./default", ""] {
        allowed.network("f", name).expect_err(name);
    }
    allowed.bridge("f", "br0").expect_err("nothing is a pattern");
}

#[test]
fn an_entry_with_faulty_namespaces_is_for_nobody() {
    let mut problems = provider_kit::Findings::default();
    let list =
        vec![("machines.allow[0]".to_owned(), serde_json::json!({"namespaces": 7, "imageFolders": ["/a"]}))];
    let allow = Allow::read(list, &mut problems);
    assert!(!problems.problems.is_empty() && allow.of("team-a").image_file("f", "/a/b").is_err());
}

#[test]
fn what_is_open_is_shown() {
    let lines = allow().lines();
    assert_eq!(
        lines,
        [
            "machines.allow[0]: every namespace: imageVolumes images/*; imageHosts 10.1.0.0/16",
            "machines.allow[1]: namespace team-a, team-b: imageFolders /images, /images/inner; imageVolumes default/golden-*; \
             imageHosts mirror:8080",
            "machines.allow[2]: namespace team-a: imageFolders /a",
        ]
    );
    let places = "machines: {allow: [{networks: [lan], bridges: [br0], macvtapDevices: [eth1], pools: [fast, slow], \
                  macAddresses: true, macvtapPassthrough: true, hypervisors: [a]}]}";
    assert_eq!(
        config(places).expect("valid").allow.lines(),
        [
            "machines.allow[0]: every namespace: networks lan; bridges br0; macvtapDevices eth1; macvtapPassthrough; \
          pools fast, slow; macAddresses; hypervisors a"
        ]
    );
    assert_eq!(
        config("machines: {allow: [{}]}").expect("valid").allow.lines(),
        ["machines.allow[0]: every namespace: nothing"]
    );
    assert_eq!(Allow::default().lines().len(), 1);
    assert_eq!(ImageHosts::of(&["[fd00::1]:80", "fd00::/8"]).to_string(), "[fd00::1]:80, fd00::/8");
}
