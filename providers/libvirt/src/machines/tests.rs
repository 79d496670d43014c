//! The steps of machines on libvirt's test driver, with a storage in memory: the driver can neither upload
//! nor download.

mod conformance;
mod copies;
mod costs;
mod crashes;
mod endpoint;
mod older_volumes;
mod reservations;
mod resets;
mod single;
mod support;
mod tenants;
