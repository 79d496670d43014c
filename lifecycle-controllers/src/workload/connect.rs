//! How connections to API servers are made.

use std::{collections::HashMap, fmt, sync::Arc};

use component::api_client::{Reach, foreign_client};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{Access, AllowedAddresses, ClusterKey};

/// Look-ups of names at once for the Clusters of one namespace. One that a name server does not answer holds a thread for
/// half a minute, and threads are shared by all.
const LOOKUPS: usize = 4;

/// Makes clients from kubeconfigs.
pub trait Connector: Send + Sync {
    /// A client of the API server of this Cluster. It connects with the first request.
    ///
    /// # Errors
    /// What of the kubeconfig cannot be used, without any of its values.
    fn connect(&self, cluster: &ClusterKey, access: &Access) -> Result<Client, String>;
}

/// Connects over the network, to permitted addresses alone.
pub struct Dial {
    addresses: Arc<AllowedAddresses>,
    lookups: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Dial {
    /// Connects to these addresses.
    pub fn new(addresses: AllowedAddresses) -> Self {
        Self { addresses: Arc::new(addresses), lookups: Mutex::default() }
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Connector for Dial {
    fn connect(&self, cluster: &ClusterKey, access: &Access) -> Result<Client, String> {
        let addresses = self.addresses.clone();
        let lookups = {
            let mut all = self.lookups.lock();
            // A namespace whose look-ups nobody holds has none under way.
            all.retain(|_, lookups| Arc::strong_count(lookups) > 1);
            all.entry(cluster.namespace.clone()).or_insert_with(|| Arc::new(Semaphore::new(LOOKUPS))).clone()
        };
        let reach = Reach { may_reach: Arc::new(move |address| addresses.allows(address)), lookups };
        // The library's error may quote what it read.
        foreign_client(access.config(), reach).map_err(|_| {
            "certificate-authority-data, client-certificate-data, client-key-data, token or tls-server-name cannot be used"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests;
