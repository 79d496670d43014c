//! Who asks: by the front proxy's headers, by a client certificate, by a bearer token, else nobody in particular.

mod client_certificate;
mod request_header;
mod tokens;

use http::HeaderMap;
use kube::Client;
use rustls::pki_types::CertificateDer;

use super::{AuthenticationOptions, delegation::Unanswered, trust::Trust, user::User};
use tokens::Tokens;

/// Finds out who asks, as upstream does.
#[derive(Debug)]
pub(super) struct Authenticator {
    trust: Trust,
    /// `None`: there is nobody to ask about tokens, which count for nothing then.
    tokens: Option<Tokens>,
}

/// What one way of authentication says. `Ok(None)`: it has no opinion.
type Opinion = Result<Option<User>, String>;

impl Authenticator {
    pub(super) fn new(options: &AuthenticationOptions, trust: Trust, client: Option<Client>) -> Self {
        let tokens = client.map(|client| Tokens::new(client, options.token_webhook_cache_ttl));
        Self { trust, tokens }
    }

    /// The user behind a request. Who shows nothing is anonymous; who shows something that is wrong, and nothing that
    /// is right, is refused.
    ///
    /// # Errors
    /// What is wrong, for the log; or that nobody has the time to look at the token.
    pub(super) async fn authenticate(
        &self,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'static>],
    ) -> Result<User, Unanswered> {
        let mut faults = Vec::new();
        // Upstream's order.
        for opinion in [self.by_proxy(headers, certificates), self.by_certificate(certificates)] {
            match opinion {
                Ok(Some(user)) => return Ok(user.authenticated()),
                Ok(None) => {}
                Err(fault) => faults.push(fault),
            }
        }
        if let (Some(tokens), Some(token)) = (&self.tokens, tokens::bearer_token(headers)) {
            match tokens.review(token).await {
                Ok(Some(user)) => return Ok(user.authenticated()),
                Ok(None) => faults.push("invalid bearer token".to_owned()),
                Err(Unanswered::Busy) => return Err(Unanswered::Busy),
                Err(Unanswered::Failed(why)) => faults.push(format!("token review: {why}")),
            }
        }
        if faults.is_empty() { Ok(User::anonymous()) } else { Err(Unanswered::Failed(faults.join("; "))) }
    }

    fn by_proxy(&self, headers: &HeaderMap, certificates: &[CertificateDer<'static>]) -> Opinion {
        let Some(proxy) = self.trust.front_proxy.as_ref().and_then(|proxy| proxy.now.load_full()) else {
            return Ok(None);
        };
        let Some(authorities) = proxy.authorities.as_ref().filter(|_| !certificates.is_empty()) else {
            return Ok(None);
        };
        authorities.verify(certificates).map_err(|why| format!("not the front proxy: {why}"))?;
        let name = client_certificate::common_name(&certificates[0])?;
        if !proxy.allowed_names.is_empty() && !proxy.allowed_names.contains(&name) {
            return Err(format!("x509: subject with cn={name} is not in the allowed list"));
        }
        Ok(request_header::user(&proxy, headers))
    }

    fn by_certificate(&self, certificates: &[CertificateDer<'static>]) -> Opinion {
        let Some(authorities) = self.trust.clients.as_ref().and_then(|clients| clients.now.load_full())
        else {
            return Ok(None);
        };
        let Some(own) = certificates.first() else { return Ok(None) };
        authorities.verify(certificates).map_err(|why| format!("client certificate: {why}"))?;
        client_certificate::user(own)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };

    use super::{
        super::{
            RequestHeaderOptions,
            trust::{Authorities, FrontProxy},
        },
        *,
    };

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

        // Before the authorities are known nobody is believed, and nobody is refused.
        let user = authenticator.authenticate(&none, std::slice::from_ref(&jane)).await.expect("anonymous");
        assert_eq!(user, User::anonymous());
        store(&trust);

        let user = authenticator.authenticate(&none, std::slice::from_ref(&jane)).await.expect("jane");
        assert_eq!(
            (user.name.as_str(), user.groups.join(" ").as_str()),
            ("jane", "dev system:authenticated")
        );
        assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
        let remote = headers(&[("x-remote-user", "joe"), ("x-remote-group", "a"), ("x-remote-group", "b")]);
        let user = authenticator.authenticate(&remote, std::slice::from_ref(&proxy)).await.expect("joe");
        assert_eq!((user.name.as_str(), user.groups.join(" ").as_str()), ("joe", "a b system:authenticated"));
        // The headers of anybody else say nothing.
        let user = authenticator.authenticate(&remote, std::slice::from_ref(&jane)).await.expect("jane");
        assert_eq!(user.name, "jane");
        assert_eq!(authenticator.authenticate(&remote, &[]).await.expect("anonymous"), User::anonymous());

        for (certificate, what) in [
            (ca("others").client("jane", "dev", usage.clone()), "another authority"),
            (clients.client("jane", "dev", ExtendedKeyUsagePurpose::ServerAuth), "a server's certificate"),
            (proxies.client("impostor", "x", usage.clone()), "a proxy with another name"),
            (CertificateDer::from(vec![1, 2, 3]), "garbage"),
        ] {
            authenticator.authenticate(&remote, &[certificate]).await.expect_err(what);
        }
        // A proxy that names nobody has no user, and its certificate is no client's.
        authenticator.authenticate(&none, &[proxy]).await.expect_err("nobody");
    }
}
