use cloudprovider::{
    NodeIdentity,
    testing::{FakeCloud, FakeInstance, Fault, Operation},
};
use component::metrics::MetricSet as _;
use controller_kit::cloud::{CloudMetrics, Started};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{commands::check::Verdict, flags};

/// What is said about a Node with this answer of the cloud.
async fn said_of(answer: Answer) -> Vec<(Verdict, String)> {
    said_by(FakeCloud::named("x"), answer).await
}

async fn said_by(fake: FakeCloud, answer: Answer) -> Vec<(Verdict, String)> {
    match answer {
        Answer::Incomplete(why) => {
            fake.put("u1", FakeInstance::running("10.0.0.1").named("one").with_incomplete(why));
        }
        Answer::Fails(error) => fake.fail(Operation::Lookup, Fault::Error(error)),
    }
    let identity = NodeIdentity { name: "one".to_owned(), ..NodeIdentity::default() };
    let nodes = [Arc::new(Node { identity, ..Node::default() })];
    let started = Started::new(fake.provider(), CancellationToken::new());
    let cloud = Cloud::new(started, CloudMetrics::unregistered().expect("metrics"));
    let flags = flags::parse(["ccm", "--cloud-provider=x"]).expect("a good command line");
    let mut report = Report::default();
    check_look_ups("x", &flags, &cloud, Some(&nodes), &mut report).await;
    report.findings().iter().map(|finding| (finding.verdict, finding.detail.clone())).collect()
}

enum Answer {
    Incomplete(Error),
    Fails(Error),
}

#[tokio::test(start_paused = true)]
async fn what_keeps_a_node_from_being_initialised_is_shown() {
    let untagged = Error::new(ErrorKind::NotFound, "no tag of the category \"zone\"");
    let found = said_of(Answer::Incomplete(untagged)).await;
    let words = "what x knows of 1 of 1 nodes is incomplete (one): no tag of the category";
    assert!(
        found.iter().any(|(verdict, said)| *verdict == Verdict::Warning && said.starts_with(words)),
        "{found:?}"
    );
    assert!(found.iter().all(|(verdict, _)| *verdict != Verdict::Failed), "{found:?}");
}

/// Such as a right for which there is another way.
#[tokio::test(start_paused = true)]
async fn what_the_cloud_does_not_allow_is_a_warning() {
    let words = "nodes are listed every pollInterval: the token needs more";
    let fails = Answer::Fails(Error::new(ErrorKind::PermissionDenied, "no"));
    let found = said_by(FakeCloud::named("x").with_limit(words), fails).await;
    assert!(found.contains(&(Verdict::Warning, format!("x: {words}"))), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_a_setting_keeps_is_no_failure() {
    let kept = Error::new(ErrorKind::NotFound, "SKIP_NODE_DELETION is set, so it is kept");
    let found = said_of(Answer::Fails(kept)).await;
    let is_told = |(verdict, said): &(Verdict, String)| {
        *verdict == Verdict::Warning
            && said.starts_with("x finds no instance for 1 of 1 nodes (one): SKIP_NODE_DELETION")
    };
    assert!(
        found.iter().any(is_told) && found.iter().all(|(verdict, _)| *verdict != Verdict::Failed),
        "{found:?}"
    );
    let away = Error::new(ErrorKind::PermissionDenied, "no");
    let found = said_of(Answer::Fails(away)).await;
    assert!(found.iter().any(|(verdict, _)| *verdict == Verdict::Failed), "{found:?}");
}
