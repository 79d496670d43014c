//! The controllers of the core part together, on an API server in the process, with a provider that is played.

mod bounds;
mod costs;
mod crashes;
mod deletion;
mod explain;
mod histories;
mod kept;
mod kubeadm;
mod line;
mod machines;
mod metadata;
mod objects;
mod ownership;
mod permissions;
mod provider;
mod record;
mod rollouts;
mod unreadable;
mod world;
