//! Tests of the requests over one connection.

use std::sync::Arc;

use super::*;

/// libvirt's test driver, with its one domain `test`.
fn session() -> Session {
    let config =
        crate::Config::parse("hypervisors: [{name: a, uri: 'test:///default'}]", None).expect("valid");
    let sink: EventSink = Arc::new(|_| ());
    Session::open(&config.hypervisors[0], config.keepalive, Calls::default(), &sink).expect("connected")
}

#[test]
fn only_no_such_domain_is_an_absence() {
    let mut session = session();
    let (uuid, name) =
        session.names().expect("listed").into_iter().find(|(_, name)| name == "test").expect("there");
    let unknown = Uuid::from_u128(1);
    let probed = session
        .probe(&[
            vec![DomainId::Uuid(unknown), DomainId::Name("nowhere".to_owned())],
            vec![DomainId::Uuid(unknown), DomainId::Name(name.clone())],
            vec![DomainId::Uuid(uuid)],
            // an error of another kind: the binding rejects the text
            vec![DomainId::Name("\0".to_owned()), DomainId::Uuid(unknown)],
        ])
        .expect("connected");
    let [None, Some(by_name), Some(by_uuid), Some(_)] = &probed.unconfirmed[..] else { panic!("{probed:?}") };
    assert_eq!(by_name.message, "libvirt has a domain \"test\", but does not list it");
    assert_eq!(by_name, by_uuid);
    assert_eq!(probed.found, [uuid, uuid]);
}

#[test]
fn a_listing_looks_for_known_domains_that_are_not_listed() {
    let mut session = session();
    let lookups = |session: &Session| {
        let mut counts = std::collections::BTreeMap::new();
        session.calls.counts.add_to(&mut counts);
        counts.get("lookup_domain").copied().unwrap_or(0)
    };
    let listed: Vec<Uuid> = session.list(&[]).expect("listed").domains.iter().map(|one| one.uuid).collect();
    assert_eq!(lookups(&session), 0);
    let known: Vec<Uuid> = listed.iter().copied().chain([Uuid::from_u128(1)]).collect();
    let listing = session.list(&known).expect("listed");
    assert_eq!(listing.domains.len(), listed.len());
    assert_eq!(listing.unreadable, []);
    assert_eq!(lookups(&session), 1);
}

#[test]
fn a_hypervisor_tells_its_size() {
    assert_eq!(session().size(), Ok(Ok(Size { cpus: 16, memory_mib: 3072 })));
}
