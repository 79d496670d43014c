//! Which API server is asked for reviews and trusted authorities, and the rules without one.

use anyhow::{Context, ensure};

use super::{Server, curl::Curl, options, options_with};
use crate::{api::Api, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new()
        .api_server("serving::settings_that_cannot_be_read_stop_the_start", forbidden)
        .api_server("serving::without_anybody_to_ask_all_are_anonymous", nobody_to_ask)
}

async fn forbidden(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let powerless = control_plane.kubeconfig_for("powerless", &[])?;
    let options = options_with(&powerless)?;
    let error = Server::start(&options).await.err().context("it started")?;
    let error = format!("{error:#}");
    for word in [
        "unable to load configmap based request-header-client-ca-file",
        "extension-apiserver-authentication",
        "--authentication-tolerate-lookup-failure",
    ] {
        ensure!(error.contains(word), "{word} in {error}");
    }
    let mut options = options_with(&powerless)?;
    options.authentication.tolerate_lookup_failure = true;
    let server = Server::start(&options).await?;
    Curl::get(&server.url("/healthz")).expect(200).await?;
    // This user may not create reviews either.
    Curl::get(&server.url("/metrics")).expect(500).await?;
    Curl::get(&server.url("/metrics")).token(control_plane.admin_token()).expect(401).await?;
    let mut options = options_with(&powerless)?;
    options.authentication.skip_lookup = true;
    let server = Server::start(&options).await?;
    Curl::get(&server.url("/healthz")).expect(200).await?;
    Ok(())
}

async fn nobody_to_ask(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let server = Server::start(&options()?).await?;
    Curl::get(&server.url("/healthz")).expect(200).await?;
    let admin = control_plane.kubeconfig_for("root", &["system:masters"])?.with_extension("crt");
    // The server requests no client certificate, so curl sends none, and a token cannot be checked.
    for request in [
        Curl::get(&server.url("/metrics")).certificate(&admin),
        Curl::get(&server.url("/metrics")).token(control_plane.admin_token()),
    ] {
        let answer = request.expect(403).await?;
        ensure!(answer.text().contains("system:anonymous"), "{}", answer.text());
    }
    Ok(())
}
