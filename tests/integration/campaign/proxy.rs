//! The proxy between the daemons and the API server, with one address for each daemon. It injects faults into
//! requests and responses, marks each request with the sending process for the audit log, and records the
//! true state when a write is sent.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::{
    client::legacy::Client as HyperClient,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kube::client::ConfigExt as _;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tower::{BoxError, ServiceExt as _, util::BoxCloneSyncService};

use super::{
    audit::Answered,
    judge::{Deletion, Renewal},
    world::{Micros, SECOND, World, now},
};

type Body = UnsyncBoxBody<Bytes, io::Error>;
type Upstream = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, BoxError>;

/// The requests that a rule affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// All methods except GET.
    Writes,
    /// The start of a watch.
    WatchStarts,
    /// Kubelets' leases.
    NodeLeases,
    /// The Lease of the election.
    Election,
}

/// The effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    /// Responds instead of the API server.
    Status(u16),
    /// Serves the request, and breaks the connection instead of responding.
    LoseAnswer,
    /// Breaks the connection before the request is served.
    Reset,
    /// Stalls requests and open watches until the rule ends.
    Stall,
    /// Delays the request by this time.
    Delay(Duration),
}

#[derive(Clone, Debug)]
struct Rule {
    until: Instant,
    which: Which,
    what: What,
    probability: f64,
}

/// A write of a daemon, when it was sent.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) life: u32,
    pub(super) sent: Micros,
    pub(super) what: String,
}

/// The traffic through the proxy.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Writes to Nodes that have not been judged yet.
    pub(super) writes: Vec<Write>,
    /// Deletions of Nodes by audit ID, with the true state when they were sent.
    pub(super) deletions: BTreeMap<String, Deletion>,
    /// Writes to Nodes with a response that has not been checked yet.
    pub(super) answered: Vec<Answered>,
    /// Successful writes to the election's Lease that have not been judged yet.
    pub(super) renewals: Vec<Renewal>,
    /// Counts of the daemons' requests by response status, including those without a response.
    pub(super) answers: BTreeMap<String, u64>,
    /// The number of requests that a rule affected.
    pub(super) spoiled: u64,
}

#[derive(Debug)]
struct Shared {
    world: World,
    seen: Mutex<Seen>,
    requests: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    cut: CancellationToken,
    cut_watches: CancellationToken,
    /// When cancelled, watches get an unreadable event.
    garbage: CancellationToken,
}

/// One daemon's connection to the API server.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) port: u16,
    /// The number of the current process.
    pub(super) life: AtomicU32,
    /// The number of open watches of Nodes.
    node_watches: AtomicUsize,
    /// When a request other than a watch last succeeded.
    answered: AtomicI64,
    /// When a read of a kubelet's lease was last forbidden.
    forbidden: AtomicI64,
    state: Mutex<State>,
}

/// The proxies of all daemons.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) ways: Vec<Arc<Way>>,
    shared: Arc<Shared>,
    _accepting: Vec<AbortOnDropHandle<()>>,
}

impl Proxy {
    /// Listens on ports of 127.0.0.1, one for each daemon. `kubeconfig` has the address of the API server;
    /// the daemon sends its own credentials.
    pub(super) async fn start(
        kubeconfig: &std::path::Path,
        daemons: usize,
        world: World,
    ) -> anyhow::Result<Self> {
        let mut config = ccm::api_client::config(Some(kubeconfig), "").await?;
        config.auth_info = kube::config::AuthInfo::default();
        let server = config.cluster_url.clone();
        let connector = config.rustls_https_connector()?;
        let client: HyperClient<_, Full<Bytes>> = HyperClient::builder(TokioExecutor::new()).build(connector);
        let upstream: Upstream = BoxCloneSyncService::new(client.map_err(BoxError::from));
        let shared = Arc::new(Shared { world, seen: Mutex::default(), requests: AtomicU64::default() });
        let (mut ways, mut accepting) = (Vec::new(), Vec::new());
        for _ in 0..daemons {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            let way = Arc::new(Way {
                port: listener.local_addr()?.port(),
                life: AtomicU32::new(0),
                node_watches: AtomicUsize::new(0),
                answered: AtomicI64::new(0),
                forbidden: AtomicI64::new(0),
                state: Mutex::default(),
            });
            ways.push(way.clone());
            let (shared, upstream, server) = (shared.clone(), upstream.clone(), server.clone());
            accepting.push(AbortOnDropHandle::new(tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let _ = stream.set_nodelay(true);
                    let life = way.life.load(Ordering::SeqCst);
                    let request = Passing {
                        shared: shared.clone(),
                        way: way.clone(),
                        life,
                        upstream: upstream.clone(),
                        server: server.clone(),
                    };
                    tokio::spawn(serve(stream, request));
                }
            })));
        }
        Ok(Self { ways, shared, _accepting: accepting })
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.seen()
    }

    /// Ends all rules.
    pub(super) fn clear(&self) {
        for way in &self.ways {
            way.state().rules.clear();
        }
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }
}

impl Way {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds a rule for this time.
    pub(super) fn spoil(&self, time: Duration, which: Which, what: What, probability: f64) {
        let now = Instant::now();
        let mut state = self.state();
        state.rules.retain(|rule| rule.until > now);
        state.rules.push(Rule { until: now + time, which, what, probability });
    }

    /// Breaks all connections.
    pub(super) fn cut(&self) {
        std::mem::take(&mut self.state().cut).cancel();
    }

    /// Ends all watches in the middle of their body.
    pub(super) fn cut_watches(&self) {
        std::mem::take(&mut self.state().cut_watches).cancel();
    }

    /// Sends an unreadable event to all watches.
    pub(super) fn garble_watches(&self) {
        std::mem::take(&mut self.state().garbage).cancel();
    }

    /// Whether a watch of Nodes is open.
    pub(super) fn has_watch(&self) -> bool {
        self.node_watches.load(Ordering::SeqCst) > 0
    }

    /// Whether no watch of Nodes is open, although requests have succeeded since then and no rule is active.
    pub(super) fn misses_watch(&self, since: Micros) -> bool {
        let now = Instant::now();
        !self.has_watch()
            && self.answered.load(Ordering::SeqCst) > since
            && self.state().rules.iter().all(|rule| rule.until < now)
    }

    fn rule(&self, meets: impl Fn(Which) -> bool) -> Option<Rule> {
        let now = Instant::now();
        let state = self.state();
        let mut rules = state.rules.iter().filter(|rule| rule.until > now && meets(rule.which));
        rules.find(|rule| fastrand::f64() < rule.probability).cloned()
    }

    /// Until when open watches are stalled.
    fn stalled(&self) -> Option<Instant> {
        self.rule(|which| which == Which::All).filter(|rule| rule.what == What::Stall).map(|rule| rule.until)
    }
}

/// Counts a watch of Nodes as long as its body is being read.
struct OpenWatch(Arc<Way>);

impl OpenWatch {
    fn new(way: &Arc<Way>) -> Self {
        way.node_watches.fetch_add(1, Ordering::SeqCst);
        Self(way.clone())
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.node_watches.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The context of one connection.
#[derive(Clone)]
struct Passing {
    shared: Arc<Shared>,
    way: Arc<Way>,
    life: u32,
    upstream: Upstream,
    server: Uri,
}

async fn serve(stream: TcpStream, passing: Passing) {
    let cut = passing.way.state().cut.clone();
    let service = hyper::service::service_fn(move |request| {
        let passing = passing.clone();
        async move { passing.pass_on(request).await }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    let connection = http.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    // Errors are for the daemon to handle.
    let _ = cut.run_until_cancelled(connection).await;
}

impl Passing {
    async fn pass_on(&self, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
        let answered = self.spoilt(request).await;
        let word = match &answered {
            Ok(response) => response.status().as_str().to_owned(),
            Err(_) => "no answer".to_owned(),
        };
        *self.shared.seen().answers.entry(word).or_default() += 1;
        answered
    }

    async fn spoilt(&self, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path().to_owned();
        let is_watch =
            parts.uri.query().is_some_and(|query| query.contains("watch=true") || query.contains("watch=1"));
        let audit_id = format!("L{}-{}", self.life, self.shared.requests.fetch_add(1, Ordering::Relaxed));
        let holder = self.note(&parts.method, &path, &body, &audit_id);
        let sent = now();
        let writes_node = parts.method != Method::GET && path.starts_with("/api/v1/nodes/");
        let verb = writes_node.then(|| parts.method.as_str().to_lowercase());
        let meets = |which| match which {
            Which::All => true,
            Which::Writes => parts.method != Method::GET,
            Which::WatchStarts => is_watch,
            Which::NodeLeases => path.contains("/kube-node-lease/"),
            Which::Election => path.contains("/kube-system/leases"),
        };
        let rule = self.way.rule(meets);
        if rule.is_some() {
            self.shared.seen().spoiled += 1;
        }
        let mut lose_answer = false;
        match rule.as_ref().map(|rule| rule.what) {
            Some(What::Status(code)) => {
                if code == 403 {
                    self.way.forbidden.store(now(), Ordering::SeqCst);
                }
                return status(code);
            }
            Some(What::Reset) => bail!("reset on purpose"),
            Some(What::Stall) => {
                sleep_until(rule.map_or_else(Instant::now, |rule| rule.until)).await;
                bail!("stalled on purpose");
            }
            Some(What::Delay(time)) => sleep(time).await,
            Some(What::LoseAnswer) => lose_answer = true,
            None => {}
        }
        let mut onwards = Request::from_parts(parts, Full::new(body));
        let path_and_query = onwards.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let mut uri = self.server.clone().into_parts();
        uri.path_and_query = Some(path_and_query.parse()?);
        *onwards.uri_mut() = Uri::from_parts(uri)?;
        onwards.headers_mut().remove(header::HOST);
        onwards.headers_mut().insert("audit-id", HeaderValue::from_str(&audit_id)?);
        let response = self.upstream.clone().oneshot(onwards).await.map_err(|error| anyhow!(error))?;
        if let Some(verb) = verb {
            let (at, code) = (now(), u64::from(response.status().as_u16()));
            let node = path.trim_start_matches("/api/v1/nodes/").trim_end_matches("/status").to_owned();
            self.shared.seen().answered.push(Answered { audit_id, verb, node, code, at });
        }
        if lose_answer {
            let _ = response.into_body().collect().await;
            bail!("the answer is lost on purpose");
        }
        let (parts, body) = response.into_parts();
        if let Some(holder) = holder.filter(|_| parts.status.is_success()) {
            let (life, released) = (self.life, holder.is_empty());
            self.shared.seen().renewals.push(Renewal { life, sent, done: now(), released });
        }
        if !is_watch || parts.status != StatusCode::OK {
            if parts.status.is_success() {
                self.way.answered.store(now(), Ordering::SeqCst);
            }
            return Ok(Response::from_parts(parts, body.map_err(io::Error::other).boxed_unsync()));
        }
        let is_binary = parts
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.contains("protobuf"));
        let open = (path == "/api/v1/nodes").then(|| OpenWatch::new(&self.way));
        Ok(Response::from_parts(parts, self.watched(body, is_binary, open)))
    }

    /// The body of a watch that can be stalled, cut and garbled.
    fn watched(&self, body: Incoming, is_binary: bool, open: Option<OpenWatch>) -> Body {
        let (cut, garbage) = {
            let state = self.way.state();
            (state.cut_watches.clone(), state.garbage.clone())
        };
        let (way, chunks) = (self.way.clone(), body.into_data_stream());
        let stream = futures::stream::unfold(
            (chunks, way, (cut, garbage, open), false),
            move |(mut chunks, way, kept, garbled)| async move {
                let (cut, garbage, _) = &kept;
                let chunk = tokio::select! {
                    biased;
                    () = cut.cancelled() => Some(Err(io::Error::other("cut on purpose"))),
                    () = garbage.cancelled(), if !garbled => {
                        let chunk = Ok(Frame::data(nonsense(is_binary)));
                        return Some((chunk, (chunks, way, kept, true)));
                    }
                    chunk = chunks.next() => chunk.map(|chunk| chunk.map(Frame::data).map_err(io::Error::other)),
                }?;
                while let Some(until) = way.stalled() {
                    sleep_until(until).await;
                }
                Some((chunk, (chunks, way, kept, garbled)))
            },
        );
        StreamBody::new(stream).boxed_unsync()
    }

    /// Records a relevant request when it is sent. Returns the new holder, for a write to the election's
    /// Lease.
    fn note(&self, method: &Method, path: &str, body: &Bytes, audit_id: &str) -> Option<String> {
        if method == Method::GET {
            return None;
        }
        let body = || serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
        if path.contains("/kube-system/leases") {
            return body()["spec"]["holderIdentity"].as_str().map(str::to_owned);
        }
        let sent = now();
        let node = path.strip_prefix("/api/v1/nodes/")?;
        let what = format!("{method} {node}");
        if method == Method::DELETE {
            let options = body();
            let uid = options["preconditions"]["uid"].as_str();
            let deletion = Deletion {
                leases_forbidden: sent - self.way.forbidden.load(Ordering::SeqCst) < 20 * SECOND,
                ..Deletion::observe(&self.shared.world, self.life, node, uid, sent)
            };
            self.shared.seen().deletions.insert(audit_id.to_owned(), deletion);
        }
        self.shared.seen().writes.push(Write { life: self.life, sent, what });
        None
    }
}

/// An invalid event: a line, or a frame with its length.
fn nonsense(is_binary: bool) -> Bytes {
    const NONSENSE: &[u8] = b"\xff\xff\xff\xff nobody reads this";
    if !is_binary {
        return Bytes::from_static(b"{\"type\":\"MODIFIED\",\"object\":17}\n");
    }
    let length = u32::try_from(NONSENSE.len()).unwrap_or_default().to_be_bytes();
    [&length, NONSENSE].concat().into()
}

/// A response in the API server's form.
fn status(code: u16) -> anyhow::Result<Response<Body>> {
    let reason = match code {
        403 => "Forbidden",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "spoiled on purpose", "reason": reason, "code": code,
    });
    let mut response = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    if code == 429 {
        response = response.header(header::RETRY_AFTER, "1");
    }
    let body = Full::new(Bytes::from(body.to_string())).map_err(io::Error::other).boxed_unsync();
    response.body(body).context("an answer")
}
