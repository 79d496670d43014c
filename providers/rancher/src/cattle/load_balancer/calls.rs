//! The calls about load balancers, and about the external services that stand for Nodes.

use std::collections::BTreeMap;

use cloudprovider::{Error, ErrorKind, Result};
use http::Method;
use serde_json::{Value, json};

use crate::cattle::{
    client::Client,
    model::{ExternalService, LaunchConfig, LbConfig, LoadBalancerService, Setting, Stack},
    reply::unavailable,
};

const LOAD_BALANCERS: &str = "loadBalancerServices";
const EXTERNAL_SERVICES: &str = "externalServices";

/// Leaves out what was removed. The server ignores filters that it does not know, so callers look at each object too.
const NOT_REMOVED: (&str, &str) = ("removed_null", "1");

fn at(what: impl Into<String>) -> impl FnOnce(Error) -> Error {
    let what = what.into();
    |error| match error.operation() {
        None => error.with_operation(what),
        Some(_) => error,
    }
}

impl Client {
    /// The load balancers with this name.
    pub(super) async fn load_balancers_named(&self, name: &str) -> Result<Vec<LoadBalancerService>> {
        let mut found = self.load_balancers(("name", name)).await?;
        found.retain(|one| one.common.name.as_deref() == Some(name));
        Ok(found)
    }

    /// The load balancers of a stack.
    pub(super) async fn load_balancers_of(&self, stack: &str) -> Result<Vec<LoadBalancerService>> {
        let mut found = self.load_balancers(("stackId", stack)).await?;
        found.retain(|one| one.common.stack_id.as_deref() == Some(stack));
        Ok(found)
    }

    async fn load_balancers(&self, filter: (&str, &str)) -> Result<Vec<LoadBalancerService>> {
        let mut found: Vec<LoadBalancerService> = self.list(LOAD_BALANCERS, &[filter, NOT_REMOVED]).await?;
        found.retain(|one| !one.common.is_gone());
        Ok(found)
    }

    /// The load balancer with this ID, as it is now.
    pub(super) async fn load_balancer(&self, id: &str) -> Result<LoadBalancerService> {
        let url = self.url(&format!("{LOAD_BALANCERS}/{id}"));
        self.get(url).await.map_err(at(format!("read load balancer {id}")))
    }

    /// Creates a load balancer that does nothing yet.
    pub(super) async fn create_load_balancer(
        &self,
        name: &str,
        stack: &str,
        launch_config: &LaunchConfig,
    ) -> Result<LoadBalancerService> {
        let body = json!({
            "type": "loadBalancerService",
            "name": name,
            "stackId": stack,
            "launchConfig": launch_config,
            "lbConfig": {},
        });
        let created = self.send_object(Method::POST, self.url(LOAD_BALANCERS), &body).await;
        created.map_err(at(format!("create load balancer {name}")))
    }

    /// Changes what a load balancer does, and its ports if they are given. The answer may show it as it was before.
    pub(super) async fn update_load_balancer(
        &self,
        id: &str,
        lb_config: &LbConfig,
        launch_config: Option<&LaunchConfig>,
    ) -> Result<LoadBalancerService> {
        let mut body = json!({"lbConfig": lb_config});
        if let Some(launch_config) = launch_config {
            body["launchConfig"] = json!(launch_config);
        }
        let url = self.url(&format!("{LOAD_BALANCERS}/{id}"));
        self.send_object(Method::PUT, url, &body).await.map_err(at(format!("change load balancer {id}")))
    }

    /// Deletes a load balancer.
    pub(super) async fn delete_load_balancer(&self, id: &str) -> Result<()> {
        let url = self.url(&format!("{LOAD_BALANCERS}/{id}"));
        self.delete(url).await.map_err(at(format!("delete load balancer {id}")))
    }

    /// Does an action that the server offers for an object. Returns whether it offers it now.
    pub(super) async fn act(
        &self,
        actions: &BTreeMap<String, String>,
        action: &str,
        input: &Value,
    ) -> Result<bool> {
        let Some(url) = actions.get(action) else { return Ok(false) };
        let url = self.same_server(url).map_err(at(action))?;
        match self.send_object::<Value>(Method::POST, url, input).await {
            Ok(_) => Ok(true),
            // It was offered a moment ago.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(at(action)(error)),
        }
    }

    /// The stack with this name. One with this external ID comes before others.
    pub(super) async fn find_stack(&self, name: &str, external_id: &str) -> Result<Option<Stack>> {
        let found: Vec<Stack> = self.list("stacks", &[("name", name), NOT_REMOVED]).await?;
        let is_ours = |stack: &Stack| stack.name.as_deref() == Some(name) && !stack.is_gone();
        let ours = found.into_iter().filter(is_ours);
        Ok(ours.min_by_key(|stack| (stack.external_id.as_deref() != Some(external_id), stack.id.clone())))
    }

    /// Creates a stack.
    pub(super) async fn create_stack(&self, name: &str, external_id: &str) -> Result<Stack> {
        let body = json!({"type": "stack", "name": name, "externalId": external_id});
        let created = self.send_object(Method::POST, self.url("stacks"), &body).await;
        created.map_err(at(format!("create stack {name}")))
    }

    /// The value of a setting of the server.
    pub(super) async fn setting(&self, name: &str) -> Result<String> {
        let found: Vec<Setting> = self.list("settings", &[("name", name)]).await?;
        let ours = found.into_iter().find(|setting| setting.name.as_deref() == Some(name));
        ours.and_then(Setting::text).ok_or_else(|| {
            unavailable(format!("the server's setting {name} has no value, or the API key may not read it"))
        })
    }

    /// The external services of a stack, without those that are being removed.
    pub(super) async fn external_services_of(&self, stack: &str) -> Result<Vec<ExternalService>> {
        let mut found = self.external_services(stack, &[]).await?;
        found.retain(|one| !one.common.is_being_removed());
        Ok(found)
    }

    /// The external service with this name in a stack. It may be being removed.
    pub(super) async fn external_service_named(
        &self,
        name: &str,
        stack: &str,
    ) -> Result<Option<ExternalService>> {
        let found = self.external_services(stack, &[("name", name)]).await?;
        let named = found.into_iter().filter(|one| one.common.name.as_deref() == Some(name));
        Ok(named.min_by_key(|one| one.common.is_being_removed()))
    }

    async fn external_services(&self, stack: &str, more: &[(&str, &str)]) -> Result<Vec<ExternalService>> {
        let filters = [&[("stackId", stack), NOT_REMOVED], more].concat();
        let mut found: Vec<ExternalService> = self.list(EXTERNAL_SERVICES, &filters).await?;
        found.retain(|one| one.common.stack_id.as_deref() == Some(stack) && !one.common.is_gone());
        Ok(found)
    }

    /// Creates an external service.
    pub(super) async fn create_external_service(
        &self,
        name: &str,
        stack: &str,
        description: &str,
        ips: &[String],
    ) -> Result<ExternalService> {
        let body = json!({
            "type": "externalService",
            "name": name,
            "description": description,
            "stackId": stack,
            "externalIpAddresses": ips,
        });
        let created = self.send_object(Method::POST, self.url(EXTERNAL_SERVICES), &body).await;
        created.map_err(at(format!("create external service {name}")))
    }

    /// Changes the addresses of an external service.
    pub(super) async fn update_external_service(&self, id: &str, ips: &[String]) -> Result<ExternalService> {
        let url = self.url(&format!("{EXTERNAL_SERVICES}/{id}"));
        let updated = self.send_object(Method::PUT, url, &json!({"externalIpAddresses": ips})).await;
        updated.map_err(at(format!("change external service {id}")))
    }

    /// Describes an external service.
    pub(super) async fn describe_external_service(
        &self,
        found: &ExternalService,
        description: &str,
    ) -> Result<()> {
        let url = self.url(&format!("{EXTERNAL_SERVICES}/{}", found.common.id));
        let body = json!({"description": description, "externalIpAddresses": found.external_ip_addresses});
        let updated = self.send_object::<ExternalService>(Method::PUT, url, &body).await;
        updated.map(drop).map_err(at(format!("describe external service {}", found.common.id)))
    }

    /// Deletes an external service.
    pub(super) async fn delete_external_service(&self, id: &str) -> Result<()> {
        let url = self.url(&format!("{EXTERNAL_SERVICES}/{id}"));
        self.delete(url).await.map_err(at(format!("delete external service {id}")))
    }
}
