//! The clients of one vCenter, with their sessions.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    http::HttpClient,
    session::{ServiceContent, Session},
    soap::SoapTransport,
    tags::TagClient,
    vcenter::VCenter,
    vim::{CallError, Transport},
};

/// A client of a vCenter with its session.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) http: HttpClient,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) session: Arc<Session>,
    pub(super) tags: Arc<Mutex<Option<Arc<TagClient>>>>,
}

impl Connection {
    pub(super) fn new(vcenter: &VCenter) -> Result<Self, CallError> {
        let settings = &vcenter.settings;
        let http = HttpClient::new(&settings.endpoint)
            .map_err(|reason| CallError::Unreachable { method: "connect", reason: reason.into() })?;
        let transport: Arc<dyn Transport> = Arc::new(SoapTransport::new(http.clone()));
        let session = Arc::new(Session::new(
            Arc::clone(&transport),
            Arc::clone(&settings.access),
            Arc::clone(&vcenter.accounts),
            // The same vCenter may be in the configuration under several names, and another one under the same name.
            true,
        ));
        *vcenter.session() = Some(Arc::clone(&session));
        Ok(Self { http, transport, session, tags: Arc::default() })
    }

    /// The client that reads tags, with its session from the previous connection.
    pub(super) fn tag_client(&self, vcenter: &VCenter, content: &ServiceContent) -> Arc<TagClient> {
        let mut tags = self.tags.lock();
        let client = tags.get_or_insert_with(|| {
            let client = TagClient::new(
                self.http.clone(),
                Arc::clone(&vcenter.settings.access),
                Arc::clone(&vcenter.accounts),
                &content.api_version,
                vcenter.tag_categories.clone(),
            );
            Arc::new(client.beside(Arc::clone(&self.transport)))
        });
        *vcenter.tag_client() = Some(Arc::clone(client));
        Arc::clone(client)
    }

    pub(super) async fn close(&self) {
        let tags = self.tags.lock().take();
        if let Some(tags) = tags {
            tags.close().await;
        }
        self.session.close().await;
    }
}
