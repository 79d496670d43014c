//! What the webhooks of Cluster API Provider vSphere refuse, is refused by policies here.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cloudprovider::machines::GROUP;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{
    ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{NEW, TIMEOUT, VERSION};
use crate::api::Api;

/// A policy, with what puts it into force.
type Policy = (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding);

pub(crate) async fn install(api: &Api, policies: &[Policy]) -> Result<()> {
    let params = PatchParams::apply("test");
    for (policy, binding) in policies {
        let all = kube::Api::<ValidatingAdmissionPolicy>::all(api.client.clone());
        all.patch(&policy.name_any(), &params, &Patch::Apply(policy)).await?;
        let all = kube::Api::<ValidatingAdmissionPolicyBinding>::all(api.client.clone());
        all.patch(&binding.name_any(), &params, &Patch::Apply(binding)).await?;
    }
    Ok(())
}

pub(crate) async fn remove(api: &Api, policies: &[Policy]) -> Result<()> {
    let delete = DeleteParams::default();
    for (policy, binding) in policies {
        kube::Api::<ValidatingAdmissionPolicyBinding>::all(api.client.clone())
            .delete(&binding.name_any(), &delete)
            .await?;
        kube::Api::<ValidatingAdmissionPolicy>::all(api.client.clone())
            .delete(&policy.name_any(), &delete)
            .await?;
    }
    Ok(())
}

/// Where the rules are checked: on objects in this version.
struct Rules<'a> {
    api: &'a Api,
    version: &'static str,
}

impl Rules<'_> {
    fn of(&self, kind: &str) -> kube::Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, self.version, kind));
        if kind == "VSphereFailureDomain" {
            return kube::Api::all_with(self.api.client.clone(), &resource);
        }
        kube::Api::namespaced_with(self.api.client.clone(), "default", &resource)
    }

    /// The object with this spec, which is in v1beta1.
    fn object(&self, kind: &str, name: &str, spec: &Value) -> Result<DynamicObject> {
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        let mut object = cloudprovider_vsphere::convert(object, self.version)?;
        // What v1beta2 has no place for is none of its rules' business.
        object["metadata"] = json!({ "name": name });
        Ok(serde_json::from_value(object)?)
    }

    /// Whether v1beta2 has no place for what a rule refuses with these words.
    fn is_of_v1beta1(&self, words: &str) -> bool {
        self.version == NEW && ["preferredAPIServerCidr", "providerID"].contains(&words)
    }
}

/// The spec with these fields beside or in place of its own. A field that becomes null is removed.
fn with(spec: &Value, more: &Value) -> Value {
    let mut changed = spec.clone();
    for (name, value) in more.as_object().into_iter().flatten() {
        changed[name] = value.clone();
    }
    if let Some(fields) = changed.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    changed
}

/// That the rules hold for objects in `version`.
pub(super) async fn checked(api: &Api, version: &'static str) -> Result<()> {
    let rules = Rules { api, version };
    let machine = json!({"template": "t", "network": {"devices": [{"networkName": "n", "ipAddrs": ["192.0.2.10/24"]}]}});
    let template = |spec: &Value| json!({"template": { "spec": spec }});
    let plain = json!({"template": "t", "network": {"devices": [{"networkName": "n", "dhcp4": true}]}});
    let domain = json!({
        "region": {"name": "r", "type": "Datacenter", "tagCategory": "a"},
        "zone": {"name": "z", "type": "ComputeCluster", "tagCategory": "b"},
        "topology": {"datacenter": "DC0", "computeCluster": "C0"},
    });
    let soft = json!({"powerOffMode": "soft", "guestSoftPowerOffTimeout": "5m"});
    rules.in_force(&with(&machine, &soft)).await?;
    rules.new_objects(&machine, &plain, &domain, template).await?;
    rules.changes(&machine, &template(&plain), &domain).await
}

impl Rules<'_> {
    /// A policy is in force a while after it was made.
    async fn in_force(&self, refused: &Value) -> Result<()> {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let end = Instant::now() + TIMEOUT;
        while self
            .of("VSphereMachine")
            .create(&dry, &self.object("VSphereMachine", "a", refused)?)
            .await
            .is_ok()
        {
            ensure!(Instant::now() < end, "the policies are not in force");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    async fn new_objects(
        &self,
        machine: &Value,
        plain: &Value,
        domain: &Value,
        template: impl Fn(&Value) -> Value,
    ) -> Result<()> {
        let device =
            |address: &str| json!({"network": {"devices": [{"networkName": "n", "ipAddrs": [address]}]}});
        let soft = json!({"guestSoftPowerOffTimeout": "5m"});
        let zero = json!({"powerOffMode": "trySoft", "guestSoftPowerOffTimeout": "0s"});
        let preferred = json!({"network": {"devices": [], "preferredAPIServerCidr": "10.0.0.0/8"}});
        let half = json!({"pciDevices": [{"deviceId": 1}]});
        let both = json!({"pciDevices": [{"deviceId": 1, "vendorId": 2, "vGPUProfile": "g"}]});
        let pci = json!({"pciDevices": [{"deviceId": 1, "vendorId": 2}, {"vGPUProfile": "g"}]});
        let good = json!({"powerOffMode": "trySoft", "guestSoftPowerOffTimeout": "1m30s"});
        let vmx = json!({"hardwareVersion": "vmx-19"});
        let topology = |topology: Value| with(domain, &json!({ "topology": topology }));
        let with_networks = |names: &[&str]| json!({"datacenter": "DC0", "computeCluster": "C0", "networks": names, "networkConfigurations": [{"networkName": "m"}]});
        let group = json!({"name": "g", "type": "HostGroup", "tagCategory": "a"});
        let (m, v, t, f) = ("VSphereMachine", "VSphereVM", "VSphereMachineTemplate", "VSphereFailureDomain");
        let cases = [
            (m, "a", machine.clone(), ""),
            (m, "a", with(machine, &good), ""),
            (m, "a", with(machine, &pci), ""),
            (m, "a", with(machine, &device("192.0.2.10")), "ipAddrs"),
            (m, "a", with(machine, &device("2001:db8::1/64")), ""),
            (m, "a", with(machine, &soft), "guestSoftPowerOffTimeout"),
            (m, "a", with(machine, &zero), "guestSoftPowerOffTimeout"),
            (m, "a", with(machine, &preferred), "preferredAPIServerCidr"),
            (m, "a", with(machine, &half), "pciDevices"),
            (m, "a", with(machine, &both), "pciDevices"),
            (v, "a", machine.clone(), ""),
            (v, "a", with(machine, &device("x/24")), "ipAddrs"),
            (v, "a-name-of-15-ch", with(machine, &json!({"os": "Windows"})), ""),
            (v, "a-name-of-16-cha", with(machine, &json!({"os": "Linux"})), ""),
            (v, "a-name-of-16-cha", with(machine, &json!({"os": "Windows"})), "at most 15 characters"),
            (t, "a", template(plain), ""),
            (t, "a", template(&with(plain, &preferred)), "preferredAPIServerCidr"),
            (t, "a", template(&with(plain, &vmx)), ""),
            (t, "a", template(&with(plain, &json!({"hardwareVersion": "19"}))), "hardwareVersion"),
            (t, "a", template(&with(plain, &json!({"providerID": "vsphere://1"}))), "providerID"),
            (t, "a", template(machine), "ipAddrs"),
            (t, "a", template(&with(plain, &soft)), "guestSoftPowerOffTimeout"),
            (t, "a", template(&with(plain, &half)), "pciDevices"),
            (f, "a", domain.clone(), ""),
            (f, "a", with(domain, &json!({ "region": group })), "spec.region.type"),
            (f, "a", with(domain, &json!({ "zone": group })), "spec.topology.hosts"),
            (f, "a", topology(json!({"datacenter": "DC0"})), "spec.topology.computeCluster"),
            (f, "a", topology(with_networks(&[])), ""),
            (f, "a", topology(with_networks(&["n"])), "give networks or networkConfigurations"),
        ];
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let mut wrong = Vec::new();
        for (kind, name, spec, words) in cases {
            if self.is_of_v1beta1(words) {
                continue;
            }
            let object = self.object(kind, name, &spec)?;
            let outcome = judged(words, async || Ok(self.of(kind).create(&dry, &object).await)).await?;
            wrong.extend(outcome.map(|outcome| format!("{kind} {name} {spec}: {outcome}")));
        }
        ensure!(wrong.is_empty(), "new objects:\n{}", wrong.join("\n"));
        Ok(())
    }

    async fn changes(&self, machine: &Value, template: &Value, domain: &Value) -> Result<()> {
        let vm = with(machine, &json!({"bootstrapRef": {"name": "b"}}));
        let bios = with(&vm, &json!({"biosUUID": "1"}));
        let routes = json!([{"to": "a", "via": "b", "metric": 1}]);
        let (devices, network) = (
            json!({"network": {"devices": [{"networkName": "other"}]}}),
            json!({"network": {"devices": [], "routes": routes}}),
        );
        let other =
            json!({"template": {"spec": with(&template["template"]["spec"], &json!({"numCPUs": 4}))}});
        let cases = [
            ("VSphereMachine", machine, with(machine, &json!({"providerID": "vsphere://1"})), ""),
            ("VSphereMachine", machine, with(machine, &json!({"powerOffMode": "soft"})), ""),
            ("VSphereMachine", machine, with(machine, &devices), ""),
            ("VSphereMachine", machine, with(machine, &json!({"numCPUs": 4})), "spec cannot change"),
            ("VSphereMachine", machine, with(machine, &json!({"template": "other"})), "spec cannot change"),
            ("VSphereMachine", machine, with(machine, &network), "spec.network cannot change"),
            ("VSphereVM", &vm, bios.clone(), ""),
            ("VSphereVM", &vm, with(&vm, &json!({"bootstrapRef": null, "thumbprint": "AA"})), ""),
            ("VSphereVM", &bios, with(&bios, &json!({"biosUUID": "2"})), "spec cannot change"),
            ("VSphereVM", &vm, with(&vm, &json!({"folder": "f"})), "spec cannot change"),
            ("VSphereMachineTemplate", template, other, "spec.template.spec of a template cannot change"),
            (
                "VSphereFailureDomain",
                domain,
                with(domain, &json!({"topology": {"datacenter": "DC1", "computeCluster": "C0"}})),
                "spec cannot change",
            ),
        ];
        // what their webhook set, and a file that says nothing of it
        let mut defaulted = domain.clone();
        for part in ["region", "zone"] {
            defaulted[part]["autoConfigure"] = json!(false);
        }
        let mut asking = defaulted.clone();
        asking["zone"]["autoConfigure"] = json!(true);
        let cases = cases.into_iter().chain([
            ("VSphereFailureDomain", &defaulted, domain.clone(), ""),
            (
                "VSphereFailureDomain",
                domain,
                asking,
                if self.version == NEW { "" } else { "spec cannot change" },
            ),
        ]);
        let mut wrong = Vec::new();
        for (kind, before, after, words) in cases {
            let all = self.of(kind);
            let change = async || {
                let made = all.create(&PostParams::default(), &self.object(kind, "changed", before)?).await;
                let made = made.with_context(|| format!("{kind} {before}"))?;
                let mut changed = self.object(kind, "changed", &after)?;
                changed.metadata.resource_version = made.metadata.resource_version;
                let done = all.replace("changed", &PostParams::default(), &changed).await;
                all.delete("changed", &DeleteParams::default()).await?;
                Ok(done)
            };
            let outcome = judged(words, change).await?;
            wrong.extend(outcome.map(|outcome| format!("{kind} {before} -> {after}: {outcome}")));
        }
        ensure!(wrong.is_empty(), "changes:\n{}", wrong.join("\n"));
        Ok(())
    }
}

/// Tries until nothing is wrong with the outcome, or it is an error that should not be: a policy may be in force later than another one.
async fn judged(
    words: &str,
    mut attempt: impl AsyncFnMut() -> Result<kube::Result<DynamicObject>>,
) -> Result<Option<String>> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let done = attempt().await?;
        let is_accepted = done.is_ok();
        let wrong = verdict(done, words);
        if wrong.is_none() || !is_accepted || Instant::now() >= end {
            return Ok(wrong);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What is wrong with an outcome that should be good, or an error with these words.
fn verdict(done: kube::Result<DynamicObject>, words: &str) -> Option<String> {
    match done {
        Ok(_) if words.is_empty() => None,
        Ok(_) => Some(format!("accepted, and not refused with {words:?}")),
        Err(error) if !words.is_empty() && error.to_string().contains(words) => None,
        Err(error) => Some(format!("refused: {error}")),
    }
}
