//! The endpoints.

mod compression;
mod flags;
mod health;
mod metrics;
mod profiling;
mod zpages;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::Body;
use serde_json::Value;

use super::responses::{self, Answer};
use crate::serving::{ServingOptions, Shown};
use health::{Health, Kind};
use profiling::Profiler;
use zpages::Zpages;

pub(super) use compression::accepts_gzip;

/// The methods of all paths except [`flags`].
const READ: &str = "GET, HEAD";

/// Responds to authorized requests.
pub(super) struct Endpoints {
    shown: Shown,
    health: Health,
    configz: Value,
    zpages: Zpages,
    /// `None`: nothing under `/debug/` is served.
    profiler: Option<Arc<Profiler>>,
}

impl std::fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoints").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Endpoints {
    /// # Errors
    /// Never, except for a mistake in the names of metrics.
    pub(super) fn new(options: &ServingOptions, mut shown: Shown) -> anyhow::Result<Self> {
        let zpages = Zpages::new(options);
        shown.set_verbosity = shown.set_verbosity.map(|set| zpages.following(set));
        Ok(Self {
            zpages,
            health: Health::new(shown.health.clone())?,
            shown,
            configz: options.configz.clone(),
            profiler: options.profiling.then(Arc::default),
        })
    }

    /// Whether the response grows with the cluster.
    pub(super) fn is_large(path: &str) -> bool {
        matches!(path, "/metrics" | "/metrics/slis" | "/configz" | "/debug/state")
    }

    /// The response to a request. `path` is the decoded path of the request.
    pub(super) async fn answer<B>(&self, path: &str, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default();
        // Two paths accept another method.
        match path {
            "/metrics/slis" if parts.method == Method::DELETE => return self.health.reset_metrics(),
            "/debug/flags/v" if self.profiler.is_some() => {
                return flags::verbosity(self.shown.set_verbosity.as_ref(), &parts.method, body).await;
            }
            _ => {}
        }
        if ![Method::GET, Method::HEAD].contains(&parts.method) {
            return responses::method_not_allowed(READ);
        }
        let debugging = path.strip_prefix("/debug/");
        match (path, debugging, &self.profiler) {
            ("/metrics", ..) => {
                let (registry, headers) = (self.shown.metrics.registry().clone(), parts.headers);
                // This takes a while in a large cluster.
                let gathered =
                    tokio::task::spawn_blocking(move || metrics::metrics(&registry, &headers)).await;
                gathered.unwrap_or_else(|_| responses::internal_error(path, "metrics cannot be gathered"))
            }
            ("/metrics/slis", ..) => self.health.metrics(&parts.headers),
            ("/configz", ..) => responses::json(StatusCode::OK, &self.configz),
            ("/statusz", ..) => self.zpages.statusz(&parts.headers),
            ("/flagz", ..) => self.zpages.flagz(&parts.headers),
            (_, Some(rest), Some(profiler)) => self.debug(rest, profiler, query).await,
            _ => match Kind::of_path(path) {
                Some((kind, None)) => self.health.all(kind, query),
                Some((kind, Some(check))) => self.health.one(kind, check),
                None => responses::not_found(),
            },
        }
    }

    async fn debug(&self, path: &str, profiler: &Arc<Profiler>, query: &str) -> Answer {
        match path {
            "state" => responses::json(StatusCode::OK, &self.shown.debug_state.ask().await),
            "flags" => flags::index(),
            _ if path.starts_with("flags/") => flags::index(),
            "pprof" => profiling::to_index(),
            _ => match path.strip_prefix("pprof/") {
                Some(name) => profiling::answer(profiler, name, query).await,
                None => responses::not_found(),
            },
        }
    }
}
