use std::{
    collections::HashMap,
    io::Write as _,
    net::{IpAddr, SocketAddr},
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use cloudprovider::async_trait;
use hyper_util::client::proxy::matcher::Matcher;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{
    download::may_follow,
    files::{BLOCK, Failed, open_below, resolve, walk},
    reach::Neighbours,
    *,
};
use crate::allow::file_refused;

/// A server that gives the same answer to everybody, and then closes the connection.
#[derive(Clone)]
struct Server {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    /// What the last one has asked for.
    request: Arc<Mutex<String>>,
}

impl Server {
    async fn start(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let this = Self { address, asked: Arc::default(), request: Arc::default() };
        let server = this.clone();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                server.asked.fetch_add(1, Ordering::Relaxed);
                let mut request = [0; 4096];
                let length = connection.read(&mut request).await.unwrap_or(0);
                *server.request.lock() = String::from_utf8_lossy(&request[..length]).into_owned();
                let _ = connection.write_all(&answer).await;
            }
        });
        this
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn ok(length: usize, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn redirect_to(url: &str) -> String {
    format!("HTTP/1.1 307 There\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n")
}

/// A URL that may reach hosts of the configuration.
fn from(url: &str, hosts: &[&str]) -> Origin {
    Origin::url("spec.image.url", url, ImageHosts::of(hosts)).expect("a URL")
}

fn url(server: &Server) -> Origin {
    from(&format!("http://user:hunter2@{}/a.qcow2?token=hunter2", server.address), &["127.0.0.1"])
}

async fn read_with(fetcher: &Fetcher, origin: &Origin) -> Result<Vec<u8>> {
    let mut source = fetcher.open(origin).await?;
    let mut all = Vec::new();
    while let Some(bytes) = source.next().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

async fn read(origin: &Origin) -> Result<Vec<u8>> {
    read_with(&network(&[], no_proxy()), origin).await
}

/// Names and their addresses.
#[derive(Debug, Default)]
struct Names(HashMap<String, Vec<IpAddr>>);

#[async_trait]
impl Neighbours for Names {
    async fn look_up(&self, host: &str, _: u16) -> Vec<IpAddr> {
        self.0.get(host).cloned().unwrap_or_default()
    }

    async fn own(&self) -> Option<Vec<IpNet>> {
        Some(vec!["1.2.3.0/24".parse().expect("a network")])
    }
}

fn no_proxy() -> Matcher {
    Matcher::builder().build()
}

/// A network with these hosts.
fn network(names: &[(&str, &[&str])], proxies: Matcher) -> Fetcher {
    let address = |text: &&str| text.parse().expect("an address");
    let names = names.iter().map(|(name, all)| ((*name).to_owned(), all.iter().map(address).collect()));
    Fetcher { network: Network::new(Box::new(Names(names.collect())), proxies, Inside::default()) }
}

#[tokio::test]
async fn an_image_is_read_from_a_server() {
    let origin = url(&Server::start(ok(5, "hello")).await);
    let fetcher = Fetcher::new(Inside::default());
    let mut source = fetcher.open(&origin).await.expect("there");
    assert_eq!(source.length(), Some(5));
    source.next().await.expect("there");
    assert_eq!(source.length(), Some(5), "the whole length, also later");
    assert_eq!(read(&origin).await.expect("there"), b"hello");
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let origin = url(&Server::start(chunked).await);
    assert_eq!(fetcher.open(&origin).await.expect("there").length(), None);
    assert_eq!(read(&origin).await.expect("there"), b"hello");
}

#[tokio::test]
async fn errors_name_the_place_without_secrets() {
    for (answer, kind, words) in [
        (ok(10, "hello"), ErrorKind::Unavailable, "/a.qcow2: "),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(), ErrorKind::NotFound, "answers 404"),
        ("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n".into(), ErrorKind::PermissionDenied, "answers 403"),
        ("HTTP/1.1 206 Part\r\nContent-Length: 0\r\n\r\n".into(), ErrorKind::Unavailable, "answers 206"),
        (redirect_to("ftp://127.0.0.1/a"), ErrorKind::Unavailable, "something else than http and https"),
        ("nonsense\r\n\r\n".into(), ErrorKind::Unavailable, "/a.qcow2: "),
    ] {
        let error = read(&url(&Server::start(answer).await)).await.expect_err("broken");
        assert_eq!(error.kind(), kind, "{}", error.report());
        let report = error.report();
        assert!(report.starts_with("http://127.0.0.1:") && report.contains(words), "{report}");
        assert!(!report.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{report}");
    }
}

#[tokio::test]
async fn a_few_redirects_are_followed() {
    let there = Server::start(ok(5, "hello")).await;
    let first = Server::start(redirect_to(&format!("http://{}/b", there.address))).await;
    assert_eq!(read(&url(&first)).await.expect("there"), b"hello");
    let request = there.request.lock().to_lowercase();
    assert!(!request.contains("authorization") && !request.contains("referer"), "{request}");
    let endless = Server::start(redirect_to("/again")).await;
    let error = read(&url(&endless)).await.expect_err("endless");
    assert!(error.report().contains("too many redirects"), "{}", error.report());
    assert_eq!(endless.asked(), 6);
    let [plain, encrypted] = ["http://a/", "https://a/"].map(|text| Url::parse(text).expect("a URL"));
    assert!(may_follow(true, &encrypted).is_ok() && may_follow(false, &encrypted).is_ok());
    assert_eq!(may_follow(true, &plain), Err("a redirect from https to http"));
}

/// What a tenant may not reach: by address or name, whatever is there, also on the way of a redirect.
#[tokio::test]
async fn hosts_inside_are_all_the_same_to_a_tenant() {
    let server = Server::start(ok(5, "hello")).await;
    let port = server.address.port();
    let fetcher = network(
        &[
            ("loopback.example.org", &["127.0.0.1"]),
            ("metadata.example.org", &["169.254.169.254"]),
            ("both.example.org", &["1.1.1.1", "10.0.0.1"]),
            ("mapped.example.org", &["::ffff:127.0.0.1"]),
            ("own.example.org", &["1.2.3.4"]),
            ("allowed.example.org", &["127.0.0.1"]),
        ],
        no_proxy(),
    );
    let words = "may not be reached from here: a host has to exist and have public addresses only, or be in the \
                 configuration of the provider, machines.allow, under imageHosts";
    let refused = async |url: &str, hosts: &[&str]| {
        let origin = from(url, hosts);
        let error = read_with(&fetcher, &origin).await.expect_err(url);
        let expected = format!("{origin}: {words}");
        assert_eq!((error.kind(), error.report()), (ErrorKind::PermissionDenied, expected), "{url}");
    };
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "10.0.0.1",
        "100.64.0.1",
        "192.168.1.1",
        "[fd00::1]",
        "[fe80::1]",
        "224.0.0.1",
        "1.2.3.9",
        "loopback.example.org",
        "LOOPBACK.example.org",
        "metadata.example.org",
        "both.example.org",
        "mapped.example.org",
        "own.example.org",
        "kubernetes.default.svc",
        "nowhere.example.org",
    ] {
        for port in [port, 1] {
            refused(&format!("http://{host}:{port}/a"), &["10.9.0.0/16", "allowed.example.org"]).await;
        }
        let first = Server::start(redirect_to(&format!("http://{host}:{port}/a"))).await;
        let start = format!("http://allowed.example.org:{}/a", first.address.port());
        refused(&start, &["allowed.example.org"]).await;
        assert_eq!(first.asked(), 1, "{host}");
    }
    assert_eq!(server.asked(), 0);
    for (host, rule) in [
        ("127.0.0.1", "127.0.0.0/8"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("loopback.example.org", "127.0.0.1"),
        ("loopback.example.org", "loopback.example.org"),
        ("Loopback.example.org", "Loopback.Example.Org."),
    ] {
        let named = from(&format!("http://{host}:{port}/a"), &[rule]);
        assert_eq!(read_with(&fetcher, &named).await.expect(host), b"hello");
        refused(
            &format!("http://{host}:{port}/a"),
            &[&format!("{}:{}", rule.split('/').next().expect("a part"), 1)],
        )
        .await;
    }
}

/// The client connects to the addresses that were looked at, and looks nothing up by itself.
#[tokio::test]
async fn a_name_is_looked_up_once() {
    #[derive(Debug)]
    struct Rebinding(AtomicUsize);

    #[async_trait]
    impl Neighbours for Rebinding {
        async fn look_up(&self, _: &str, _: u16) -> Vec<IpAddr> {
            let first = self.0.fetch_add(1, Ordering::Relaxed) == 0;
            vec![if first { [127, 0, 0, 1] } else { [169, 254, 169, 254] }.into()]
        }

        async fn own(&self) -> Option<Vec<IpNet>> {
            None
        }
    }

    let server = Server::start(ok(5, "hello")).await;
    let network = Network::new(Box::new(Rebinding(AtomicUsize::new(0))), no_proxy(), Inside::default());
    let fetcher = Fetcher { network };
    // the name exists nowhere else
    let origin = from(&format!("http://rebinding.invalid:{}/a", server.address.port()), &["127.0.0.0/8"]);
    assert_eq!(read_with(&fetcher, &origin).await.expect("there"), b"hello");
    let error = read_with(&fetcher, &origin).await.expect_err("looked up again");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
}

/// Hypervisors and pods may have public addresses.
#[tokio::test]
async fn what_is_known_to_be_inside_is_not_reached_whatever_its_address() {
    let inside = Inside::default();
    inside.add(["9.9.9.9", "::ffff:8.8.8.8", "2a00::7"].map(|text| text.parse().expect("an address")));
    assert_eq!(inside.add_ranges(" 11.0.0.0/8, nonsense,2a01:1::/32,12.0.0.1,"), ["nonsense", "12.0.0.1"]);
    let network = Network::new(Box::new(Names::default()), no_proxy(), inside);
    for (host, is_inside) in [
        ("9.9.9.9", true),
        ("[::ffff:9.9.9.9]", true),
        // NAT64 and 6to4 lead to the address of IPv4.
        ("[64:ff9b::9.9.9.9]", true),
        ("[2002:909:909::1]", true),
        ("8.8.8.8", true),
        ("[2a00::7]", true),
        ("11.12.13.14", true),
        ("[2a01:1::5]", true),
        // That of the daemon's own machine.
        ("[64:ff9b::1.2.3.4]", true),
        ("9.9.9.8", false),
        ("12.0.0.1", false),
        ("[2a00::8]", false),
        ("[64:ff9b::9.9.9.8]", false),
    ] {
        let url = Url::parse(&format!("http://{host}/a")).expect("a URL");
        let way = network.way_to(&url, &ImageHosts::default()).await;
        assert_eq!(way.is_err(), is_inside, "{host}");
        let named = ImageHosts::of(&["0.0.0.0/0", "::/0"]);
        assert!(network.way_to(&url, &named).await.is_ok(), "{host}");
    }
}

#[tokio::test]
async fn without_knowledge_of_the_own_network_nothing_public_is_reached() {
    #[derive(Debug)]
    struct Blind;

    #[async_trait]
    impl Neighbours for Blind {
        async fn look_up(&self, _: &str, _: u16) -> Vec<IpAddr> {
            vec![[1, 1, 1, 1].into()]
        }

        async fn own(&self) -> Option<Vec<IpNet>> {
            None
        }
    }

    let url = Url::parse("http://a.example.org/").expect("a URL");
    let blind = Network::new(Box::new(Blind), no_proxy(), Inside::default());
    let way = blind.way_to(&url, &ImageHosts::default()).await;
    assert!(way.is_err());
    let known = Network::new(
        Box::new(Names([("a.example.org".to_owned(), vec![[1, 1, 1, 1].into()])].into())),
        no_proxy(),
        Inside::default(),
    );
    assert!(known.way_to(&url, &ImageHosts::default()).await.is_ok());
}

/// A proxy looks names up by itself, and is inside.
#[tokio::test]
async fn through_a_proxy_only_hosts_of_the_configuration_are_reached() {
    let proxy = Server::start(ok(5, "proxy")).await;
    let proxies = || {
        Matcher::builder()
            .all(format!("http://me:hunter2@{}", proxy.address))
            .no("direct.example.org")
            .build()
    };
    let fetcher = network(&[("public.example.org", &["1.1.1.1"])], proxies());
    for (url, rules) in [
        ("http://public.example.org/a", &[][..]),
        ("http://1.1.1.1/a", &[]),
        ("http://inside/a", &["inside:8080"]),
        ("http://10.0.0.1/a", &["10.1.0.0/16"]),
        // its name may have any address
        ("http://inside/a", &["10.0.0.0/8"]),
    ] {
        let error = read_with(&fetcher, &from(url, rules)).await.expect_err(url);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", error.report());
        assert!(
            !error.report().contains("hunter2") && !error.report().contains("proxy"),
            "{}",
            error.report()
        );
    }
    assert_eq!(proxy.asked(), 0);
    for (url, rule) in [("http://inside/a", "inside"), ("http://10.0.0.1/a", "10.0.0.0/8")] {
        assert_eq!(read_with(&fetcher, &from(url, &[rule])).await.expect(url), b"proxy");
        let request = proxy.request.lock().clone();
        assert!(request.starts_with(&format!("GET {url} ")), "{request}");
        assert!(request.to_lowercase().contains("proxy-authorization: basic "), "{request}");
    }
    let direct = from("http://direct.example.org/a", &[]);
    assert_eq!(
        read_with(&fetcher, &direct).await.expect_err("no such host").kind(),
        ErrorKind::PermissionDenied
    );
    assert_eq!(proxy.asked(), 2);
}

fn below(folder: &Path, path: &str) -> FileBelow {
    FileBelow { folder: folder.to_owned(), path: path.into() }
}

#[tokio::test]
async fn files_are_read_block_by_block() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let content = vec![7; BLOCK + 3];
    std::fs::create_dir(folder.path().join("inner")).expect("made");
    std::fs::write(folder.path().join("inner/image"), &content).expect("written");
    let file = |path: &str| Origin::File(below(folder.path(), path));
    let mut source = Fetcher::new(Inside::default()).open(&file("inner/image")).await.expect("there");
    assert_eq!(source.length(), Some(content.len() as u64));
    assert_eq!(source.next().await.expect("there").expect("a block").len(), BLOCK);
    assert_eq!(read(&file("inner/image")).await.expect("there"), content);
    let missing = read(&file("other")).await.expect_err("missing");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let error = read(&file("inner")).await.expect_err("no file");
    let words = format!("spec.image.file: {} is not a regular file", folder.path().join("inner").display());
    assert_eq!(error.report(), words);
}

/// Links lead to files of the folder alone; what is outside is the same, whether it exists or not.
#[tokio::test]
async fn a_file_is_never_outside_of_its_folder() {
    let (folder, outside) =
        (tempfile::TempDir::new().expect("a folder"), tempfile::TempDir::new().expect("a folder"));
    std::fs::write(outside.path().join("secret"), "hunter2").expect("written");
    let make = |name: &str, target: &Path| symlink(target, folder.path().join(name)).expect("a link");
    std::fs::create_dir(folder.path().join("images")).expect("made");
    std::fs::write(folder.path().join("images/debian-12"), "hello").expect("written");
    make("latest", Path::new("images/debian-12"));
    make("absolute", &outside.path().join("secret"));
    make("missing", &outside.path().join("nothing"));
    make("out", outside.path());
    make("up", Path::new("../../../../../../../etc/passwd"));
    make("magic", Path::new("/proc/self/root"));
    make("loop", Path::new("loop"));
    assert_eq!(read(&Origin::File(below(folder.path(), "latest"))).await.expect("inside"), b"hello");
    let refusal = file_refused("spec.image.file").report();
    for path in [
        "absolute",
        "missing",
        "out/secret",
        "out/nothing",
        "up",
        "magic/etc/passwd",
        "loop",
        "../x",
        "images/../../x",
    ] {
        let error = read(&Origin::File(below(folder.path(), path))).await.expect_err(path);
        assert_eq!((error.kind(), error.report()), (ErrorKind::PermissionDenied, refusal.clone()), "{path}");
    }
    // without the kernel's help
    for path in
        ["latest", "absolute", "missing", "out/secret", "out/nothing", "up", "magic/etc/passwd", "loop"]
    {
        let found = open_below(&below(folder.path(), path), &walk);
        assert_eq!(found.expect_err(path), Failed::LeadsOut, "{path}");
    }
    let found = open_below(&below(folder.path(), "images/debian-12"), &walk).expect("inside");
    assert!(open_below(&below(folder.path(), "images/debian-12"), &resolve).is_ok());
    let mut file = std::fs::File::from(found);
    file.write_all(b"x").expect_err("for reading alone");
}

/// Nobody writes to the pipe, so whoever opens it as a file waits for ever.
#[tokio::test]
async fn what_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a pipe");
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).expect("a socket");
    for (folder, path) in [(folder.path(), "pipe"), (folder.path(), "socket"), (Path::new("/dev"), "zero")] {
        let error = read(&Origin::File(below(folder, path))).await.expect_err(path);
        assert!(
            matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unavailable),
            "{}",
            error.report()
        );
    }
}

#[test]
fn origins_are_checked_and_shown_without_secrets() {
    let origin = from("https://me:hunter2@a.example.org:8443/x/y.qcow2?key=hunter2#z", &[]);
    assert_eq!(origin.to_string(), "https://a.example.org:8443/x/y.qcow2");
    assert_eq!(format!("{origin:?}"), "Origin(https://a.example.org:8443/x/y.qcow2)");
    for text in ["", "a.example.org", "ftp://a/b", "file:///etc/shadow"] {
        let error = Origin::url("spec.image.url", text, ImageHosts::default()).expect_err("no URL");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.report().starts_with("spec.image.url: "), "{}", error.report());
    }
}
