use super::*;

const NAME: &str = "ccm-webhook-ca";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

fn years(number: u64) -> Duration {
    Duration::from_secs(number * 365 * 24 * 60 * 60)
}

#[test]
fn an_authority_is_read_as_it_was_written() {
    let made = Authority::make(NAME, now()).expect("made");
    let read = Authority::parse(made.certificate(), &made.key()).expect("read");
    assert_eq!((read.made(), read.ends()), (now(), now() + AUTHORITY_LIFETIME));
    assert!(!format!("{made:?}").contains("PRIVATE"), "{made:?}");
    let other = Authority::make(NAME, now()).expect("made");
    for (certificate, key, words) in [
        (made.certificate(), other.key(), "does not belong"),
        (made.certificate(), "garbage".to_owned(), "not a private key"),
        ("garbage", made.key(), "not a certificate in PEM"),
    ] {
        let error = format!("{:#}", Authority::parse(certificate, &key).expect_err(words));
        assert!(error.contains(words) && !error.contains("garbage"), "{error}");
    }
}

#[test]
fn what_it_signs_is_for_these_names_and_ends_with_it() {
    let authority = Authority::make(NAME, now()).expect("made");
    let names = ["s.n.svc".to_owned(), "127.0.0.1".to_owned()];
    let signed = authority.sign(&names, now()).expect("signed");
    let (_, parsed) = X509Certificate::from_der(&signed.certified.cert[0]).expect("a certificate");
    assert_eq!(parsed.issuer().to_string(), format!("CN={NAME}@{}", now().as_second()));
    assert_eq!(validity(&parsed).expect("dates").1, now() + CERTIFICATE_LIFETIME);
    assert_eq!(signed.renew, now() + CERTIFICATE_LIFETIME / 2);
    let names = parsed.subject_alternative_name().expect("one").expect("names").value.general_names.len();
    assert_eq!(names, 2);
    let late = authority.ends() - Duration::from_secs(60);
    let signed = authority.sign(&["s".to_owned()], late).expect("signed");
    let (_, parsed) = X509Certificate::from_der(&signed.certified.cert[0]).expect("a certificate");
    assert_eq!(validity(&parsed).expect("dates").1, authority.ends());
}

#[test]
fn a_successor_is_trusted_before_it_signs() {
    let first = Authorities::first(NAME, now()).expect("made");
    assert!(first.due(NAME, now() + years(8), |_| true).expect("asked").is_none());
    let late = now() + years(9);
    let both = first.due(NAME, late, |_| true).expect("asked").expect("a successor");
    assert_eq!(both.signer().certificate(), first.signer().certificate());
    let bundle = both.bundle();
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
    assert!(
        both.due(NAME, late + DAY / 2, |_| true).expect("asked").is_none(),
        "not everybody trusts it yet"
    );
    let second = both.due(NAME, late + DAY, |_| true).expect("asked").expect("it signs");
    assert_ne!(second.signer().certificate(), first.signer().certificate());
    assert_eq!(second.bundle().matches("BEGIN CERTIFICATE").count(), 2, "the old one is trusted");
    assert!(second.due(NAME, late + DAY, |_| true).expect("asked").is_none());
    let last = second.due(NAME, now() + years(10), |_| true).expect("asked").expect("the old one has ended");
    assert_eq!(last.bundle().matches("BEGIN CERTIFICATE").count(), 1);
}

#[test]
fn one_that_is_not_trusted_everywhere_does_not_sign() {
    let first = Authorities::first(NAME, now()).expect("made");
    let both = first.due(NAME, now() + years(9), |_| true).expect("asked").expect("a successor");
    let late = now() + years(9) + 30 * DAY;
    assert!(both.due(NAME, late, |_| false).expect("asked").is_none());
    let next = both.data().remove("next.crt").expect("one");
    let second = both.due(NAME, late, |one| one.as_bytes() == next).expect("asked").expect("it signs");
    assert_eq!(second.signer().certificate().as_bytes(), next);
    let ended =
        both.due(NAME, now() + years(11), |_| false).expect("asked").expect("nobody trusts the old one");
    assert_eq!(ended.signer().certificate().as_bytes(), next);
}

#[test]
fn one_whose_signatures_nobody_could_verify_is_refused() {
    let made = |change: fn(&mut CertificateParams)| {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = parameters_of_authority(NAME);
        change(&mut parameters);
        let certificate = parameters.self_signed(&key).expect("signed").pem();
        Authority::parse(&certificate, &key.serialize_pem())
    };
    assert!(made(|_| {}).is_ok());
    let refused: [fn(&mut CertificateParams); 3] = [
        |parameters| parameters.distinguished_name.push(DnType::OrganizationName, "o"),
        |parameters| {
            let name = rcgen::DnValue::PrintableString("printable".try_into().expect("printable"));
            parameters.distinguished_name.push(DnType::CommonName, name);
        },
        |parameters| parameters.distinguished_name = rcgen::DistinguishedName::new(),
    ];
    for change in refused {
        let error = made(change).expect_err("refused").to_string();
        assert!(error.contains("the certificate's subject is not a common name"), "{error}");
    }
}

#[test]
fn another_one_is_trusted_beside_the_first() {
    let first = Authorities::first(NAME, now()).expect("made");
    let another = first.another(NAME, now()).expect("made");
    assert_ne!(another.signer().certificate(), first.signer().certificate());
    assert!(another.bundle().ends_with(first.signer().certificate()), "{}", another.bundle());
}

#[test]
fn certificates_are_on_lines_of_their_own() {
    let first = Authorities::first(NAME, now()).expect("made");
    let another = first.another(NAME, now()).expect("made");
    let mut data = another.data();
    for value in data.values_mut() {
        *value = value.trim_ascii_end().to_vec();
    }
    let read = Authorities::parse(&data).expect("right").expect("there");
    assert_eq!(read.bundle(), another.bundle());
}

#[test]
fn one_that_has_ended_does_not_go_on_signing() {
    let first = Authorities::first(NAME, now()).expect("made");
    let after = now() + years(11);
    let both = first.due(NAME, after, |_| true).expect("asked").expect("a successor");
    let second = both.due(NAME, after, |_| true).expect("asked").expect("it signs at once");
    assert_eq!(second.signer().made(), after);
}

#[test]
fn a_secret_says_all_of_it() {
    let first = Authorities::first(NAME, now()).expect("made");
    let both = first.due(NAME, now() + years(9), |_| true).expect("asked").expect("a successor");
    let second = both.due(NAME, now() + years(9) + DAY, |_| true).expect("asked").expect("it signs");
    for authorities in [&first, &both, &second] {
        let read = Authorities::parse(&authorities.data()).expect("right").expect("there");
        assert_eq!(read.data(), authorities.data());
        assert_eq!(read.bundle(), authorities.bundle());
    }
    assert!(Authorities::parse(&BTreeMap::new()).expect("right").is_none());
    for (key, value, words) in [
        ("ca.key", "", "ca.crt and ca.key: one of them is missing"),
        ("ca.crt", "x", "ca.crt and ca.key: the certificate is not"),
        ("next.key", "x", "next.crt and next.key: the key is not"),
        ("previous.crt", "x", "previous.crt: the certificate is not"),
    ] {
        let mut data = both.data();
        data.insert(key.to_owned(), value.into());
        let error = format!("{:#}", Authorities::parse(&data).expect_err(words));
        assert!(error.starts_with(words), "{error}");
    }
}
