//! Tells Rancher 2.x from Rancher 1.6 where the configuration does not.

use std::net::IpAddr;

use cloudprovider::{ConfigProblem, Error, ErrorKind, Result};
use serde::Deserialize;

use crate::{
    cattle::{
        events::HostEvents,
        model::Host,
        source::{HostSource, Listing},
    },
    norman::client::Client,
};

/// What identifies a listing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    resource_type: Option<String>,
}

impl Answer {
    fn lists_clusters(&self) -> bool {
        self.kind == "collection" && self.resource_type.as_deref() == Some("cluster")
    }
}

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
        let mut url = management.url("clusters");
        url.query_pairs_mut().append_pair("limit", "1");
        let is_other = management.get::<Answer>(url).await.is_ok_and(|answer| answer.lists_clusters());
        if !is_other {
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
