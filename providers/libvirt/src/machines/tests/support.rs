//! A provider with hypervisors of the test driver, and a machine that is taken through its steps.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use cloudprovider::{
    CloudProvider, Machines, Result, StartContext,
    machines::{
        BootstrapData, BootstrapFormat, ClusterContext, Deletion, MachineDeletionRequest, MachineReport,
        MachineRequest, Mark, PresentMachine, Record,
    },
};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Config, LibvirtProvider,
    machines::{
        HostCalls,
        reservation::NetworkCalls,
        steps::{MachineRecord, Request},
        storage::{
            StorageCalls,
            testing::{FakeCalls, FakeHypervisor, POOL},
        },
    },
};

/// How long anything may take.
pub(super) const PATIENCE: Duration = test_env::PATIENCE;

/// The pause between two steps.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// The image of all machines.
pub(super) const IMAGE: &str = "debian-12.raw";

/// User data that can be found again.
pub(super) const USER_DATA: &str = "#cloud-config\n# the join token is hunter2hunter2\n";

/// An empty storage, but for the image.
pub(super) fn storage() -> FakeHypervisor {
    let storage = FakeHypervisor::new();
    storage.put(POOL, IMAGE, &[7; 4096]);
    storage
}

/// Whether some volume has these bootstrap data in it.
pub(super) async fn has(storage: &FakeHypervisor, data: &str) -> bool {
    let calls = FakeCalls::new(storage);
    for name in storage.names(POOL) {
        let content = calls.download(POOL, &name, 1 << 22).await.expect("readable");
        if content.windows(data.len()).any(|part| part == data.as_bytes()) {
            return true;
        }
    }
    false
}

/// A hypervisor of the test driver that has domains with this much memory in MiB.
pub(super) fn hypervisor(domains: &[u64]) -> NamedTempFile {
    let mut xml = String::from(
        "<node><cpu><mhz>2000</mhz><model>x</model><active>16</active><nodes>1</nodes><sockets>1</sockets>
         <cores>16</cores><threads>1</threads></cpu><memory>67108864</memory>
         <network><name>default</name><forward/><bridge name='virbr0'/>
         <ip address='192.168.122.1' netmask='255.255.255.0'>
         <dhcp><range start='192.168.122.2' end='192.168.122.254'/></dhcp></ip></network>
         <network><name>lan</name><forward/><bridge name='virbr1'/>
         <ip address='169.254.0.1' netmask='255.255.0.0'/></network>",
    );
    for (number, memory) in domains.iter().enumerate() {
        let _ = write!(
            xml,
            "<domain type='test'><name>other-{number}</name><memory unit='MiB'>{memory}</memory>
             <os><type>hvm</type></os></domain>"
        );
    }
    xml += "</node>";
    let file = NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), xml).expect("writable");
    file
}

/// A running provider. Stopped when dropped.
pub(super) struct Daemon {
    pub(super) provider: LibvirtProvider,
    stop: CancellationToken,
    _files: Vec<NamedTempFile>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Daemon {
    /// A provider with hypervisors `kvm1`, `kvm2` and so on, each with its storage, all live. Their networks
    /// are those of the test driver.
    pub(super) async fn start(hypervisors: Vec<(NamedTempFile, Arc<dyn StorageCalls>)>) -> Self {
        Self::start_with(hypervisors, Vec::new()).await
    }

    /// Like [`start`](Self::start). The first hypervisors have these networks.
    pub(super) async fn start_with(
        hypervisors: Vec<(NamedTempFile, Arc<dyn StorageCalls>)>,
        networks: Vec<Arc<dyn NetworkCalls>>,
    ) -> Self {
        let (files, storages): (Vec<_>, Vec<_>) = hypervisors.into_iter().unzip();
        let make = move |config| {
            LibvirtProvider::with_calls(config, &move |workers| {
                let number: usize = workers.hypervisor().name()[3..].parse().expect("a number");
                let HostCalls { networks: of_driver, .. } = HostCalls::of_libvirt(workers);
                let networks = networks.get(number - 1).map_or(of_driver, Arc::clone);
                HostCalls { storage: Arc::clone(&storages[number - 1]), networks }
            })
        };
        Self::start_provider(files, make).await
    }

    /// A provider that `make` makes, with hypervisors in these files.
    pub(super) async fn start_provider(
        files: Vec<NamedTempFile>,
        make: impl FnOnce(Config) -> LibvirtProvider,
    ) -> Self {
        let mut config = "hypervisors:\n".to_owned();
        for (number, file) in files.iter().enumerate() {
            let _ =
                writeln!(config, "- {{name: kvm{}, uri: 'test://{}'}}", number + 1, file.path().display());
        }
        let _ = writeln!(
            config,
            "machines: {{allow: [{{namespaces: [default, team-a, team-b], imageVolumes: [{{pool: {POOL}}}, {{pool: none}}]}}, \
             {{networks: [lan], pools: [none]}}]}}"
        );
        let provider = make(Config::parse(&config, None).expect("valid"));
        let stop = CancellationToken::new();
        provider.start(StartContext::new(stop.clone(), "kubernetes")).await.expect("starts");
        let began = Instant::now();
        while !provider.hypervisors().all(|one| one.is_live()) {
            assert!(began.elapsed() < PATIENCE, "not live");
            sleep(PAUSE).await;
        }
        Self { provider, stop, _files: files }
    }
}

/// A machine's object, as the controller keeps it.
#[derive(Clone)]
pub(super) struct Object {
    pub(super) request: Request,
    pub(super) record: MachineRecord,
}

impl Object {
    /// A worker with these fields beside the required ones.
    pub(super) fn new(more: &Value) -> Self {
        let mut spec = json!({
            "vcpus": 1, "memoryMiB": 64, "image": { "volume": { "name": IMAGE }, "format": "raw" }, "disks": [{ "sizeGiB": 2 }],
        });
        for (name, field) in more.as_object().into_iter().flatten() {
            spec[name] = field.clone();
        }
        let spec = serde_json::from_value(spec).expect("valid");
        let mark = Mark::machine(Uuid::new_v4().to_string(), "default", "prod", "node-1");
        let cluster = ClusterContext::new(serde_json::from_value(json!({})).expect("valid"));
        let data = BootstrapData::new(BootstrapFormat::CloudConfig, USER_DATA);
        let uid = mark.uid.clone();
        let request = MachineRequest::new(mark, spec, cluster).with_object_uid(uid).with_bootstrap(data);
        Self { request, record: Record::default() }
    }

    /// One step towards existing.
    pub(super) async fn step(&mut self, daemon: &Daemon) -> Result<MachineReport> {
        let report =
            daemon.provider.libvirt_machines().ensure_machine(&self.request, &mut self.record).await?;
        if let MachineReport::Present(machine) = &report {
            let id = machine.instance.provider_id.as_ref().expect("it has one");
            self.request.provider_id = Some(id.as_str().to_owned());
        }
        self.request.is_provisioned |= report.is_done();
        Ok(report)
    }

    /// Steps until nothing is left to do.
    pub(super) async fn made(&mut self, daemon: &Daemon) -> PresentMachine {
        let began = Instant::now();
        loop {
            let answer = self.step(daemon).await;
            match answer {
                Ok(MachineReport::Present(machine)) if machine.wait.is_none() => return *machine,
                answer => assert!(began.elapsed() < PATIENCE, "it is not made: {answer:?}"),
            }
            sleep(PAUSE).await;
        }
    }

    /// One step towards gone, while its cluster's object is there.
    pub(super) async fn step_towards_gone(&mut self, daemon: &Daemon) -> Result<Deletion> {
        let Self { request, record } = self;
        let cluster = ClusterContext::new(Some(request.cluster.spec.clone()))
            .with_control_plane_endpoint(request.cluster.control_plane_endpoint.clone());
        let request = MachineDeletionRequest::new(request.mark.clone(), request.spec.clone(), cluster)
            .with_object_uid(request.object_uid.clone())
            .with_provider_id(request.provider_id.clone())
            .provisioned(request.is_provisioned);
        daemon.provider.libvirt_machines().delete_machine(&request, record).await
    }

    /// Steps until it is gone.
    pub(super) async fn removed(&mut self, daemon: &Daemon) {
        let began = Instant::now();
        loop {
            let answer = self.step_towards_gone(daemon).await;
            match answer {
                Ok(Deletion::Gone) => return,
                answer => assert!(began.elapsed() < PATIENCE, "it is not gone: {answer:?}"),
            }
            sleep(PAUSE).await;
        }
    }
}
