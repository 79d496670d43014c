//! The controllers of the core part together, on an API server in the process, with a provider that is played.

mod kubeadm;
mod machines;
mod world;
