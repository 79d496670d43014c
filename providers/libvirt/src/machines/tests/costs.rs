//! What a machine costs its hypervisor: the calls to libvirt.

use std::collections::BTreeMap;

use serde_json::json;
use tempfile::NamedTempFile;

use super::support::{Daemon, IMAGE, Object};
use crate::measured;

/// A hypervisor whose pool has the image.
fn hypervisor() -> NamedTempFile {
    let xml = format!(
        "<node><cpu><mhz>2000</mhz><model>x</model><active>16</active><nodes>1</nodes><sockets>1</sockets>
         <cores>16</cores><threads>1</threads></cpu><memory>67108864</memory>
         <network><name>default</name><forward/><bridge name='virbr0'/>
         <ip address='192.168.122.1' netmask='255.255.255.0'>
         <dhcp><range start='192.168.122.2' end='192.168.122.254'/></dhcp></ip></network>
         <pool type='dir'><name>default</name><target><path>/default</path></target>
         <volume type='file'><name>{IMAGE}</name><capacity unit='bytes'>1073741824</capacity></volume></pool></node>"
    );
    let file = NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), xml).expect("writable");
    file
}

/// The calls of these operations since `before`.
fn since(
    daemon: &Daemon,
    before: &BTreeMap<&'static str, u64>,
    operations: &[&'static str],
) -> Vec<(&'static str, u64)> {
    let now = daemon.provider.call_counts();
    let count = |operation| now.get(operation).unwrap_or(&0) - before.get(operation).unwrap_or(&0);
    operations.iter().map(|operation| (*operation, count(*operation))).collect()
}

/// What the documentation says. Calls that follow events are left out: several events may be read as one.
#[tokio::test]
async fn calls_of_one_machine() {
    let daemon = Daemon::start_provider(vec![hypervisor()], measured::provider_on_test_driver).await;
    let before = daemon.provider.call_counts();
    let mut object = Object::new(&json!({}));
    object.made(&daemon).await;
    let operations = [
        "capabilities",
        "lookup_pool",
        "list_volumes",
        "lookup_volume",
        "volume_xml",
        "create_volume",
        "upload_volume",
        "download_volume",
        "define_domain",
        "set_autostart",
        "start_domain",
    ];
    let made = since(&daemon, &before, &operations);
    let expected = [
        // Once for each connection.
        ("capabilities", 1),
        ("lookup_pool", 1),
        ("list_volumes", 0),
        // Whether there is a root disk, once under its name and twice under the older one, the image and its
        // beginning, and the seed twice.
        ("lookup_volume", 7),
        // The image, the root disk, the console, and the seed twice.
        ("volume_xml", 5),
        // The root disk, the seed and the console.
        ("create_volume", 3),
        // The stream and the upload, which this driver refuses. Elsewhere the content and the end follow.
        ("upload_volume", 2),
        // The same for the beginning of the image.
        ("download_volume", 2),
        ("define_domain", 1),
        ("set_autostart", 1),
        ("start_domain", 1),
    ];
    assert_eq!(made, expected);
    let before = daemon.provider.call_counts();
    object.removed(&daemon).await;
    let operations = [
        "lookup_pool",
        "refresh_pool",
        "list_volumes",
        "lookup_volume",
        "volume_xml",
        "delete_volume",
        "destroy_domain",
    ];
    let removed = since(&daemon, &before, &operations);
    let expected = [
        ("lookup_pool", 0),
        ("refresh_pool", 1),
        ("list_volumes", 3),
        ("lookup_volume", 3),
        ("volume_xml", 0),
        ("delete_volume", 3),
        ("destroy_domain", 1),
    ];
    assert_eq!(removed, expected);
}
