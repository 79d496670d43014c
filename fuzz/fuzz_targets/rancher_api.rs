//! What a Rancher server answers and sends as events: no bytes make the decoders panic or hang.

#![no_main]

use cloudprovider_rancher::measured;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    measured::decode(bytes);
    measured::decode_load_balancers(bytes);
    measured::decode_management(bytes);
});
