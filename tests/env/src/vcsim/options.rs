//! What a simulated vCenter contains.

/// The contents of a [`Vcsim`](super::Vcsim). Machines are called `DC0_C0_RP0_VM0` and so on.
#[derive(Clone, Debug)]
pub struct VcsimOptions {
    /// Datacenters, `DC0`, `DC1`, ...
    pub datacenters: u32,
    /// Clusters in each datacenter, `DC0_C0`, ...
    pub clusters: u32,
    /// Hosts in each cluster, `DC0_C0_H0`, ...
    pub hosts: u32,
    /// Datastores in each datacenter, `LocalDS_0`, ...
    pub datastores: u32,
    /// Datastore clusters in each datacenter, `DC0_POD0`, ... They share all datastores but the first.
    pub pods: u32,
    /// Machines in each cluster, all powered on.
    pub machines: u32,
    /// Whether machine N has the guest of a Node: host name `node-N`, BIOS UUID `5a3c0de0-0000-4000-8000-`
    /// with N in twelve hexadecimal digits, address 10.20.0.0/16 plus N + 1, VMware Tools running. Otherwise
    /// guests report nothing.
    pub nodes: bool,
    /// The N of the first machine, if another vCenter has the Nodes before it.
    pub first_node: u32,
    /// Additional machines `other-0`, `other-1`, ... that are not Nodes. They are copies, so they are made
    /// quickly, but only [`set_guest`](super::Vcsim::set_guest) can change them.
    pub others: u32,
    /// The only user that may log in.
    pub user: String,
    /// The user's password.
    pub password: String,
    /// The dialects of the tagging REST API: `legacy` (`/rest`), `modern` (`/api`) or `both`.
    pub rest: &'static str,
    /// Whether a machine that is powered on gets the guest that its `guestinfo.metadata` describes: its host name,
    /// its static addresses, and one of `10.64.0.0/10` or `2001:db8::/64` for each card with DHCP.
    pub boots_guests: bool,
    /// How many milliseconds tasks take, such as `CloneVm:300,PowerOn:100`.
    pub task_delays: &'static str,
    /// Whether REST accepts SOAP sessions, as a real vCenter does from 8.0 U3 on.
    pub shares_sessions: bool,
}

impl Default for VcsimOptions {
    fn default() -> Self {
        Self {
            datacenters: 1,
            clusters: 1,
            hosts: 2,
            datastores: 1,
            pods: 0,
            machines: 4,
            nodes: true,
            first_node: 0,
            others: 0,
            user: "administrator@vsphere.local".to_owned(),
            password: "vcsim's secret".to_owned(),
            rest: "legacy",
            boots_guests: false,
            task_delays: "",
            shares_sessions: false,
        }
    }
}
