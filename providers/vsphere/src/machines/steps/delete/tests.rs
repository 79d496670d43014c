use super::*;
use crate::moref::MoRef;

const FOLDER: &str = "worker-1";

fn disk(key: i32, file: Option<&str>) -> TemplateDisk {
    TemplateDisk { key, file: file.map(str::to_owned), capacity_kib: 1 << 20, ..TemplateDisk::default() }
}

/// The call that detaches what is not the machine's own, as XML, and the keys of these disks.
fn detached(folder: Option<&str>, disks: Vec<TemplateDisk>) -> (String, Vec<String>) {
    let facts = TemplateFacts { folder: folder.map(str::to_owned), disks, ..TemplateFacts::default() };
    let spec = ConfigSpec { device_change: foreign(&facts), ..ConfigSpec::empty() };
    let text = crate::soap::written(&ReconfigVm { spec }.of(&MoRef::new("VirtualMachine", "vm-1")));
    let keys = text.split("<key>").skip(1).filter_map(|rest| rest.split_once('<'));
    let keys = keys.map(|(key, _)| key.to_owned()).collect();
    (text, keys)
}

#[test]
fn the_disks_of_others_are_detached_and_their_files_stay() {
    let own = disk(2000, Some("[ds] worker-1/worker-1.vmdk"));
    let elsewhere = disk(2001, Some("[ds] volumes/pv-1.vmdk"));
    let volume = TemplateDisk { is_first_class: true, ..disk(2002, Some("[ds] worker-1/volume.vmdk")) };
    let (text, keys) = detached(Some(FOLDER), vec![own, elsewhere, volume]);
    assert_eq!(keys, ["2001", "2002"], "{text}");
    assert_eq!(text.matches("<operation>remove</operation>").count(), 2, "{text}");
    // with one, vCenter would delete the files
    assert!(!text.contains("fileOperation"), "{text}");
}

#[test]
fn a_disk_is_the_machines_own_only_if_that_is_known() {
    for (folder, file, is_own) in [
        (Some(FOLDER), Some("[ds] worker-1/worker-1.vmdk"), true),
        // the disks of a machine may be on several datastores
        (Some(FOLDER), Some("[other] worker-1/worker-1_1.vmdk"), true),
        (Some(FOLDER), Some("[ds] worker-10/worker-10.vmdk"), false),
        (Some(FOLDER), Some("[ds] worker-1/inner/volume.vmdk"), false),
        (Some(FOLDER), Some("[ds] volume.vmdk"), false),
        (Some(FOLDER), Some("what is no path"), false),
        (None, Some("[ds] worker-1/worker-1.vmdk"), false),
        // without a file nothing can be destroyed
        (Some(FOLDER), None, true),
        (None, None, true),
    ] {
        let (text, keys) = detached(folder, vec![disk(2000, file)]);
        assert_eq!(keys.is_empty(), is_own, "{folder:?} {file:?}: {text}");
    }
}
