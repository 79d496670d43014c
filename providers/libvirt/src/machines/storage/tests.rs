//! What is done to a hypervisor's storage, on a fake of it.

mod copies;
mod crashes;
mod disks;
mod images;
mod leftovers;
mod removal;
mod small;
mod turns;

use std::time::Duration;

use cloudprovider::{Error, Result, machines::Mark};

use super::{
    Base, Checksum, Disk, Existing, Format, Image, Made, Origin,
    attempts::Attempts,
    image::IMAGE_PREFIX,
    testing::{Daemon, FakeCalls, FakeFetch, FakeHypervisor, POOL, SIDES, noise, qcow2},
};

use crate::allow::ImageHosts;

/// A GiB.
const GIB: u64 = 1 << 30;
/// The field of a root disk's size.
const SIZE: &str = "spec.disks[0].sizeGiB";
/// A machine.
const UID: &str = "5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10";

/// Where the image of most tests is.
fn origin() -> Origin {
    let url = "https://user:secret@images.example.org/a.qcow2?token=secret";
    Origin::url("spec.image.url", url, ImageHosts::default()).expect("a URL")
}

/// The machine with this name.
fn machine(name: &str) -> Mark {
    machine_of("default", name)
}

/// A machine of another namespace.
fn machine_of(namespace: &str, name: &str) -> Mark {
    Mark::machine(name, namespace, "prod", name)
}

/// A volume as the spec names it.
fn existing(name: &str, format: Format) -> Existing {
    let (field, pool, name) = ("spec.image.volume".to_owned(), POOL.to_owned(), name.to_owned());
    Existing { field, pool, name, format }
}

/// The image with these bytes.
fn image(bytes: &[u8]) -> Image {
    let mut hasher = Checksum::Sha256([0; 32]).hasher();
    hasher.update(bytes);
    Image { origin: origin(), checksum: hasher.finish(), format: Format::Qcow2 }
}

/// An image with a disk of 2 GiB.
fn small_image() -> bytes::Bytes {
    qcow2(2 * GIB, 35_000)
}

/// Repeats a step until it has made something. Waits as the controller would: for the daemon's wake, the time
/// of a wait, or the time of an error.
async fn made<T>(daemon: &mut Daemon, mut step: impl AsyncFnMut(&Daemon) -> Result<Made<T>>) -> Result<T> {
    loop {
        let pause = match step(daemon).await {
            Ok(Made::Ready(made)) => return Ok(made),
            Ok(Made::Working(wait)) => wait.look_again_after,
            Err(error) => match error.retry_after() {
                None => return Err(error),
                after => after,
            },
        };
        let pause = pause.expect("a time");
        let _ = tokio::time::timeout(pause, daemon.woken()).await;
    }
}

/// As [`made`], up to the first error.
async fn first_error<T>(daemon: &mut Daemon, mut step: impl AsyncFnMut(&Daemon) -> Result<Made<T>>) -> Error {
    loop {
        match step(daemon).await {
            Ok(Made::Ready(_)) => panic!("it was made"),
            Ok(Made::Working(_)) => drop(daemon.woken().await),
            Err(error) => return error,
        }
    }
}

/// One step of the import of an image.
async fn import(daemon: &Daemon, image: &Image, waiter: &str) -> Result<Made<Base>> {
    daemon.storage.imported_image(&daemon.calls, POOL, image, &machine(waiter)).await
}

/// What there is of images in the pool.
fn images_of(hypervisor: &FakeHypervisor) -> Attempts {
    let names = hypervisor.names(POOL);
    Attempts::find(names.iter().map(String::as_str), |base| base.starts_with(IMAGE_PREFIX))
}

/// Nothing but one complete image with these bytes is there.
fn assert_one_image(hypervisor: &FakeHypervisor, bytes: &[u8]) {
    let found = images_of(hypervisor);
    let [(volume, length)] = &found.complete[..] else { panic!("{found:?}") };
    assert!(found.is_clean(), "{found:?}");
    assert_eq!(*length, bytes.len() as u64);
    assert!(hypervisor.content(POOL, volume).expect("there") == bytes);
}

/// Lets a daemon do something, which dies at one of its calls, and another daemon the same after it. `check`
/// is given the result. For each call, and each side of it.
async fn with_crashes<T>(
    prepare: impl Fn() -> (FakeHypervisor, FakeFetch),
    mut work: impl AsyncFnMut(&mut Daemon) -> T,
    mut check: impl AsyncFnMut(&FakeHypervisor, &mut Daemon, T),
) {
    for at in 0.. {
        for side in SIDES {
            let (hypervisor, fetch) = prepare();
            let mut first = Daemon::new(FakeCalls::that_die(&hypervisor, at, side), &fetch);
            let death = first.death();
            let is_done = tokio::select! {
                biased;
                () = death => false,
                _ = work(&mut first) => true,
            };
            drop(first);
            let mut second = Daemon::new(FakeCalls::new(&hypervisor), &fetch);
            let result = work(&mut second).await;
            check(&hypervisor, &mut second, result).await;
            if is_done {
                // there is no such call
                assert!(at > 1, "work without calls");
                return;
            }
        }
    }
}

/// Long enough for leftovers to be deleted.
const SWEPT: Duration = Duration::from_secs(400);
