//! The types of the Node conditions that are read and written.

/// Written by the kubelet, and by the node controller of kube-controller-manager when the kubelet is silent.
pub const READY: &str = "Ready";

/// Whether the cloud provider has initialised the Node. If `False`, the message says why not, in the
/// provider's words.
pub const INITIALIZED: &str = "CloudProviderInitialized";

/// Whether the cloud has the Node's instance. `False`: it has not, and the reason says why the Node still
/// exists. `Unknown`: the cloud cannot tell, and the message says why in the provider's words. Written only
/// when the answer matters, so most Nodes never have it.
pub const INSTANCE_EXISTS: &str = "CloudProviderInstanceExists";

/// Whether the Node's pods cannot be reached. The route controller says so of its routes. Network plugins write it too.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";
/// The reason of [`NETWORK_UNAVAILABLE`] where a route of the Node is missing, as upstream.
pub const NO_ROUTE_CREATED: &str = "NoRouteCreated";

/// The conditions that are kept in memory.
pub const KEPT: [&str; 4] = [READY, INITIALIZED, INSTANCE_EXISTS, NETWORK_UNAVAILABLE];
