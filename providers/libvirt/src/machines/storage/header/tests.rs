use proptest::prelude::*;

use super::*;

fn with(at: usize, byte: u8) -> Result<Header, Unusable> {
    let mut bytes = qcow2_header(1 << 30);
    bytes[at] = byte;
    read(&bytes)
}

#[test]
fn the_size_of_the_disk_is_read() {
    let header = read(&qcow2_header(10 << 30)).expect("usable");
    assert_eq!(header, Header { format: Format::Qcow2, virtual_size: Some(10 << 30) });
    let mut old = qcow2_header(5);
    old[7] = 2;
    assert_eq!(read(&old[..LENGTH_V2]).expect("usable").virtual_size, Some(5));
    // compressed clusters, divided clusters
    assert!(with(79, 0b1_1000).is_ok());
}

#[test]
fn an_image_that_needs_another_file_is_refused() {
    assert_eq!(with(15, 8), Err(Unusable::BackingFile));
    assert_eq!(with(19, 1), Err(Unusable::BackingFile), "also if only its name has a length");
    assert_eq!(with(79, 0b100), Err(Unusable::ExternalData));
}

#[test]
fn an_image_that_cannot_be_used_is_refused() {
    assert_eq!(with(35, 2), Err(Unusable::Encrypted));
    assert_eq!(with(79, 1), Err(Unusable::Damaged));
    assert_eq!(with(79, 2), Err(Unusable::Damaged));
    assert_eq!(with(79, 32), Err(Unusable::Features(32)));
    assert_eq!(with(7, 1), Err(Unusable::Format("qcow, the predecessor of qcow2")));
    assert_eq!(with(7, 4), Err(Unusable::Version(4)));
    assert_eq!(with(23, 8), Err(Unusable::Field("cluster_bits")));
    assert_eq!(with(24, 0x80), Err(Unusable::Field("size")));
    assert_eq!(read(&qcow2_header(0)), Err(Unusable::Field("size")));
    assert_eq!(with(103, 96), Err(Unusable::Field("header_length")));
    assert_eq!(read(&qcow2_header(1)[..103]), Err(Unusable::Short));
    assert_eq!(read(b""), Err(Unusable::Short));
}

#[test]
fn other_formats_are_named() {
    let vdi = [&[0; 64][..], b"\x7f\x10\xda\xbe"].concat();
    for (bytes, words) in [
        (&b"\x1f\x8b\x08"[..], "is compressed with gzip"),
        (b"\xfd7zXZ\0\0", "is compressed with xz"),
        (b"\x28\xb5\x2f\xfd\0", "is compressed with zstd"),
        (b"KDMV\x01", "has the format vmdk"),
        (&vdi, "has the format vdi"),
    ] {
        let told = read(bytes).expect_err("not usable").to_string();
        assert!(told.starts_with(words), "{told}");
    }
    assert_eq!(read(&[0; 600]), Ok(Header { format: Format::Raw, virtual_size: None }));
    assert_eq!(read(b"x").expect("short files are raw").format, Format::Raw);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = read(&bytes).map_err(|why| why.to_string());
    }

    /// Random bytes are hardly ever a header, so most fields of a good one are kept.
    #[test]
    fn what_is_accepted_stands_alone(at in 4..112usize, byte: u8, size in 1..MAX_SIZE) {
        let mut bytes = qcow2_header(size);
        bytes[at] = byte;
        if let Ok(header) = read(&bytes) {
            prop_assert_eq!(header.format, Format::Qcow2);
            prop_assert!(header.virtual_size.is_some_and(|size| size > 0 && size <= MAX_SIZE));
            prop_assert!(bytes[8..20].iter().all(|byte| *byte == 0), "a backing file");
            prop_assert!(bytes[79].trailing_zeros() >= 3, "another file, or damaged");
        }
    }
}
