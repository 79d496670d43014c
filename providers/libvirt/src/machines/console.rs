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
//! - a quotation is made only if the spec asks for it. The default is not to;
//! - [`excerpt()`] leaves out every line that has a word of the bootstrap data in it ([`MIN_WORD`] characters or more,
//!   except common ones), or looks as if it had a secret. This is a safety net, no promise: a guest can print its data in
//!   another form.
//!
//! # How a step uses it
//!
//! ```text
//! if spec asks for it, the machine waits for an address, and it is up for longer than FIRST_LOOK:
//!     at most once in LOOK_INTERVAL, since each other message is a write:
//!     let end = read_end(link, pool, volume)?;
//!     let words = end.and_then(|end| excerpt(&end, bootstrap));
//! ```
//!
//! An error of [`read_end`] is no reason for the step to fail: the wait is told without a quotation.

mod excerpt;
mod log;

use std::time::Duration;

pub(crate) use self::{
    excerpt::{MIN_WORD, excerpt},
    log::read_end,
};

/// How long a guest runs before its log is looked at.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(300);

/// The time between two looks at the same log.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(300);
