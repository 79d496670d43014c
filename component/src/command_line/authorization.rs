//! Who may talk to the HTTPS port: authorization.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::values::{duration, list, path};
use crate::serving::check_always_allow_paths;

/// Reviews of access, and what needs none.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Authorization flags")]
pub struct AuthorizationFlags {
    /// Paths that everybody may read; a * at the end stands for any rest.
    #[arg(long = "authorization-always-allow-paths", default_value = "/healthz,/readyz,/livez", value_name = "LIST", value_parser = list)]
    pub always_allow_paths: std::vec::Vec<String>,

    /// Kubeconfig for reviews of access (subjectaccessreviews.authorization.k8s.io). Without it the configuration of
    /// the cluster that runs this pod is used; outside of a pod what is not always allowed is then forbidden.
    #[arg(id = "authorization-kubeconfig", long = "authorization-kubeconfig", default_value = "", hide_default_value = true, value_name = "FILE", value_parser = path)]
    pub kubeconfig: std::option::Option<PathBuf>,

    /// How long the answer 'allowed' of a review holds.
    #[arg(long = "authorization-webhook-cache-authorized-ttl", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub webhook_cache_authorized_ttl: Duration,

    /// How long the answer 'not allowed' of a review holds.
    #[arg(long = "authorization-webhook-cache-unauthorized-ttl", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub webhook_cache_unauthorized_ttl: Duration,
}

impl AuthorizationFlags {
    /// The faults that upstream reports.
    pub fn faults(&self) -> Vec<String> {
        check_always_allow_paths(&self.always_allow_paths).err().into_iter().collect()
    }
}
