//! Tells Rancher 2.x from Rancher 1.6 where the configuration does not.

use std::net::IpAddr;

use cloudprovider::{ConfigProblem, Error, ErrorKind, Result};
use serde_json::Value;

use crate::{
    cattle::{
        events::HostEvents,
        model::Host,
        source::{HostSource, Listing},
    },
    norman::client::Client,
};

/// A server that is probably Rancher 1.6. While it answers as such, no call is made to find out.
#[derive(Debug)]
pub(crate) struct CattleOrNot {
    /// Of the API below `/v2-beta`.
    pub(crate) cattle: Client,
    /// Of the API below `/v3`. `None` if the configuration says that the server is Rancher 1.6.
    pub(crate) management: Option<Client>,
}

impl CattleOrNot {
    /// The error of a listing, or what is behind it.
    async fn explain(&self, error: Error) -> Error {
        // Rancher 2.x has no v2-beta: it answers with a page for browsers, or that there is no such thing.
        let Some(management) = self.management.as_ref().filter(|_| error.kind() == ErrorKind::Unavailable)
        else {
            return error;
        };
        if management.get::<Value>(management.url("")).await.is_err() {
            return error;
        }
        let words =
            "is missing: the server is Rancher 2.x. Give apiVersion: v3, and clusterID or clusterName";
        Error::invalid_configuration(vec![ConfigProblem::new("clusterID", words)])
    }
}

impl HostSource for CattleOrNot {
    async fn list(&self) -> Result<Listing> {
        match HostSource::list(&self.cattle).await {
            Ok(listing) => Ok(listing),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn subscribe(&self) -> Result<HostEvents> {
        HostSource::subscribe(&self.cattle).await
    }

    async fn ip_addresses(&self, host: &Host) -> Result<Vec<IpAddr>> {
        self.cattle.ip_addresses(host).await
    }
}
