//! Steps of machines that vCenter finds by their UUIDs and that the inventory does not show. The vCenter is a scripted one: the simulator
//! shows everything at once.

use tokio::time::advance;

use super::{
    rig::{Rig, machine, rig},
    *,
};
use crate::{
    testing::scripted::{node, reference, text},
    vim::element::Element,
};

const READ: &str = "RetrievePropertiesEx";

fn told(properties: &[(&str, &str)]) -> Element {
    let properties =
        properties.iter().map(|(name, value)| node("propSet", vec![text("name", name), text("val", value)]));
    node("objects", [reference("obj", &machine())].into_iter().chain(properties).collect())
}

/// vCenter finds the machine, and then answers this.
fn finds(rig: &Rig, told: Element) {
    rig.transport.answer("FindAllByUuid", Ok(reference("returnval", &machine())));
    rig.transport.answer(READ, Ok(node("returnval", vec![told])));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_became_a_template_is_said_to_be_one() {
    let mut rig = rig().await;
    rig.leave();
    // no clones are under way; the machine that has left is there
    for is_late in [false, true] {
        if is_late {
            advance(Duration::from_secs(31)).await;
        } else {
            rig.transport.answer(READ, Ok(node("returnval", Vec::new())));
            rig.transport.fault(READ, "ManagedObjectNotFound");
            for _ in 0..3 {
                rig.transport.answer("FindAllByUuid", Ok(node("returnval", Vec::new())));
            }
        }
        finds(&rig, told(&[("config.template", "true")]));
        match rig.delete().await {
            Ok(Deletion::Deleting(wait)) => {
                assert!(!is_late && wait.message.contains("is being read"), "{is_late} {wait:?}");
                rig.transport.clear();
            }
            Ok(other) => unreachable!("{other:?}"),
            Err(error) => {
                assert!(is_late, "{}", error.report());
                assert!(error.report().contains("vm-1 was made a template; make it a virtual machine again"));
                assert_eq!(error.retry_after(), Some(Duration::from_secs(60)));
            }
        }
    }
}
