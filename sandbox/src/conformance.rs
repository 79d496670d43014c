//! The behaviour of an API server that this project needs, as cases that run against any `kube::Client`.
//!
//! The same cases run against the sandbox and against a real kube-apiserver, so that the sandbox behaves like
//! the real one. Each case creates objects under names of its own and deletes them at its end, so cases may
//! run at the same time and against a server that is in use. They need administrator rights.

use std::{error::Error, fmt};

use futures::{FutureExt, future::BoxFuture};
use kube::Client;

mod ip_addresses;
mod kinds;
mod lists;
mod nodes;
mod objects;
mod patches;
mod prelude;
mod services;
mod watches;

/// The result of a case. The error says what differed.
pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// One behaviour of the API.
#[derive(Clone, Copy)]
pub struct Case {
    /// Unique, in `snake_case`.
    pub name: &'static str,
    /// Runs the case.
    pub run: fn(Client) -> BoxFuture<'static, Outcome>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

macro_rules! cases {
    ($($module:ident: $($name:ident),+;)+) => {
        /// Every case.
        pub const CASES: &[Case] = &[
            $($(Case { name: stringify!($name), run: |client| $module::$name(client).boxed() },)+)+
        ];
    };
}

cases! {
    objects: create_get_delete, create_refusals, generate_name, update_conflicts, update_by_name,
        delete_preconditions, finalizers, delete_collection, dry_run,
        names_and_labels_are_checked, types_are_checked,
        missing_things;
    patches: json_patch, json_patch_refusals, merge_patch, strategic_patch_lists, strategic_patch_directives,
        patch_preconditions, patch_without_change, apply_patch, metadata_answers;
    nodes: provider_id_is_immutable, taints_are_atomic, taints_are_checked, addresses_are_replaced,
        status_is_apart, node_registration;
    lists: selectors, pages, resource_versions, tables;
    watches: replay, initial_state, streaming_list, bookmarks, selector_transitions, unreadable_version, metadata_only;
    kinds: leases, events_in_both_groups, endpoint_slices, namespaces, custom_resources, discovery;
    services: service_defaults, service_families, type_changes, load_balancer_class, service_status, status_patches,
        cleanup_finalizer, deleted_services, service_refusals;
    ip_addresses: one_object_for_each_address, address_names, parents_are_immutable, address_preconditions;
}
