//! Lists everything: views, filters, and the first changes of a property collector.

use std::{collections::HashSet, time::Duration};

use tokio::time::Instant;

use super::{
    Connection, Follower, Watched,
    failures::is_final,
    reference,
    selection::{PLACE_KINDS, all_kinds, entities, machines, spec, version},
};
use crate::{
    inventory::Changes,
    moref::MoRef,
    session::ServiceContent,
    vim::{
        CallError,
        objects::{
            ContinueRetrievePropertiesEx, CreateContainerView, CreateFilter, CreatePropertyCollector,
            RetrieveOptions, RetrievePropertiesEx,
        },
        property_collector::read_listing,
    },
};

impl Follower<'_> {
    /// Lists everything: the first changes of the property collector are all objects. Takes four calls, and
    /// one for each further page. With configured datacenters it takes two more, and one for each datacenter.
    pub(super) async fn list(
        &mut self,
        connection: &Connection,
        content: &ServiceContent,
    ) -> Result<Watched, CallError> {
        let root = &content.root_folder;
        let all = all_kinds();
        let collector = self.collector(connection, content).await?;
        let mut watched = Watched::by(collector);
        let mut changes = Changes::default();
        if self.vcenter.settings.datacenters.is_empty() {
            watched.views.push(self.view(connection, content, root, all).await?);
        } else {
            let places = self.view(connection, content, root, PLACE_KINDS.into()).await?;
            self.read_places(connection, content, &places, &mut changes).await?;
            watched.views.push(places);
            let datacenters = self.vcenter.datacenters(&self.vcenter.state());
            for datacenter in &datacenters {
                watched.views.push(self.view(connection, content, datacenter, all.clone()).await?);
            }
            watched.datacenters = Some(datacenters);
        }
        self.create_filter(connection, &watched).await?;
        self.take_listing(connection, &mut watched, changes).await?;
        let machines = self.vcenter.state().inventory.machines().len();
        tracing::info!(vcenter = self.vcenter.name(), machines, "following changes");
        Ok(watched)
    }

    /// Takes the first changes of a property collector: all objects.
    pub(super) async fn take_listing(
        &self,
        connection: &Connection,
        watched: &mut Watched,
        mut changes: Changes,
    ) -> Result<(), CallError> {
        let began = Instant::now();
        let has_untold = self.vcenter.state().has_untold;
        let mut listed = HashSet::new();
        while self.wait(connection, watched, Duration::ZERO, &mut listed, &mut changes).await? {}
        self.vcenter.update(|state| {
            let gone = state.inventory.retain(&listed);
            state.is_listed = true;
            state.is_live = true;
            state.has_untold = false;
            state.trouble = None;
            state.unshown.forget_before(began);
            changes.add(gone.instances);
            changes
        });
        if has_untold {
            // The inventory had these changes already, so this listing did not report them.
            self.vcenter.push_all();
        }
        watched.listing_took = began.elapsed();
        Ok(())
    }

    async fn view(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        container: &MoRef,
        kinds: Vec<&'static str>,
    ) -> Result<MoRef, CallError> {
        let create = CreateContainerView { container: container.clone(), kinds, recursive: true };
        let answer = self.call(connection, &create.of(&content.view_manager)).await?;
        reference(&answer, "CreateContainerView")
    }

    /// Reads the folders and datacenters that a view shows.
    async fn read_places(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        view: &MoRef,
        changes: &mut Changes,
    ) -> Result<(), CallError> {
        let mut call = RetrievePropertiesEx {
            spec_set: vec![spec(std::slice::from_ref(view), entities())],
            options: RetrieveOptions { max_objects: Some(self.page) },
        }
        .of(&content.property_collector);
        loop {
            let method = call.method;
            let answer = self.call(connection, &call).await?;
            let page = read_listing(method, &answer)?;
            self.take(&page, &mut HashSet::new(), changes);
            match page.token {
                Some(token) => {
                    call = ContinueRetrievePropertiesEx { token }.of(&content.property_collector);
                }
                None => return Ok(()),
            }
        }
    }

    /// Creates a property collector, or uses the session's own if vCenter refuses that.
    async fn collector(
        &mut self,
        connection: &Connection,
        content: &ServiceContent,
    ) -> Result<MoRef, CallError> {
        if self.own_collector {
            let create = CreatePropertyCollector {}.of(&content.property_collector);
            match self.call(connection, &create).await {
                Ok(answer) => return reference(&answer, create.method),
                Err(error @ CallError::Fault { .. }) if !error.is_session_lost() => {
                    tracing::warn!(
                        vcenter = self.vcenter.name(),
                        %error,
                        "vCenter makes no property collector; the session's own is used"
                    );
                    let is_momentary =
                        ["ManagedObjectNotFound", "RequestCanceled"].map(|kind| error.is_fault(kind));
                    self.own_collector = !is_final(&error) || is_momentary.contains(&true);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(content.property_collector.clone())
    }

    /// Makes the property collector report changes of the views' objects.
    async fn create_filter(&mut self, connection: &Connection, watched: &Watched) -> Result<(), CallError> {
        loop {
            match self.call(connection, &self.filter(watched).of(&watched.collector)).await {
                Err(error) if self.with_optional && error.is_fault("InvalidProperty") => {
                    tracing::info!(
                        vcenter = self.vcenter.name(),
                        "vCenter cannot read single keys of extraConfig, or its version"
                    );
                    self.with_optional = false;
                }
                answer => return answer.map(drop),
            }
        }
    }

    /// The filter of the views' objects.
    pub(super) fn filter(&self, watched: &Watched) -> CreateFilter {
        let properties = std::iter::once(machines(self.with_optional)).chain(entities()).collect();
        let mut spec = spec(&watched.views, properties);
        if self.with_optional {
            let (properties, object) = version();
            spec.prop_set.push(properties);
            spec.object_set.push(object);
        }
        CreateFilter { spec, partial_updates: false }
    }
}
