//! The webhook with which the API server converts objects between the versions of a provider's kinds.
//!
//! ```text
//!   API server ── ConversionReview ──> server ──> review ──> the provider's conversion
//!   Secret (authority) <──> keeper ──> certificate of the server
//!                             └──────> caBundle of each CustomResourceDefinition
//! ```
//!
//! Every replica serves it, also those that stand by: the API server asks any of them. They share the authority in a Secret,
//! which the first one makes. Each writes the authority's certificate into the definitions where it is missing, so all of
//! them write the same.

mod definitions;
mod keeper;
mod pace;
mod review;

use std::{collections::BTreeMap, sync::Arc};

use cloudprovider::{Error, ErrorKind, MachineTypes, Result, machines::Convert};
use component::{
    health::{Concerns, HealthChecks},
    reload::ReloadReporter,
    serving::{CertificateOptions, MadeCertificate, TlsOptions, Webhook, WebhookOptions, WebhookServer},
};
use kube::Client;
use machine_controller::crds::{CONVERSION_PATH, DEFINITIONS_CHECK};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::keeper::{Keeper, Report};
use crate::flags::{Flags, MACHINE_CONTROLLER};

/// The name of the health check that the webhook can answer.
const CHECK: &str = "conversion-webhook";

/// The names of the files in `--webhook-cert-dir`, as upstream, without extensions.
const PAIR_NAME: &str = "cloud-controller-manager-webhook";

/// A webhook that is served.
pub(crate) struct ConversionWebhook {
    server: WebhookServer,
    keeper: Keeper,
}

/// Converts the objects of a `ConversionReview`: the function of each kind.
struct Conversion(BTreeMap<&'static str, Convert>);

impl Conversion {
    fn of(types: &[MachineTypes]) -> Self {
        let older = types.iter().filter_map(|types| types.older);
        let kinds = older.flat_map(|older| {
            let kinds = (older.definitions)().kinds;
            kinds.into_iter().map(move |kind| (kind.kind.kind, older.convert))
        });
        Self(kinds.collect())
    }

    fn convert(&self, object: Value, version: &str) -> Result<Value> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let convert = self.0.get(kind).ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("kind: {kind:?} is not converted here"))
        })?;
        convert(object, version)
    }
}

impl Webhook for Conversion {
    fn answer(&self, body: &[u8]) -> std::result::Result<Vec<u8>, String> {
        review::answer(body, &|object, version| self.convert(object, version))
    }
}

impl ConversionWebhook {
    /// Opens the port. `None`: there is nothing to convert, or the flags say that it is not served here.
    ///
    /// # Errors
    /// A file or a port that cannot be used, with its flag.
    pub(crate) async fn start(
        flags: &Flags,
        types: &[MachineTypes],
        client: &Client,
        health: &HealthChecks,
        reporter: &ReloadReporter,
    ) -> anyhow::Result<Option<Self>> {
        let types = converted(flags, types.iter().copied());
        if types.is_empty() {
            return Ok(None);
        }
        let Some(options) = options(flags) else {
            let flag = if flags.misc.dry_run { "--dry-run" } else { "--webhook-secure-port=0" };
            tracing::warn!(
                "{flag}: objects of machines are not converted here. Without another daemon that does it, they can only be read and \
                 written in the version in which they are stored"
            );
            return Ok(None);
        };
        let made = MadeCertificate::default();
        let webhook = Arc::new(Conversion::of(&types));
        let server = WebhookServer::start(&options, CONVERSION_PATH, webhook, made.clone(), reporter).await?;
        let report = Report::default();
        health.add(CHECK, Concerns::Readiness, {
            let report = report.clone();
            move || report.serving()
        });
        health.add(DEFINITIONS_CHECK, Concerns::Readiness, {
            let report = report.clone();
            move || report.definitions()
        });
        let client = client.clone();
        let keeper = if options.certificates.is_some() {
            Keeper::of_files(client, flags, &types, report)
        } else {
            Keeper::new(client, flags, &types, made, report)
        };
        Ok(Some(Self { server, keeper }))
    }

    /// Serves until `stop` is cancelled. It ends earlier if a part of it does.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.keeper.run() => {}
            () = self.server.failed() => tracing::error!("the webhook that converts objects has stopped"),
        }
        self.server.stop().await;
    }
}

/// The files of the certificates with which it is served, if there is something to convert and they are given.
pub(crate) fn certificates(
    flags: &Flags,
    types: impl IntoIterator<Item = MachineTypes>,
) -> Option<CertificateOptions> {
    let is_served = !converted(flags, types).is_empty();
    options(flags).filter(|_| is_served)?.certificates
}

/// What there is to convert.
fn converted(flags: &Flags, types: impl IntoIterator<Item = MachineTypes>) -> Vec<MachineTypes> {
    let is_enabled = flags.enables(MACHINE_CONTROLLER);
    types.into_iter().filter(|types| is_enabled && types.older.is_some()).collect()
}

/// Where it is served. `None`: nowhere, as `--webhook-secure-port=0` and `--dry-run` say.
fn options(flags: &Flags) -> Option<WebhookOptions> {
    let serving = &flags.webhook_serving;
    let secure_port = serving.port().filter(|_| !flags.misc.dry_run)?;
    let certificates = CertificateOptions {
        cert_dir: serving.cert_dir.clone(),
        pair_name: PAIR_NAME,
        tls_cert_file: serving.tls_cert_file.clone(),
        tls_private_key_file: serving.tls_private_key_file.clone(),
        tls_sni_cert_key: serving.tls_sni_cert_key.clone(),
        flags: "webhook-",
    };
    Some(WebhookOptions {
        bind_address: serving.bind_address,
        secure_port,
        disable_http2_serving: serving.disable_http2_serving,
        certificates: serving.has_certificates().then_some(certificates),
        tls: TlsOptions {
            tls_min_version: serving.tls_min_version.clone(),
            tls_cipher_suites: serving.tls_cipher_suites.clone(),
            tls_curve_preferences: serving.tls_curve_preferences.clone().unwrap_or_default(),
        },
    })
}
