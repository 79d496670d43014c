//! The first bytes of an image from a server: no bytes make the reader panic, and what it accepts has a sensible size.

#![no_main]

use cloudprovider_libvirt::measured;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // most bytes are raw images by their beginning, so qcow2 gets a beginning of its own
    let qcow2 = [b"QFI\xfb\0\0\0\x03", bytes].concat();
    for bytes in [bytes, &qcow2] {
        if let Ok(Some(size)) = measured::image_header(bytes) {
            assert!(size > 0 && i64::try_from(size).is_ok());
        }
    }
});
