//! Trials on a libvirtd of their own, with QEMU's tools, and an http server on this machine.
//!
//! One test, since a libvirtd takes seconds to start.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::{
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use cloudprovider::{Result, machines::Mark};
use parking_lot::Mutex;
use tempfile::TempDir;
use test_env::{Libvirtd, StartError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_util::task::TaskTracker;

use super::*;
use crate::allow::ImageHosts;
use crate::machines::storage::{
    Base, Checksum, Disk, Existing, Format, Image, Inside, MachineStorage, Made, Origin, Removal,
    StorageCalls, attempts::Attempts, ensure_small,
};

const POOL: &str = "default";
const UID: &str = "5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10";
const GIB: u64 = 1 << 30;
/// The length of the test's image.
const IMAGE_LENGTH: usize = 24 << 20;

fn machine() -> Mark {
    Mark::machine(UID, "default", "prod", "node-1")
}

/// A libvirtd; `None` if this machine cannot run one.
fn libvirtd() -> Option<Libvirtd> {
    match Libvirtd::start() {
        Ok(libvirtd) => Some(libvirtd),
        Err(StartError::Unavailable(reason)) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// An http server with one image.
struct Server {
    address: SocketAddr,
    served: Arc<AtomicUsize>,
    /// How many bytes are sent before the connection breaks.
    breaks_after: Arc<Mutex<Option<usize>>>,
    /// The pause after each 64 KiB.
    pause: Arc<Mutex<Duration>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(body: Bytes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (served, breaks_after) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Option<usize>>>::default());
        let pause = Arc::<Mutex<Duration>>::default();
        let (count, limit, pace) = (Arc::clone(&served), Arc::clone(&breaks_after), Arc::clone(&pause));
        let task = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let end = limit.lock().unwrap_or(body.len());
                let (body, pace) = (body.clone(), Arc::clone(&pace));
                tokio::spawn(async move {
                    let _ = connection.read(&mut [0; 4096]).await;
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    let _ = connection.write_all(head.as_bytes()).await;
                    for block in body[..end].chunks(64 << 10) {
                        if connection.write_all(block).await.is_err() {
                            return;
                        }
                        let pause = *pace.lock();
                        tokio::time::sleep(pause).await;
                    }
                });
            }
        });
        Self { address, served, breaks_after, pause, task }
    }

    fn image(&self, checksum: &Checksum) -> Image {
        let hosts = ImageHosts::of(&["127.0.0.1"]);
        let origin = Origin::url("url", &format!("http://{}/a.qcow2", self.address), hosts).expect("a URL");
        Image { origin, checksum: checksum.clone(), format: Format::Qcow2 }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

/// The storage of one daemon. Dies when dropped.
struct Daemon {
    storage: MachineStorage,
    calls: Arc<dyn StorageCalls>,
    stop: CancellationToken,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Daemon {
    fn new(cloud: &Cloud) -> Self {
        let stop = CancellationToken::new();
        let storage =
            MachineStorage::new(Arc::new(drop), stop.clone(), TaskTracker::new(), Inside::default());
        Self { storage, calls: Arc::new(cloud.storage()), stop }
    }

    /// Steps until something is made, or the first error.
    async fn made<T>(&self, mut step: impl AsyncFnMut(&Self) -> Result<Made<T>>) -> Result<T> {
        let steps = async {
            loop {
                match step(self).await? {
                    Made::Ready(made) => return Ok(made),
                    Made::Working(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, steps).await.expect("in time")
    }

    async fn import(&self, image: &Image) -> Result<Base> {
        self.made(async |one| one.storage.imported_image(&one.calls, POOL, image, &machine()).await).await
    }

    async fn copy(&self, name: &str, format: Format, base: &Base) -> Result<Disk> {
        let size = ("size", 3 * GIB);
        self.made(async |one| one.storage.copy(&one.calls, POOL, name, format, size, base, &machine()).await)
            .await
    }

    async fn images(&self) -> Attempts {
        let names = self.calls.list(POOL).await.expect("listed");
        Attempts::find(names.iter().map(String::as_str), |base| base.starts_with("ccm-image-"))
    }
}

/// An image with a disk of 1 GiB, and its checksum.
fn make_image(folder: &Path) -> (Bytes, Checksum) {
    let (raw, path) = (folder.join("raw"), folder.join("qcow2"));
    let mut content = crate::machines::storage::testing::noise(IMAGE_LENGTH);
    // as a disk would
    content[510..512].copy_from_slice(b"\x55\xaa");
    std::fs::write(&raw, &content).expect("written");
    let make = |arguments: &[&str]| {
        let status = Command::new("qemu-img").args(arguments).current_dir(folder).status();
        assert!(status.expect("qemu-img").success(), "{arguments:?}");
    };
    make(&["resize", "-q", "-f", "raw", "raw", "1G"]);
    make(&["convert", "-q", "-O", "qcow2", "raw", "qcow2"]);
    let bytes = Bytes::from(std::fs::read(&path).expect("readable"));
    let mut hasher = Checksum::Sha512([0; 64]).hasher();
    hasher.update(&bytes);
    (bytes, hasher.finish())
}

/// Everything of a file on the hypervisor, as a guest would see it.
fn is_same_disk(libvirtd: &Libvirtd, folder: &Path, volume: &str, format: Format) -> bool {
    let path = libvirtd.data_folder().join("images").join(volume);
    let arguments = ["compare", "-q", "-f", "raw", "-F", format.as_str(), "raw"];
    let status = Command::new("qemu-img").args(arguments).arg(path).current_dir(folder).status();
    status.expect("qemu-img").success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_libvirtd() {
    let Some(libvirtd) = libvirtd() else { return };
    for arguments in
        [&["pool-define-as", POOL, "dir", "--target", "/var/lib/libvirt/images"][..], &["pool-start", POOL]]
    {
        libvirtd.virsh_output(arguments).expect("a pool");
    }
    let folder = TempDir::new().expect("a folder");
    let (bytes, checksum) = make_image(folder.path());
    let server = Server::start(bytes.clone()).await;
    let cloud = Cloud::start(&libvirtd.uri()).await;
    let trial =
        Trial { libvirtd: &libvirtd, folder: folder.path(), cloud: &cloud, server: &server, checksum };
    trial.wrong_bytes_leave_nothing().await;
    trial.an_import_that_dies_is_redone(&bytes).await;
    trial.two_daemons_import_at_once().await;
    let base = trial.the_image_is_there().await;
    trial.disks(&base).await;
    trial.copies(&base).await;
    trial.small_volumes().await;
    trial.libvirtd_dies_during_an_upload().await;
    trial.deletion().await;
}

struct Trial<'a> {
    libvirtd: &'a Libvirtd,
    folder: &'a Path,
    cloud: &'a Cloud,
    server: &'a Server,
    checksum: Checksum,
}

impl Trial<'_> {
    fn daemon(&self) -> Daemon {
        Daemon::new(self.cloud)
    }

    /// A wrong checksum, and a server that breaks in the middle.
    async fn wrong_bytes_leave_nothing(&self) {
        let daemon = self.daemon();
        let other = Checksum::Sha256([7; 32]);
        let error = daemon.import(&self.server.image(&other)).await.expect_err("wrong");
        assert!(error.report().contains("nothing of it was kept"), "{}", error.report());
        *self.server.breaks_after.lock() = Some(IMAGE_LENGTH / 2);
        let error = daemon.import(&self.server.image(&self.checksum)).await.expect_err("broken");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
        *self.server.breaks_after.lock() = None;
        assert_eq!(daemon.calls.list(POOL).await.as_deref(), Ok(&[][..]));
    }

    /// A daemon dies while it uploads; the next one does not use what it left.
    async fn an_import_that_dies_is_redone(&self, bytes: &Bytes) {
        let daemon = self.daemon();
        let volume = format!("ccm-image-{}-qcow2.0123456789abcdef", self.checksum.joined('-'));
        daemon.calls.create(POOL, &NewVolume::empty(&volume)).await.expect("made");
        let (sender, receiver) = mpsc::channel(1);
        let calls = Arc::clone(&daemon.calls);
        let name = volume.clone();
        let upload = tokio::spawn(async move { calls.upload(POOL, &name, receiver).await });
        sender.send(Part::Bytes(bytes.slice(..IMAGE_LENGTH / 2))).await.expect("taken");
        drop(sender);
        upload.await.expect("no panic").expect_err("broken off");
        let left = daemon.images().await;
        assert_eq!((left.complete.len(), left.incomplete), (0, vec![volume.clone()]));
        // libvirt takes it for an image, as soon as it has looked at its beginning
        let began = tokio::time::Instant::now();
        loop {
            let found = daemon.calls.volume(POOL, &volume).await.expect("there");
            if (found.format.as_str(), found.capacity) == ("qcow2", GIB) {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{found:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn two_daemons_import_at_once(&self) {
        let image = self.server.image(&self.checksum);
        let daemons = [self.daemon(), self.daemon()];
        let imports = daemons.iter().map(|daemon| daemon.import(&image));
        for base in futures::future::join_all(imports).await {
            let base = base.expect("imported");
            assert!(is_same_disk(self.libvirtd, self.folder, &base.volume, Format::Qcow2));
        }
        assert!(!daemons[0].images().await.complete.is_empty());
    }

    async fn the_image_is_there(&self) -> Base {
        let (before, daemon) = (self.server.served(), self.daemon());
        let base = daemon.import(&self.server.image(&self.checksum)).await.expect("there");
        assert_eq!((base.capacity, base.format, self.server.served()), (GIB, Format::Qcow2, before));
        assert!(base.path.starts_with("/var/lib/libvirt/images/ccm-image-sha512-"), "{}", base.path);
        // as one that somebody else has made
        let existing = |name: &str| {
            let (field, pool, name) = ("spec.image".to_owned(), POOL.to_owned(), name.to_owned());
            Existing { field, pool, name, format: Format::Qcow2 }
        };
        let found = daemon.storage.existing_image(&daemon.calls, &existing(&base.volume)).await;
        assert_eq!(found.expect("there"), base);
        std::fs::copy(self.folder.join("qcow2"), self.libvirtd.data_folder().join("images/by-hand.qcow2"))
            .expect("copied");
        let by_hand = daemon.storage.existing_image(&daemon.calls, &existing("by-hand.qcow2")).await;
        assert_eq!(by_hand.expect("found after a refresh").capacity, GIB);
        base
    }

    async fn disks(&self, base: &Base) {
        let daemon = self.daemon();
        let (storage, calls) = (&daemon.storage, &daemon.calls);
        for _ in 0..2 {
            let disk = storage.overlay(calls, POOL, "m-root", ("size", 3 * GIB), base).await.expect("made");
            assert_eq!(disk.path, "/var/lib/libvirt/images/m-root");
            for format in [Format::Qcow2, Format::Raw] {
                let name = format!("m-{}", format.as_str());
                storage.blank(calls, POOL, &name, format, GIB).await.expect("made");
            }
        }
        // a file that libvirt does not know yet, then one that it still knows
        let images = self.libvirtd.data_folder().join("images");
        std::fs::rename(images.join("m-raw"), images.join("m-new")).expect("renamed");
        storage.blank(calls, POOL, "m-new", Format::Raw, GIB).await.expect("found");
        std::fs::remove_file(images.join("m-new")).expect("deleted");
        storage.blank(calls, POOL, "m-new", Format::Raw, GIB).await.expect("made");
        assert!(images.join("m-new").exists());
        let found = calls.volume(POOL, "m-root").await.expect("there");
        assert_eq!((found.capacity, found.backing.as_deref()), (3 * GIB, Some(base.path.as_str())));
        let error = storage.overlay(calls, POOL, "m-root", ("size", 4 * GIB), base).await.expect_err("other");
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }

    /// A copy, one that is in the way of others, and one whose libvirtd dies.
    async fn copies(&self, base: &Base) {
        let daemon = self.daemon();
        for format in [Format::Qcow2, Format::Raw] {
            let name = format!("m-copy-{}", format.as_str());
            let disk = daemon.copy(&name, format, base).await.expect("copied");
            let found = daemon.calls.volume(POOL, &disk.volume).await.expect("there");
            assert_eq!((found.capacity, found.backing), (3 * GIB, None));
            assert_eq!(daemon.copy(&name, format, base).await.expect("there"), disk);
        }
        drop(daemon);
        // libvirtd dies in the middle: what is left has no marker
        let daemon = self.daemon();
        let torso = NewVolume::new("m-killed.0123456789abcdef", Format::Qcow2, 3 * GIB);
        daemon.calls.create(POOL, &torso).await.expect("made");
        let disk = daemon.copy("m-killed", Format::Qcow2, base).await.expect("copied");
        assert!(disk.volume != torso.name);
        assert_eq!(daemon.calls.volume(POOL, &torso.name).await, Err(CallError::NoVolume));
    }

    async fn small_volumes(&self) {
        let daemon = self.daemon();
        let content = crate::machines::storage::testing::noise(1 << 20);
        let file = self.libvirtd.data_folder().join("images/m-seed");
        for content in [&content[..], &content[1..], b"{}"] {
            for _ in 0..2 {
                ensure_small(&daemon.calls, POOL, "m-seed", content).await.expect("made");
                assert!(std::fs::read(&file).expect("there") == content);
            }
        }
        // a crash in the middle of an upload
        std::fs::write(&file, &content[..1000]).expect("written");
        ensure_small(&daemon.calls, POOL, "m-seed", &content).await.expect("made");
        assert!(std::fs::read(&file).expect("there") == content);
    }

    async fn libvirtd_dies_during_an_upload(&self) {
        let content = Bytes::from(crate::machines::storage::testing::noise(8 << 20));
        let mut hasher = Checksum::Sha256([0; 32]).hasher();
        hasher.update(&content);
        let server = Server::start(content.clone()).await;
        let image = Image { format: Format::Raw, ..server.image(&hasher.finish()) };
        *server.pause.lock() = Duration::from_millis(20);
        let daemon = self.daemon();
        let before = daemon.images().await.incomplete.len();
        let kill = async {
            while daemon.images().await.incomplete.len() == before {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            self.libvirtd.kill().expect("killed");
        };
        let (imported, ()) = tokio::join!(daemon.import(&image), kill);
        let error = imported.expect_err("libvirtd is dead");
        assert!(error.is_retryable(), "{}", error.report());
        self.libvirtd.start_again().expect("back");
        *server.pause.lock() = Duration::ZERO;
        let daemon = self.daemon();
        let handle = self.cloud.provider.hypervisor("kvm1").expect("configured");
        let back = async {
            // it may not have noticed the end of its connection yet
            while !handle.is_live() || daemon.calls.pools().await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, back).await.expect("connected again");
        let base = daemon.import(&image).await.expect("imported");
        let file = self.libvirtd.data_folder().join("images").join(&base.volume);
        assert!(std::fs::read(file).expect("there") == content);
        assert_eq!(daemon.images().await.incomplete.len(), before + 1, "a half that nobody uses");
    }

    async fn deletion(&self) {
        let daemon = self.daemon();
        let is_ours = |name: &str| name.starts_with("m-");
        let removal = daemon.storage.remove(&daemon.calls, &[POOL, "nowhere"], "log", &is_ours).await;
        assert_eq!(removal.expect("deleted"), Removal::Gone { missing_pools: vec!["nowhere".to_owned()] });
        let names = daemon.calls.list(POOL).await.expect("listed");
        assert!(!names.is_empty() && !names.iter().any(|name| is_ours(name)), "{names:?}");
        self.libvirtd.virsh_output(&["pool-destroy", POOL]).expect("stopped");
        let error =
            daemon.storage.remove(&daemon.calls, &[POOL], "log", &is_ours).await.expect_err("not known");
        assert!(error.report().contains("the pool is not active"), "{}", error.report());
        self.libvirtd.virsh_output(&["pool-start", POOL]).expect("started");
        self.libvirtd.kill().expect("killed");
        let error = daemon.storage.remove(&daemon.calls, &[POOL], "log", &is_ours).await.expect_err("away");
        assert!(error.is_retryable(), "{}", error.report());
    }
}
