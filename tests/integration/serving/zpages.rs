//! `/statusz` and `/flagz`, compared with those of kube-apiserver.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{Answer, Curl, Server, options_with, service_account};
use crate::{api::Api, scenarios::Trials};

/// `Accept` headers of clients, including those of a browser and of curl. `KIND` stands for the page's kind.
const ACCEPTED: [&str; 14] = [
    "",
    "*/*",
    "text/plain",
    "text/*",
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "application/json",
    "application/xml",
    "application/vnd.kubernetes.protobuf",
    "application/json;v=v1beta1;g=config.k8s.io;as=KIND",
    "application/json;v=v1alpha1;g=config.k8s.io;as=KIND",
    "application/yaml;v=v1beta1;g=config.k8s.io;as=KIND",
    "application/json;v=v1;g=config.k8s.io;as=KIND",
    "application/json;v=v1;g=config.k8s.io;as=KIND,*/*",
    "text/plain;q=0.5,application/json;v=v1beta1;g=config.k8s.io;as=KIND",
];

pub(super) fn trials() -> Trials {
    Trials::new().api_server("serving::statusz_and_flagz_as_kube_apiserver_serves_them", pages)
}

async fn pages(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let mut options = options_with(control_plane.kubeconfig())?;
    options.flagz = Some([("profiling".to_owned(), "true".to_owned())].into());
    let server = Server::start(&options).await?;
    let token = control_plane.admin_token();
    let nobody = service_account(&api.client, "reads-no-pages").await?;
    // Upstream's own role for this.
    let monitoring = control_plane.kubeconfig_for("monitor", &["system:monitoring"])?.with_extension("crt");
    for (page, kind) in [("/statusz", "Statusz"), ("/flagz", "Flagz")] {
        let get = || Curl::get(&server.url(page));
        get().expect(403).await?;
        get().token(&nobody).expect(403).await?;
        get().certificate(&monitoring).expect(200).await?;
        for accept in ACCEPTED {
            let header = format!("Accept: {}", accept.replace("KIND", kind));
            let header = header.trim_end();
            let theirs = Curl::get(&format!("{}{page}", control_plane.url()));
            let theirs = theirs.token(token).args(["--header", header]).send().await?;
            let ours = get().token(token).args(["--header", header]).send().await?;
            let (theirs, ours) = (shape(&theirs)?, shape(&ours)?);
            ensure!(theirs == ours, "{page} {header}: {theirs:?} there and here {ours:?}");
        }
    }
    Ok(())
}

/// The parts of a response that do not depend on the server.
#[derive(Debug, PartialEq)]
struct Shape {
    status: u16,
    headers: Vec<String>,
    fields: BTreeSet<String>,
    /// The message of an error.
    message: Option<String>,
    warning: Option<String>,
}

fn shape(answer: &Answer) -> anyhow::Result<Shape> {
    let named = |line: &&str| ["content-type:", "warning:"].iter().any(|name| line.starts_with(name));
    let mut headers: Vec<String> =
        answer.headers.lines().filter(named).map(|line| line.trim().to_owned()).collect();
    headers.sort();
    let is_json = headers.iter().any(|header| header.starts_with("content-type: application/json"));
    let object = if is_json { answer.json()? } else { Value::Null };
    let fields = object.as_object().into_iter().flatten().map(|(field, _)| field.clone());
    let text = answer.text();
    Ok(Shape {
        status: answer.status,
        headers,
        // Kubernetes' own components have another field.
        fields: fields.filter(|field| field != "emulationVersion").collect(),
        message: object["message"].as_str().map(str::to_owned),
        warning: text.lines().find(|line| line.starts_with("Warning:")).map(str::to_owned),
    })
}
