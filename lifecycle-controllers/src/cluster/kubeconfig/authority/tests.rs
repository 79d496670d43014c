use rcgen::{BasicConstraints, CertificateParams, IsCa};

use super::*;
use crate::workload::Access;

/// A certificate authority as Cluster API makes them: RSA, and the key in PKCS #1.
const RSA: [&[u8]; 2] = [include_bytes!("tests/rsa.crt"), include_bytes!("tests/rsa.key")];

fn now() -> Timestamp {
    "2028-02-29T12:00:00Z".parse().expect("a time")
}

/// A certificate authority with a key of ECDSA, and the key.
fn ecdsa(is_ca: IsCa) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, "kubernetes");
    parameters.is_ca = is_ca;
    (parameters.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

fn decoded(kubeconfig: &str, field: &str) -> Vec<u8> {
    let (_, after) = kubeconfig.split_once(&format!("{field}: ")).expect("the field");
    BASE64_STANDARD.decode(after.lines().next().expect("a value")).expect("base64")
}

#[test]
fn an_authority_signs_the_certificate_of_an_administrator() {
    let (certificate, key) = ecdsa(IsCa::Ca(BasicConstraints::Unconstrained));
    for [certificate, key] in [RSA, [certificate.as_bytes(), key.as_bytes()]] {
        let authority = Authority::read(certificate, key).expect("an authority");
        let kubeconfig = authority.kubeconfig("c", &server("10.0.0.1", 6443), now()).expect("a kubeconfig");
        Access::parse(kubeconfig.as_bytes()).expect("a kubeconfig that is used");
        assert!(kubeconfig.contains("server: \"https://10.0.0.1:6443\"\n"), "{kubeconfig}");
        assert!(kubeconfig.contains("current-context: \"c-admin@c\"\n"), "{kubeconfig}");
        let client = pem(&decoded(&kubeconfig, "client-certificate-data"), "x").expect("PEM").contents;
        let (_, client) = parse_x509_certificate(&client).expect("a certificate");
        let of_kubeconfig =
            pem(&decoded(&kubeconfig, "certificate-authority-data"), "x").expect("PEM").contents;
        assert_eq!(of_kubeconfig, pem(certificate, "x").expect("PEM").contents);
        let (_, issuer) = parse_x509_certificate(&of_kubeconfig).expect("a certificate");
        client.verify_signature(Some(issuer.public_key())).expect("the authority's signature");
        assert_eq!(client.issuer().as_raw(), issuer.subject().as_raw());
        let subject = client.subject().to_string();
        assert!(subject.contains("CN=kubernetes-admin") && subject.contains("O=system:masters"), "{subject}");
        assert!(!client.is_ca());
        let usage = client.extended_key_usage().expect("one extension").expect("a usage").value;
        assert!(usage.client_auth && !usage.server_auth && !usage.any);
    }
}

#[test]
fn a_certificate_is_renewed_at_half_of_its_life() {
    let authority = Authority::read(RSA[0], RSA[1]).expect("an authority");
    let kubeconfig = authority.kubeconfig("c", &server("::1", 6443), now()).expect("a kubeconfig");
    let found = validity(kubeconfig.as_bytes()).expect("a validity");
    let at = |text: &str| text.parse::<Timestamp>().expect("a time").as_second();
    let expected = Validity { from: at("2028-02-28T00:00:00Z"), until: at("2029-02-28T00:00:00Z") };
    assert_eq!(found, expected);
    let half = 183 * 24 * 3600;
    assert_eq!(found.until_half(found.from), Some(Duration::from_secs(half)));
    let half = found.from + i64::try_from(half).expect("a number");
    assert_eq!(found.until_half(half - 1), Some(Duration::from_secs(1)));
    assert_eq!(found.until_half(half), None);
    assert_eq!(found.until_half(found.until + 1), None);
    for other in ["", "kind: Config", "users: [{name: x, user: {token: t}}]", "users: 7"] {
        assert_eq!(validity(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn what_cannot_be_used_is_named_without_its_content() {
    let (certificate, key) = ecdsa(IsCa::Ca(BasicConstraints::Unconstrained));
    let (certificate, key) = (certificate.as_bytes(), key.as_bytes());
    let (leaf, of_leaf) = ecdsa(IsCa::NoCa);
    let sec1 = b"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
    let broken = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let table: [(&[u8], &[u8], &str); 8] = [
        (b"", key, "tls.crt is not set, or is no PEM"),
        (key, key, "tls.crt is no certificate"),
        (certificate, b"secret", "tls.key is not set, or is no PEM"),
        (certificate, certificate, "tls.key is neither a PKCS #8 key nor a PKCS #1 key of RSA"),
        (certificate, sec1, "tls.key is neither a PKCS #8 key nor a PKCS #1 key of RSA"),
        (certificate, broken, "tls.key is no key of RSA, ECDSA or Ed25519 that can be used"),
        (certificate, RSA[1], "tls.key is not the key of tls.crt"),
        (leaf.as_bytes(), of_leaf.as_bytes(), "tls.crt is no certificate of an authority"),
    ];
    for (certificate, key, expected) in table {
        assert_eq!(Authority::read(certificate, key).err().as_deref(), Some(expected));
    }
}

#[test]
fn an_address_of_the_sixth_version_is_in_brackets() {
    assert_eq!(server("::1", 6443), "https://[::1]:6443");
    assert_eq!(server("api.example", 443), "https://api.example:443");
}

#[test]
fn lengths_of_der_have_as_many_bytes_as_they_need() {
    for (length, head) in [
        (0, &[4, 0][..]),
        (0x7f, &[4, 0x7f]),
        (0x80, &[4, 0x81, 0x80]),
        (0xff, &[4, 0x81, 0xff]),
        (0x1234, &[4, 0x82, 0x12, 0x34]),
    ] {
        let tagged = tagged(4, &vec![7; length]);
        assert_eq!((&tagged[..head.len()], tagged.len()), (head, head.len() + length));
    }
}
