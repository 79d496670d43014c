//! The one watch on Services.

use component::watching;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::{Service, ServiceStore, wire::WireService};
use crate::cache::{Watched, watch_objects};

/// How many Services one page of the list has. A Service has one or two kB.
const PAGE: u32 = 500;

/// Keeps `store` up to date until `stop` is cancelled, through outages of the API server too.
pub async fn watch_services(client: Client, store: ServiceStore, stop: CancellationToken) {
    let api: Api<WireService> = Api::all(watching::client(client));
    watch_objects("services", api, PAGE, store, stop).await;
}

impl Watched<Service> for WireService {}
