//! Machines of Cluster API on libvirt.

// The steps use all of it.
#![allow(dead_code, unused_imports)]

mod kinds;
mod names;
mod placement;
mod seed;
mod spec;
mod status;
