use super::*;

/// The object with its defaults. It must not get others when it is written again.
fn defaulted(kind: Defaulted, object: &Value, old: Option<&Value>) -> Value {
    let defaulted = patched(object, &kind.defaults(object, old).expect("defaults"));
    assert_eq!(kind.defaults(&defaulted, Some(&defaulted)), Ok(Vec::new()), "a second time");
    defaulted
}

/// Applies operations in the strict way of an API server: a parent must be there.
fn patched(object: &Value, operations: &[Operation]) -> Value {
    let mut object = object.clone();
    for operation in operations {
        let (parent, name) = operation.path.rsplit_once('/').expect("a path");
        let parent = object.pointer_mut(parent).and_then(Value::as_object_mut);
        let name = name.replace("~1", "/").replace("~0", "~");
        parent.expect("a parent").insert(name, operation.value.clone());
    }
    object
}

#[test]
fn a_machine_gets_its_label_its_v_and_a_timeout() {
    let machine = json!({"metadata": {"name": "one"}, "spec": {"clusterName": "c", "version": "1.17.5"}});
    let expected = json!({
        "metadata": {"name": "one", "labels": {"cluster.x-k8s.io/cluster-name": "c"}},
        "spec": {
            "clusterName": "c",
            "version": "v1.17.5",
            "deletion": {"nodeDeletionTimeoutSeconds": 10}
        }
    });
    assert_eq!(defaulted(Defaulted::Machine, &machine, None), expected);
}

#[test]
fn a_deployment_selects_its_own_machines_and_rolls() {
    let deployment = json!({
        "metadata": {"name": "md"},
        "spec": {"clusterName": "c", "template": {"spec": {"clusterName": "c", "version": "1.19.10"}}}
    });
    let own = json!({"cluster.x-k8s.io/cluster-name": "c", "cluster.x-k8s.io/deployment-name": "md"});
    let expected = json!({
        "metadata": {"name": "md", "labels": {"cluster.x-k8s.io/cluster-name": "c"}},
        "spec": {
            "clusterName": "c",
            "replicas": 1,
            "selector": {"matchLabels": own},
            "rollout": {
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
            },
            "template": {
                "metadata": {"labels": own},
                "spec": {"clusterName": "c", "version": "v1.19.10"}
            }
        }
    });
    assert_eq!(defaulted(Defaulted::MachineDeployment, &deployment, None), expected);
}

/// Controllers work with the types, and the API server has what the user wrote.
#[test]
fn the_operations_of_a_type_fit_the_object_that_a_user_wrote() {
    let template = json!({"spec": {
        "clusterName": "c", "bootstrap": {"dataSecretName": "s"},
        "infrastructureRef": {"apiGroup": "infra.example", "kind": "Box", "name": "b"},
    }});
    let of_deployment = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": {"name": "md"},
        "spec": {"clusterName": "c", "template": template},
    });
    let mut of_set = of_deployment.clone();
    of_set["kind"] = "MachineSet".into();
    let typed: crate::MachineDeployment = serde_json::from_value(of_deployment.clone()).expect("one");
    let typed_set: crate::MachineSet = serde_json::from_value(of_set.clone()).expect("one");
    for (kind, object, typed) in [
        (Defaulted::MachineDeployment, of_deployment, serde_json::to_value(typed)),
        (Defaulted::MachineSet, of_set, serde_json::to_value(typed_set)),
    ] {
        let operations = kind.defaults(&typed.expect("JSON"), None).expect("defaults");
        let labels = &patched(&object, &operations)["spec"]["selector"]["matchLabels"];
        assert!(labels.as_object().is_some_and(|labels| !labels.is_empty()), "{operations:?}");
    }
}

#[test]
fn a_given_selector_and_strategy_stay() {
    let deployment = json!({
        "metadata": {"name": "md"},
        "spec": {
            "clusterName": "c",
            "replicas": 0,
            "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            "rollout": {"strategy": {"type": "OnDelete"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"clusterName": "c"}}
        }
    });
    let defaulted = defaulted(Defaulted::MachineDeployment, &deployment, None);
    let cluster = json!({"cluster.x-k8s.io/cluster-name": "c"});
    assert_eq!(defaulted["spec"]["selector"]["matchLabels"], cluster);
    assert_eq!(
        defaulted["spec"]["template"]["metadata"]["labels"],
        json!({"a": "b", "cluster.x-k8s.io/cluster-name": "c"})
    );
    assert_eq!(defaulted["spec"]["rollout"], deployment["spec"]["rollout"]);
    assert_eq!(defaulted["spec"]["replicas"], 0);
}

#[test]
fn a_set_selects_its_own_machines_even_with_a_long_name() {
    let long = "very-long-machine-set-name-that-does-not-fit-into-the-value-of-a-label-1";
    for (name, value) in [("ms", "ms"), (long, "hash_njrKcw_z")] {
        let set = json!({"metadata": {"name": name}, "spec": {"clusterName": "c", "template": {"spec": {}}}});
        let defaulted = defaulted(Defaulted::MachineSet, &set, None);
        let own = json!({"cluster.x-k8s.io/cluster-name": "c", "cluster.x-k8s.io/set-name": value});
        assert_eq!(defaulted["spec"]["selector"]["matchLabels"], own);
        assert_eq!(defaulted["spec"]["template"]["metadata"]["labels"], own);
        assert_eq!(defaulted["metadata"]["labels"], json!({"cluster.x-k8s.io/cluster-name": "c"}));
    }
}

#[test]
fn a_name_that_is_not_there_yet_is_no_selector() {
    let set = json!({"metadata": {"generateName": "ms-"}, "spec": {"clusterName": "c", "template": {}}});
    for kind in [Defaulted::MachineSet, Defaulted::MachineDeployment] {
        let refused = kind.defaults(&set, None).expect_err("no name");
        assert_eq!(refused.to_string(), "spec.selector: must be given together with metadata.generateName");
    }
}

#[test]
fn replicas_stay_between_the_autoscalers_limits() {
    const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
    const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    let none = json!({});
    let both = json!({MIN: "3", MAX: "7"});
    // given, annotations, stored (-1: an object without number; None: no object), expected
    let cases = [
        (Some(5), none.clone(), None, Ok(5)),
        (Some(5), both.clone(), Some(4), Ok(5)),
        (None, none, None, Ok(1)),
        (None, json!({MIN: "3"}), None, Ok(1)),
        (None, json!({MAX: "7"}), None, Ok(1)),
        (None, json!({MAX: "abc"}), None, Ok(1)),
        (None, json!({MIN: "abc", MAX: "7"}), None, Err(MIN)),
        (None, json!({MIN: "3", MAX: "abc"}), None, Err(MAX)),
        (None, json!({MIN: "3", MAX: "99999999999"}), None, Err(MAX)),
        (None, both.clone(), None, Ok(3)),
        (None, both.clone(), Some(-1), Ok(3)),
        (None, both.clone(), Some(1), Ok(3)),
        (None, both.clone(), Some(15), Ok(7)),
        (None, both, Some(4), Ok(4)),
        (None, json!({MIN: "7", MAX: "3"}), Some(5), Ok(7)),
    ];
    for kind in [Defaulted::MachineSet, Defaulted::MachineDeployment] {
        for (given, annotations, stored, expected) in &cases {
            let mut object = json!({"metadata": {"name": "one", "annotations": annotations}, "spec": {}});
            if let Some(given) = given {
                object["spec"]["replicas"] = json!(given);
            }
            let old = stored.map(|stored| match stored {
                -1 => json!({"spec": {}}),
                stored => json!({"spec": {"replicas": stored}}),
            });
            match (kind.defaults(&object, old.as_ref()), expected) {
                (Ok(operations), Ok(expected)) => {
                    assert_eq!(patched(&object, &operations)["spec"]["replicas"], *expected, "{annotations}");
                }
                (Err(refused), Err(annotation)) => {
                    assert_eq!(refused.field, format!("metadata.annotations[{annotation}]"));
                }
                (found, _) => panic!("{annotations} {stored:?}: {found:?}"),
            }
        }
    }
}

#[test]
fn a_health_check_waits_ten_minutes_for_a_node() {
    let check =
        json!({"metadata": {}, "spec": {"clusterName": "c", "selector": {"matchLabels": {"a": "b"}}}});
    let defaulted = defaulted(Defaulted::MachineHealthCheck, &check, None);
    assert_eq!(defaulted["spec"]["checks"]["nodeStartupTimeoutSeconds"], 600);
    assert_eq!(defaulted["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"], "c");
    let never = json!({"spec": {"checks": {"nodeStartupTimeoutSeconds": 0}}});
    assert_eq!(Defaulted::MachineHealthCheck.defaults(&never, None), Ok(Vec::new()));
}

#[test]
fn a_resource_set_applies_once() {
    let set = json!({"spec": {"resources": []}});
    assert_eq!(defaulted(Defaulted::ClusterResourceSet, &set, None)["spec"]["strategy"], "ApplyOnce");
}

#[test]
fn misspelt_preflight_checks_are_refused() {
    let with = |skipped: &str| {
        let annotations = json!({"machineset.cluster.x-k8s.io/skip-preflight-checks": skipped});
        let set = json!({"metadata": {"name": "ms", "annotations": annotations}, "spec": {}});
        Defaulted::MachineSet.defaults(&set, None)
    };
    for good in ["", "All", "KubeadmVersionSkew, ControlPlaneIsStable"] {
        with(good).expect(good);
    }
    for bad in ["Everything", "All,", "All,kubeadmVersionSkew"] {
        let refused = with(bad).expect_err(bad);
        assert_eq!(refused.field, "metadata.annotations[machineset.cluster.x-k8s.io/skip-preflight-checks]");
    }
}

#[test]
fn metadata_that_no_machine_can_have_is_refused() {
    let with = |metadata: Value| {
        let set = json!({"metadata": {"name": "ms"}, "spec": {"template": {"metadata": metadata}}});
        [Defaulted::MachineSet, Defaulted::MachineDeployment].map(|kind| kind.defaults(&set, None))
    };
    let good =
        json!({"labels": {"example.org/a": "b", "c": ""}, "annotations": {"Example.org/a": "any text"}});
    for result in with(good) {
        result.expect("good metadata");
    }
    for (bad, field) in [
        (json!({"labels": {"a b": "c"}}), "spec.template.metadata.labels[a b]"),
        (json!({"labels": {"a": "-b"}}), "spec.template.metadata.labels[a]"),
        (json!({"annotations": {"/a": "b"}}), "spec.template.metadata.annotations[/a]"),
    ] {
        for result in with(bad) {
            assert_eq!(result.expect_err(field).field, field);
        }
    }
}

#[test]
fn workers_cannot_have_the_taint_of_control_planes() {
    let taints = json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
    let worker = json!({"metadata": {"labels": {}}, "spec": {"taints": taints}});
    assert_eq!(Defaulted::Machine.defaults(&worker, None).expect_err("a worker").field, "spec.taints");
    let labels = json!({"cluster.x-k8s.io/control-plane": ""});
    let control_plane = json!({"metadata": {"labels": labels}, "spec": {"taints": taints}});
    Defaulted::Machine.defaults(&control_plane, None).expect("a control plane");
}

#[test]
fn what_is_no_object_is_left_to_the_schema() {
    let objects = [
        json!(null),
        json!([]),
        json!({"spec": 5}),
        json!({"metadata": {"name": "a", "labels": "b", "annotations": 3}, "spec": {"clusterName": 3}}),
        json!({"metadata": {"name": "a"}, "spec": {"selector": [], "template": "c", "rollout": {"strategy": 1}}}),
        json!({"metadata": {"name": "a", "labels": null}, "spec": {"selector": null, "replicas": "many"}}),
    ];
    for object in objects {
        for kind in Defaulted::ALL {
            // whatever it says, it says something, and an API server can apply it
            if let Ok(operations) = kind.defaults(&object, Some(&object)) {
                patched(&object, &operations);
            }
        }
    }
}

#[test]
fn kinds_are_found_by_their_resources() {
    for kind in Defaulted::ALL {
        let (group, resource) = kind.resource();
        assert_eq!(Defaulted::find(group, resource), Some(kind));
    }
    assert_eq!(Defaulted::find("cluster.x-k8s.io", "clusters"), None);
}
