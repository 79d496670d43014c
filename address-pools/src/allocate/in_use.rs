//! What the cluster shows in use, beside claims, and whether that keeps a Service from an address.

use std::net::IpAddr;

use cloudprovider::AddressUser;

use super::Planner;
use crate::pool::Pool;

/// How many addresses that were passed over are named.
const PASSED_OVER_NAMED: usize = 3;

impl Planner<'_> {
    /// How the cluster shows the address in use, beside claims. A Service that asks for it is refused.
    pub(super) fn used(&self, pool: Option<&Pool>, address: IpAddr) -> Option<String> {
        self.first_user(address, self.keeps_off(pool, address))
    }

    /// The same, without what its writer lists beyond the limit.
    pub(super) fn used_within_limit(&self, pool: Option<&Pool>, address: IpAddr) -> Option<String> {
        let keeps_off = self.keeps_off(pool, address);
        self.first_user(address, |user| keeps_off(user) && self.is_within_limit(pool, address, user))
    }

    /// Whether a use of this address keeps the Service from it.
    fn keeps_off(&self, pool: Option<&Pool>, address: IpAddr) -> impl Fn(&AddressUser) -> bool {
        // A Cluster of another namespace that names the same endpoint does not keep it from its Service.
        let is_own_endpoint = self.request.users(address).any(|user| self.is_own_control_plane(user));
        move |user| {
            self.matters(pool, user) && !(is_own_endpoint && matches!(user, AddressUser::ControlPlane { .. }))
        }
    }

    /// Whether it is the control plane of a Cluster of the Service's namespace. That may be the Service.
    fn is_own_control_plane(&self, user: &AddressUser) -> bool {
        matches!(user, AddressUser::ControlPlane { namespace, .. } if *namespace == self.request.service.namespace)
    }

    fn first_user(&self, address: IpAddr, is_one: impl Fn(&AddressUser) -> bool) -> Option<String> {
        let mut users = self.request.users(address);
        users.find(|user| is_one(user)).map(|user| self.words(user))
    }

    /// Whether such a use keeps the Service from addresses of this pool.
    fn matters(&self, pool: Option<&Pool>, user: &AddressUser) -> bool {
        let service = &self.request.service;
        // Any user of a namespace may write these. They must not block the pools of others.
        let reaches = |namespace: &str| pool.is_none_or(|pool| pool.serves(namespace));
        match user {
            AddressUser::ExternalIp(other) => other.uid != service.uid && reaches(&other.namespace),
            AddressUser::OtherLoadBalancer(other) => other.uid != service.uid,
            AddressUser::ControlPlane { namespace, .. } => {
                !self.is_own_control_plane(user) && reaches(namespace)
            }
            _ => true,
        }
    }

    /// Whether the use of an address of this pool counts, however many its writer lists.
    fn is_within_limit(&self, pool: Option<&Pool>, address: IpAddr, user: &AddressUser) -> bool {
        let namespace = &self.request.service.namespace;
        // A namespace gets nothing by listing more.
        let is_own = match user {
            AddressUser::ExternalIp(other) => other.namespace == *namespace,
            _ => false,
        };
        pool.is_none() || is_own || !self.request.excess.has(address, user, self.index)
    }

    fn words(&self, user: &AddressUser) -> String {
        match user {
            AddressUser::Node(_) => "it is an address of a Node".to_owned(),
            AddressUser::ApiServer => "it is an address of the API server".to_owned(),
            AddressUser::ExternalIp(service) => format!("{} has it as an external IP", self.other(service)),
            AddressUser::OtherLoadBalancer(service) => {
                format!("{} has it from a load balancer of another class", self.other(service))
            }
            AddressUser::Cloud => "the cloud itself answers there".to_owned(),
            AddressUser::ControlPlane { .. } if self.is_own_control_plane(user) => {
                "it is the address of a cluster's control plane".to_owned()
            }
            _ => "something else uses it".to_owned(),
        }
    }

    /// Whether the Service keeps an address that is in use. What it has claimed, clients use. What it only had in its status, it
    /// keeps unless a host has it: that would be taken from the host. Other objects say nothing about hosts, and a Node that lists
    /// too many addresses does not either.
    pub(super) fn keeps(&self, pool: Option<&Pool>, address: IpAddr) -> bool {
        let service = &self.request.service;
        if self.index.of_service(service).contains(&address) {
            return true;
        }
        let is_host = |user: &AddressUser| {
            let is_object = matches!(
                user,
                AddressUser::ExternalIp(_)
                    | AddressUser::OtherLoadBalancer(_)
                    | AddressUser::ControlPlane { .. }
            );
            !is_object && self.is_within_limit(pool, address, user)
        };
        self.index.is_reserved_for(&service.uid, address) && !self.request.users(address).any(is_host)
    }

    /// Whether a free address is not picked since the cluster shows it in use. The endpoint of a Cluster is for the one Service
    /// that asks for it.
    pub(super) fn passes_over(&self, pool: &Pool, address: IpAddr) -> bool {
        let is_control_plane = |user: &AddressUser| match user {
            AddressUser::ControlPlane { namespace, .. } => pool.serves(namespace),
            _ => false,
        };
        let used = self.first_user(address, |user| {
            (self.matters(Some(pool), user) || is_control_plane(user))
                && self.is_within_limit(Some(pool), address, user)
        });
        let Some(used) = used else { return false };
        let mut passed_over = self.passed_over.borrow_mut();
        if passed_over.len() < PASSED_OVER_NAMED {
            passed_over.push((address, used));
        }
        true
    }
}
