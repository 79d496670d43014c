//! The management cluster and the hypervisor: what is installed there, and what there is to be got.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use cloudprovider_libvirt::virt::{self, connect::Connect, storage_vol::StorageVol};
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{ControlPlane, ControlPlaneOptions, Libvirtd, StartError, Vcsim};

use super::{
    HOSTILE, VICTIM,
    objects::{Kind, Things},
    tenant::Tenant,
};
use crate::{
    api,
    machines::{libvirt::sha256, libvirt_many::IMAGE, providers::installed},
    vsphere,
    webhook::Webhook,
};

/// The pool with the other tenant's image.
const POOL: &str = "default";

/// The hypervisors of the two tenants. Machines that wait for an image keep their place, so a tenant may use up the room of its hypervisor.
const HYPERVISORS: [(&str, &str); 2] = [("kvm1", HOSTILE), ("kvm2", VICTIM)];

/// The domain that the test driver has at the start.
const DRIVERS_OWN: &str = "test";

/// An API server, a hypervisor and files.
pub(super) struct Management {
    control_plane: ControlPlane,
    webhook: Webhook,
    folder: TempDir,
    uris: [String; 2],
    /// A driver's world lasts as long as a connection.
    hypervisors: [Connect; 2],
}

impl Management {
    pub(super) fn start(libvirtds: &[Libvirtd; 2]) -> Result<Self, StartError> {
        let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
        let uris = libvirtds.each_ref().map(Libvirtd::test_driver_uri);
        let folder = TempDir::new().map_err(anyhow::Error::from)?;
        let [one, other] = uris.each_ref().map(|uri| with_image(uri).map_err(anyhow::Error::from));
        let hypervisors = [one?, other?];
        Ok(Self { control_plane, webhook: Webhook::new()?, folder, uris, hypervisors })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The image that the attacker may read.
    fn own_image(&self) -> PathBuf {
        self.folder().join("images/image.raw")
    }

    /// The domains and volumes on the hypervisors that were not there at the start.
    pub(super) fn things_made(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for hypervisor in &self.hypervisors {
            all.extend(hypervisor.lookup_storage_pool_by_name(POOL)?.list_volumes()?);
            for domain in hypervisor.list_all_domains(0)? {
                all.push(domain.name()?);
            }
        }
        all.retain(|name| name != IMAGE && name != DRIVERS_OWN);
        Ok(all)
    }

    /// Installs Cluster API's kinds and what the binary prints. Gives the administrator's client, and the flags of the daemon.
    pub(super) async fn install(&self, vcsim: &Vcsim, slow_server: u16) -> Result<(Client, Vec<String>)> {
        let image = self.own_image();
        let images = image.parent().context("a folder")?;
        fs::create_dir(images)?;
        fs::write(&image, vec![b'i'; 4 << 20])?;
        let of = |tenant: &str| {
            HYPERVISORS.iter().filter(|(_, of)| *of == tenant).map(|(name, _)| *name).collect::<Vec<_>>()
        };
        let hypervisors =
            HYPERVISORS.iter().zip(&self.uris).map(|((name, _), uri)| json!({"name": name, "uri": uri}));
        let libvirt = json!({
            "hypervisors": hypervisors.collect::<Vec<_>>(),
            "machines": {"cpuOvercommit": 100, "memoryOvercommit": 10, "reservedMemoryMiB": 0, "allow": [
                {"namespaces": [VICTIM], "hypervisors": of(VICTIM), "imageVolumes": [{"pool": POOL}]},
                {
                    "namespaces": [HOSTILE], "hypervisors": of(HOSTILE), "imageFolders": [images],
                    "imageHosts": [format!("127.0.0.1:{slow_server}")],
                },
            ]},
            "addressPools": {"pools": [
                {"name": "reserved", "namespaces": [VICTIM], "addresses": ["198.51.100.0/28"]},
            ]},
        });
        let all = ["*"];
        let allow = json!({"machines": {"allow": [
            {
                "namespaces": [VICTIM], "templates": all, "machinesAsTemplates": true, "folders": all,
                "resourcePools": all, "datastores": all, "networks": all,
            },
            {
                "namespaces": [HOSTILE], "templates": ["/DC0/vm/images/*"], "machinesAsTemplates": true,
                "resourcePools": all, "datastores": all, "networks": all, "servers": all,
            },
        ]}});
        let vsphere = format!("{}{}", vsphere::vcenters(&[vcsim])?, serde_saphyr::to_string(&allow)?);
        let [libvirt, vsphere] =
            [("libvirt", libvirt.to_string()), ("vsphere", vsphere)].map(|(name, text)| {
                let file = self.folder().join(name);
                fs::write(&file, text).map(|()| file.display().to_string())
            });
        let (libvirt, vsphere) = (libvirt?, vsphere?);
        let of_machines =
            ["--machine-provider=libvirt".to_owned(), format!("--machine-provider=vsphere={vsphere}")];
        let controllers = "controllers=service-lb-controller,machine-controller";
        let set = [
            "--provider=libvirt".to_owned(),
            format!("--cloud-config={libvirt}"),
            format!("--set={controllers}"),
        ];
        let printed: Vec<&str> = set.iter().chain(&of_machines).map(String::as_str).collect();
        installed::install(&self.control_plane, &printed, &self.webhook)?;
        let kubeconfig =
            self.control_plane.kubeconfig_for_service_account("kube-system", "cloud-controller-manager")?;
        let own = [
            "--cloud-provider=libvirt".to_owned(),
            format!("--cloud-config={libvirt}"),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--{controllers}"),
        ];
        let flags = [&own[..], &of_machines, &self.webhook.flags()].concat();
        Ok((api::client(self.control_plane.kubeconfig()).await?, flags))
    }

    /// What the attacker is after.
    pub(super) async fn things(&self, vcsim: &Vcsim, slow_server: u16, victim: &Tenant) -> Result<Things> {
        let libvirt = victim.get(&Kind::Libvirt.of("Machine"), "alone-0").await?;
        let vsphere = victim.get(&Kind::VSphere.of("Machine"), "alone-0").await?;
        let uid = |object: &Value| object["metadata"]["uid"].as_str().map(str::to_owned).context("a UID");
        let (libvirt_uid, vsphere_uid) = (uid(&libvirt)?, uid(&vsphere)?);
        let inventory = vcsim.inventory()?;
        let machine =
            inventory.iter().find(|one| one["name"].as_str().is_some_and(|name| name.contains("alone-0")));
        let machine = machine.with_context(|| format!("no machine of {VICTIM} in {inventory:?}"))?;
        let text = |key: &str| machine[key].as_str().unwrap_or_default().to_owned();
        let names =
            vec![text("name"), format!("/DC0/vm/{}", text("name")), text("ref"), text("instanceUuid")];
        let files: Vec<String> =
            ["libvirt", "vsphere"].map(|name| self.folder().join(name).display().to_string()).into();
        let mut words = vec![
            VICTIM.to_owned(),
            libvirt_uid.clone(),
            vsphere_uid,
            vcsim.password().to_owned(),
            vcsim.user().to_owned(),
            self.uris[0].clone(),
            self.uris[1].clone(),
            IMAGE.to_owned(),
        ];
        words.extend(names.iter().cloned());
        for file in files.iter().map(PathBuf::from).chain([self.own_image()]) {
            words.push(sha256(&file)?.trim_start_matches("sha256:").to_owned());
        }
        let others = ["/proc/self/environ", "/etc/shadow", "/dev/zero", "/proc/self/fd/0"].map(str::to_owned);
        Ok(Things {
            files: [&files[..], &others].concat(),
            own_image: self.own_image().display().to_string(),
            volumes: format!("ccm-{libvirt_uid}-6ad575c0-"),
            slow_server,
            server: format!("127.0.0.1:{}", vcsim.port()),
            machines: names,
            addresses: ["198.51.100.1", "127.0.0.1", "10.0.0.1", "203.0.113.7"].map(str::to_owned).into(),
            words,
        })
    }

    /// What service accounts were refused.
    pub(super) fn nothing_was_refused(&self) -> Result<()> {
        let refused = self.control_plane.refusals_after(0)?;
        ensure!(refused.is_empty(), "refused by the printed roles: {refused:?}");
        Ok(())
    }
}

/// Connects to the hypervisor, and makes the pool and the image that the other tenant may use.
fn with_image(uri: &str) -> Result<Connect, virt::error::Error> {
    let connect = Connect::open(Some(uri))?;
    let xml = format!("<pool type='dir'><name>{POOL}</name><target><path>/{POOL}</path></target></pool>");
    let pool = connect.define_storage_pool_xml(&xml, 0)?;
    pool.create(0)?;
    let xml = format!("<volume><name>{IMAGE}</name><capacity unit='GiB'>1</capacity></volume>");
    StorageVol::create_xml(&pool, &xml, 0)?;
    // It would take all memory.
    for domain in connect.list_all_domains(0)? {
        domain.destroy()?;
    }
    Ok(connect)
}
