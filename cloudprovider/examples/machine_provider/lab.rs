//! The cloud of this example: virtual machines in memory, in racks. Every real cloud has something like it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cloudprovider::{InstanceChange, InstanceRef, machines::Mark};
use tokio::{
    sync::broadcast,
    time::{Instant, sleep_until},
};

/// How long a machine boots until it has its address.
const BOOT_TIME: Duration = Duration::from_millis(50);

/// A virtual machine.
#[derive(Clone, Debug)]
pub(crate) struct Vm {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) rack: Option<String>,
    pub(crate) cpus: u32,
    pub(crate) is_running: bool,
    /// Whose it is, in whatever place a cloud has for notes about a machine.
    pub(crate) mark: Option<Mark>,
    /// `None` until it has booted.
    pub(crate) address: Option<String>,
}

/// The lab.
#[derive(Debug)]
pub(crate) struct Lab {
    vms: Mutex<BTreeMap<String, Vm>>,
    /// How many addresses were given to machines.
    leases: AtomicUsize,
    pub(crate) changes: broadcast::Sender<InstanceChange>,
}

impl Lab {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            vms: Mutex::default(),
            leases: AtomicUsize::new(1),
            changes: broadcast::channel(1024).0,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vm>> {
        self.vms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn by_uuid(&self, uuid: &str) -> Option<Vm> {
        self.lock().get(uuid).cloned()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Vm> {
        self.lock().values().find(|vm| vm.name == name).cloned()
    }

    /// Creates a machine and lets it boot. Does nothing if there is one with this UUID.
    pub(crate) fn create(self: &Arc<Self>, vm: Vm) {
        let (lab, uuid, booted) = (self.clone(), vm.uuid.clone(), Instant::now() + BOOT_TIME);
        self.lock().entry(uuid.clone()).or_insert(vm);
        self.tell(&uuid);
        tokio::spawn(async move {
            sleep_until(booted).await;
            let number = lab.leases.fetch_add(1, Ordering::Relaxed);
            lab.change(&uuid, |vm| vm.address = Some(format!("10.0.{}.{}", number / 256, number % 256)));
        });
    }

    /// Changes a machine, if it is there.
    pub(crate) fn change(&self, uuid: &str, change: impl FnOnce(&mut Vm)) {
        if let Some(vm) = self.lock().get_mut(uuid) {
            change(vm);
        }
        self.tell(uuid);
    }

    pub(crate) fn destroy(&self, uuid: &str) {
        let removed = self.lock().remove(uuid);
        if let Some(vm) = removed {
            self.push(&vm);
        }
    }

    /// All machines, for tests.
    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<Vm> {
        self.lock().values().cloned().collect()
    }

    fn tell(&self, uuid: &str) {
        if let Some(vm) = self.by_uuid(uuid) {
            self.push(&vm);
        }
    }

    fn push(&self, vm: &Vm) {
        let change = InstanceRef {
            provider_id: Some(crate::provider_id(&vm.uuid).to_string()),
            system_uuid: Some(vm.uuid.clone()),
            name: Some(vm.name.clone()),
            // This wakes the object that the machine was made for.
            machine: vm.mark.as_ref().map(|mark| mark.uid.clone()),
        };
        // An error means that nobody listens.
        let _ = self.changes.send(InstanceChange::Changed(vec![change]));
    }
}
