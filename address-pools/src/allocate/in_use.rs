//! What the cluster shows in use, beside claims, and whether that keeps a Service from an address.

use std::net::IpAddr;

use cloudprovider::AddressUser;

use super::Planner;
use crate::pool::Pool;

/// How many addresses that were passed over are named.
const PASSED_OVER_NAMED: usize = 3;

impl Planner<'_> {
    /// How the cluster shows the address in use, beside claims.
    pub(super) fn used(&self, pool: Option<&Pool>, address: IpAddr) -> Option<String> {
        let users = self.request.in_use.of(address).iter();
        users.filter(|user| self.matters(pool, address, user)).map(|user| self.words(user)).next()
    }

    /// Whether such a use keeps addresses of this pool from being handed out.
    fn matters(&self, pool: Option<&Pool>, address: IpAddr, user: &AddressUser) -> bool {
        let is_too_much = pool.is_some() && self.request.excess.has(address, user);
        match user {
            // Everybody may write external IPs. They must not block the pools of others.
            AddressUser::ExternalIp(service) => {
                service.uid != self.request.service.uid
                    && pool.is_none_or(|pool| pool.serves(&service.namespace))
                    && (!is_too_much || service.namespace == self.request.service.namespace)
            }
            AddressUser::OtherLoadBalancer(service) => service.uid != self.request.service.uid,
            // It may be this Service that is the control plane.
            AddressUser::ControlPlane { .. } => false,
            _ => !is_too_much,
        }
    }

    /// Whether a cluster has its control plane there, or will have.
    fn control_plane(&self, address: IpAddr) -> Option<String> {
        let mut users = self.request.in_use.of(address).iter();
        let is_one = |user: &&AddressUser| {
            matches!(user, AddressUser::ControlPlane { .. }) && !self.request.excess.has(address, user)
        };
        users.find(is_one).map(|user| self.words(user))
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
            AddressUser::ControlPlane { .. } => "it is the address of a cluster's control plane".to_owned(),
            _ => "something else uses it".to_owned(),
        }
    }

    /// Whether the Service keeps an address that is in use. What it has claimed, clients use. What it only had in its status, it
    /// keeps unless a host has it: that would be taken from the host.
    pub(super) fn keeps(&self, pool: Option<&Pool>, address: IpAddr) -> bool {
        let service = &self.request.service;
        if self.index.of_service(service).contains(&address) {
            return true;
        }
        let mut users =
            self.request.in_use.of(address).iter().filter(|user| self.matters(pool, address, user));
        let is_of_service = |user: &AddressUser| {
            matches!(user, AddressUser::ExternalIp(_) | AddressUser::OtherLoadBalancer(_))
        };
        self.index.is_reserved_for(&service.uid, address) && users.all(is_of_service)
    }

    /// Whether a free address is not picked since the cluster shows it in use.
    pub(super) fn passes_over(&self, pool: &Pool, address: IpAddr) -> bool {
        let used = self.used(Some(pool), address).or_else(|| self.control_plane(address));
        let Some(used) = used else { return false };
        let mut passed_over = self.passed_over.borrow_mut();
        if passed_over.len() < PASSED_OVER_NAMED {
            passed_over.push((address, used));
        }
        true
    }
}
