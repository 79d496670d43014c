//! A self-signed certificate, used when no certificate is given.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use anyhow::{Context as _, bail};
use jiff::{Timestamp, tz::TimeZone};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType};
use rustix::fs::{Access, access};

use super::pair::PairFiles;

/// Validity in years. Clients do not check the dates of a self-signed certificate, and its expiry must not
/// require a restart.
const YEARS: i16 = 10;

/// Generates a certificate and its key, in PEM, for `localhost`, loopback, and the bind address.
pub(super) fn generate(bind_address: IpAddr) -> anyhow::Result<(String, String)> {
    let mut parameters = CertificateParams::new(["localhost".to_owned()])?;
    let mut addresses: Vec<IpAddr> = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    if !bind_address.is_unspecified() && !addresses.contains(&bind_address) {
        addresses.push(bind_address);
    }
    parameters.subject_alt_names.extend(addresses.into_iter().map(SanType::IpAddress));
    let now = Timestamp::now();
    let name = format!("localhost@{}", now.as_second());
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let today = now.to_zoned(TimeZone::UTC).date();
    // The first of January exists in every year. Today's date may not (29 February).
    parameters.not_before = rcgen::date_time_ymd(i32::from(today.year()) - 1, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(i32::from(today.year() + YEARS), 1, 1);
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// As in upstream: generates the pair if both files are missing, and uses it if both exist.
///
/// # Errors
/// Only one of the files exists, or the folder is not writable.
pub(super) fn write_unless_there(files: &PairFiles, bind_address: IpAddr) -> anyhow::Result<()> {
    if is_there(files)? {
        return Ok(());
    }
    let (certificate, key) = generate(bind_address)?;
    write(&files.certificate, &certificate, 0o644)
        .and_then(|()| write(&files.key, &key, 0o600))
        .with_context(|| format!("{}: the self-signed pair cannot be written to its folder", files.flags))?;
    tracing::info!("Generated self-signed cert ({}, {})", files.certificate.display(), files.key.display());
    Ok(())
}

/// Whether both files exist.
///
/// # Errors
/// Only one of them does, or one cannot be read.
pub(super) fn is_there(files: &PairFiles) -> anyhow::Result<bool> {
    let is_there = |path: &Path| match fs::File::open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => {
            Err(error).with_context(|| format!("{}: {} cannot be read", files.flags, path.display()))
        }
    };
    match (is_there(&files.certificate)?, is_there(&files.key)?) {
        (true, true) => Ok(true),
        (false, false) => Ok(false),
        (has_certificate, _) => {
            let missing = if has_certificate { &files.key } else { &files.certificate };
            bail!(
                "{}: {} is missing, certificate and key must be supplied as a pair; without both, a new pair is made",
                files.flags,
                missing.display()
            )
        }
    }
}

/// Checks that the pair could be written: its folder, or the nearest one above it that exists, must be writable.
///
/// # Errors
/// It is not.
pub(super) fn check_folder(files: &PairFiles) -> anyhow::Result<()> {
    let or_here = |path| if path == Path::new("") { Path::new(".") } else { path };
    let above = files.certificate.ancestors().skip(1).map(or_here);
    let Some(folder) = above.into_iter().find(|path| path.exists()) else { return Ok(()) };
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from).with_context(|| {
        let folder = folder.display();
        format!(
            "{}: the self-signed pair cannot be written, since {folder} is not a writable folder",
            files.flags
        )
    })
}

fn write(path: &Path, content: &str, mode: u32) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)?
        .write_all(content.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn nobody_else_reads_the_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = PairFiles {
            certificate: folder.path().join("a/x.crt"),
            key: folder.path().join("a/x.key"),
            flags: "--cert-dir".to_owned(),
        };
        write_unless_there(&files, "192.0.2.1".parse().expect("an address")).expect("written");
        let mode = fs::metadata(&files.key).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        files.load().expect("can be served");
    }
}
