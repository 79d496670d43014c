use serde_json::json;

use crate::machines::{
    clone::tests::{planned, sent, spec, template},
    template::{TemplateDisk, TemplateFacts},
};

/// A template with two disks, of 20 and of 10 GiB, on one controller.
fn two_disks() -> TemplateFacts {
    let mut facts = template();
    facts.disks.push(TemplateDisk {
        key: 2001,
        unit_number: Some(1),
        capacity_kib: 10 << 20,
        file: Some("[ds] ubuntu/ubuntu_1.vmdk".to_owned()),
        thin: Some(false),
        ..facts.disks[0].clone()
    });
    facts.controllers[0].taken.push(1);
    facts
}

/// The changes of disks that the call for this spec has.
fn disks(more: serde_json::Value) -> Vec<String> {
    let text = sent(&planned(&spec(more), &two_disks()).expect("a plan"));
    let changes = text.split("<deviceChange ").skip(1).filter(|one| one.contains("\"VirtualDisk\""));
    changes.filter_map(|one| one.split_once("</deviceChange>")).map(|(one, _)| one.to_owned()).collect()
}

/// What stands between the tags of this name.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
}

#[test]
fn each_disk_of_the_template_grows_to_its_own_size() {
    let of = |disk: &str| {
        assert_eq!((field(disk, "operation"), field(disk, "fileOperation")), (Some("edit"), None), "{disk}");
        let texts = ["key", "fileName", "thinProvisioned", "controllerKey", "unitNumber", "capacityInKB"]
            .map(|name| field(disk, name).unwrap_or_default().to_owned());
        texts.join(" ")
    };
    let first = "2000 [ds] ubuntu/ubuntu.vmdk true 1000 0 31457280";
    let second = "2001 [ds] ubuntu/ubuntu_1.vmdk false 1000 1 12582912";
    for (more, expected) in [
        (json!({"diskGiB": 30, "additionalDisksGiB": [12]}), &[first, second][..]),
        (json!({"additionalDisksGiB": [12]}), &[second][..]),
        (json!({"diskGiB": 30}), &[first][..]),
        // as they are
        (json!({"diskGiB": 20, "additionalDisksGiB": [10]}), &[][..]),
        (json!({"diskGiB": 0, "additionalDisksGiB": [0]}), &[][..]),
    ] {
        let found: Vec<_> = disks(more.clone()).iter().map(|disk| of(disk)).collect();
        assert_eq!(found, expected, "{more}");
    }
    for (sizes, words) in [
        (json!([9]), "spec.additionalDisksGiB[0]: 9 GiB are less than the 10 GiB"),
        (json!([12, 12]), "spec.additionalDisksGiB[1]: the template has 2 disks"),
        (json!([-1]), "spec.additionalDisksGiB[0]: -1 is no size in GiB"),
    ] {
        let error = planned(&spec(json!({"additionalDisksGiB": sizes})), &two_disks()).expect_err(words);
        assert!(error.to_string().starts_with(words), "{error}");
    }
}

#[test]
fn new_disks_take_their_space_as_the_spec_says() {
    let modes = [
        (None, None, None),
        (Some("Thin"), Some("true"), None),
        (Some("Thick"), Some("false"), None),
        (Some("EagerlyZeroed"), Some("false"), Some("true")),
    ];
    let wanted = modes.iter().enumerate().map(|(number, (mode, _, _))| {
        let mut disk = json!({"name": format!("d{number}"), "sizeGiB": number + 1});
        if let Some(mode) = mode {
            disk["provisioningMode"] = (*mode).into();
        }
        disk
    });
    let found = disks(json!({"dataDisks": wanted.collect::<Vec<_>>()}));
    assert_eq!(found.len(), modes.len(), "{found:?}");
    for (number, (disk, (mode, thin, eager))) in found.iter().zip(modes).enumerate() {
        let space = (field(disk, "thinProvisioned"), field(disk, "eagerlyScrub"));
        assert_eq!(space, (thin, eager), "{mode:?}: {disk}");
        assert_eq!((field(disk, "operation"), field(disk, "fileOperation")), (Some("add"), Some("create")));
        let place = ["key", "controllerKey", "unitNumber", "capacityInKB"].map(|name| field(disk, name));
        let (key, unit) =
            ((-200 - i32::try_from(number).expect("few")).to_string(), (number + 2).to_string());
        let size = ((number + 1) << 20).to_string();
        assert_eq!(place, [Some(key.as_str()), Some("1000"), Some(&unit), Some(&size)], "{disk}");
    }
}

/// A SCSI controller has a unit itself.
#[test]
fn new_disks_get_the_units_that_are_free() {
    let wanted = |count: usize| {
        let disks = (0..count).map(|number| json!({"name": format!("d{number}"), "sizeGiB": 1}));
        json!({"dataDisks": disks.collect::<Vec<_>>()})
    };
    let units: Vec<_> = disks(wanted(13))
        .iter()
        .map(|disk| field(disk, "unitNumber").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(units, ["2", "3", "4", "5", "6", "8", "9", "10", "11", "12", "13", "14", "15"]);
    let error = planned(&spec(wanted(14)), &two_disks()).expect_err("one too many");
    assert_eq!(error.to_string(), "spec.dataDisks[13]: the disk controller of the template has no unit left");
}
