use std::io::{Cursor, Read};

use cloudprovider::{ErrorKind, machines::BootstrapFormat};
use fatfs::{FileSystem, FsOptions};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn mark() -> Mark {
    Mark::machine(UID, "default", "prod", "prod-md-0-x7f2p")
}

fn cloud_config(data: impl Into<Vec<u8>>) -> BootstrapData {
    BootstrapData::new(BootstrapFormat::CloudConfig, data)
}

fn seed(data: impl Into<Vec<u8>>) -> Seed {
    Seed::nocloud(&mark(), &cloud_config(data), None).expect("it fits")
}

/// The files of a disk, sorted by name, with the label and the serial number.
fn read(bytes: &[u8]) -> (Vec<(String, Vec<u8>)>, String, u32) {
    let volume = FileSystem::new(Cursor::new(bytes.to_vec()), FsOptions::new()).expect("a file system");
    let mut files: Vec<_> = volume
        .root_dir()
        .iter()
        .map(|entry| {
            let entry = entry.expect("readable");
            let mut content = Vec::new();
            entry.to_file().read_to_end(&mut content).expect("readable");
            (entry.file_name(), content)
        })
        .collect();
    files.sort();
    let label = volume.read_volume_label_from_root_dir().expect("readable").expect("a label");
    (files, label, volume.volume_id())
}

#[test]
fn a_disk_has_what_cloud_init_looks_for() {
    let (files, label, id) = read(seed("#cloud-config\nruncmd: [x]\n").expose());
    assert_eq!((label.as_str(), id), ("CIDATA", 0x0123_4567));
    let meta_data =
        format!("instance-id: {UID}\nlocal-hostname: prod-md-0-x7f2p\nhostname: prod-md-0-x7f2p\n");
    assert_eq!(
        files,
        [
            ("meta-data".to_owned(), meta_data.into_bytes()),
            ("user-data".to_owned(), b"#cloud-config\nruncmd: [x]\n".to_vec()),
        ]
    );
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    assert_eq!(seed("a").expose(), seed("a").expose());
    assert_ne!(seed("a").expose(), seed("b").expose());
    let other = Mark { uid: "11234567-89ab-cdef-0123-456789abcdef".into(), ..mark() };
    let other = Seed::nocloud(&other, &cloud_config("a"), None).expect("it fits");
    assert_ne!(seed("a").expose(), other.expose());
}

#[test]
fn user_data_arrive_unchanged_whatever_they_are() {
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xff, 0, 0x0a, 0x0d];
    let texts: [&[u8]; 5] = [
        b"#!/bin/sh\r\necho \xc3\xa4\n",
        b"## template: jinja\n#cloud-config\n",
        b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"x\"\n\n--x--\n",
        &gzip,
        b"",
    ];
    for text in texts {
        let (files, ..) = read(seed(text).expose());
        assert_eq!(files[1].1, text);
    }
}

#[test]
fn every_size_fits_and_wastes_little() {
    // around whole clusters, whole MiB, and the change from FAT12 to FAT16 at about 16 MiB
    let mib = 1 << 20;
    let edges = [4096, mib / 2, mib, 2 * mib, 15 * mib, 16 * mib, 17 * mib];
    let pattern: Vec<u8> = (0..=250).collect();
    for size in edges.into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]) {
        let data: Vec<u8> = pattern.repeat(size / pattern.len() + 1)[..size].to_vec();
        let seed = seed(data.clone());
        assert_eq!(seed.len() % mib, 0);
        assert!(seed.len() < size + 3 * mib, "{size} bytes take {}", seed.len());
        assert!(read(seed.expose()).0[1].1 == data, "{size} bytes");
    }
}

#[test]
fn too_much_is_refused_without_showing_it() {
    let data = cloud_config(vec![b'x'; 64 << 20]);
    let error = Seed::nocloud(&mark(), &data, None).expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.report(), "the bootstrap data have 65 MiB; a seed disk takes at most 64 MiB");
}

#[test]
fn a_disk_is_not_shown() {
    assert_eq!(format!("{:?}", seed("hunter2")), "Seed { len: 1048576, .. }");
}

#[test]
fn a_name_is_a_text_in_yaml_whatever_it_looks_like() {
    for name in
        ["prod-1", "a", "123", "1e5", "true", "null", "no", "2026-11-23", "1.5", "0x1f", "node.example.org"]
    {
        let text = meta_data(&Mark { machine: Some(name.into()), ..mark() }, None);
        let read: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(read["local-hostname"], Value::from(name), "{text}");
        assert_eq!(read["hostname"], Value::from(name), "{text}");
        assert_eq!(read["instance-id"], Value::from(UID), "{text}");
    }
}

#[test]
fn the_endpoint_of_the_control_plane_is_there_for_templates() {
    for (host, port) in [("192.168.122.200", 6443), ("fd00::5", 443), ("api-1.example.org", 6443), ("1e5", 1)]
    {
        let endpoint = ControlPlaneEndpoint { host: host.to_owned(), port };
        let text = meta_data(&mark(), Some(&endpoint));
        let read: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(read["control_plane_endpoint_host"], Value::from(host), "{text}");
        assert_eq!(read["control_plane_endpoint_port"], Value::from(port), "{text}");
    }
}

#[test]
fn ignition_is_checked_as_far_as_needed_and_never_quoted() {
    let check = |text: &str| check_ignition(&BootstrapData::new(BootstrapFormat::Ignition, text));
    for good in [
        r#"{"ignition":{"version":"3.4.0","config":{}},"passwd":{"users":[{"name":"core"}]}}"#,
        r#"{"storage":{},"ignition":{"version":"2.3.0"}}"#,
    ] {
        check(good).expect("valid");
    }
    let prefix = "the bootstrap data have the format ignition, but ";
    for (bad, words) in [
        ("", "are not valid JSON (line 1, column 0)"),
        ("#cloud-config\nhunter2: x", "are not valid JSON (line 1, column 1)"),
        (r#"{"ignition":{"version":"3.4.0"}"#, "are not valid JSON (line 1, column 31)"),
        (r#"["hunter2"]"#, "are not an object with an object \"ignition\""),
        (r#"{"ignition":"hunter2"}"#, "are not an object with an object \"ignition\""),
        (r#"{"hunter2":1}"#, "have no ignition.version"),
        (r#"{"ignition":{}}"#, "have no ignition.version"),
        (r#"{"ignition":{"version":3}}"#, "ignition.version is not a text such as \"3.4.0\""),
        (r#"{"ignition":{"version":"hunter2"}}"#, "ignition.version is not a text such as \"3.4.0\""),
    ] {
        let error = check(bad).expect_err(bad);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.report(), format!("{prefix}{words}"), "{bad}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_written_is_read(data in proptest::collection::vec(any::<u8>(), 0..20_000)) {
        let (files, ..) = read(seed(data.clone()).expose());
        prop_assert_eq!(&files[1].1, &data);
    }
}
