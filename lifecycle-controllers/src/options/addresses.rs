//! Where API servers of workload clusters may be.
//!
//! A user writes the endpoint of a cluster and its kubeconfig. So without a limit, a user of one namespace directs requests of
//! this daemon to addresses that the user cannot reach: the daemon's own host, or a cloud's metadata service.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

/// The addresses that may be connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedAddresses(Vec<IpNet>);

impl AllowedAddresses {
    /// Reads the values of a flag. `flag` is the name in the messages. Without values, all addresses are allowed but loopback,
    /// link-local, multicast, broadcast and unspecified ones.
    ///
    /// # Errors
    /// Each value that is not a CIDR.
    pub fn parse(flag: &str, values: &[String]) -> Result<Self, Vec<String>> {
        let (mut nets, mut faults) = (Vec::new(), Vec::new());
        for value in values {
            match value.parse::<IpNet>() {
                Ok(net) => nets.push(net),
                Err(_) => {
                    faults.push(format!("{flag}: {value:?} is not a CIDR; expected one such as 10.0.0.0/8"));
                }
            }
        }
        if faults.is_empty() { Ok(Self(nets)) } else { Err(faults) }
    }

    /// Whether an address may be connected to. Ask for the address of the connection, after names were resolved.
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = plain(address);
        if self.0.is_empty() { !is_special(address) } else { self.0.iter().any(|net| net.contains(&address)) }
    }
}

/// The IPv4 address that the kernel connects to for an IPv6 address that contains one.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            // All of 0.0.0.0/8 means this host.
            let is_this_host = v4.octets()[0] == 0;
            is_this_host
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4 == Ipv4Addr::BROADCAST
        }
        IpAddr::V6(v6) => {
            v6.is_unspecified() || v6.is_loopback() || v6.is_unicast_link_local() || v6.is_multicast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(cidrs: &[&str], address: &str) -> bool {
        let cidrs: Vec<String> = cidrs.iter().map(|cidr| (*cidr).to_owned()).collect();
        AllowedAddresses::parse("--flag", &cidrs).expect("good").allow(address.parse().expect("an address"))
    }

    #[test]
    fn without_a_list_what_leads_to_this_host_or_the_cloud_is_refused() {
        for address in ["10.0.0.1", "192.168.1.1", "8.8.8.8", "2001:db8::1", "fd00::1"] {
            assert!(allowed(&[], address), "{address}");
        }
        for address in [
            "127.0.0.1",
            "127.1.2.3",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ] {
            assert!(!allowed(&[], address), "{address}");
        }
    }

    #[test]
    fn with_a_list_it_alone_counts() {
        let list = ["10.0.0.0/8", "2001:db8::/32", "127.0.0.1/32"];
        for (address, is_allowed) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("2001:db8::1", true),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("192.168.1.1", false),
            ("fd00::1", false),
        ] {
            assert_eq!(allowed(&list, address), is_allowed, "{address}");
        }
    }

    #[test]
    fn each_fault_is_named() {
        let values = ["10.0.0.0".to_owned(), "10.0.0.0/8".to_owned(), "x".to_owned()];
        let faults = AllowedAddresses::parse("--flag", &values).expect_err("two are bad");
        assert_eq!(faults.len(), 2);
        assert_eq!(faults[0], "--flag: \"10.0.0.0\" is not a CIDR; expected one such as 10.0.0.0/8");
    }
}
