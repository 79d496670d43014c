//! The steps of a machine whose domain is not there yet.

use std::time::{Duration, Instant};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{BootstrapData, MachineReport, Wait},
};
use uuid::Uuid;

use super::{
    MachineRecord, Request, bootstrap,
    elsewhere::chosen,
    image, places,
    present::{conflict, starting},
    reservations, volumes,
};
use crate::{
    allow::{Allow, Allowed},
    machines::{
        domain_xml::{DomainPlan, PlannedDisk},
        identity::{Identity, is_borrowed},
        libvirt_machines::{Host, LibvirtMachines, not_known},
        names,
        placement::{Placement, Wanted, gather},
        spec::{DiskFormat, DiskSpec, ImageFormat, RootDiskMode},
        storage::{Base, Disk, Format, Made, ensure_small},
    },
    size::Size,
};

/// How soon a step runs again for a domain that libvirt has and the inventory has not.
const UNSEEN_RETRY: Duration = Duration::from_secs(1);

const GIB: u64 = 1 << 30;

impl LibvirtMachines {
    /// A step of a machine that no inventory has, and that never existed.
    pub(super) async fn create(
        &self,
        machine: &Identity,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<MachineReport> {
        let Some(bootstrap) = &request.bootstrap else {
            return Ok(MachineReport::Creating(Wait::bootstrap_data()));
        };
        check(&self.config.allow, request)?;
        places::check(&self.config.allow, request)?;
        let uid = machine.uid;
        let chosen_before = self.chosen(machine);
        if let (Some(name), None) = (self.left(request, record), &chosen_before) {
            let host = self.renamed(&name, machine, request).await?;
            record.status.hypervisor = Some(host.name().to_owned());
            return Ok(MachineReport::Creating(chosen(host)));
        }
        let recorded = record.status.hypervisor.clone().filter(|name| self.host(name).is_some());
        let known = recorded.or(chosen_before);
        let is_new = known.is_none();
        let bound = match known {
            Some(name) => Some(name),
            None => self.search(uid, request).await?.map(|host| host.name().to_owned()),
        };
        let host = match self.place(uid, request, bound.as_deref())? {
            Ok(host) => host,
            Err(wait) => return Ok(MachineReport::Creating(wait)),
        };
        record.status.hypervisor = Some(host.name().to_owned());
        self.choose(machine, host);
        if is_new {
            // Written before anything is made there.
            return Ok(MachineReport::Creating(chosen(host)));
        }
        self.make(host, uid, request, bootstrap).await
    }

    /// The hypervisor that has the root disk of the machine, if there is one.
    ///
    /// # Errors
    /// Also if a hypervisor that may have it cannot be asked.
    async fn search(&self, uid: Uuid, request: &Request) -> Result<Option<&Host>> {
        let possible = volumes::possible(request);
        let candidates = self.candidates(request);
        self.confirm_absent(&candidates, uid).await?;
        let is_any = candidates.len() > 1;
        let mut found: Option<&Host> = None;
        for host in candidates {
            let has_parts = volumes::has_root_disk(host, request, &possible).await;
            if !has_parts.map_err(|error| if is_any { not_known(uid, &error) } else { error })? {
                continue;
            }
            if let Some(other) = found.replace(host) {
                let words = format!(
                    "volumes of {} are on the hypervisors {:?} and {:?}",
                    request.mark,
                    other.name(),
                    host.name()
                );
                return Err(Error::new(ErrorKind::Ambiguous, words));
            }
        }
        Ok(found)
    }

    /// Chooses the hypervisor of the machine, or stays with the one that has parts of it.
    fn place(
        &self,
        uid: Uuid,
        request: &Request,
        bound: Option<&str>,
    ) -> Result<std::result::Result<&Host, Wait>> {
        let spec = &request.spec;
        let of_cluster = &request.cluster.spec;
        let of_role: &[String] =
            if request.is_control_plane { &of_cluster.control_plane_failure_domains } else { &[] };
        let wanted = Wanted {
            domain: uid,
            mark: &request.mark,
            size: Size { cpus: spec.vcpus.into(), memory_mib: spec.memory_mib },
            is_control_plane: request.is_control_plane,
            hypervisor: spec.hypervisor.as_deref(),
            failure_domain: request.failure_domain.as_deref(),
            of_cluster: &of_cluster.hypervisors,
            of_role,
            bound,
        };
        let allowed = self.config.allow.of(&request.mark.namespace);
        if let Some(name) = bound {
            allowed.hypervisor("status.hypervisor", name)?;
        }
        let hosts = || {
            let all = gather(&self.hypervisors, &request.mark).into_iter();
            all.filter(|host| allowed.has_hypervisor(&host.name)).collect::<Vec<_>>()
        };
        if !self.hosts.iter().any(|host| allowed.has_hypervisor(host.name())) {
            return Err(Allowed::no_hypervisor());
        }
        let name = match self.placer.place(hosts, &self.config.machines, &wanted, Instant::now())? {
            Placement::On(name) => name,
            Placement::Wait(wait) => return Ok(Err(wait)),
        };
        let host = self.host(&name);
        host.map(Ok).ok_or_else(|| Error::new(ErrorKind::Internal, "an unknown hypervisor was chosen"))
    }

    /// Makes what is missing on the hypervisor, up to the domain.
    async fn make(
        &self,
        host: &Host,
        uid: Uuid,
        request: &Request,
        bootstrap: &BootstrapData,
    ) -> Result<MachineReport> {
        host.check_live()?;
        let (mark, spec) = (&request.mark, &request.spec);
        if is_borrowed(request) {
            // The UID can be that of another namespace's machine, and two domains with one UUID are taken for
            // a migration.
            self.confirm_absent(&self.hosts.iter().collect::<Vec<_>>(), uid).await?;
        }
        if let Some(found) = host.domains.find(uid, Some(names::domain(mark))).await? {
            if !mark.owns(found.mark.as_ref()) {
                return Err(conflict(host, &found.name, request, found.mark.as_ref()));
            }
            host.hypervisor.reread_soon(uid);
            let wait = starting(&found.name, host).look_again_after(UNSEEN_RETRY);
            return Ok(MachineReport::Creating(wait));
        }
        self.check_macs(host, request).await?;
        let base = match self.image(host, request).await? {
            Made::Ready(base) => base,
            Made::Working(wait) => return Ok(MachineReport::Creating(wait)),
        };
        let volumes = volumes::to_make(host, request).await?;
        let mut disks = Vec::new();
        for (number, (name, disk)) in spec.named_disks().enumerate() {
            let base = (number == 0).then_some(&base);
            match self.disk(host, request, number, (&volumes.disk(&name), disk), base).await? {
                Made::Ready(made) => disks.push(planned(name, disk, made)),
                Made::Working(wait) => return Ok(MachineReport::Creating(wait)),
            }
        }
        let storage = &host.storage;
        let bootstrap = bootstrap::upload(host, request, &volumes, bootstrap).await?;
        let console = if spec.serial_log {
            Some(ensure_small(storage, spec.pool(), &volumes.console(), b"").await?)
        } else {
            None
        };
        reservations::reserve_named(host, uid, request).await?;
        let plan = DomainPlan {
            mark,
            uuid: uid,
            spec,
            is_control_plane: request.is_control_plane,
            capabilities: host.domains.capabilities().await?,
            disks,
            bootstrap,
            console,
        };
        host.domains.define(plan.xml()?, spec.autostart).await?;
        Ok(MachineReport::Creating(starting(&names::domain(mark), host)))
    }

    /// A disk: with what is in the image, or an empty one.
    async fn disk(
        &self,
        host: &Host,
        request: &Request,
        number: usize,
        (volume, disk): (&str, &DiskSpec),
        base: Option<&Base>,
    ) -> Result<Made<Disk>> {
        let (storage, calls) = (&self.storage, &host.storage);
        let field = format!("spec.disks[{number}].sizeGiB");
        let size = (field.as_str(), disk.size_gib.saturating_mul(GIB));
        let format = match disk.format {
            DiskFormat::Qcow2 => Format::Qcow2,
            DiskFormat::Raw => Format::Raw,
        };
        let pool = disk.pool();
        match (base, request.spec.root_disk_mode) {
            (None, _) => storage.blank(calls, pool, volume, format, size.1).await.map(Made::Ready),
            (Some(base), RootDiskMode::Overlay) => {
                storage.overlay(calls, pool, volume, size, base).await.map(Made::Ready)
            }
            (Some(base), RootDiskMode::Copy) => {
                storage.copy(calls, pool, volume, format, size, base, &request.mark).await
            }
        }
    }
}

fn planned(name: String, disk: &DiskSpec, made: Disk) -> PlannedDisk {
    let format = |format| match format {
        Format::Qcow2 => ImageFormat::Qcow2,
        Format::Raw => ImageFormat::Raw,
    };
    let backing = made.backing.map(|backing| (backing.path, format(backing.format)));
    PlannedDisk { name, path: made.path, format: format(made.format), backing, bus: disk.bus }
}

/// Checks what the CRD cannot, before anything is made.
fn check(allow: &Allow, request: &Request) -> Result<()> {
    let spec = &request.spec;
    let invalid = |words: String| Err(Error::new(ErrorKind::InvalidInput, words));
    if spec.disks.is_empty() {
        return invalid("spec.disks: is empty; give at least the root disk".to_owned());
    }
    if spec.quote_serial_log && !spec.serial_log {
        return invalid("spec.quoteSerialLog: needs serialLog".to_owned());
    }
    image::source(allow, request)?;
    let names: Vec<_> = spec.named_disks().map(|(name, _)| name).collect();
    for (number, name) in names.iter().enumerate() {
        if names[..number].contains(name) {
            return invalid(format!("spec.disks[{number}].name: {name:?} is the name of another disk"));
        }
    }
    for (number, interface) in spec.interfaces.iter().enumerate() {
        interface.source(number)?;
        reservations::check(number, interface)?;
    }
    Ok(())
}
