//! Who may talk to the HTTPS port: authentication.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args};

use super::{
    FeatureGates,
    values::{boolean, duration, list, path},
};

/// Tokens, client certificates and the front proxy's headers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Authentication flags")]
pub struct AuthenticationFlags {
    /// Kubeconfig for reviews of tokens (tokenreviews.authentication.k8s.io) and for the look-up of client CAs. Without
    /// it the configuration of the cluster that runs this pod is used; outside of a pod tokens are then anonymous.
    #[arg(id = "authentication-kubeconfig", long = "authentication-kubeconfig", default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub kubeconfig: std::option::Option<PathBuf>,

    /// Do not read the client CAs that are not given here from the ConfigMap
    /// kube-system/extension-apiserver-authentication.
    #[arg(long = "authentication-skip-lookup", default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub skip_lookup: bool,

    /// How long the answer of a token's review holds.
    #[arg(long = "authentication-token-webhook-cache-ttl", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub token_webhook_cache_ttl: Duration,

    /// Start without that ConfigMap where it cannot be read.
    #[arg(long = "authentication-tolerate-lookup-failure", default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub tolerate_lookup_failure: bool,

    /// CA bundle for client certificates, whose common name is then the user and whose organizations are the groups.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub client_ca_file: std::option::Option<PathBuf>,

    /// Common names of the client certificates that may say in headers who the user is; empty for every certificate
    /// of --requestheader-client-ca-file.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "LIST", value_parser = list)]
    pub requestheader_allowed_names: std::vec::Vec<String>,

    /// CA bundle for the client certificate of a proxy that says in headers who the user is.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub requestheader_client_ca_file: std::option::Option<PathBuf>,

    /// Beginnings of headers with what else is known of the user.
    #[arg(long, default_value = "x-remote-extra-", value_name = "LIST", value_parser = list)]
    pub requestheader_extra_headers_prefix: std::vec::Vec<String>,

    /// Headers with the user's groups.
    #[arg(long, default_value = "x-remote-group", value_name = "LIST", value_parser = list)]
    pub requestheader_group_headers: std::vec::Vec<String>,

    /// Headers with the user's UID. Needs the feature gate RemoteRequestHeaderUID.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "LIST", value_parser = list)]
    pub requestheader_uid_headers: std::vec::Vec<String>,

    /// Headers with the user's name.
    #[arg(long, default_value = "x-remote-user", value_name = "LIST", value_parser = list)]
    pub requestheader_username_headers: std::vec::Vec<String>,
}

impl AuthenticationFlags {
    /// The faults that upstream reports.
    pub fn faults(&self, gates: &FeatureGates) -> Vec<String> {
        let mut faults = Vec::new();
        let mut lists = vec![
            ("requestheader-username-headers", &self.requestheader_username_headers),
            ("requestheader-group-headers", &self.requestheader_group_headers),
            ("requestheader-extra-headers-prefix", &self.requestheader_extra_headers_prefix),
            ("requestheader-allowed-names", &self.requestheader_allowed_names),
        ];
        let uids = &self.requestheader_uid_headers;
        if gates.enabled("RemoteRequestHeaderUID") {
            lists.push(("requestheader-uid-headers", uids));
            if !uids.is_empty() && !has(uids, "X-Remote-Uid") {
                faults.push(format!("--requestheader-uid-headers {}", without("X-Remote-Uid header")));
            }
        } else if !uids.is_empty() {
            faults.push(
                "--requestheader-uid-headers requires the \"RemoteRequestHeaderUID\" feature to be enabled"
                    .to_owned(),
            );
        }
        for (flag, values) in lists {
            if values.iter().any(|value| value.trim().is_empty()) {
                faults.push(format!("empty value in {flag:?} (--{flag})"));
            }
        }
        faults
    }

    /// The warnings that upstream logs.
    pub fn warnings(&self) -> Vec<String> {
        [
            ("username-headers", &self.requestheader_username_headers, "X-Remote-User", "header"),
            ("group-headers", &self.requestheader_group_headers, "X-Remote-Group", "header"),
            (
                "extra-headers-prefix",
                &self.requestheader_extra_headers_prefix,
                "X-Remote-Extra-",
                "header prefix",
            ),
        ]
        .into_iter()
        .filter(|(_, values, header, _)| !values.is_empty() && !has(values, header))
        .map(|(flag, _, header, what)| {
            format!("--requestheader-{flag} {}", without(&format!("{header} {what}")))
        })
        .collect()
    }
}

fn has(headers: &[String], header: &str) -> bool {
    headers.iter().any(|known| known.eq_ignore_ascii_case(header))
}

fn without(standard: &str) -> String {
    format!("is set without specifying the standard {standard} - API aggregation will not work")
}
