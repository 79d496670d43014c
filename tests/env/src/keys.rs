//! Keys and certificates of a control plane, made with openssl.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::process::run;
use crate::scratch::Scratch;

const NEW_KEY: [&str; 6] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha256"];

/// Makes `ca.crt` (with `ca.key`), `server.crt` and `server.key` for loopback and these further addresses, and
/// `service-accounts.key`.
pub(crate) fn server(scratch: &Scratch, addresses: &[String]) -> Result<()> {
    let mut ca = vec!["req", "-x509", "-days", "2", "-subj", "/CN=test-env-ca"];
    ca.extend(NEW_KEY);
    ca.extend(["-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", "ca.key", "-out", "ca.crt"]);
    openssl(scratch, &ca)?;
    let mut names = "IP:127.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc".to_owned();
    for address in addresses {
        names.push_str(",IP:");
        names.push_str(address);
    }
    certificate(
        scratch,
        "server",
        "/CN=kube-apiserver",
        &format!("extendedKeyUsage=serverAuth\nsubjectAltName={names}\n"),
    )?;
    openssl(scratch, &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "service-accounts.key"])
}

/// Makes an authority with a key of RSA, which [`ClusterApiManager::InMemory`](crate::ClusterApiManager::InMemory) asks for. Returns
/// certificate and key, in PEM.
///
/// # Errors
/// If openssl cannot make it.
pub fn authority_of_rsa() -> Result<[String; 2]> {
    let scratch = Scratch::new("authority")?;
    let mut make = vec!["req", "-x509", "-days", "2", "-subj", "/CN=kubernetes", "-newkey", "rsa:2048"];
    make.extend(["-nodes", "-sha256", "-addext", "keyUsage=critical,keyCertSign,digitalSignature"]);
    make.extend(["-keyout", "ca.key", "-out", "ca.crt"]);
    openssl(&scratch, &make)?;
    let read = |file: &str| std::fs::read_to_string(scratch.join(file)).with_context(|| file.to_owned());
    Ok([read("ca.crt")?, read("ca.key")?])
}

/// Makes the certificate and the key of a client. Kubernetes reads the user and its groups from the
/// certificate.
pub(crate) fn client(scratch: &Scratch, user: &str, groups: &[&str]) -> Result<(PathBuf, PathBuf)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("client-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut subject = String::new();
    for group in groups {
        subject.push_str("/O=");
        subject.push_str(&escaped(group));
    }
    subject.push_str("/CN=");
    subject.push_str(&escaped(user));
    certificate(scratch, &name, &subject, "extendedKeyUsage=clientAuth\n")?;
    Ok((scratch.join(format!("{name}.crt")), scratch.join(format!("{name}.key"))))
}

fn certificate(scratch: &Scratch, name: &str, subject: &str, extensions: &str) -> Result<()> {
    let [key, request, result, extension_file] =
        ["key", "csr", "crt", "ext"].map(|extension| format!("{name}.{extension}"));
    let mut make = vec!["req", "-subj", subject];
    make.extend(NEW_KEY);
    make.extend(["-keyout", &key, "-out", &request]);
    openssl(scratch, &make)?;
    scratch.write(
        &extension_file,
        &format!("basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n{extensions}"),
    )?;
    let mut sign = vec!["x509", "-req", "-days", "2", "-sha256", "-CA", "ca.crt", "-CAkey", "ca.key"];
    // the serial number is random, so that concurrent calls need no common file
    sign.extend(["-in", &request, "-extfile", &extension_file, "-out", &result]);
    openssl(scratch, &sign)
}

/// Escapes slashes, which separate the parts of a subject in openssl.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('/', "\\/").replace('+', "\\+")
}

fn openssl(scratch: &Scratch, arguments: &[&str]) -> Result<()> {
    run(Command::new("openssl").args(arguments).current_dir(scratch.path()))
        .context("cannot make keys")
        .map(drop)
}
