//! The serving certificates: their sources, the choice for each client, and reloading when their files
//! change.

mod choice;
mod pair;
mod self_signed;

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::{
    files::FileChanges,
    reload::{ReloadReporter, Source},
    serving::CertificateOptions,
};

pub(super) use choice::ForAddress;
use choice::{Choice, Named};
use pair::{Pair, PairFiles};

/// The two files of a pair are replaced one after the other. A mismatch is reported only after this many
/// attempts.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// All certificates. Cloning shares them.
#[derive(Clone, Debug)]
pub(super) struct Certificates(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Files of the default certificate. `None`: it was generated in memory.
    default: Option<PairFiles>,
    named: Vec<(PairFiles, Vec<String>)>,
    choice: ArcSwap<Choice>,
}

impl Certificates {
    /// Loads or generates all certificates.
    ///
    /// # Errors
    /// A file that cannot be read or used, with its flag.
    pub(super) fn load(options: &CertificateOptions, bind_address: IpAddr) -> anyhow::Result<Self> {
        let Sources { default, is_made_if_missing, named } = Sources::of(options)?;
        if let Some(files) = default.as_ref().filter(|_| is_made_if_missing) {
            self_signed::write_unless_there(files, bind_address)?;
        }
        let default_pair = match &default {
            Some(files) => files.load()?,
            None => {
                tracing::info!("Generated self-signed cert in-memory");
                let (certificate, key) = self_signed::generate(bind_address)?;
                Pair::parse(certificate.as_bytes(), key.as_bytes())
                    .context("the self-signed certificate cannot be used")?
            }
        };
        let mut named_pairs = Vec::new();
        for (files, names) in &named {
            named_pairs.push(Named { pair: files.load()?, names: names.clone() });
        }
        let choice = ArcSwap::from_pointee(Choice::new(default_pair, named_pairs));
        Ok(Self(Arc::new(Shared { default, named, choice })))
    }

    /// The certificates for a client that connected to this address.
    pub(super) fn for_address(&self, local: IpAddr) -> ForAddress {
        ForAddress { choice: self.0.choice.load_full(), local }
    }

    /// What is wrong with the files, which are only read. Half a pair of flags is not told: whoever checks the flags does.
    pub(super) fn faults(options: &CertificateOptions) -> Vec<anyhow::Error> {
        let Ok(Sources { default, is_made_if_missing, named }) = Sources::of(options) else {
            return Vec::new();
        };
        let of_default = default.and_then(|files| {
            let is_there = if is_made_if_missing { self_signed::is_there(&files) } else { Ok(true) };
            match is_there {
                Ok(true) => files.load().err(),
                Ok(false) => self_signed::check_folder(&files).err(),
                Err(error) => Some(error),
            }
        });
        of_default.into_iter().chain(named.iter().filter_map(|(files, _)| files.load().err())).collect()
    }

    fn files(&self) -> impl Iterator<Item = &PairFiles> {
        self.0.default.iter().chain(self.0.named.iter().map(|(files, _)| files))
    }

    /// Reloads pairs whose files change, until `stop` is cancelled. If a new pair cannot be used, the
    /// previous one stays in use.
    pub(super) async fn follow(self, reporter: ReloadReporter, stop: CancellationToken) {
        let paths: Vec<PathBuf> =
            self.files().flat_map(|files| [files.certificate.clone(), files.key.clone()]).collect();
        let work = async {
            let mut changes = FileChanges::new(paths).await;
            // The files may have changed since they were loaded.
            self.reload_patiently(&reporter).await;
            loop {
                changes.changed().await;
                self.reload_patiently(&reporter).await;
            }
        };
        stop.run_until_cancelled(work).await;
    }

    async fn reload_patiently(&self, reporter: &ReloadReporter) {
        let mut outcome = self.reload().await;
        for _ in 1..LOOKS {
            if outcome.fault.is_none() {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            let next = self.reload().await;
            outcome = Reloaded { changed: outcome.changed || next.changed, fault: next.fault };
        }
        if let Some(fault) = outcome.fault {
            reporter.failed(Source::ServingCertificate, &fault);
        } else if outcome.changed {
            reporter.succeeded(Source::ServingCertificate);
        } else {
            reporter.unchanged(Source::ServingCertificate);
        }
    }

    /// Reloads all pairs once. The valid ones take effect.
    async fn reload(&self) -> Reloaded {
        let shared = self.0.clone();
        let read = tokio::task::spawn_blocking(move || {
            let before = shared.choice.load_full();
            let mut faults = Vec::new();
            let mut changed = false;
            let mut pair = |files: &PairFiles, before: &Pair| match files.load() {
                Ok(pair) => {
                    changed |= !pair.same_as(before);
                    pair
                }
                Err(error) => {
                    faults.push(format!("{error:#}"));
                    before.clone()
                }
            };
            let default = match &shared.default {
                Some(files) => pair(files, before.default_pair()),
                None => before.default_pair().clone(),
            };
            let named = shared
                .named
                .iter()
                .zip(before.named_pairs())
                .map(|((files, names), before)| Named {
                    pair: pair(files, &before.pair),
                    names: names.clone(),
                })
                .collect();
            if changed {
                shared.choice.store(Arc::new(Choice::new(default, named)));
            }
            Reloaded { changed, fault: (!faults.is_empty()).then(|| faults.join("; ")) }
        });
        read.await.unwrap_or(Reloaded { changed: false, fault: Some("the files cannot be read".to_owned()) })
    }
}

/// The files that options name.
struct Sources {
    /// Those of the default certificate. `None`: it is generated in memory.
    default: Option<PairFiles>,
    /// Whether the default pair is written where it is missing.
    is_made_if_missing: bool,
    /// Those of the certificates for names of their own.
    named: Vec<(PairFiles, Vec<String>)>,
}

impl Sources {
    fn of(options: &CertificateOptions) -> anyhow::Result<Self> {
        let flags_named = |flags: &[&str]| {
            let flags = flags.iter().map(|flag| format!("--{}{flag}", options.flags));
            flags.collect::<Vec<_>>().join(", ")
        };
        let default = match (&options.tls_cert_file, &options.tls_private_key_file, &options.cert_dir) {
            (Some(certificate), Some(key), _) => Some(PairFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                flags: flags_named(&["tls-cert-file", "tls-private-key-file"]),
            }),
            (None, None, Some(folder)) => Some(PairFiles {
                certificate: folder.join(format!("{}.crt", options.pair_name)),
                key: folder.join(format!("{}.key", options.pair_name)),
                flags: flags_named(&["cert-dir"]),
            }),
            (None, None, None) => None,
            _ => anyhow::bail!(
                "--{0}tls-cert-file and --{0}tls-private-key-file belong together: both or neither must be given",
                options.flags
            ),
        };
        let named = options.tls_sni_cert_key.iter().map(|pair| {
            let files = PairFiles {
                certificate: pair.cert_file.clone(),
                key: pair.key_file.clone(),
                flags: flags_named(&["tls-sni-cert-key"]),
            };
            (files, pair.names.clone())
        });
        Ok(Self { default, is_made_if_missing: options.tls_cert_file.is_none(), named: named.collect() })
    }
}

struct Reloaded {
    changed: bool,
    fault: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{metrics::MetricSet as _, reload::ReloadMetrics};

    fn options(folder: &std::path::Path) -> CertificateOptions {
        CertificateOptions { cert_dir: Some(folder.to_owned()), ..CertificateOptions::default() }
    }

    fn served(certificates: &Certificates) -> Vec<u8> {
        certificates.0.choice.load().choose(None, "127.0.0.1".parse().expect("an address")).cert[0].to_vec()
    }

    #[tokio::test]
    async fn the_folder_keeps_what_was_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("new/certs");
        let local = "0.0.0.0".parse().expect("an address");
        let one = served(&Certificates::load(&options(&inner), local).expect("made"));
        let other = served(&Certificates::load(&options(&inner), local).expect("read"));
        assert_eq!(one, other);
        fs::remove_file(inner.join("server.key")).expect("removed");
        let error = Certificates::load(&options(&inner), local).expect_err("half a pair");
        assert!(format!("{error:#}").contains("--cert-dir"), "{error:#}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pair_is_replaced_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let local = "0.0.0.0".parse().expect("an address");
        let certificates = Certificates::load(&options(folder.path()), local).expect("made");
        let metrics = ReloadMetrics::unregistered().expect("metrics");
        let stop = CancellationToken::new();
        let following = tokio::spawn(
            certificates.clone().follow(ReloadReporter::new(metrics.clone(), None), stop.clone()),
        );
        let count =
            |result: &str| metrics.config_reloads.with_label_values(&["serving-certificate", result]).get();
        let soon = Duration::from_secs(60);
        let (first, certificate, key) =
            (served(&certificates), folder.path().join("server.crt"), folder.path().join("server.key"));
        tokio::time::sleep(soon).await;
        let (new_certificate, new_key) = self_signed::generate(local).expect("made");
        fs::write(&certificate, &new_certificate).expect("written");
        // Only one file of the pair is new: no failure is counted yet, and the old pair is served.
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((served(&certificates), count("failure")), (first.clone(), 0));
        fs::write(&key, &new_key).expect("written");
        tokio::time::sleep(soon).await;
        let second = served(&certificates);
        assert_ne!(first, second);
        assert_eq!((count("success"), count("failure")), (1, 0));
        fs::write(&key, "garbage").expect("written");
        tokio::time::sleep(soon).await;
        assert_eq!((served(&certificates), count("failure")), (second.clone(), 1));
        fs::write(&key, &new_key).expect("written");
        tokio::time::sleep(soon).await;
        assert_eq!(served(&certificates), second);
        stop.cancel();
        following.await.expect("it ends");
    }
}
