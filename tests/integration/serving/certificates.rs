//! Serving certificates.

use std::{fs, path::Path, time::Duration};

use anyhow::ensure;
use ccm::serving::{NamedCertificate, ServingOptions};
use tempfile::TempDir;

use super::{
    Server,
    curl::{Answer, Curl},
    keys::Authority,
    options,
};
use crate::{
    scenarios::Trials,
    support::eventually,
    trial::{Outcome, runtime},
};

const SOON: Duration = Duration::from_secs(30);

pub(super) fn trials() -> Trials {
    Trials::new()
        .trial("serving::a_certificate_of_its_own", || Ok(runtime(false)?.block_on(self_signed())?))
        .trial("serving::a_given_certificate_is_replaced_while_it_serves", || {
            Ok(runtime(false)?.block_on(given())?)
        })
        .trial("serving::certificates_by_name", || Ok(runtime(false)?.block_on(by_name())?))
        .trial("serving::versions_and_protocols_are_those_of_the_flags", versions)
        .trial("serving::a_taken_port_is_named", || Ok(runtime(false)?.block_on(taken())?))
}

async fn self_signed() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let mut options = options()?;
    options.certificates.cert_dir = Some(folder.path().to_owned());
    let server = Server::start(&options).await?;
    // The certificate is its own authority, and is valid for loopback.
    let authority = folder.path().join("cloud-controller-manager.crt");
    Curl::get(&server.url("/healthz")).authority(&authority).expect(200).await?;
    let port = server.serving.address().port();
    Curl::get(&format!("https://localhost:{port}/healthz"))
        .args(["--resolve", &format!("localhost:{port}:127.0.0.1")])
        .authority(&authority)
        .expect(200)
        .await?;
    server.serving.stop().await;
    // A new port each time: a peer of another test may have taken the first one meanwhile.
    options.secure_port = test_env::free_port()?;
    let again = Server::start(&options).await?;
    Curl::get(&again.url("/healthz")).authority(&authority).expect(200).await?;
    again.serving.stop().await;
    // A certificate in memory is a new one each time.
    options.certificates.cert_dir = None;
    options.secure_port = test_env::free_port()?;
    let server = Server::start(&options).await?;
    Curl::get(&server.url("/healthz")).expect(200).await?;
    ensure!(Curl::get(&server.url("/healthz")).authority(&authority).send().await?.status == 0);
    Ok(())
}

/// Replaces the files as Kubernetes does: writes a new folder and swaps a link to it.
fn swap(folder: &Path, version: &str, (certificate, key): &(String, String)) -> anyhow::Result<()> {
    fs::create_dir(folder.join(version))?;
    fs::write(folder.join(version).join("tls.crt"), certificate)?;
    fs::write(folder.join(version).join("tls.key"), key)?;
    std::os::unix::fs::symlink(version, folder.join("..tmp"))?;
    Ok(fs::rename(folder.join("..tmp"), folder.join("..data"))?)
}

fn given_options(folder: &Path) -> anyhow::Result<ServingOptions> {
    let mut options = options()?;
    options.certificates.tls_cert_file = Some(folder.join("..data/tls.crt"));
    options.certificates.tls_private_key_file = Some(folder.join("..data/tls.key"));
    Ok(options)
}

async fn given() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let (one, other) = (Authority::new("one")?, Authority::new("other")?);
    let (ca_of_one, ca_of_other) =
        (one.write(&folder.path().join("one.crt"))?, other.write(&folder.path().join("other.crt"))?);
    swap(folder.path(), "..1", &one.server(&["127.0.0.1"])?)?;
    let server = Server::start(&given_options(folder.path())?).await?;
    let status = async |authority: &Path| {
        anyhow::Ok(Curl::get(&server.url("/healthz")).authority(authority).send().await?.status)
    };
    ensure!((status(&ca_of_one).await?, status(&ca_of_other).await?) == (200, 0));
    swap(folder.path(), "..2", &other.server(&["127.0.0.1"])?)?;
    eventually(SOON, "the new certificate is served", || async {
        Ok((status(&ca_of_other).await? == 200).then_some(()))
    })
    .await?;
    ensure!(status(&ca_of_one).await? == 0);
    ensure!(server.reloads("serving-certificate", "success") == 1);
    // A key that does not fit its certificate is refused, and the previous pair is still used.
    let (certificate, _) = one.server(&["127.0.0.1"])?;
    let (_, key) = one.server(&["127.0.0.1"])?;
    swap(folder.path(), "..3", &(certificate, key))?;
    eventually(SOON, "the broken pair is refused", || async {
        Ok((server.reloads("serving-certificate", "failure") == 1).then_some(()))
    })
    .await?;
    ensure!(status(&ca_of_other).await? == 200);
    Ok(())
}

async fn by_name() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let authority = Authority::new("authority")?;
    let ca = authority.write(&folder.path().join("ca.crt"))?;
    swap(folder.path(), "..1", &authority.server(&["127.0.0.1", "default.example.com"])?)?;
    let mut options = given_options(folder.path())?;
    for (file, names, flag) in [
        ("one", ["*.one.example.com", "one.example.com"], &[][..]),
        ("two", ["two.example.com", "by-flag.example.com"], &["two.example.com"]),
    ] {
        let (certificate, key) = authority.server(&names)?;
        let path = folder.path().join(file);
        fs::write(path.with_extension("crt"), certificate)?;
        fs::write(path.with_extension("key"), key)?;
        options.certificates.tls_sni_cert_key.push(NamedCertificate {
            cert_file: path.with_extension("crt"),
            key_file: path.with_extension("key"),
            names: flag.iter().map(ToString::to_string).collect(),
        });
    }
    let server = Server::start(&options).await?;
    let port = server.serving.address().port();
    let ask = |name: &str| {
        // curl checks that the certificate is valid for the name.
        Curl::get(&format!("https://{name}:{port}/healthz"))
            .args(["--resolve", &format!("{name}:{port}:127.0.0.1")])
            .authority(&ca)
            .send()
    };
    for name in [
        "default.example.com",
        "one.example.com",
        "www.one.example.com",
        "two.example.com",
        "by-flag.example.com",
    ] {
        let answer: Answer = ask(name).await?;
        ensure!(answer.status == 200, "{name}: {}", answer.error);
    }
    ensure!(ask("a.b.one.example.com").await?.status == 0);
    Curl::get(&server.url("/healthz")).authority(&ca).expect(200).await?;
    Ok(())
}

fn versions() -> Outcome {
    runtime(false)?.block_on(async {
        let mut options = options()?;
        options.tls.tls_min_version = "VersionTLS13".into();
        options.disable_http2_serving = true;
        let server = Server::start(&options).await?;
        let get = || Curl::get(&server.url("/healthz"));
        get().args(["--tlsv1.3"]).expect(200).await?;
        ensure!(get().args(["--tls-max", "1.2"]).send().await?.status == 0);
        let answer = get().args(["--http2"]).expect(200).await?;
        ensure!(answer.headers.contains("http/1.1 200"), "{}", answer.headers);

        let mut options = super::options()?;
        options.tls.tls_cipher_suites =
            vec!["TLS_RSA_WITH_AES_128_CBC_SHA".into(), "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384".into()];
        options.tls.tls_curve_preferences = vec![24];
        let server = Server::start(&options).await?;
        let get = || Curl::get(&server.url("/healthz")).args(["--tls-max", "1.2"]);
        get().args(["--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"]).expect(200).await?;
        ensure!(get().args(["--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"]).send().await?.status == 0);
        ensure!(get().args(["--curves", "X25519"]).send().await?.status == 0);
        let answer = Curl::get(&server.url("/healthz")).args(["--http2"]).expect(200).await?;
        ensure!(answer.headers.contains("http/2 200"), "{}", answer.headers);
        anyhow::Ok(())
    })?;
    Ok(())
}

async fn taken() -> anyhow::Result<()> {
    let mut options = options()?;
    let _first = Server::start(&options).await?;
    let Err(error) = Server::start(&options).await else { anyhow::bail!("two on one port") };
    ensure!(error.to_string().contains("--secure-port"), "{error}");
    // One socket serves the addresses of all families.
    let taken = options.secure_port;
    options = ServingOptions { bind_address: "0.0.0.0".parse()?, ..super::options()? };
    ensure!(options.secure_port != taken);
    let server = Server::start(&options).await?;
    let port = server.serving.address().port();
    Curl::get(&format!("https://127.0.0.1:{port}/healthz")).expect(200).await?;
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        Curl::get(&format!("https://[::1]:{port}/healthz")).args(["--globoff"]).expect(200).await?;
    }
    Ok(())
}
