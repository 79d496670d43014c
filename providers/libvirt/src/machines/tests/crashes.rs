//! A daemon that ends on either side of each call to the storage, and loses what it remembered.

use std::{sync::Arc, time::Duration};

use cloudprovider::machines::{BootstrapData, BootstrapFormat};
use serde_json::json;

use super::support::{Daemon, Object, USER_DATA, has, hypervisor, storage};
use crate::machines::{
    names::VolumeNames,
    steps::{MachineRecord, wipe},
    storage::{
        StorageCalls,
        testing::{FakeCalls, POOL, SIDES},
    },
};

/// A machine whose making takes more calls than this would be another one.
const MAX_CALLS: usize = 60;

/// A configuration of Ignition that can be found again.
const IGNITION: &str = r#"{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"hunter2hunter2"}]}}"#;

/// Only ends a hang.
const PATIENCE: Duration = Duration::from_mins(10);

#[tokio::test]
async fn only_one_hypervisor_ever_has_parts_of_a_machine() {
    let mut points = 0;
    for at in 0..MAX_CALLS {
        let mut was_cut = false;
        for side in SIDES {
            let storages = [storage(), storage()];
            let before = storages.each_ref().map(|one| one.names(POOL));
            let dies = Arc::new(FakeCalls::that_die(&storages[0], at, side));
            let mut object = Object::new(&json!({ "disks": [{ "sizeGiB": 2 }, { "sizeGiB": 1 }] }));
            {
                // Both are the same, so the first one is chosen.
                let first = vec![
                    (hypervisor(&[]), Arc::clone(&dies) as _),
                    (hypervisor(&[]), Arc::new(FakeCalls::new(&storages[1])) as _),
                ];
                let daemon = Daemon::start(first).await;
                let made = object.made(&daemon);
                tokio::select! {
                    _ = made => {}
                    () = dies.died.notified() => was_cut = true,
                }
            }
            if !was_cut {
                continue;
            }
            points += 1;
            // What it remembered was not written, and now the other hypervisor would be the better choice.
            let mut object = Object { record: MachineRecord::default(), ..object };
            object.request.provider_id = None;
            let calls = storages.each_ref().map(FakeCalls::new);
            let [one, two] = calls.map(|calls| Arc::new(calls) as _);
            let daemon = Daemon::start(vec![(hypervisor(&[4096]), one), (hypervisor(&[]), two)]).await;
            object.made(&daemon).await;
            let after = storages.each_ref().map(|one| one.names(POOL));
            let more: Vec<_> = after.iter().zip(&before).map(|(a, b)| a.len() - b.len()).collect();
            assert!(matches!(more[..], [4, 0] | [0, 4]), "call {at} {side:?}: {after:?}");
            object.removed(&daemon).await;
            assert_eq!(storages.each_ref().map(|one| one.names(POOL)), before, "call {at} {side:?}");
        }
        if !was_cut {
            assert!(points > 20, "{points} points");
            return;
        }
    }
    panic!("a machine takes more than {MAX_CALLS} calls");
}

#[tokio::test]
async fn a_deletion_that_is_cut_off_is_finished_without_the_status() {
    for at in 0..MAX_CALLS {
        let mut was_cut = false;
        for side in SIDES {
            let storage = storage();
            let before = storage.names(POOL);
            let mut object = Object::new(&json!({}));
            {
                let makes = Arc::new(FakeCalls::new(&storage));
                let daemon = Daemon::start(vec![(hypervisor(&[]), makes as _)]).await;
                object.made(&daemon).await;
            }
            {
                let dies = Arc::new(FakeCalls::that_die(&storage, at, side));
                let daemon = Daemon::start(vec![(hypervisor(&[]), Arc::clone(&dies) as _)]).await;
                let removed = object.removed(&daemon);
                tokio::select! {
                    () = removed => {}
                    () = dies.died.notified() => was_cut = true,
                }
            }
            let mut object = Object { record: MachineRecord::default(), ..object };
            let daemon =
                Daemon::start(vec![(hypervisor(&[]), Arc::new(FakeCalls::new(&storage)) as _)]).await;
            tokio::time::timeout(PATIENCE, object.removed(&daemon)).await.expect("in time");
            assert_eq!(storage.names(POOL), before, "call {at} {side:?}");
        }
        if !was_cut {
            assert!(at > 2, "{at} calls");
            return;
        }
    }
    panic!("a deletion takes more than {MAX_CALLS} calls");
}

#[tokio::test]
async fn a_wipe_of_bootstrap_data_that_is_cut_off_is_finished() {
    for format in [BootstrapFormat::CloudConfig, BootstrapFormat::Ignition] {
        let mut points = 0;
        for (at, side) in (0..MAX_CALLS).flat_map(|at| SIDES.map(|side| (at, side))) {
            let storage = storage();
            let mut object = Object::new(&json!({ "removeBootstrapData": true }));
            let data = match format {
                BootstrapFormat::Ignition => IGNITION,
                _ => USER_DATA,
            };
            object.request.bootstrap = Some(BootstrapData::new(format, data));
            let made = FakeCalls::new(&storage);
            let dies = Arc::new(FakeCalls::that_die(&storage, at, side));
            // The domain lives as long as its daemon, so only the wipe has calls that die.
            let daemon = Daemon::start(vec![(hypervisor(&[]), Arc::new(made) as _)]).await;
            object.made(&daemon).await;
            assert!(has(&storage, data).await);
            let names = storage.names(POOL);
            object.request.bootstrap = None;
            object.request.has_node = true;
            let was_cut = {
                let calls = Arc::clone(&dies) as Arc<dyn StorageCalls>;
                let names = VolumeNames::new(&object.request.mark);
                let wipe = wipe(&calls, &object.request, &names, format == BootstrapFormat::Ignition);
                tokio::select! {
                    wiped = wipe => { wiped.expect("wiped"); false }
                    () = dies.died.notified() => true,
                }
            };
            points += usize::from(was_cut);
            // The status was not written.
            object.record = MachineRecord::default();
            object.step(&daemon).await.expect("a step");
            assert!(!has(&storage, data).await, "{format} {at} {side:?}");
            assert_eq!(storage.names(POOL), names, "{format} {at} {side:?}");
            object.removed(&daemon).await;
            if !was_cut {
                break;
            }
        }
        assert!(points > 10, "{points} points");
    }
}
