//! The connection to one hypervisor, and with it the inventory.
//!
//! # Which thread does what
//!
//! Calls to libvirt block, so no task makes one:
//!
//! | Where | What it does | Connection |
//! |---|---|---|
//! | the [`Actor`](actor::Actor), a task of tokio, one for each hypervisor | connects ([`reconnect`]), then follows events ([`follow`]), polls for addresses ([`polling`]), has guest agents asked ([`agents`]), and serves [`Command`](crate::hypervisor::Command)s. It alone writes the inventory | none |
//! | look-ups, in the tasks of their callers | read the inventory under its lock. To confirm an absence they send the actor a command | none |
//! | one [`Worker`](crate::worker::Worker) of the actor | makes the calls of its [`Session`](crate::session::Session), one by one | the session's, registered for events |
//! | up to two workers for guest agents | ask one agent each, which may never answer | one each |
//! | the workers of [`WorkerPool`](crate::worker_pool::WorkerPool) | make the calls of machines, in turns by namespace | one each |
//! | libvirt's event loop, one thread of the process ([`sys`](crate::sys)) | receives events, and puts them into the channel of the actor | all |
//! | threads for [`HypervisorHandle::with_connection`](crate::HypervisorHandle::with_connection) | run the work of a caller | one each |
//!
//! Two threads never make calls over one connection to a daemon; [`Session`](crate::session::Session) says
//! why. A driver inside this process, such as the test driver, gives each connection domains of its own, so
//! there all threads share the session's.
//!
//! [`Calls`](crate::calls::Calls) counts each call and notes when it began. If a call takes longer than
//! `callTimeout`, the actor abandons the worker with its thread, and the hypervisor counts as unreachable.
//! The next connection gets a new worker.

mod actor;
mod agents;
mod connected;
mod follow;
mod polling;
mod reconnect;

pub(crate) use reconnect::run;
