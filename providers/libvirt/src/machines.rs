//! Machines of Cluster API on libvirt.

// The steps use all of it.
#![allow(dead_code, unused_imports)]

mod caller;
mod capabilities;
mod console;
mod domain_xml;
mod endpoint;
mod kinds;
mod metadata;
mod names;
mod placement;
mod power;
mod reservation;
mod seed;
mod spec;
mod status;
mod storage;
mod xml;

pub(crate) use self::storage::size_in_header as image_size_in_header;
