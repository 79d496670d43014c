//! Where hosts come from: the server, or a test's script.

use std::{fmt, net::IpAddr};

use cloudprovider::Result;

use super::{
    client::Client,
    events::HostEvents,
    model::{Host, IpAddress, ListedHost},
};

/// A complete listing of hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    pub(crate) hosts: Vec<Host>,
    /// Why a host could not be read. Then nobody knows which Node it belongs to, so no absence is certain.
    pub(crate) unreadable: Option<String>,
}

/// The calls about hosts.
pub(crate) trait HostSource: fmt::Debug + Send + Sync {
    /// All hosts, or an error.
    fn list(&self) -> impl Future<Output = Result<Listing>> + Send;

    /// The events from now on.
    fn subscribe(&self) -> impl Future<Output = Result<HostEvents>> + Send;

    /// The addresses of a host that does not say its own.
    fn ip_addresses(&self, host: &Host) -> impl Future<Output = Result<Vec<IpAddr>>> + Send;
}

impl HostSource for Client {
    async fn list(&self) -> Result<Listing> {
        // `Client::list`, with the type of the objects from the annotation.
        let listed: Vec<ListedHost> = Self::list(self, "hosts", &[("removed_null", "1")]).await?;
        let mut listing = Listing::default();
        for ListedHost(host) in listed {
            match host {
                Ok(host) => listing.hosts.push(host),
                Err(why) => listing.unreadable = Some(why),
            }
        }
        Ok(listing)
    }

    async fn subscribe(&self) -> Result<HostEvents> {
        Self::subscribe(self).await
    }

    async fn ip_addresses(&self, host: &Host) -> Result<Vec<IpAddr>> {
        let Some(link) = host.links.get("ipAddresses") else { return Ok(Vec::new()) };
        let operation = format!("read the addresses of host {}", host.id);
        let url = self.same_server(link).map_err(|error| error.with_operation(operation.clone()))?;
        let listed: Vec<IpAddress> = self.list_at(url, &operation).await?;
        let is_there = |address: &IpAddress| !matches!(address.state.as_deref(), Some("removed" | "purged"));
        let addresses = listed.into_iter().filter(is_there);
        Ok(addresses.filter_map(|address| address.address?.trim().parse().ok()).collect())
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A source that a test scripts.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use cloudprovider::{Error, ErrorKind};
    use futures::{StreamExt as _, stream};
    use parking_lot::Mutex;
    use tokio::sync::mpsc;

    use super::{Host, HostEvents, HostSource, IpAddr, Listing, Result};
    use crate::cattle::events::HostEvent;

    /// A host that runs.
    pub(crate) fn host(n: u32, name: &str) -> Host {
        Host {
            id: format!("1h{n}"),
            uuid: format!("uuid-{n}"),
            hostname: Some(name.to_owned()),
            state: Some("active".to_owned()),
            agent_ip_address: Some(format!("10.0.{}.{}", n / 250, n % 250 + 1)),
            ..Host::default()
        }
    }

    /// A server that answers as the test says.
    #[derive(Debug, Default)]
    pub(crate) struct Script {
        pub(crate) hosts: Mutex<Vec<Host>>,
        /// The error of every call, while there is one.
        pub(crate) fault: Mutex<Option<Error>>,
        /// Whether events cannot be subscribed to.
        pub(crate) no_events: Mutex<bool>,
        /// Whether subscriptions never get an answer.
        pub(crate) silent_events: Mutex<bool>,
        /// The error of reads of addresses, while there is one.
        pub(crate) address_fault: Mutex<Option<Error>>,
        /// Why a host of a listing cannot be read.
        pub(crate) unreadable: Mutex<Option<String>>,
        pub(crate) listings: AtomicUsize,
        pub(crate) subscriptions: AtomicUsize,
        pub(crate) address_reads: AtomicUsize,
        senders: Mutex<Vec<mpsc::UnboundedSender<Result<HostEvent>>>>,
    }

    impl Script {
        pub(crate) fn with_hosts(hosts: Vec<Host>) -> Self {
            Self { hosts: Mutex::new(hosts), ..Self::default() }
        }

        /// Sends an event to every subscriber.
        pub(crate) fn send(&self, event: &HostEvent) {
            self.senders.lock().retain(|sender| sender.send(Ok(event.clone())).is_ok());
        }

        /// Breaks all connections, and all calls from now on.
        pub(crate) fn go_away(&self, fault: Error) {
            *self.fault.lock() = Some(fault);
            self.senders.lock().clear();
        }

        pub(crate) fn come_back(&self) {
            *self.fault.lock() = None;
        }

        fn fault(&self) -> Result<()> {
            self.fault.lock().clone().map_or(Ok(()), Err)
        }
    }

    impl HostSource for Script {
        async fn list(&self) -> Result<Listing> {
            self.listings.fetch_add(1, Ordering::Relaxed);
            self.fault()?;
            let hosts = self.hosts.lock().clone();
            Ok(Listing { hosts, unreadable: self.unreadable.lock().clone() })
        }

        async fn subscribe(&self) -> Result<HostEvents> {
            self.subscriptions.fetch_add(1, Ordering::Relaxed);
            self.fault()?;
            if *self.silent_events.lock() {
                std::future::pending::<()>().await;
            }
            if *self.no_events.lock() {
                return Err(Error::new(ErrorKind::Unavailable, "no WebSocket"));
            }
            let (sender, receiver) = mpsc::unbounded_channel();
            self.senders.lock().push(sender);
            Ok(stream::unfold(
                receiver,
                |mut receiver| async move { Some((receiver.recv().await?, receiver)) },
            )
            .boxed())
        }

        async fn ip_addresses(&self, _: &Host) -> Result<Vec<IpAddr>> {
            self.address_reads.fetch_add(1, Ordering::Relaxed);
            self.fault()?;
            if let Some(error) = self.address_fault.lock().clone() {
                return Err(error);
            }
            Ok(vec!["192.0.2.9".parse().expect("an IP")])
        }
    }
}
