//! The flags of leader migration.

use std::io::Write;

use component::leader_migration::{LeaderMigration, Lock};

use crate::flags::{
    DISABLED_BY_DEFAULT, Flags, MIGRATED_CONTROLLERS, NODE_CONTROLLER, NODE_LIFECYCLE_CONTROLLER,
    ROUTE_CONTROLLER, SERVICE_CONTROLLER, parse,
};

fn flags(args: &[&str]) -> Flags {
    let all = ["ccm", "--cloud-provider=x"].iter().chain(args);
    parse(all.map(|arg| (*arg).to_owned())).expect("a good command line")
}

#[test]
fn off_default_and_file() {
    // Not even looked at.
    let off = flags(&["--leader-migration-config=/nonexistent"]);
    assert!(off.faults().is_empty());
    assert_eq!(off.migration(), Ok(None));
    let default = flags(&["--enable-leader-migration"]);
    assert_eq!(default.migration(), Ok(Some(LeaderMigration::without_file(&MIGRATED_CONTROLLERS))));
    let missing = flags(&["--enable-leader-migration", "--leader-migration-config=/nonexistent"]);
    assert!(missing.faults()[0].starts_with("--leader-migration-config /nonexistent: unable to read"));
}

#[test]
fn two_locks_are_two_leases() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let text = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: one\n";
    file.write_all(text.as_bytes()).expect("written");
    let config = format!("--leader-migration-config={}", file.path().display());
    let faults = |more: &str| flags(&["--enable-leader-migration", &config, more]).faults();
    assert!(faults("--leader-elect").is_empty());
    let same = faults("--leader-elect-resource-name=one");
    assert!(same[0].contains("must differ"), "{same:?}");
}

#[test]
fn upstreams_default_means_what_it_says() {
    let migration = LeaderMigration::without_file(&MIGRATED_CONTROLLERS);
    assert_eq!(migration.lease_name, "cloud-provider-extraction-migration");
    let of_upstream = MIGRATED_CONTROLLERS.names.iter().filter(|name| !DISABLED_BY_DEFAULT.contains(name));
    let locks = of_upstream.map(|name| migration.lock_of(name)).collect::<Vec<_>>();
    assert_eq!(locks, [Lock::Main, Lock::Migration, Lock::Migration, Lock::Migration]);
    assert!(migration.not_ours().is_empty());
}

#[test]
fn every_name_that_a_controller_ever_had_is_found() {
    for (name, canonical) in [
        ("cloud-node", NODE_CONTROLLER),
        ("cloud-node-controller", NODE_CONTROLLER),
        ("cloud-node-lifecycle", NODE_LIFECYCLE_CONTROLLER),
        ("cloud-node-lifecycle-controller", NODE_LIFECYCLE_CONTROLLER),
        ("service", SERVICE_CONTROLLER),
        ("service-controller", SERVICE_CONTROLLER),
        ("service-lb-controller", SERVICE_CONTROLLER),
        ("route", ROUTE_CONTROLLER),
        ("route-controller", ROUTE_CONTROLLER),
        ("node-route-controller", ROUTE_CONTROLLER),
    ] {
        let text = format!(
            "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: m\n\
             controllerLeaders: [{{name: {name}, component: kube-controller-manager}}]\n"
        );
        let migration = LeaderMigration::parse(&text, &MIGRATED_CONTROLLERS).expect("a good file");
        assert_eq!(migration.lock_of(canonical), Lock::Elsewhere, "{name}");
        assert!(migration.not_ours().is_empty(), "{name}");
    }
}
