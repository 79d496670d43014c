//! Tests of what needs no server.

use cloudprovider::FactoryInput;

use super::*;
use crate::config::{Config, Environment};

fn client(url: &str) -> Client {
    let input = FactoryInput::new(format!("url: {url}\naccessKey: ABC\nsecretKey: correct-horse\n"));
    let config = Config::read(&input, &Environment::default()).expect("a configuration");
    Client::new(&config.server, &config.cattle_url()).expect("a client")
}

#[test]
fn collections_are_below_the_base() {
    let client = client("https://h/rancher/v1/projects/1a5");
    assert_eq!(client.url("hosts").as_str(), "https://h/rancher/v2-beta/projects/1a5/hosts");
    assert_eq!(format!("{client:?}"), "Client(\"https://h/rancher/v2-beta/projects/1a5\")");
}

#[test]
fn the_key_goes_to_this_server_only() {
    let client = client("https://h:8443");
    for (next, expected) in [
        ("https://h:8443/v2-beta/hosts?marker=m1", Some("https://h:8443/v2-beta/hosts?marker=m1")),
        ("/v2-beta/hosts?marker=m1", Some("https://h:8443/v2-beta/hosts?marker=m1")),
        // Behind a proxy that ends TLS.
        ("http://h:8080/v2-beta/hosts?marker=m1", Some("https://h:8443/v2-beta/hosts?marker=m1")),
        ("https://other:8443/v2-beta/hosts", None),
        ("https://h/v2-beta/hosts", None),
        ("ftp://h:8443/v2-beta/hosts", None),
    ] {
        let url = client.same_server(next).ok();
        assert_eq!(url.as_ref().map(Url::as_str), expected, "{next}");
    }
}
