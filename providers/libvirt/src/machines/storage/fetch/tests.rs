use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

/// A server that gives the same answer to everybody, and then closes the connection.
async fn server(answer: impl Into<Vec<u8>>) -> SocketAddr {
    let answer = answer.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = connection.read(&mut request).await;
            let _ = connection.write_all(&answer).await;
        }
    });
    address
}

fn ok(length: usize, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn url(address: SocketAddr) -> Origin {
    Origin::url("spec.image.url", &format!("http://user:hunter2@{address}/a.qcow2?token=hunter2"))
        .expect("a URL")
}

async fn read(origin: &Origin) -> Result<Vec<u8>> {
    let mut source = Fetcher.open(origin).await?;
    let mut all = Vec::new();
    while let Some(bytes) = source.next().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

#[tokio::test]
async fn an_image_is_read_from_a_server() {
    let origin = url(server(ok(5, "hello")).await);
    let mut source = Fetcher.open(&origin).await.expect("there");
    assert_eq!(source.length(), Some(5));
    source.next().await.expect("there");
    assert_eq!(source.length(), Some(5), "the whole length, also later");
    assert_eq!(read(&origin).await.expect("there"), b"hello");
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let origin = url(server(chunked).await);
    assert_eq!(Fetcher.open(&origin).await.expect("there").length(), None);
    assert_eq!(read(&origin).await.expect("there"), b"hello");
}

#[tokio::test]
async fn errors_name_the_place_without_secrets() {
    let redirect = "HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/a\r\n\r\n";
    for (answer, kind, words) in [
        (ok(10, "hello"), ErrorKind::Unavailable, "/a.qcow2: "),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(), ErrorKind::NotFound, "answers 404"),
        ("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n".into(), ErrorKind::PermissionDenied, "answers 403"),
        ("HTTP/1.1 206 Part\r\nContent-Length: 0\r\n\r\n".into(), ErrorKind::Unavailable, "answers 206"),
        (redirect.into(), ErrorKind::Unavailable, "something else than http and https"),
        ("nonsense\r\n\r\n".into(), ErrorKind::Unavailable, "/a.qcow2: "),
    ] {
        let error = read(&url(server(answer).await)).await.expect_err("broken");
        assert_eq!(error.kind(), kind, "{}", error.report());
        let report = error.report();
        assert!(report.starts_with("http://127.0.0.1:") && report.contains(words), "{report}");
        assert!(!report.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{report}");
    }
}

#[tokio::test]
async fn a_few_redirects_are_followed() {
    let there = server(ok(5, "hello")).await;
    let answer = format!("HTTP/1.1 307 There\r\nLocation: http://{there}/b\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(read(&url(server(answer).await)).await.expect("there"), b"hello");
    let endless = "HTTP/1.1 307 Again\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n";
    let error = read(&url(server(endless).await)).await.expect_err("endless");
    assert!(error.report().contains("too many redirects"), "{}", error.report());
    let [plain, encrypted] = ["http://a/", "https://a/"].map(|text| Url::parse(text).expect("a URL"));
    assert!(may_follow(true, &encrypted, 1).is_ok() && may_follow(false, &encrypted, 1).is_ok());
    assert_eq!(may_follow(true, &plain, 1), Err("a redirect from https to http"));
}

#[tokio::test]
async fn files_are_read_block_by_block() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("image");
    let content = vec![7; BLOCK + 3];
    std::fs::write(&path, &content).expect("written");
    let file = |path: &Path| Origin::file("spec.image.file", path.to_str().expect("UTF-8")).expect("a path");
    let mut source = Fetcher.open(&file(&path)).await.expect("there");
    assert_eq!(source.length(), Some(content.len() as u64));
    assert_eq!(source.next().await.expect("there").expect("a block").len(), BLOCK);
    assert_eq!(read(&file(&path)).await.expect("there"), content);
    let missing = read(&file(&folder.path().join("other"))).await.expect_err("missing");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    for path in [folder.path(), Path::new("/dev/zero")] {
        let error = read(&file(path)).await.expect_err("no file");
        assert_eq!(error.report(), format!("{} is not a regular file", path.display()));
    }
}

#[test]
fn origins_are_checked_and_shown_without_secrets() {
    let origin =
        Origin::url("f", "https://me:hunter2@a.example.org:8443/x/y.qcow2?key=hunter2#z").expect("a URL");
    assert_eq!(origin.to_string(), "https://a.example.org:8443/x/y.qcow2");
    assert_eq!(format!("{origin:?}"), "Origin(https://a.example.org:8443/x/y.qcow2)");
    for text in ["", "a.example.org", "ftp://a/b", "file:///etc/shadow"] {
        let error = Origin::url("spec.image.url", text).expect_err("no URL");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.report().starts_with("spec.image.url: "), "{}", error.report());
    }
    let error = Origin::file("spec.image.file", "a/b").expect_err("relative");
    assert_eq!(error.report(), "spec.image.file: must be an absolute path");
}
