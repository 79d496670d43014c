//! The end of the serial log of a guest that never came up.
//!
//! # What works over a connection
//!
//! | Way | Over a remote connection | Why (not) |
//! |---|---|---|
//! | a log file in a storage pool, read with `virStorageVolDownload` | yes | chosen: only its end is read |
//! | `virDomainOpenConsole` | yes | shows only what comes later, and takes the console away from a person |
//! | a log file elsewhere, such as `/var/log/libvirt/qemu` | no | libvirt cannot read it for a client |
//! | `virDomainScreenshot` | yes | a picture, and needs a graphics card |
//!
//! So the domain has `<serial type='file'>` with the path of a volume, which is made together with its disks.
//!
//! # What may be quoted
//!
//! What a guest prints may contain its bootstrap data: cloud-init prints the output of scripts. A condition is
//! readable for many who may not read the Secret. Therefore
//!
//! - a quotation is made only if the spec asks for it, and only while the bootstrap data are at hand to compare with;
//! - [`excerpt()`] leaves out every line that has a part of the bootstrap data in it, or looks as if it had a secret. Data
//!   that cannot be compared with, such as compressed ones, are never risked: then nothing is quoted.
//!
//! This is a safety net, no promise: a guest can print its data in another form.

mod excerpt;
mod log;
mod looks;

pub(crate) use self::{excerpt::excerpt, log::read_end, looks::Looks};

#[cfg(test)]
pub(crate) use self::looks::FIRST_LOOK;
