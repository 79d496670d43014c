use super::*;
use crate::AddressHolder;

fn claim(address: &str, uid: &str, version: &str) -> AddressClaim {
    let service = ServiceRef { uid: uid.to_owned(), ..ServiceRef::default() };
    AddressClaim {
        address: address.parse().expect("an address"),
        holders: vec![AddressHolder { service, ..AddressHolder::default() }],
        version: version.to_owned(),
    }
}

#[tokio::test]
async fn of_two_writers_one_wins() {
    let cluster = FakeServiceAccess::new();
    let first = cluster.write_claim(&claim("10.0.0.1", "a", "")).await.expect("written");
    let kind = |result: Result<AddressClaim>| result.map_err(|error| error.kind());
    assert_eq!(kind(cluster.write_claim(&claim("10.0.0.1", "b", "")).await), Err(ErrorKind::Conflict));
    let second = cluster.write_claim(&first).await.expect("written");
    assert_ne!(first.version, second.version);
    assert_eq!(cluster.delete_claim(&first).await.map_err(|error| error.kind()), Err(ErrorKind::Conflict));
    cluster.delete_claim(&second).await.expect("deleted");
    cluster.delete_claim(&second).await.expect("deleted already");
    cluster.use_elsewhere(second.address);
    assert_eq!(kind(cluster.write_claim(&claim("10.0.0.1", "b", "")).await), Err(ErrorKind::Conflict));
    let found = cluster.use_of(second.address).await.expect("an answer");
    assert_eq!(found, AddressUse::Elsewhere(OTHER_USER.to_owned()));
    cluster.free_elsewhere(second.address);
    assert_eq!(cluster.use_of(second.address).await.expect("an answer"), AddressUse::Free);
    let third = cluster.write_claim(&claim("10.0.0.1", "b", "")).await.expect("written");
    assert_eq!(cluster.use_of(third.address).await.expect("an answer"), AddressUse::Claimed(third));
}

#[tokio::test]
async fn a_fault_strikes_before_or_after_the_effect() {
    let cluster = FakeServiceAccess::new();
    for (fault, is_stored) in [(AccessFault::Before, false), (AccessFault::After, true)] {
        cluster.fault_with(move |_| fault);
        assert!(cluster.write_claim(&claim("10.0.0.1", "a", "")).await.is_err());
        assert_eq!(cluster.stored_claims().len(), usize::from(is_stored));
    }
    cluster.heal();
    assert_eq!(cluster.claims().await.expect("claims").len(), 1);
    assert_eq!(cluster.calls().len(), 3);
}

#[tokio::test]
async fn a_config_map_is_followed_from_its_present_content() {
    let cluster = FakeServiceAccess::new();
    let name = ConfigMapName { namespace: "kube-system".to_owned(), name: "kubevip".to_owned() };
    let mut versions = cluster.follow_config_map(&name);
    assert!(matches!(versions.next().await, Some(Ok(None))));
    let data = BTreeMap::from([("cidr-global".to_owned(), "10.0.0.0/24".to_owned())]);
    cluster.set_config_map(&name, Some(data.clone()));
    assert_eq!(versions.next().await.and_then(Result::ok), Some(Some(data)));
}
