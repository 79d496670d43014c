//! Machines of Cluster API on libvirt.

// The steps use all of it.
#![allow(dead_code, unused_imports)]

mod capabilities;
mod domain_xml;
mod kinds;
mod metadata;
mod names;
mod placement;
mod seed;
mod spec;
mod status;
mod xml;
