use super::*;
use crate::machines::storage::volume::{Backing, Format};

const POOL: &str = "default-pool";

/// A hypervisor with a pool of its own: `test:///default` is one for the whole process.
const NODE: &str = "<node><cpu><mhz>2000</mhz><model>x</model><active>4</active><nodes>1</nodes><sockets>1</sockets>\
                    <cores>4</cores><threads>1</threads></cpu><memory>4194304</memory><pool type='dir'>\
                    <name>default-pool</name><target><path>/default-pool</path></target></pool></node>";

async fn cloud() -> Cloud {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), NODE).expect("written");
    Cloud::start(&format!("test://{}", file.path().display())).await
}

#[tokio::test]
async fn volumes_are_made_looked_at_and_deleted() {
    let cloud = cloud().await;
    let storage = cloud.storage();
    assert_eq!((storage.hypervisor(), storage.pools().await), ("kvm1", Ok(vec![POOL.to_owned()])));
    assert!(storage.pool(POOL).await.is_ok_and(|pool| pool.has_files() && pool.available > 0));
    let base = NewVolume::new("base", Format::Raw, 1 << 30);
    let made = storage.create(POOL, &base).await.expect("made");
    assert_eq!(storage.volume(POOL, "base").await, Ok(made));
    assert_eq!(
        storage.create(POOL, &base).await,
        Err(CallError::Exists),
        "which this driver calls otherwise"
    );
    let path = storage.volume(POOL, "base").await.expect("there").path;
    let backing = Some(Backing { path: path.clone(), format: Format::Raw });
    let overlay = NewVolume { backing, ..NewVolume::new("overlay", Format::Qcow2, 2 << 30) };
    storage.create(POOL, &overlay).await.expect("made");
    let found = storage.volume(POOL, "overlay").await.expect("there");
    assert_eq!((found.capacity, found.backing, found.format.as_str()), (2 << 30, Some(path), "qcow2"));
    storage.copy(POOL, &NewVolume::new("copy", Format::Raw, 1 << 30), POOL, "base").await.expect("copied");
    let mut names = storage.list(POOL).await.expect("listed").to_vec();
    names.sort_unstable();
    assert_eq!(names, ["base", "copy", "overlay"]);
    assert_eq!(storage.refresh(POOL).await, Ok(()));
    for name in &names {
        assert_eq!(storage.delete(POOL, name).await, Ok(()));
        assert_eq!(storage.delete(POOL, name).await, Err(CallError::NoVolume));
    }
}

#[tokio::test]
async fn what_is_missing_is_told_apart() {
    let cloud = cloud().await;
    let storage = cloud.storage();
    assert_eq!(storage.list("nowhere").await, Err(CallError::NoPool));
    assert_eq!(storage.volume(POOL, "nothing").await, Err(CallError::NoVolume));
    let copy = storage.copy(POOL, &NewVolume::empty("a"), POOL, "nothing").await;
    assert_eq!(copy, Err(CallError::NoVolume));
    let handle = cloud.provider.hypervisor("kvm1").expect("configured");
    let stop = handle.with_connection(|connect| connect.lookup_storage_pool_by_name(POOL)?.destroy()).await;
    stop.expect("connected").expect("stopped");
    assert_eq!(storage.list(POOL).await, Err(CallError::InactivePool));
    assert_eq!(storage.pool(POOL).await, Err(CallError::InactivePool));
    assert_eq!(storage.create(POOL, &NewVolume::empty("a")).await, Err(CallError::InactivePool));
    assert_eq!(storage.delete(POOL, "a").await, Err(CallError::InactivePool));
    assert_eq!(storage.pools().await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_pool_is_looked_up_once_and_again_if_it_was_defined_anew() {
    let cloud = cloud().await;
    let storage = cloud.storage();
    for name in ["a", "b", "c"] {
        storage.create(POOL, &NewVolume::empty(name)).await.expect("made");
    }
    assert_eq!(cloud.provider.call_counts()["lookup_pool"], 1);
    let handle = cloud.provider.hypervisor("kvm1").expect("configured");
    let gone = handle.with_connection(|connect| {
        let pool = connect.lookup_storage_pool_by_name(POOL)?;
        pool.destroy()?;
        pool.undefine()
    });
    gone.await.expect("connected").expect("undefined");
    for _ in 0..2 {
        assert_eq!(storage.list(POOL).await, Err(CallError::NoPool));
    }
    let define = |connect: &Connect| {
        let xml = format!("<pool type='dir'><name>{POOL}</name><target><path>/p</path></target></pool>");
        connect.define_storage_pool_xml(&xml, 0)?.create(0)
    };
    handle.with_connection(define).await.expect("connected").expect("defined");
    assert_eq!(storage.list(POOL).await.as_deref(), Ok(&[][..]));
    let again = move |connect: &Connect| {
        let pool = connect.lookup_storage_pool_by_name(POOL)?;
        pool.destroy()?;
        pool.undefine()?;
        define(connect)
    };
    handle.with_connection(again).await.expect("connected").expect("defined");
    let Err(CallError::Failed(failure)) = storage.list(POOL).await else { panic!("an answer") };
    assert_eq!(failure.kind, ErrorKind::Unavailable);
    assert_eq!(storage.list(POOL).await.as_deref(), Ok(&[][..]));
}

#[tokio::test]
async fn what_libvirt_cannot_take_is_an_error() {
    let cloud = cloud().await;
    let storage = cloud.storage();
    for result in [
        storage.list("a\0b").await.map(drop),
        storage.volume(POOL, "a\0b").await.map(drop),
        storage.copy(POOL, &NewVolume::empty("a"), "a\0b", "c").await,
    ] {
        let Err(CallError::Failed(failure)) = result else { panic!("{result:?}") };
        assert_eq!(failure.kind, ErrorKind::InvalidInput);
    }
    storage.create(POOL, &NewVolume::new("a", Format::Raw, 1 << 20)).await.expect("made");
    let (sender, receiver) = mpsc::channel(1);
    sender.send(Part::End).await.expect("room");
    let Err(CallError::Failed(failure)) = storage.upload(POOL, "a", receiver).await else {
        panic!("uploaded")
    };
    assert_eq!(failure.kind, ErrorKind::Unsupported);
}

#[tokio::test]
async fn without_a_connection_nothing_counts_as_missing() {
    let config = "hypervisors:\n- {name: kvm1, uri: 'qemu+unix:///system?socket=/nowhere/at/all'}\n";
    let provider = LibvirtProvider::new(Config::parse(config, None).expect("valid"));
    let handle = provider.hypervisor("kvm1").expect("configured");
    let storage = LibvirtStorage::new(Arc::new(WorkerPool::new(handle.0)));
    let Err(CallError::Failed(failure)) = storage.list("default").await else { panic!("an answer") };
    assert_eq!(failure.kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_seed_does_not_wait_for_images_and_copies() {
    let cloud = cloud().await;
    let storage = cloud.storage();
    storage.create(POOL, &NewVolume::new("a", Format::Raw, 1 << 20)).await.expect("made");
    let mut releases = Vec::new();
    for kind in [Work::Upload(PATIENCE), Work::Copy] {
        for _ in 0..4 {
            let (release, wait) = std::sync::mpsc::channel::<()>();
            releases.push(release);
            let workers = Arc::clone(&storage.workers);
            tokio::spawn(async move { workers.run(kind, move |_| Ok(wait.recv().is_err())).await });
        }
    }
    let (sender, receiver) = mpsc::channel(2);
    sender.send(Part::Bytes("seed".into())).await.expect("room");
    sender.send(Part::End).await.expect("room");
    let uploaded = tokio::time::timeout(PATIENCE, storage.upload(POOL, "a", receiver)).await;
    let Ok(Err(CallError::Failed(failure))) = uploaded else { panic!("{uploaded:?}") };
    assert_eq!(failure.kind, ErrorKind::Unsupported, "it was tried");
}
