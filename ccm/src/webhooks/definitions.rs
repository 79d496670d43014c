//! What a `CustomResourceDefinition` says about the webhook, and what is to be written to it. Pure.

use k8s_openapi::{
    ByteString,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, WebhookClientConfig},
};
use serde_json::{Value, json};

/// With an annotation that begins like this, cert-manager writes an authority.
const INJECTED: &str = "cert-manager.io/inject-";

/// Where `managedFields` has who wrote the authority.
const AUTHORITY_FIELD: &str = "/f:spec/f:conversion/f:webhook/f:clientConfig/f:caBundle";

/// What matters of a definition.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Definition {
    uid: String,
    served: Vec<String>,
    client: Option<WebhookClientConfig>,
    /// The annotation that lets cert-manager write an authority.
    injected: Option<String>,
    /// Who wrote the authority that it has.
    writer: Option<String>,
}

/// Which authority has to be in the definitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Trust<'a> {
    /// It is not known.
    Unknown,
    /// These certificates in PEM, which are written where they are missing.
    Own(&'a str),
    /// That of the files which the flags name. Only a person knows it.
    OfFiles,
}

/// What is to be done about a definition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    /// Nothing: it is as it has to be.
    Right,
    /// This patch is applied.
    Apply(Value),
    /// A person has to act, for this reason.
    Wrong(String),
}

impl From<CustomResourceDefinition> for Definition {
    fn from(crd: CustomResourceDefinition) -> Self {
        let served =
            crd.spec.versions.into_iter().filter(|version| version.served).map(|version| version.name);
        let webhook = crd.spec.conversion.and_then(|conversion| conversion.webhook);
        let mut annotations = crd.metadata.annotations.unwrap_or_default().into_keys();
        let managers = crd.metadata.managed_fields.unwrap_or_default();
        let writer = managers.into_iter().find(|manager| {
            manager.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer(AUTHORITY_FIELD).is_some())
        });
        Self {
            uid: crd.metadata.uid.unwrap_or_default(),
            served: served.collect(),
            client: webhook.and_then(|webhook| webhook.client_config),
            injected: annotations.find(|name| name.starts_with(INJECTED)),
            writer: writer.and_then(|writer| writer.manager),
        }
    }
}

impl Definition {
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// Who wrote the authority that it has, as `managedFields` calls them.
    pub(super) fn writer(&self) -> Option<&str> {
        self.writer.as_deref()
    }

    /// Whether the API server trusts this certificate in PEM when it asks the webhook.
    pub(super) fn trusts(&self, certificate: &str) -> bool {
        let bundle = self.client.as_ref().and_then(|client| client.ca_bundle.as_ref());
        let text = bundle.and_then(|bundle| std::str::from_utf8(&bundle.0).ok());
        text.is_some_and(|text| text.contains(certificate.trim_end()))
    }

    /// The name or the address by which the API server reaches the webhook.
    pub(super) fn host(&self) -> Option<String> {
        let client = self.client.as_ref()?;
        if let Some(service) = &client.service {
            return Some(format!("{}.{}.svc", service.name, service.namespace));
        }
        let url: http::Uri = client.url.as_ref()?.parse().ok()?;
        let host = url.host()?;
        Some(host.trim_start_matches('[').trim_end_matches(']').to_owned())
    }
}

/// What is to be done about the definition `name`, which has to be served in these versions.
pub(super) fn decide(
    name: &str,
    definition: Option<&Definition>,
    versions: &[&str],
    trust: Trust<'_>,
) -> Decision {
    let Some(definition) = definition else {
        return Decision::Wrong(format!(
            "the CustomResourceDefinition {name} is missing: apply what `manifests --machines --only-definitions` prints"
        ));
    };
    let is_missing = |version: &&&str| !definition.served.iter().any(|served| served == **version);
    if let Some(version) = versions.iter().find(is_missing) {
        return Decision::Wrong(format!(
            "the CustomResourceDefinition {name} does not serve {version}: apply what `manifests --machines \
             --only-definitions` prints"
        ));
    }
    let Some(client) = &definition.client else {
        return Decision::Wrong(format!(
            "the CustomResourceDefinition {name} names no webhook in spec.conversion"
        ));
    };
    let authority = match trust {
        Trust::Unknown => return Decision::Right,
        Trust::Own(authority) => authority,
        // Without a bundle the API server trusts the authorities of its system, which sign for no Service.
        Trust::OfFiles => {
            let has_bundle = client.ca_bundle.as_ref().is_some_and(|bundle| !bundle.0.is_empty());
            if has_bundle || client.service.is_none() {
                return Decision::Right;
            }
            return Decision::Wrong(format!(
                "the CustomResourceDefinition {name} has no spec.conversion.webhook.clientConfig.caBundle: write the authority there \
                 that signed the certificate of --webhook-tls-cert-file or --webhook-cert-dir"
            ));
        }
    };
    if client.ca_bundle.as_ref().is_some_and(|bundle| bundle.0 == authority.as_bytes()) {
        return Decision::Right;
    }
    if let Some(annotation) = &definition.injected {
        return Decision::Wrong(format!(
            "the CustomResourceDefinition {name} has the annotation {annotation}, so it trusts another authority: remove it, or \
             give the certificate with --webhook-tls-cert-file"
        ));
    }
    Decision::Apply(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        // With the UID nothing is made where the definition is gone.
        "metadata": {"name": name, "uid": definition.uid},
        "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": ByteString(authority.into())}}}},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(change: impl FnOnce(&mut Value)) -> Definition {
        let mut crd = json!({
            "metadata": {"name": "things.example.org", "uid": "u"},
            "spec": {
                "group": "example.org", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
                "versions": [
                    {"name": "v2", "served": true, "storage": false}, {"name": "v1", "served": true, "storage": true},
                ],
                "conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "s", "namespace": "n"}},
                }},
            },
        });
        change(&mut crd);
        serde_json::from_value::<CustomResourceDefinition>(crd).expect("a definition").into()
    }

    fn decided(definition: &Definition) -> Decision {
        decide("things.example.org", Some(definition), &["v1", "v2"], Trust::Own("PEM"))
    }

    #[test]
    fn only_the_authority_is_written_and_only_where_it_is_missing() {
        let Decision::Apply(patch) = decided(&definition(|_| {})) else { panic!("it has no authority") };
        assert_eq!(patch["metadata"], json!({"name": "things.example.org", "uid": "u"}));
        let client = json!({"conversion": {"webhook": {"clientConfig": {"caBundle": "UEVN"}}}});
        assert_eq!(patch["spec"], client);
        let bundle = |text: &'static str| {
            definition(move |crd| {
                crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = json!(text);
            })
        };
        assert_eq!(decided(&bundle("UEVN")), Decision::Right);
        assert!(matches!(decided(&bundle("b3RoZXI=")), Decision::Apply(_)));
        assert_eq!(
            decide("a", Some(&definition(|_| {})), &["v1"], Trust::Unknown),
            Decision::Right,
            "there is no authority yet"
        );
    }

    #[test]
    fn an_authority_of_files_is_only_looked_for() {
        let decided = |definition: &Definition| decide("a", Some(definition), &["v1"], Trust::OfFiles);
        let Decision::Wrong(why) = decided(&definition(|_| {})) else { panic!("it has no authority") };
        assert!(why.contains("has no spec.conversion.webhook.clientConfig.caBundle: write"), "{why}");
        let client =
            |client: Value| definition(|crd| crd["spec"]["conversion"]["webhook"]["clientConfig"] = client);
        let by_url = client(json!({"url": "https://ccm.example.org/convert"}));
        assert_eq!(decided(&by_url), Decision::Right, "an authority of the system may have signed it");
        let with_bundle = client(json!({"service": {"name": "s", "namespace": "n"}, "caBundle": "UEVN"}));
        assert_eq!(decided(&with_bundle), Decision::Right);
        assert!(with_bundle.trusts("PEM\n") && !with_bundle.trusts("other") && !by_url.trusts("PEM"));
    }

    #[test]
    fn what_a_person_has_to_do_is_said() {
        let wrong = |definition: Option<&Definition>| match decide(
            "things.example.org",
            definition,
            &["v2"],
            Trust::Own("x"),
        ) {
            Decision::Wrong(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(wrong(None).contains("things.example.org is missing: apply"));
        let one = definition(|crd| {
            crd["spec"]["versions"] = json!([{"name": "v1", "served": true, "storage": true}]);
        });
        assert!(wrong(Some(&one)).contains("does not serve v2"));
        let none = definition(|crd| crd["spec"]["conversion"] = json!({"strategy": "None"}));
        assert!(wrong(Some(&none)).contains("names no webhook"));
        for name in ["inject-ca-from", "inject-ca-from-secret", "inject-apiserver-ca"] {
            let name = format!("cert-manager.io/{name}");
            let injected = definition(|crd| crd["metadata"]["annotations"] = json!({ &name: "n/c" }));
            let why = wrong(Some(&injected));
            assert!(why.contains(&format!("the annotation {name},")), "{why}");
        }
    }

    #[test]
    fn who_wrote_the_authority_is_known() {
        let manager = |name: &str, field: &str| json!({"manager": name, "fieldsV1": {"f:spec": {"f:conversion": {"f:webhook": {"f:clientConfig": {field: {}}}}}}});
        let managers = json!([manager("a", "f:service"), manager("b", "f:caBundle")]);
        let written = definition(|crd| crd["metadata"]["managedFields"] = managers);
        assert_eq!(written.writer(), Some("b"));
        assert_eq!(definition(|_| {}).writer(), None);
    }

    #[test]
    fn the_certificate_is_for_the_name_that_the_api_server_uses() {
        let at = |client: Value| {
            definition(move |crd| crd["spec"]["conversion"]["webhook"]["clientConfig"] = client).host()
        };
        for (client, host) in [
            (json!({"service": {"name": "s", "namespace": "n", "path": "/convert"}}), Some("s.n.svc")),
            (json!({"url": "https://127.0.0.1:10260/convert"}), Some("127.0.0.1")),
            (json!({"url": "https://[::1]:10260/convert"}), Some("::1")),
            (json!({"url": "https://ccm.example.org/convert"}), Some("ccm.example.org")),
            (json!({"url": "not a URL"}), None),
        ] {
            assert_eq!(at(client).as_deref(), host);
        }
    }
}
