use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::config::read_allow;

fn entries(list: Value) -> Vec<AllowEntry> {
    let mut problems = Vec::new();
    let entries = read_allow(&list, &["main".to_owned(), "other".to_owned()], &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    entries
}

fn spec(more: Value) -> VirtualMachineCloneSpec {
    let mut spec = json!({"template": "t", "network": {"devices": []}});
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    serde_json::from_value(spec).expect("a spec")
}

fn path(text: &str) -> Vec<String> {
    text.split('/').map(str::to_owned).collect()
}

/// Whether a template at this path may be named.
fn may_clone(allowed: &Allowed<'_>, at: &str) -> bool {
    let (object, path) = (MoRef::new("VirtualMachine", "vm-1"), path(at));
    allowed.template("t", Located { object: &object, path: &path, is_default: false }).is_ok()
}

#[test]
fn a_namespace_may_name_what_any_of_its_entries_lists() {
    let list = entries(json!([
        {"templates": ["/dc/vm/images/*"]},
        {"namespaces": ["a", "b"], "templates": ["/dc/vm/a/**"]},
        {"namespaces": ["b"], "vcenters": ["other"], "templates": ["*"]},
        {"namespaces": ["c"], "templates": ["VirtualMachine:vm-1"]},
    ]));
    for (namespace, vcenter, at, expected) in [
        ("a", "main", "dc/vm/images/u", true),
        ("z", "main", "dc/vm/images/u", true),
        ("a", "main", "dc/vm/images/more/u", false),
        ("a", "main", "dc/vm/a/x/y", true),
        ("a", "main", "dc/vm/a", false),
        ("z", "main", "dc/vm/a/x", false),
        ("aa", "main", "dc/vm/a/x", false),
        ("b", "main", "dc/vm/victim", false),
        ("b", "other", "dc/vm/victim", true),
        ("a", "other", "dc/vm/victim", false),
        ("c", "main", "dc/vm/anywhere", true),
        ("a", "main", "dc/vm/images/u/", false),
    ] {
        let allowed = Allowed::new(&list, namespace, vcenter, false);
        assert_eq!(may_clone(&allowed, at), expected, "{namespace} {vcenter} {at}");
    }
    assert!(may_clone(&Allowed::new(&list, "z", "main", true), "dc/vm/victim"), "its privileges decide");
}

/// A list and a spec are written in one language.
#[test]
fn patterns_are_those_of_the_words_of_a_spec() {
    for (pattern, at, expected) in [
        ("/dc/vm/t-[0-9]", "dc/vm/t-7", true),
        ("/dc/vm/t-[0-9]", "dc/vm/t-[0-9]", true),
        ("/dc/vm/t-[^0-9]", "dc/vm/t-7", false),
        ("/dc/vm/t-[", "dc/vm/t-[", true),
        ("/dc/vm/t-[", "dc/vm/t-x", false),
        ("/dc/vm/50%25 %5c *", "dc/vm/50% \\ *", true),
        ("/dc/vm/?", "dc/vm/ab", false),
        ("/*/vm/a*", "dc/vm/ab", true),
        ("/*/vm/a*", "dc/vm/ab/c", false),
    ] {
        let list = entries(json!([{"templates": [pattern]}]));
        assert_eq!(may_clone(&Allowed::new(&list, "a", "main", false), at), expected, "{pattern} {at}");
    }
}

#[test]
fn a_slash_in_a_name_is_no_border() {
    let list = entries(json!([{"templates": ["/dc/vm/images/u"]}]));
    let allowed = Allowed::new(&list, "a", "main", false);
    let object = MoRef::new("VirtualMachine", "vm-1");
    let forged = ["dc".to_owned(), "vm".to_owned(), "images/u".to_owned()];
    assert!(allowed.template("t", Located { object: &object, path: &forged, is_default: false }).is_err());
    let list = entries(json!([{"templates": ["/dc/vm/images%2fu"]}]));
    let allowed = Allowed::new(&list, "a", "main", false);
    assert!(allowed.template("t", Located { object: &object, path: &forged, is_default: false }).is_ok());
}

#[test]
fn an_object_whose_path_is_not_known_is_in_no_folder() {
    let list = entries(json!([{"folders": ["/dc/**", "/*/*"]}]));
    let allowed = Allowed::new(&list, "a", "main", false);
    let object = MoRef::new("Folder", "group-1");
    assert!(allowed.folder(Some("x"), Located { object: &object, path: &[], is_default: false }).is_err());
}

#[test]
fn what_stands_for_a_missing_word_is_free_unless_there_is_a_list() {
    let object = MoRef::new("Folder", "group-v3");
    let at = |path: &'static [String], is_default| Located { object: &object, path, is_default };
    for (list, is_default, expected) in [
        (json!([]), true, false),
        (json!([{"networks": ["*"]}]), true, true),
        (json!([{"networks": ["*"]}]), false, false),
        (json!([{"folders": ["/dc/vm/a"]}]), true, false),
        (json!([{"folders": ["Folder:group-v3"]}]), true, true),
        (json!([{"namespaces": ["z"], "networks": ["*"]}]), true, false),
    ] {
        let list = entries(list);
        let allowed = Allowed::new(&list, "a", "main", false);
        assert_eq!(allowed.folder(None, at(&[], is_default)).is_ok(), expected, "{list:?}");
        assert_eq!(allowed.folder(Some("/dc/vm"), at(&[], is_default)).is_ok(), expected, "{list:?}");
    }
}

#[test]
fn the_keys_of_the_controller_are_refused_in_any_letter_case() {
    let list = entries(json!([{"vmxKeys": ["*"]}]));
    for has_identity in [false, true] {
        let allowed = Allowed::new(&list, "a", "main", has_identity);
        for key in [
            "cloud-controller-manager.mark",
            "CLOUD-Controller-Manager.mark",
            "Guestinfo.UserData",
            "GUESTINFO.METADATA.encoding",
            "guestinfo.ignition.config.data.encoding",
        ] {
            let error = allowed.words(&spec(json!({"customVMXKeys": {key: "x"}}))).expect_err(key);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{key}");
            assert!(error.report().ends_with("this key is set by the controller"), "{}", error.report());
        }
        for key in
            ["", "a b", "guestinfo.a\nRemoteDisplay.vnc.enabled", "guestinfo.a = \"1\"", "guestinfo.\u{e4}"]
        {
            let error = allowed.words(&spec(json!({"customVMXKeys": {key: "x"}}))).expect_err(key);
            assert!(error.report().contains("letters, digits"), "{}", error.report());
        }
    }
}

#[test]
fn options_are_few_and_short() {
    let list = entries(json!([{"vmxKeys": ["*"]}]));
    let allowed = Allowed::new(&list, "a", "main", false);
    let words = |keys: usize, length: usize| {
        let all: BTreeMap<_, _> =
            (0..keys).map(|key| (format!("guestinfo.{key}"), "\u{e4}".repeat(length))).collect();
        allowed.words(&spec(json!({ "customVMXKeys": all }))).err().map(|error| error.report())
    };
    assert_eq!(words(64, 4096), None);
    let many = "spec.customVMXKeys: there are 65 keys; give at most 64";
    assert!(words(65, 1).is_some_and(|found| found.contains(many)));
    let long = "spec.customVMXKeys[guestinfo.0]: the value has 4097 characters; give at most 4096";
    assert!(words(1, 4097).is_some_and(|found| found.contains(long)));
}

#[test]
fn keys_that_reach_more_than_the_guest_have_to_be_listed() {
    let open = ["disk.EnableUUID", "guestinfo.team", "GuestInfo.x.y", "pciPassthru.use64bitMMIO"];
    let closed = [
        "RemoteDisplay.vnc.enabled",
        "remotedisplay.vnc.port",
        "ethernet0.networkName",
        "scsi0:1.fileName",
        "serial0.fileName",
        "isolation.tools.hgfs.disable",
        "sched.mem.pin",
        "SET.guest.ipAddress",
        "disk.enableUUIDs",
    ];
    let none = entries(json!([]));
    let some = entries(json!([{"namespaces": ["a"], "vmxKeys": ["RemoteDisplay.*", "SET.guest.ipAddress"]}]));
    for has_identity in [false, true] {
        let may = |list: &[AllowEntry], namespace: &str, key: &str| {
            let allowed = Allowed::new(list, namespace, "main", has_identity);
            allowed.words(&spec(json!({"customVMXKeys": {key: "x"}}))).is_ok()
        };
        for key in open {
            assert!(may(&none, "a", key), "{key}");
        }
        for key in closed {
            assert!(!may(&none, "a", key), "{key}");
            assert!(!may(&some, "b", key), "{key}");
        }
        assert!(may(&some, "a", "remoteDisplay.VNC.enabled") && may(&some, "a", "set.guest.ipaddress"));
        assert!(!may(&some, "a", "SET.guest.ipAddress2") && !may(&some, "a", "ethernet0.networkName"));
    }
}

#[test]
fn words_that_name_more_than_the_machine_have_to_be_listed() {
    let list = entries(json!([{
        "namespaces": ["a"], "storagePolicies": ["gold"], "tags": ["urn:vmomi:InventoryServiceTag:1:GLOBAL"],
        "pciDevices": ["10de:1eb8", "grid_t4*"], "macAddresses": ["00:50:56:0a:*"],
    }]));
    let device = |mac: &str| json!({"network": {"devices": [{"networkName": "n", "macAddr": mac}]}});
    for (more, expected) in [
        (json!({"storagePolicyName": "gold"}), Ok(())),
        (json!({"storagePolicyName": "silver"}), Err("spec.storagePolicyName: \"silver\" is not permitted")),
        (json!({"tagIDs": ["urn:vmomi:InventoryServiceTag:1:GLOBAL"]}), Ok(())),
        (json!({"tagIDs": ["urn:vmomi:InventoryServiceTag:2:GLOBAL"]}), Err("spec.tagIDs[0]: ")),
        (json!({"pciDevices": [{"vendorId": 0x10de, "deviceId": 0x1eb8}]}), Ok(())),
        (
            json!({"pciDevices": [{"vendorId": 0x10de, "deviceId": 0x1_1eb8}]}),
            Err("spec.pciDevices[0]: \"10de:11eb8\""),
        ),
        (json!({"pciDevices": [{"vGPUProfile": "grid_t4-8q"}]}), Ok(())),
        (json!({"pciDevices": [{"vGPUProfile": "grid_a100"}]}), Err("spec.pciDevices[0]: \"grid_a100\"")),
        (device("00:50:56:0A:00:01"), Ok(())),
        (device("00-50-56-0A-00-01"), Ok(())),
        (device("00:50:56:0b:00:01"), Err("spec.network.devices[0].macAddr: ")),
        (device(""), Ok(())),
    ] {
        let found = Allowed::new(&list, "a", "main", false).words(&spec(more.clone()));
        match (&found, expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(words)) => {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{more}");
                assert!(error.report().contains(words), "{}", error.report());
            }
            _ => panic!("{more}: {found:?}"),
        }
        assert!(Allowed::new(&list, "b", "main", true).words(&spec(more)).is_ok(), "its privileges decide");
    }
}

#[test]
fn a_machine_is_no_template_unless_an_entry_says_so() {
    let list = entries(json!([{"namespaces": ["a"], "machinesAsTemplates": true}]));
    for has_identity in [false, true] {
        let may =
            |namespace| Allowed::new(&list, namespace, "main", has_identity).machine_as_template("t").is_ok();
        assert!(may("a") && !may("b"));
    }
}

#[test]
fn virtual_machines_are_taken_over_where_they_are_listed() {
    let list = entries(json!([{"namespaces": ["a"], "folders": ["*"], "takeOver": ["/dc/vm/a/**"]}]));
    let object = MoRef::new("VirtualMachine", "vm-1");
    let may = |namespace, at: &str, has_identity| {
        let path = path(at);
        let at = Located { object: &object, path: &path, is_default: false };
        Allowed::new(&list, namespace, "main", has_identity).take_over(at).is_ok()
    };
    assert!(may("a", "dc/vm/a/x", false) && may("b", "dc/vm/b/x", true));
    assert!(!may("a", "dc/vm/b/x", false) && !may("b", "dc/vm/a/x", false));
}

#[test]
fn credentials_are_sent_to_listed_servers_alone() {
    let list = entries(json!([
        {"namespaces": ["a"], "servers": ["VC2.example.org", "vc3.example.org:8443", "fd00::1", "lab-*"]},
    ]));
    for (namespace, authority, expected) in [
        ("a", "vc2.example.org:443", true),
        ("a", "vc2.example.org:8443", false),
        ("a", "vc3.example.org:8443", true),
        ("a", "vc3.example.org:443", false),
        ("a", "[fd00::1]:443", true),
        ("a", "lab-7.example.org:9443", true),
        ("a", "evil.example.org:443", false),
        ("b", "vc2.example.org:443", false),
    ] {
        assert_eq!(allows_server(&list, namespace, authority), expected, "{namespace} {authority}");
    }
}

#[test]
fn an_error_names_the_field_the_list_and_nothing_else() {
    let list = entries(json!([{"namespaces": ["a"], "templates": ["/dc/vm/secret-folder/*"]}]));
    let object = MoRef::new("VirtualMachine", "vm-1");
    let at = |path| Located { object: &object, path, is_default: false };
    let path = path("dc/vm/prod/prod-cp-x7k2f");
    let error = Allowed::new(&list, "a", "main", false).template("prod-*", at(&path)).expect_err("no");
    let words = "spec.template: \"prod-*\" is not permitted: machines.allow of the controller's configuration does not list it \
                 for the namespace a under templates";
    assert_eq!(error.to_string(), words);
    let error = Allowed::new(&list, "b", "main", false).template("prod-*", at(&path)).expect_err("no");
    assert!(
        error.to_string().ends_with("under templates: no entry is for this namespace and vCenter"),
        "{error}"
    );
}
