//! The calls to libvirt that the `virt` crate lacks or gets wrong. All unsafe code of this crate is here.
//!
//! - events: not in the safe layer;
//! - `state()`: the safe one ignores the error and returns a state that does not exist;
//! - `interface_addresses()`: the safe one leaks every interface it returns;
//! - credentials: the safe one takes no closure, so two connections could not have different passwords;
//! - DHCP leases, and the states of all domains at once: not in the safe layer.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    net::IpAddr,
    ptr,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use uuid::Uuid;
use virt::{
    connect::Connect,
    domain::Domain,
    error::Error,
    event::{event_register_default_impl, event_run_default_impl},
    network::Network,
};
use virt_sys as sys;

use crate::{
    addresses::{AgentInterface, Lease},
    mac::Mac,
};

/// Converts one of libvirt's constants for a function that takes a signed number.
fn number(number: c_uint) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// Prepares libvirt for events, once for the process. Without this before the first connection, neither
/// events nor keepalive work.
///
/// # Errors
/// libvirt's message, the same one each time.
pub(crate) fn initialize() -> Result<(), String> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    DONE.get_or_init(|| {
        // without this, libvirt prints every error on stderr
        virt::error::clear_error_callback();
        event_register_default_impl().map_err(|error| error.message().to_owned())?;
        thread::Builder::new()
            .name("libvirt-events".to_owned())
            .spawn(|| {
                loop {
                    if event_run_default_impl().is_err() {
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            })
            .map(drop)
            .map_err(|error| format!("cannot start the thread for libvirt's events: {error}"))
    })
    .clone()
}

/// SASL credentials of one connection.
pub(crate) struct Credentials {
    pub(crate) username: SecretString,
    pub(crate) password: SecretString,
}

/// Opens a connection. Blocks until the other side answers, which may be never.
pub(crate) fn open(uri: &str, credentials: Option<&Credentials>) -> Result<Connect, Error> {
    let Some(credentials) = credentials else {
        // the safe layer panics on a NUL character
        CString::new(uri)?;
        return Connect::open(Some(uri));
    };
    let uri = CString::new(uri)?;
    let mut types = [sys::VIR_CRED_AUTHNAME, sys::VIR_CRED_PASSPHRASE].map(number);
    let mut auth = sys::virConnectAuth {
        credtype: types.as_mut_ptr(),
        ncredtype: 2,
        cb: Some(give_credentials),
        cbdata: ptr::from_ref(credentials).cast_mut().cast(),
    };
    // SAFETY: `uri`, `auth`, `types` and `credentials` outlive the call, and libvirt keeps none of them after
    // it.
    let connect = unsafe { sys::virConnectOpenAuth(uri.as_ptr(), &raw mut auth, 0) };
    if connect.is_null() {
        return Err(Error::last_error());
    }
    // SAFETY: the pointer is valid and its one reference passes to the wrapper.
    Ok(unsafe { Connect::from_ptr(connect) })
}

/// Fills in the credentials that libvirt asks for. Called by libvirt inside [`open`], on the same thread.
unsafe extern "C" fn give_credentials(
    asked: sys::virConnectCredentialPtr,
    count: c_uint,
    credentials: *mut c_void,
) -> c_int {
    // SAFETY: `open` passes a pointer to `Credentials` that is alive during its call.
    let credentials = unsafe { &*credentials.cast::<Credentials>() };
    for i in 0..count as usize {
        // SAFETY: libvirt passes an array of `count` elements.
        let asked = unsafe { &mut *asked.add(i) };
        let secret = match c_uint::try_from(asked.type_) {
            Ok(sys::VIR_CRED_AUTHNAME) => &credentials.username,
            Ok(sys::VIR_CRED_PASSPHRASE) => &credentials.password,
            _ => return -1,
        };
        let Ok(text) = CString::new(secret.expose_secret()) else { return -1 };
        // SAFETY: `text` is a C string; libvirt frees the copy with `free`.
        asked.result = unsafe { libc::strdup(text.as_ptr()) };
        asked.resultlen = c_uint::try_from(text.as_bytes().len()).unwrap_or(0);
    }
    0
}

/// An event from libvirt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Something about this domain changed.
    Domain(Uuid),
    /// The guest agent of this domain connected or disconnected.
    Agent(Uuid),
    /// The connection was closed, and why.
    Closed(&'static str),
}

/// Receives events. Called on the event thread, so it must only pass them on.
pub(crate) type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// Registered callbacks. libvirt keeps a connection open as long as it has any.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    ids: Vec<c_int>,
    closes: bool,
}

impl Registration {
    /// Registers for all events that can change a Node's data. On a connection to a daemon, also registers
    /// for its end; a driver inside this process would accept that callback and never call it.
    ///
    /// # Errors
    /// If even lifecycle events are not available.
    pub(crate) fn register(connect: &Connect, sink: &EventSink, is_remote: bool) -> Result<Self, Error> {
        let mut registration = Self::default();
        // SAFETY: a function pointer may be given under another signature as long as it is called under its
        // own, which libvirt does by the event's ID; both types below are `Option`s of thin function
        // pointers.
        let callbacks = unsafe {
            [
                (
                    sys::VIR_DOMAIN_EVENT_ID_LIFECYCLE,
                    std::mem::transmute::<
                        sys::virConnectDomainEventCallback,
                        sys::virConnectDomainEventGenericCallback,
                    >(Some(on_lifecycle)),
                ),
                (
                    sys::VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE,
                    std::mem::transmute::<
                        sys::virConnectDomainEventAgentLifecycleCallback,
                        sys::virConnectDomainEventGenericCallback,
                    >(Some(on_agent)),
                ),
                (
                    sys::VIR_DOMAIN_EVENT_ID_DEVICE_ADDED,
                    std::mem::transmute::<
                        sys::virConnectDomainEventDeviceAddedCallback,
                        sys::virConnectDomainEventGenericCallback,
                    >(Some(on_device)),
                ),
                (
                    sys::VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED,
                    std::mem::transmute::<
                        sys::virConnectDomainEventDeviceRemovedCallback,
                        sys::virConnectDomainEventGenericCallback,
                    >(Some(on_device)),
                ),
                (
                    sys::VIR_DOMAIN_EVENT_ID_METADATA_CHANGE,
                    std::mem::transmute::<
                        sys::virConnectDomainEventMetadataChangeCallback,
                        sys::virConnectDomainEventGenericCallback,
                    >(Some(on_metadata)),
                ),
            ]
        };
        for (event, callback) in callbacks {
            let opaque = Box::into_raw(Box::new(Arc::clone(sink)));
            // SAFETY: the connection is alive; `opaque` belongs to libvirt from here on, which gives it back
            // to `free_sink` exactly once, when the callback is taken back.
            let id = unsafe {
                sys::virConnectDomainEventRegisterAny(
                    connect.as_ptr(),
                    ptr::null_mut(),
                    number(event),
                    callback,
                    opaque.cast(),
                    Some(free_sink),
                )
            };
            if id >= 0 {
                registration.ids.push(id);
                continue;
            }
            let error = Error::last_error();
            // SAFETY: libvirt did not take `opaque`, so it is still ours.
            drop(unsafe { Box::from_raw(opaque) });
            if event == sys::VIR_DOMAIN_EVENT_ID_LIFECYCLE {
                return Err(error);
            }
            // Drivers without the other events still report the lifecycle. Other changes are found by the
            // next listing.
            tracing::debug!(event, error = error.message(), "libvirt's driver does not have this event");
        }
        if is_remote {
            registration.register_close(connect, sink);
        }
        Ok(registration)
    }

    fn register_close(&mut self, connect: &Connect, sink: &EventSink) {
        let opaque = Box::into_raw(Box::new(Arc::clone(sink)));
        // SAFETY: as for the other callbacks.
        let result = unsafe {
            sys::virConnectRegisterCloseCallback(
                connect.as_ptr(),
                Some(on_close),
                opaque.cast(),
                Some(free_sink),
            )
        };
        self.closes = result == 0;
        if !self.closes {
            // SAFETY: libvirt did not take `opaque`, so it is still ours.
            drop(unsafe { Box::from_raw(opaque) });
        }
    }

    /// Deregisters all callbacks, so that the connection can be closed. Errors are ignored: on a dead
    /// connection libvirt drops the callbacks anyway.
    pub(crate) fn deregister(self, connect: &Connect) {
        for id in self.ids {
            // SAFETY: the connection is alive, and the ID is one that it gave.
            unsafe { sys::virConnectDomainEventDeregisterAny(connect.as_ptr(), id) };
        }
        if self.closes {
            // SAFETY: the connection is alive.
            unsafe { sys::virConnectUnregisterCloseCallback(connect.as_ptr(), Some(on_close)) };
        }
    }
}

/// Frees a sink.
unsafe extern "C" fn free_sink(opaque: *mut c_void) {
    // SAFETY: `opaque` came from `Box::into_raw` in `Registration`, and libvirt calls this once.
    drop(unsafe { Box::from_raw(opaque.cast::<EventSink>()) });
}

/// Passes an event about a domain to the sink.
///
/// # Safety
/// `domain` is a domain and `opaque` an [`EventSink`], both alive during the call.
unsafe fn pass_on(domain: sys::virDomainPtr, opaque: *mut c_void, event: fn(Uuid) -> Event) {
    let mut bytes = [0; 16];
    // SAFETY: `domain` is alive and the buffer has VIR_UUID_BUFLEN bytes; the UUID is in memory, no call is
    // made.
    let known = unsafe { sys::virDomainGetUUID(domain, bytes.as_mut_ptr()) } == 0;
    // SAFETY: see above.
    let sink = unsafe { &*opaque.cast::<EventSink>() };
    if known {
        sink(event(Uuid::from_bytes(bytes)));
    }
}

unsafe extern "C" fn on_lifecycle(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    _: c_int,
    _: c_int,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: libvirt passes a live domain and the sink of the registration.
    unsafe { pass_on(domain, opaque, Event::Domain) };
    0
}

unsafe extern "C" fn on_agent(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    _: c_int,
    _: c_int,
    opaque: *mut c_void,
) {
    // SAFETY: as in `on_lifecycle`.
    unsafe { pass_on(domain, opaque, Event::Agent) };
}

unsafe extern "C" fn on_device(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    _: *const c_char,
    opaque: *mut c_void,
) {
    // SAFETY: as in `on_lifecycle`.
    unsafe { pass_on(domain, opaque, Event::Domain) };
}

unsafe extern "C" fn on_metadata(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    _: c_int,
    _: *const c_char,
    opaque: *mut c_void,
) {
    // SAFETY: as in `on_lifecycle`.
    unsafe { pass_on(domain, opaque, Event::Domain) };
}

unsafe extern "C" fn on_close(_: sys::virConnectPtr, reason: c_int, opaque: *mut c_void) {
    // SAFETY: libvirt passes the sink of the registration.
    let sink = unsafe { &*opaque.cast::<EventSink>() };
    sink(Event::Closed(match c_uint::try_from(reason) {
        Ok(sys::VIR_CONNECT_CLOSE_REASON_EOF) => "the other side closed the connection",
        Ok(sys::VIR_CONNECT_CLOSE_REASON_KEEPALIVE) => "connection closed due to keepalive timeout",
        _ => "the connection broke",
    }));
}

/// State and reason of a domain, as libvirt's constants.
pub(crate) fn state(domain: &Domain) -> Result<(i32, i32), Error> {
    let (mut state, mut reason) = (0, 0);
    // SAFETY: the domain is alive and both pointers are valid.
    let result = unsafe { sys::virDomainGetState(domain.as_ptr(), &raw mut state, &raw mut reason, 0) };
    if result == 0 { Ok((state, reason)) } else { Err(Error::last_error()) }
}

/// State and reason of every domain, in one call.
pub(crate) fn all_states(connect: &Connect) -> Result<Vec<(Uuid, i32, i32)>, Error> {
    let mut records: *mut sys::virDomainStatsRecordPtr = ptr::null_mut();
    // SAFETY: the connection is alive and the pointer is valid.
    let count = unsafe {
        sys::virConnectGetAllDomainStats(connect.as_ptr(), sys::VIR_DOMAIN_STATS_STATE, &raw mut records, 0)
    };
    let count = usize::try_from(count).map_err(|_| Error::last_error())?;
    let mut states = Vec::with_capacity(count);
    for i in 0..count {
        // SAFETY: libvirt gave `count` records, each with `nparams` parameters and a live domain.
        unsafe {
            let record = &**records.add(i);
            let mut bytes = [0; 16];
            let known = sys::virDomainGetUUID(record.dom, bytes.as_mut_ptr()) == 0;
            let integer = |name: &CStr| -> Option<i32> {
                (0..usize::try_from(record.nparams).unwrap_or(0)).find_map(|j| {
                    let parameter = &*record.params.add(j);
                    let matches = CStr::from_ptr(parameter.field.as_ptr()) == name
                        && c_uint::try_from(parameter.type_) == Ok(sys::VIR_TYPED_PARAM_INT);
                    if matches { Some(parameter.value.i) } else { None }
                })
            };
            if let (true, Some(state)) = (known, integer(c"state.state")) {
                states.push((Uuid::from_bytes(bytes), state, integer(c"state.reason").unwrap_or(0)));
            }
        }
    }
    if !records.is_null() {
        // SAFETY: the list came from libvirt and no pointer into it is left.
        unsafe { sys::virDomainStatsRecordListFree(records) };
    }
    Ok(states)
}

/// The source of a domain's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressSource {
    /// The DHCP servers of libvirt's networks.
    Lease,
    /// The guest agent.
    Agent,
}

/// Interfaces of a domain with their addresses.
pub(crate) fn interface_addresses(
    domain: &Domain,
    source: AddressSource,
) -> Result<Vec<AgentInterface>, Error> {
    let source = match source {
        AddressSource::Lease => sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE,
        AddressSource::Agent => sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT,
    };
    let mut list: *mut sys::virDomainInterfacePtr = ptr::null_mut();
    // SAFETY: the domain is alive and the pointer is valid.
    let count = unsafe { sys::virDomainInterfaceAddresses(domain.as_ptr(), &raw mut list, source, 0) };
    let count = usize::try_from(count).map_err(|_| Error::last_error())?;
    let mut interfaces = Vec::with_capacity(count);
    for i in 0..count {
        // SAFETY: libvirt gave `count` interfaces with `naddrs` addresses each. Each interface is read before
        // it is freed, and freed once, with everything inside.
        unsafe {
            let pointer = *list.add(i);
            let interface = &*pointer;
            let mac = text(interface.hwaddr).as_deref().and_then(Mac::parse);
            let ips = (0..interface.naddrs as usize)
                .filter_map(|j| text((*interface.addrs.add(j)).addr)?.parse::<IpAddr>().ok())
                .collect();
            interfaces.push(AgentInterface { mac, ips });
            sys::virDomainInterfaceFree(pointer);
        }
    }
    // SAFETY: the array itself is the caller's, allocated with `malloc`, or null.
    unsafe { libc::free(list.cast()) };
    Ok(interfaces)
}

/// All DHCP leases of a network.
pub(crate) fn dhcp_leases(network: &Network) -> Result<Vec<(Mac, Lease)>, Error> {
    let mut list: *mut sys::virNetworkDHCPLeasePtr = ptr::null_mut();
    // SAFETY: the network is alive, no MAC means all, and the pointer is valid.
    let count = unsafe { sys::virNetworkGetDHCPLeases(network.as_ptr(), ptr::null(), &raw mut list, 0) };
    let count = usize::try_from(count).map_err(|_| Error::last_error())?;
    let mut leases = Vec::with_capacity(count);
    for i in 0..count {
        // SAFETY: libvirt gave `count` leases; each is read before it is freed, and freed once.
        unsafe {
            let pointer = *list.add(i);
            let lease = &*pointer;
            let mac = text(lease.mac).as_deref().and_then(Mac::parse);
            let ip = text(lease.ipaddr).and_then(|ip| ip.parse().ok());
            if let (Some(mac), Some(ip)) = (mac, ip) {
                // zero means a lease without end
                let expires = (lease.expirytime > 0).then_some(lease.expirytime);
                leases.push((mac, Lease { ip, expires }));
            }
            sys::virNetworkDHCPLeaseFree(pointer);
        }
    }
    // SAFETY: the array itself is the caller's, allocated with `malloc`, or null.
    unsafe { libc::free(list.cast()) };
    Ok(leases)
}

/// A copy of a C string, `None` for null.
///
/// # Safety
/// `pointer` is null or a C string.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: see above.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
