//! Authentication of a request: by the front proxy's headers, a client certificate or a bearer token. Without
//! any of them, the user is anonymous.

mod request_header;
mod tokens;

use std::sync::Arc;

use http::HeaderMap;
use kube::Client;

use super::{
    delegation::Unanswered,
    peer::{Peer, Trusted},
    trust::{FrontProxy, Trust},
    user::User,
};
use crate::serving::AuthenticationOptions;
use tokens::Tokens;

/// Authenticates requests as upstream does.
#[derive(Debug)]
pub(super) struct Authenticator {
    trust: Trust,
    /// `None`: there is no API server for reviews, so tokens do not count.
    tokens: Option<Tokens>,
}

/// The credentials of a request, without the rest of its headers.
pub(super) struct Credentials {
    /// The settings of the front proxy at the time when the headers were read.
    proxy: Option<Arc<FrontProxy>>,
    /// The user that the headers name. It counts only if the front proxy sent the request.
    named: Option<User>,
    token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Authenticator {
    pub(super) fn new(options: &AuthenticationOptions, trust: Trust, client: Option<Client>) -> Self {
        let tokens = client.map(|client| Tokens::new(client, options.token_webhook_cache_ttl));
        Self { trust, tokens }
    }

    /// Takes the credentials out of a request's headers.
    pub(super) fn credentials(&self, headers: &HeaderMap, peer: &Peer) -> Credentials {
        let proxy = self.trust.front_proxy.as_ref().filter(|_| peer.has_certificates());
        let proxy = proxy.and_then(|proxy| proxy.now.load_full());
        let named = proxy.as_ref().and_then(|proxy| request_header::user(proxy, headers));
        let token = self.tokens.as_ref().and_then(|_| tokens::bearer_token(headers)).map(str::to_owned);
        Credentials { proxy, named, token }
    }

    /// The user of a request. A client without credentials is anonymous. A client whose credentials are all
    /// invalid is refused.
    ///
    /// # Errors
    /// What is wrong with the credentials, for the log, or that too many reviews are in progress.
    pub(super) async fn authenticate(
        &self,
        credentials: Credentials,
        peer: &Peer,
    ) -> Result<User, Unanswered> {
        let Credentials { proxy, named, token } = credentials;
        let verdict = peer.verdict(Trusted { proxy, clients: self.clients() }).await;
        let by_proxy = match &verdict.proxy {
            None => Ok(None),
            Some(Ok(())) => Ok(named),
            Some(Err(fault)) => Err(fault.clone()),
        };
        let mut faults = Vec::new();
        // In upstream's order.
        for opinion in [by_proxy, verdict.client.clone()] {
            match opinion {
                Ok(Some(user)) => return Ok(user.authenticated()),
                Ok(None) => {}
                Err(fault) => faults.push(fault),
            }
        }
        if let (Some(tokens), Some(token)) = (&self.tokens, token) {
            match tokens.review(peer.source, token).await {
                Ok(Some(user)) => return Ok(user.authenticated()),
                Ok(None) => faults.push("invalid bearer token".to_owned()),
                Err(Unanswered::Busy) => return Err(Unanswered::Busy),
                Err(Unanswered::Failed(why)) => faults.push(format!("token review: {why}")),
            }
        }
        if faults.is_empty() { Ok(User::anonymous()) } else { Err(Unanswered::Failed(faults.join("; "))) }
    }

    /// Whether the client of a connection is known by its certificate, for any request.
    pub(super) async fn knows(&self, peer: &Peer) -> bool {
        let proxy = self.trust.front_proxy.as_ref().and_then(|proxy| proxy.now.load_full());
        peer.verdict(Trusted { proxy, clients: self.clients() }).await.is_somebody()
    }

    fn clients(&self) -> Option<Arc<super::trust::Authorities>> {
        self.trust.clients.as_ref().and_then(|clients| clients.now.load_full())
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::SystemTime};

    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };
    use rustls::pki_types::CertificateDer;

    use super::{
        super::{
            client_certificate,
            source::Source,
            trust::{Authorities, FrontProxy},
        },
        *,
    };
    use crate::serving::RequestHeaderOptions;

    struct Ca {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    fn ca(name: &str) -> Ca {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = parameters.self_signed(&key).expect("a CA").pem();
        Ca { pem, issuer: Issuer::new(parameters, key) }
    }

    impl Ca {
        fn client(
            &self,
            name: &str,
            organization: &str,
            usage: ExtendedKeyUsagePurpose,
        ) -> CertificateDer<'static> {
            let mut parameters = CertificateParams::default();
            parameters.distinguished_name.push(DnType::CommonName, name);
            parameters.distinguished_name.push(DnType::OrganizationName, organization);
            parameters.extended_key_usages = vec![usage];
            let key = KeyPair::generate().expect("a key");
            parameters.signed_by(&key, &self.issuer).expect("signed").der().clone()
        }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
            .collect()
    }

    async fn ask(
        authenticator: &Authenticator,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'static>],
    ) -> Result<User, Unanswered> {
        let peer = Peer::new(Source::Here, certificates.to_vec());
        authenticator.authenticate(authenticator.credentials(headers, &peer), &peer).await
    }

    #[tokio::test]
    async fn a_certificate_is_verified_once_for_each_trust() {
        let clients = ca("clients");
        let trust = Trust::load(&AuthenticationOptions::default(), true).expect("nothing to read");
        let now = &trust.clients.as_ref().expect("followed").now;
        let store = |ca: &Ca| {
            now.store(Some(Arc::new(Authorities::parse(ca.pem.as_bytes()).expect("a bundle"))));
            Trusted { proxy: None, clients: now.load_full() }
        };
        let jane = clients.client("jane", "dev", ExtendedKeyUsagePurpose::ClientAuth);
        let peer = Peer::new(Source::Here, vec![jane]);
        let trusted = store(&clients);
        let verdict = peer.verdict(trusted.clone()).await;
        assert!(verdict.is_somebody());
        assert!(Arc::ptr_eq(&verdict, &peer.verdict(trusted).await), "remembered");
        let other = store(&ca("others"));
        let refusal = peer.verdict(other.clone()).await;
        assert!(!refusal.is_somebody(), "the authority is another one");
        assert!(Arc::ptr_eq(&refusal, &peer.verdict(other).await), "remembered too");
        assert!(peer.verdict(store(&clients)).await.is_somebody());
    }

    #[test]
    fn a_certificate_that_ends_is_not_remembered_beyond_that() {
        let clients = ca("clients");
        let until = |year: i32| {
            let mut parameters = CertificateParams::default();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
            let key = KeyPair::generate().expect("a key");
            let end: SystemTime = parameters.not_after.into();
            (parameters.signed_by(&key, &clients.issuer).expect("signed").der().clone(), end)
        };
        let [(jane, end), (ended, _), (later, _)] = [2090, 2001, 2095].map(until);
        let unreadable = CertificateDer::from(vec![1]);
        let now = SystemTime::now();
        assert_eq!(
            client_certificate::end(&[jane.clone(), ended.clone(), later, unreadable.clone()], now),
            Some(end)
        );
        assert_eq!(client_certificate::end(&[jane], end), None);
        assert_eq!(client_certificate::end(&[ended, unreadable], now), None);
    }

    #[tokio::test]
    async fn an_ended_companion_is_not_verified_for_each_request() {
        let clients = ca("clients");
        let trust = Trust::load(&AuthenticationOptions::default(), true).expect("nothing to read");
        let now = &trust.clients.as_ref().expect("followed").now;
        now.store(Some(Arc::new(Authorities::parse(clients.pem.as_bytes()).expect("a bundle"))));
        let jane = clients.client("jane", "dev", ExtendedKeyUsagePurpose::ClientAuth);
        let mut parameters = CertificateParams::default();
        parameters.not_after = rcgen::date_time_ymd(2001, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let ended = parameters.signed_by(&key, &clients.issuer).expect("signed").der().clone();
        let peer = Peer::new(Source::Here, vec![jane, ended]);
        let trusted = Trusted { proxy: None, clients: now.load_full() };
        let verdict = peer.verdict(trusted.clone()).await;
        assert!(verdict.is_somebody());
        assert!(Arc::ptr_eq(&verdict, &peer.verdict(trusted).await), "remembered");
    }

    #[tokio::test]
    async fn certificates_and_headers() {
        let (clients, proxies) = (ca("clients"), ca("proxies"));
        let options = AuthenticationOptions::default();
        let trust = Trust::load(&options, true).expect("nothing to read");
        let store = |trust: &Trust| {
            let authorities = Authorities::parse(clients.pem.as_bytes()).expect("a bundle");
            trust.clients.as_ref().expect("followed").now.store(Some(Arc::new(authorities)));
            let authorities = Authorities::parse(proxies.pem.as_bytes()).expect("a bundle");
            let proxy = RequestHeaderOptions {
                allowed_names: vec!["proxy".into()],
                ..RequestHeaderOptions::default()
            };
            let proxy = FrontProxy::new(Some(authorities), &proxy);
            trust.front_proxy.as_ref().expect("followed").now.store(Some(Arc::new(proxy)));
        };
        let authenticator = Authenticator::new(&options, trust.clone(), None);
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let (jane, proxy) =
            (clients.client("jane", "dev", usage.clone()), proxies.client("proxy", "x", usage.clone()));
        let none = HeaderMap::new();

        // Before the authorities are known, no credential is accepted, and none is refused.
        let user = ask(&authenticator, &none, std::slice::from_ref(&jane)).await.expect("anonymous");
        assert_eq!(user, User::anonymous());
        store(&trust);

        let user = ask(&authenticator, &none, std::slice::from_ref(&jane)).await.expect("jane");
        assert_eq!(
            (user.name.as_str(), user.groups.join(" ").as_str()),
            ("jane", "dev system:authenticated")
        );
        assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
        let remote = headers(&[("x-remote-user", "joe"), ("x-remote-group", "a"), ("x-remote-group", "b")]);
        let user = ask(&authenticator, &remote, std::slice::from_ref(&proxy)).await.expect("joe");
        assert_eq!((user.name.as_str(), user.groups.join(" ").as_str()), ("joe", "a b system:authenticated"));
        // The headers do not count if any other client sends them.
        let user = ask(&authenticator, &remote, std::slice::from_ref(&jane)).await.expect("jane");
        assert_eq!(user.name, "jane");
        assert_eq!(ask(&authenticator, &remote, &[]).await.expect("anonymous"), User::anonymous());

        for (certificate, what) in [
            (ca("others").client("jane", "dev", usage.clone()), "another authority"),
            (clients.client("jane", "dev", ExtendedKeyUsagePurpose::ServerAuth), "a server's certificate"),
            (proxies.client("impostor", "x", usage.clone()), "a proxy with another name"),
            (CertificateDer::from(vec![1, 2, 3]), "garbage"),
        ] {
            ask(&authenticator, &remote, &[certificate]).await.expect_err(what);
        }
        // A proxy that names no user is not authenticated: its certificate is not a client's.
        ask(&authenticator, &none, &[proxy]).await.expect_err("nobody");
    }
}
