//! Packets to load balancer addresses: Nodes are network namespaces with a real kube-proxy each, on a real API
//! server; pods and a client are further namespaces.

mod announced;
mod cluster;
mod cut_off;
mod forwarding;
mod lan;
mod programs;

use crate::scenarios::Trials;

pub(crate) use programs::other_main;

pub(crate) fn trials() -> Trials {
    Trials::new()
        .api_server("packets::the_daemon_announces_and_another_takes_over", announced::by_the_daemon)
        .api_server("packets::kube_proxies_forward_the_address_of_a_node", forwarding::by_hand)
}
