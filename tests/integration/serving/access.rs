//! Authentication and authorization by a real API server.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{ConfigMap, ServiceAccount},
};
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Server, curl::Curl, keys::Authority, options, options_with};
use crate::{api::Api, manifest, peers::Borrowed, scenarios::Trials, support::eventually, trial::runtime};

const SOON: Duration = Duration::from_secs(20);

pub(super) fn trials() -> Trials {
    Trials::new()
        .api_server("serving::anybody_sees_health_and_a_grant_shows_metrics", grants)
        .api_server("serving::client_certificates_name_their_user", client_certificates)
        .trial("serving::a_certificate_never_breaks_the_connection", || {
            Ok(runtime(false)?.block_on(odd_certificates())?)
        })
        .api_server("serving::the_front_proxy_of_the_cluster_names_its_user", front_proxy)
        .api_server("serving::the_api_server_is_asked_once", counted)
        .api_server("serving::nobody_is_let_in_while_the_api_server_is_away", away)
}

fn control_plane(api: &Api) -> anyhow::Result<&Borrowed> {
    api.control_plane.as_ref().context("the control plane")
}

/// A service account, and a real token for it.
pub(crate) async fn service_account(admin: &Client, name: &str) -> anyhow::Result<String> {
    let account =
        format!("apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: default}}\n");
    manifest::apply(admin, &account).await?;
    let accounts = kube::Api::<ServiceAccount>::namespaced(admin.clone(), "default");
    let request = TokenRequest::default();
    let granted = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    granted.status.and_then(|status| status.token).context("no token")
}

pub(crate) async fn grant(admin: &Client, name: &str, subject: &str, paths: &str) -> anyhow::Result<()> {
    manifest::apply(
        admin,
        &format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {name}}}\n\
             rules:\n- {{nonResourceURLs: [{paths}], verbs: [get]}}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}\n\
             subjects: [{subject}]\n"
        ),
    )
    .await
}

fn status(message: &str, reason: &str, code: u16, extra: &Value) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    for (key, value) in extra.as_object().into_iter().flatten() {
        status[key] = value.clone();
    }
    status
}

async fn grants(api: &Api) -> anyhow::Result<()> {
    let control_plane = control_plane(api)?;
    let mut options = options_with(control_plane.kubeconfig())?;
    options.authorization.unauthorized_ttl = Duration::from_millis(200);
    let server = Server::start(&options).await?;
    let get = |path: &str| Curl::get(&server.url(path));

    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = get(path).expect(200).await?;
        ensure!(answer.text() == "ok", "{}", answer.text());
    }
    let answer = get("/metrics").expect(403).await?;
    let message = "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"";
    ensure!(
        answer.json()? == status(message, "Forbidden", 403, &json!({"details": {}})),
        "{}",
        answer.text()
    );
    for path in ["/", "/nope", "/healthz/ping", "/configz", "/metrics/slis", "/debug/pprof/", "/debug/state"]
    {
        get(path).expect(403).await?;
    }
    // The authorized path is the one that is served, however it is spelt.
    for path in ["/%6detrics", "/healthz/../metrics", "//metrics", "/healthz%2f..%2fmetrics"] {
        get(path).args(["--path-as-is"]).expect(403).await?;
    }
    let answer = get("/healthz").token("not-a-token").expect(401).await?;
    ensure!(answer.json()? == status("Unauthorized", "Unauthorized", 401, &json!({})), "{}", answer.text());

    let token = service_account(&api.client, "scraper").await?;
    let answer = get("/metrics").token(&token).expect(403).await?;
    let message = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
    ensure!(message.contains("User \"system:serviceaccount:default:scraper\" cannot get"), "{message}");
    get("/healthz").token(&token).expect(200).await?;
    grant(
        &api.client,
        "scraper",
        "{kind: ServiceAccount, name: scraper, namespace: default}",
        "/metrics, /metrics/*",
    )
    .await?;
    let answer = eventually(SOON, "the grant counts", || async {
        let answer = get("/metrics").token(&token).send().await?;
        Ok((answer.status == 200).then_some(answer))
    })
    .await?;
    ensure!(answer.headers.contains("content-type: text/plain; version=0.0.4"), "{}", answer.headers);
    ensure!(answer.text().contains("# TYPE cloud_controller_manager_"), "{}", answer.text());
    let compressed = get("/metrics").token(&token).args(["--compressed"]).expect(200).await?;
    ensure!(compressed.headers.contains("content-encoding: gzip"), "{}", compressed.headers);
    ensure!(compressed.text().contains("# TYPE cloud_controller_manager_"));
    get("/metrics/slis").token(&token).expect(200).await?;
    // Permission to read does not include reset.
    get("/metrics/slis").token(&token).method("DELETE").expect(403).await?;
    get("/debug/state").token(&token).expect(403).await?;

    let admin = control_plane.admin_token();
    get("/metrics").token(admin).expect(200).await?;
    get("/metrics").token(admin).method("POST").expect(405).await?;
    get("/nope").token(admin).expect(404).await?;
    get("/").token(admin).expect(404).await?;
    for version in ["--http1.1", "--http2"] {
        get("/metrics").token(admin).args([version]).expect(200).await?;
    }
    Ok(())
}

async fn client_certificates(api: &Api) -> anyhow::Result<()> {
    let control_plane = control_plane(api)?;
    let server = Server::start(&options_with(control_plane.kubeconfig())?).await?;
    let get = |path: &str| Curl::get(&server.url(path));
    // Signed by the authority that the API server publishes, which is not in this server's options.
    let certificate = |user: &str, groups: &[&str]| -> anyhow::Result<_> {
        Ok(control_plane.kubeconfig_for(user, groups)?.with_extension("crt"))
    };
    let (admin, jane) = (certificate("root", &["system:masters"])?, certificate("jane", &["dev"])?);
    get("/metrics").certificate(&admin).expect(200).await?;
    let answer = get("/metrics").certificate(&jane).expect(403).await?;
    ensure!(answer.text().contains("User \\\"jane\\\" cannot get path"), "{}", answer.text());
    grant(
        &api.client,
        "developers",
        "{kind: Group, name: dev, apiGroup: rbac.authorization.k8s.io}",
        "/configz",
    )
    .await?;
    eventually(SOON, "the grant of the group counts", || async {
        Ok((get("/configz").certificate(&jane).send().await?.status == 200).then_some(()))
    })
    .await?;

    let folder = TempDir::new()?;
    let stranger = Authority::new("stranger")?.client(folder.path(), "root", &["system:masters"])?;
    get("/healthz").certificate(&stranger).expect(401).await?;
    // As upstream, a valid token is enough even with an invalid certificate.
    get("/metrics").certificate(&stranger).token(control_plane.admin_token()).expect(200).await?;

    // An authority in a file replaces the cluster's.
    let authority = Authority::new("own")?;
    let mut options = options_with(control_plane.kubeconfig())?;
    options.authentication.client_ca_file = Some(authority.write(&folder.path().join("ca.crt"))?);
    let server = Server::start(&options).await?;
    let own = authority.client(folder.path(), "own", &["system:masters"])?;
    Curl::get(&server.url("/metrics")).certificate(&own).expect(200).await?;
    Curl::get(&server.url("/metrics")).certificate(&admin).expect(401).await?;
    // The file is read again when it changes.
    let next = Authority::new("next")?;
    let of_next = next.client(folder.path(), "next", &["system:masters"])?;
    Curl::get(&server.url("/metrics")).certificate(&of_next).expect(401).await?;
    next.write(&folder.path().join("ca.crt"))?;
    eventually(SOON, "the new authority counts", || async {
        Ok((Curl::get(&server.url("/metrics")).certificate(&of_next).send().await?.status == 200)
            .then_some(()))
    })
    .await?;
    Curl::get(&server.url("/metrics")).certificate(&own).expect(401).await?;
    fs::write(folder.path().join("ca.crt"), "garbage")?;
    eventually(SOON, "garbage is refused", || async {
        Ok((server.reloads("client-ca", "failure") > 0).then_some(()))
    })
    .await?;
    Curl::get(&server.url("/metrics")).certificate(&of_next).expect(200).await?;
    Ok(())
}

async fn odd_certificates() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let authority = Authority::new("own")?;
    let mut options = options()?;
    options.authentication.client_ca_file = Some(authority.write(&folder.path().join("ca.crt"))?);
    let server = Server::start(&options).await?;
    let odd = authority.client_of_version_1(folder.path(), "odd")?;
    let good = authority.client(folder.path(), "good", &["system:masters"])?;
    for version in [["--tls-max", "1.2"], ["--tlsv1.3", "--http2"]] {
        let get = |path: &str| Curl::get(&server.url(path)).args(version);
        get("/healthz").certificate(&odd).args(["--cert-type", "DER"]).expect(401).await?;
        get("/metrics").certificate(&good).expect(200).await?;
    }
    Ok(())
}

async fn front_proxy(api: &Api) -> anyhow::Result<()> {
    let control_plane = control_plane(api)?;
    let server = Server::start(&options_with(control_plane.kubeconfig())?).await?;
    let folder = TempDir::new()?;
    let authority = Authority::new("front")?;
    let proxy = authority.client(folder.path(), "front-proxy", &[])?;
    let impostor = authority.client(folder.path(), "impostor", &[])?;
    let get = |path: &str| {
        Curl::get(&server.url(path)).args([
            "--header",
            "X-Remote-User: jane",
            "--header",
            "X-Remote-Group: system:masters",
        ])
    };
    // This authority is not known to the cluster yet.
    get("/healthz").certificate(&proxy).expect(401).await?;
    get("/metrics").expect(403).await?;
    let config_maps: kube::Api<ConfigMap> = kube::Api::namespaced(api.client.clone(), "kube-system");
    let publish = async |data: Value| {
        let patch = Patch::Merge(json!({"data": data}));
        config_maps.patch("extension-apiserver-authentication", &PatchParams::default(), &patch).await
    };
    publish(json!({
        "requestheader-client-ca-file": authority.pem,
        "requestheader-allowed-names": "[\"front-proxy\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
    }))
    .await?;
    eventually(SOON, "the new front proxy counts", || async {
        Ok((get("/metrics").certificate(&proxy).send().await?.status == 200).then_some(()))
    })
    .await?;
    get("/metrics").certificate(&impostor).expect(401).await?;
    get("/metrics").expect(403).await?;
    let answer = Curl::get(&server.url("/metrics"))
        .args(["--header", "X-Remote-User: joe", "--header", "X-Remote-Group: dev"])
        .certificate(&proxy)
        .expect(403)
        .await?;
    ensure!(answer.text().contains("User \\\"joe\\\" cannot get path"), "{}", answer.text());
    // A new server knows it from the start.
    let second = Server::start(&options_with(control_plane.kubeconfig())?).await?;
    Curl::get(&second.url("/metrics"))
        .args(["--header", "X-Remote-User: jane", "--header", "X-Remote-Group: system:masters"])
        .certificate(&proxy)
        .expect(200)
        .await?;

    let keys =
        ["client-ca-file", "allowed-names", "username-headers", "group-headers", "extra-headers-prefix"];
    publish(keys.iter().map(|key| (format!("requestheader-{key}"), Value::Null)).collect()).await?;
    eventually(SOON, "the front proxy counts no more", || async {
        Ok((get("/metrics").certificate(&proxy).send().await?.status == 401).then_some(()))
    })
    .await?;
    Ok(())
}

/// The number of create requests for this kind that the API server got.
fn created(control_plane: &Borrowed, resource: &str) -> anyhow::Result<u64> {
    let metrics = control_plane.get("/metrics")?;
    let lines = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && line.contains(&format!("resource=\"{resource}\""))
            && line.contains("verb=\"POST\"")
    });
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
}

async fn counted(api: &Api) -> anyhow::Result<()> {
    let control_plane = control_plane(api)?;
    let mut options = options_with(control_plane.kubeconfig())?;
    let long = Duration::from_secs(600);
    options.authentication.token_webhook_cache_ttl = long;
    (options.authorization.authorized_ttl, options.authorization.unauthorized_ttl) = (long, long);
    let server = Server::start(&options).await?;
    let token = service_account(&api.client, "counted").await?;
    let counts = || -> anyhow::Result<_> {
        Ok((created(control_plane, "tokenreviews")?, created(control_plane, "subjectaccessreviews")?))
    };
    let before = counts()?;
    // Eight concurrent requests, then one after another.
    let url = server.url("/metrics");
    let at_once = (0..8).map(|_| Curl::get(&url).token(&token).expect(403));
    futures::future::try_join_all(at_once).await?;
    for _ in 0..4 {
        Curl::get(&url).token(&token).expect(403).await?;
    }
    let after = counts()?;
    ensure!((after.0 - before.0, after.1 - before.1) == (1, 1), "{before:?} {after:?}");
    // Health checks need no reviews.
    for _ in 0..4 {
        Curl::get(&server.url("/healthz")).expect(200).await?;
    }
    for _ in 0..4 {
        Curl::get(&url).token("wrong").expect(401).await?;
    }
    let last = counts()?;
    ensure!((last.0 - after.0, last.1 - after.1) == (1, 0), "{after:?} {last:?}");

    // Without a cache, each request needs reviews.
    let mut options = options_with(control_plane.kubeconfig())?;
    options.authentication.token_webhook_cache_ttl = Duration::ZERO;
    (options.authorization.authorized_ttl, options.authorization.unauthorized_ttl) =
        (Duration::ZERO, Duration::ZERO);
    let server = Server::start(&options).await?;
    let before = counts()?;
    for _ in 0..3 {
        Curl::get(&server.url("/metrics")).token(&token).expect(403).await?;
    }
    let after = counts()?;
    ensure!((after.0 - before.0, after.1 - before.1) == (3, 3), "{before:?} {after:?}");
    Ok(())
}

async fn away(api: &Api) -> anyhow::Result<()> {
    let control_plane = control_plane(api)?;
    let server = Server::start(&options_with(control_plane.kubeconfig())?).await?;
    let jane = control_plane.kubeconfig_for("jane-of-the-outage", &[])?.with_extension("crt");
    control_plane.kill_api_server()?;
    let get = |path: &str| Curl::get(&server.url(path));
    get("/healthz").expect(200).await?;
    let answer = get("/metrics").certificate(&jane).expect(500).await?;
    ensure!(answer.text().starts_with("Internal Server Error: \"/metrics\": "), "{}", answer.text());
    get("/metrics").token("a-token-that-nobody-checks").expect(401).await?;
    control_plane.start_api_server()?;
    // A failed review is not cached.
    get("/metrics").certificate(&jane).expect(403).await?;
    Ok(())
}
