//! Tests of the calls that bypass the safe layer.

use super::*;

fn connect() -> Connect {
    initialize().expect("libvirt's event loop");
    open("test:///default", None).expect("the test driver")
}

/// Bytes that C code has allocated.
fn allocated() -> usize {
    // SAFETY: takes no arguments and only reads.
    unsafe { libc::mallinfo2() }.uordblks
}

#[test]
fn addresses_do_not_leak() {
    let connect = connect();
    let domain = connect.lookup_domain_by_name("test").expect("there");
    let read = || {
        let interfaces = interface_addresses(&domain, AddressSource::Lease).expect("the network is there");
        assert_eq!(interfaces.len(), 1);
        assert!(interfaces[0].mac.is_some() && interfaces[0].ips.len() == 1);
    };
    (0..100).for_each(|_| read());
    let grown = || {
        let before = allocated();
        (0..10_000).for_each(|_| read());
        allocated().saturating_sub(before)
    };
    // The safe layer leaks 80 bytes with each call, 800 kB here. Other tests allocate at the same time.
    let least = (0..5).map(|_| grown()).min().unwrap_or_default();
    assert!(least < 300_000, "{least} bytes more");
}

#[test]
fn the_state_of_a_domain_that_is_gone_is_an_error() {
    let connect = connect();
    let xml = "<domain type='test'><name>trap</name><memory>1024</memory><os><type>hvm</type></os></domain>";
    let domain = connect.define_domain_xml(xml).expect("defined");
    assert_eq!(state(&domain).expect("there").0, number(sys::VIR_DOMAIN_SHUTOFF));
    domain.undefine().expect("undefined");
    assert!(state(&domain).is_err());
}

#[test]
fn a_nul_in_a_uri_is_an_error() {
    for credentials in [None, Some(&credentials())] {
        assert!(open("test:///\0", credentials).is_err());
    }
}

#[test]
fn leases_that_a_driver_does_not_have_are_an_error() {
    let connect = connect();
    let network = connect.lookup_network_by_name("default").expect("there");
    assert!(dhcp_leases(&network).is_err());
}

fn credentials() -> Credentials {
    Credentials { username: "ccm".into(), password: "hunter2".into() }
}

#[test]
fn credentials_are_given_by_their_type() {
    let credentials = credentials();
    let ask = |kinds: &[c_uint]| -> (c_int, Vec<Option<String>>) {
        let mut asked: Vec<_> = kinds
            .iter()
            .map(|kind| sys::virConnectCredential {
                type_: number(*kind),
                prompt: ptr::null(),
                challenge: ptr::null(),
                defresult: ptr::null(),
                result: ptr::null_mut(),
                resultlen: 0,
            })
            .collect();
        let data: *const Credentials = &raw const credentials;
        // SAFETY: the array and the credentials are alive, and the count is the array's.
        let result = unsafe {
            give_credentials(
                asked.as_mut_ptr(),
                c_uint::try_from(asked.len()).expect("few"),
                data.cast_mut().cast(),
            )
        };
        let given = asked
            .iter()
            .map(|one| {
                // SAFETY: the callback filled in a C string from `malloc`, or nothing.
                let value = unsafe { text(one.result) };
                assert_eq!(value.as_ref().map_or(0, String::len), one.resultlen as usize);
                // SAFETY: see above; it is freed once.
                unsafe { libc::free(one.result.cast()) };
                value
            })
            .collect();
        (result, given)
    };
    let (result, given) = ask(&[sys::VIR_CRED_PASSPHRASE, sys::VIR_CRED_AUTHNAME]);
    assert_eq!((result, given), (0, vec![Some("hunter2".to_owned()), Some("ccm".to_owned())]));
    assert_eq!(ask(&[sys::VIR_CRED_ECHOPROMPT]).0, -1, "nobody is there to answer a question");
}

#[test]
fn callbacks_are_taken_back() {
    let connect = connect();
    let sink: EventSink = Arc::new(|_| ());
    let registration = Registration::register(&connect, &sink, false).expect("registered");
    assert!(Arc::strong_count(&sink) > 1);
    registration.deregister(&connect);
    // libvirt frees the callbacks on its event thread
    for _ in 0..200 {
        if Arc::strong_count(&sink) == 1 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{} callbacks are still there", Arc::strong_count(&sink) - 1);
}
