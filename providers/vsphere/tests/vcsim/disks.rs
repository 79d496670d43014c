//! The disks of a machine that is deleted.

use serde_json::json;

use crate::{controller::*, support::*};

/// The folder with the disks of others.
const OTHERS: &str = "/volumes/";

/// Like a real vCenter, the simulator deletes the files of all disks that a machine has when it is destroyed.
#[tokio::test]
async fn the_disks_of_others_outlive_a_machine() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let before = vcsim.files().expect("files");
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({"dataDisks": [{"name": "own", "sizeGiB": 1}]}));
    controller.make(&mut object).await;
    let name = object.name();
    for file in ["one", "two"] {
        vcsim.act(&name, "disk", &format!("[LocalDS_0] volumes/{file}.vmdk")).expect("a disk");
    }
    vcsim.act(&name, "volume", "").expect("a volume");
    let mut theirs = vcsim.files().expect("files");
    theirs.retain(|file| file.contains(OTHERS));
    assert!(theirs.len() >= 2, "{theirs:?}");

    controller.delete(&mut object).await;
    assert_eq!(names(&vcsim), [machine(0)]);
    let mut left = vcsim.files().expect("files");
    left.retain(|file| !before.contains(file));
    assert_eq!(left, theirs, "the machine's own are gone, and no others");
    let sent = vcsim.last_requests().expect("requests").remove("soap:ReconfigVM_Task").expect("an edit");
    assert_eq!(sent.matches("<operation>remove</operation>").count(), 2, "{sent}");
    assert!(!sent.contains("fileOperation"), "{sent}");
    running.stop().await;
}
