//! The objects of the server, and the rules of changing them.

use serde_json::{Value, json};

use super::{Cloud, Fault};

/// A type, its collection in the URL, and the letter of its IDs.
const TYPES: [(&str, &str, &str); 5] = [
    ("host", "hosts", "h"),
    ("stack", "stacks", "st"),
    ("loadBalancerService", "loadbalancerservices", "s"),
    ("externalService", "externalservices", "s"),
    ("setting", "settings", "set"),
];

/// The type of a collection, in any letter case.
pub(super) fn type_of(collection: &str) -> Option<&'static str> {
    let collection = collection.to_lowercase();
    TYPES.iter().find(|(_, plural, _)| *plural == collection).map(|(kind, _, _)| *kind)
}

impl Cloud {
    /// Adds an object as it is. Returns its ID.
    pub(crate) fn create(&mut self, kind: &'static str, mut object: Value) -> String {
        let letter = TYPES.iter().find(|(known, _, _)| *known == kind).map_or("x", |(_, _, letter)| letter);
        let id = format!("1{letter}{}", self.next_id);
        self.next_id += 1;
        object["id"] = json!(id);
        object["type"] = json!(kind);
        for field in ["state", "removed"] {
            if object.get(field).is_none() {
                object[field] = Value::Null;
            }
        }
        self.objects.insert((kind, id.clone()), object);
        id
    }

    /// Adds a host that runs, and sends no event. Returns its ID.
    pub(crate) fn add_host(&mut self, name: &str, ip: &str) -> String {
        let id = self.create("host", json!({
            "hostname": name, "name": null, "state": "active", "agentState": "active", "agentIpAddress": ip,
            "labels": {}, "info": {"osInfo": {"operatingSystem": "Linux"}}, "publicEndpoints": null,
        }));
        let uuid = format!("7f3a1c52-9e0b-4d6a-8a53-{:0>12}", id.trim_start_matches("1h"));
        self.change("host", &id, json!({"uuid": uuid}));
        id
    }

    /// Changes fields of an object.
    pub(crate) fn change(&mut self, kind: &'static str, id: &str, fields: Value) {
        let Some(object) = self.objects.get_mut(&(kind, id.to_owned())) else { return };
        let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) else { return };
        object.extend(fields);
    }

    /// The objects of a type that pass these filters, in the order of their IDs. Unknown filters are ignored.
    pub(super) fn listed(&mut self, kind: &'static str, filters: &[(String, String)]) -> Vec<Value> {
        if kind == "loadBalancerService" {
            self.finish_removals();
        }
        let registering = self
            .objects
            .iter_mut()
            .filter(|((of, _), object)| *of == kind && object["state"] == "registering");
        for (_, object) in registering {
            object["state"] = json!("inactive");
        }
        let passes = |object: &Value| {
            filters.iter().all(|(name, value)| match name.as_str() {
                "removed_null" => object["removed"].is_null(),
                "name" | "stackId" | "uuid" | "hostname" => object[name].as_str() == Some(value),
                "external_id" => object["externalId"].as_str() == Some(value),
                _ => true,
            })
        };
        let mut found: Vec<_> = self
            .objects
            .iter()
            .filter(|((of, _), object)| *of == kind && passes(object))
            .map(|(key, _)| key.clone())
            .collect();
        let number = |id: &str| {
            id.trim_start_matches(|c: char| c == '1' || c.is_alphabetic()).parse::<u32>().unwrap_or(0)
        };
        found.sort_by_key(|(_, id)| (id.len(), number(id), id.clone()));
        found.into_iter().map(|key| self.shown(&key)).collect()
    }

    /// Removals that take their time end after some listings.
    fn finish_removals(&mut self) {
        let mut done = Vec::new();
        for (id, left) in &mut self.removing {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => done.push(id.clone()),
            }
        }
        for id in done {
            self.removing.remove(&id);
            self.objects.remove(&("loadBalancerService", id));
        }
    }

    /// An object as it is shown, with the actions that its state allows.
    pub(super) fn shown(&mut self, key: &(&'static str, String)) -> Value {
        let (kind, id) = key;
        if *kind == "loadBalancerService" {
            self.finish_update(id);
            self.give_endpoints(id);
        }
        let mut object = self.objects[key].clone();
        let plural = TYPES.iter().find(|(known, _, _)| known == kind).map_or("", |(_, plural, _)| plural);
        let base = format!("/v2-beta/{plural}/{id}");
        object["links"] = json!({"self": base, "ipAddresses": format!("{base}/ipaddresses")});
        let actions: &[&str] = match (*kind, object["state"].as_str()) {
            ("loadBalancerService", Some("active")) => &["deactivate", "setservicelinks"],
            ("loadBalancerService", Some("inactive")) => &["activate", "setservicelinks"],
            ("externalService", Some("inactive")) => &["activate"],
            ("externalService", Some("active")) => &["deactivate"],
            _ => &[],
        };
        let urls = actions.iter().map(|name| ((*name).to_owned(), json!(format!("{base}?action={name}"))));
        object["actions"] = Value::Object(urls.collect());
        object
    }

    /// An update that takes its time ends after some reads.
    fn finish_update(&mut self, id: &str) {
        let Some((left, launch_config)) = self.updating.get_mut(id) else { return };
        if *left > 0 {
            *left -= 1;
            return;
        }
        let fields = json!({"launchConfig": launch_config, "state": "active"});
        self.updating.remove(id);
        self.change("loadBalancerService", id, fields);
    }

    fn give_endpoints(&mut self, id: &str) {
        let left = self.waiting.get_mut(id);
        if let Some(left) = left.filter(|left| **left > 0) {
            *left -= 1;
            return;
        }
        let is_host = |((kind, _), host): &(&(&'static str, String), &Value)| {
            *kind == "host" && host["state"] == "active"
        };
        let hosts: Vec<_> = self
            .objects
            .iter()
            .filter(is_host)
            .take(2)
            .map(|(_, host)| host["agentIpAddress"].clone())
            .collect();
        let Some(object) = self.objects.get_mut(&("loadBalancerService", id.to_owned())) else { return };
        if object["state"] != "active" || object["publicEndpoints"].is_array() {
            return;
        }
        let ports = object["launchConfig"]["ports"].as_array().map_or(1, Vec::len);
        // One for each host and port, so an address comes several times.
        let endpoints =
            hosts.iter().flat_map(|ip| (0..ports.max(1)).map(move |n| json!({"ipAddress": ip, "port": n})));
        object["publicEndpoints"] = endpoints.collect();
    }

    /// `POST` of a collection.
    pub(super) fn post(&mut self, kind: &'static str, body: Value) -> Result<Value, Fault> {
        let Some(name) = body["name"].as_str() else { return Err(Fault::error(422, "MissingRequired")) };
        let is_valid = name.len() <= 63
            && !name.starts_with('-')
            && !name.ends_with('-')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !is_valid {
            return Err(Fault::error(422, "InvalidCharacters"));
        }
        let is_service = |kind: &str| matches!(kind, "loadBalancerService" | "externalService");
        let is_taken = self.objects.iter().any(|((other, _), object)| {
            object["name"] == name
                && object["removed"].is_null()
                && match kind {
                    "stack" => *other == "stack",
                    _ => is_service(other) && object["stackId"] == body["stackId"],
                }
        });
        if is_taken {
            return Err(Fault::error(422, "NotUnique"));
        }
        let mut object = body.clone();
        match kind {
            "stack" => object["state"] = json!("active"),
            "loadBalancerService" | "externalService" => {
                let stack = body["stackId"].as_str().unwrap_or_default().to_owned();
                if !self.objects.contains_key(&("stack", stack)) {
                    return Err(Fault::error(422, "InvalidReference"));
                }
                if kind == "loadBalancerService"
                    && !body["launchConfig"]["imageUuid"]
                        .as_str()
                        .is_some_and(|image| image.starts_with("docker:"))
                {
                    return Err(Fault::error(422, "MissingRequired"));
                }
                // It has no actions yet.
                object["state"] = json!("registering");
            }
            _ => return Err(Fault::error(405, "MethodNotAllow")),
        }
        let id = self.create(kind, object);
        self.waiting.insert(id.clone(), self.late_endpoints);
        Ok(self.shown(&(kind, id)))
    }

    /// `PUT` of an object.
    pub(super) fn put(&mut self, kind: &'static str, id: &str, body: Value) -> Result<Value, Fault> {
        let key = (kind, id.to_owned());
        let Some(object) = self.objects.get(&key) else { return Err(Fault::error(404, "NotFound")) };
        if object["state"] == "removing" {
            return Err(Fault::error(422, "InvalidState"));
        }
        let fields: &[&str] = match kind {
            "loadBalancerService" => &["lbConfig", "launchConfig", "scale"],
            "externalService" => &["externalIpAddresses", "hostname", "description"],
            _ => return Err(Fault::error(405, "MethodNotAllow")),
        };
        for rule in body["lbConfig"]["portRules"].as_array().into_iter().flatten() {
            let service = rule["serviceId"].as_str().unwrap_or_default().to_owned();
            if !self.objects.contains_key(&("externalService", service)) || rule["protocol"] != "tcp" {
                return Err(Fault::error(422, "InvalidReference"));
            }
        }
        for field in fields {
            let Some(value) = body.get(*field) else { continue };
            match *field {
                "launchConfig" if self.fixes_ports => {}
                "launchConfig" if self.slow_ports > 0 => {
                    self.updating.insert(id.to_owned(), (self.slow_ports, value.clone()));
                    self.change(kind, id, json!({"state": "updating-active"}));
                }
                _ => self.change(kind, id, json!({*field: value})),
            }
        }
        let mut shown = self.shown(&key);
        if self.fixes_ports && body.get("launchConfig").is_some() {
            // It repeats what it was asked for.
            shown["launchConfig"] = body["launchConfig"].clone();
        }
        Ok(shown)
    }

    /// `DELETE` of an object.
    pub(super) fn delete(&mut self, kind: &'static str, id: &str) -> Result<Value, Fault> {
        let key = (kind, id.to_owned());
        if !self.objects.contains_key(&key) {
            return Err(Fault::error(404, "NotFound"));
        }
        let shown = self.shown(&key);
        match kind {
            "loadBalancerService" if self.slow_removal > 0 => {
                self.change(kind, id, json!({"state": "removing"}));
                self.removing.insert(id.to_owned(), self.slow_removal);
            }
            "loadBalancerService" | "externalService" => drop(self.objects.remove(&key)),
            _ => return Err(Fault::error(405, "MethodNotAllow")),
        }
        Ok(shown)
    }

    /// An action on an object.
    pub(super) fn act(
        &mut self,
        kind: &'static str,
        id: &str,
        action: &str,
        body: &Value,
    ) -> Result<Value, Fault> {
        let key = (kind, id.to_owned());
        if !self.objects.contains_key(&key) {
            return Err(Fault::error(404, "NotFound"));
        }
        if self.shown(&key)["actions"].get(action).is_none() {
            return Err(Fault::error(404, "ActionNotAvailable"));
        }
        match action {
            "activate" => self.change(kind, id, json!({"state": "active"})),
            "deactivate" => self.change(kind, id, json!({"state": "inactive"})),
            "setservicelinks" => {
                let Some(links) = body["serviceLinks"].as_array() else {
                    return Err(Fault::error(422, "MissingRequired"));
                };
                let links: Vec<_> = links.iter().map(|link| link["serviceId"].clone()).collect();
                self.change(kind, id, json!({"links_of_test": links}));
            }
            _ => return Err(Fault::error(404, "ActionNotAvailable")),
        }
        Ok(self.shown(&key))
    }
}
