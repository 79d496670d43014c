//! For each rule, a provider that breaks it. The report must say so.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures::{FutureExt as _, StreamExt as _, stream};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    super::{Suite, checks, run_suites},
    broken_machines, broken_parts,
    subject::{SECRET, Subject, factory},
};
use crate::{
    CloudProvider, Clusters, ConfigProblem, ControlPlaneEndpoint, DynMachines, Error, ErrorKind,
    FactoryInput, Instance, InstanceChange, InstanceLookup, InstanceStream, Instances, NodeAddress,
    NodeIdentity, ProviderId, Result, StartContext, Zone, Zones, async_trait,
    testing::{Fault, Operation},
};

/// What is wrong with a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    GivesNoId,
    StrangersAreUnknown,
    OffIsAbsent,
    NeverForgets,
    AddressesAreWords,
    MixesMetadata,
    Reverses,
    AnswersNobody,
    AnswersAThousand,
    PanicsOverNul,
    KeepsItsLock,
    OneCallAtATime,
    ErrorsAreAbsent,
    TellsNothing,
    NamesNobody,
    ShowsWhatItSawFirst,
    OneStream,
    DropsWhatIsUnread,
    NoResync,
    StreamsNeverEnd,
    OwnsNothing,
    OwnsEverything,
    OwnsBySeason,
    ChangesIds,
    GainsZones,
    AbsentBeforeTheStart,
    StartWaitsForTheCloud,
    AbsentAfterTheEnd,
    EndWaitsForAStart,
    EndsAll,
}

/// State that the providers of one cloud share.
#[derive(Default)]
struct Common {
    seen: Mutex<BTreeMap<String, Box<Instance>>>,
    has_ended: AtomicBool,
}

struct Mutant {
    inner: Arc<dyn CloudProvider>,
    wrong: Wrong,
    common: Arc<Common>,
    is_busy: AtomicBool,
    streams: AtomicUsize,
    owned: AtomicUsize,
    is_started: AtomicBool,
    stop: Mutex<CancellationToken>,
}

impl std::fmt::Debug for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.wrong.fmt(f)
    }
}

fn unknown() -> InstanceLookup {
    Error::new(ErrorKind::Unavailable, "no").into()
}

impl Mutant {
    fn instances(&self) -> &dyn Instances {
        self.inner.instances().expect("the fake has instances")
    }

    fn is_stopped(&self) -> bool {
        self.stop.lock().is_cancelled()
    }

    fn alter(&self, node: &NodeIdentity, answer: InstanceLookup) -> InstanceLookup {
        match (self.wrong, answer) {
            (Wrong::AbsentBeforeTheStart, _) if !self.is_started.load(Ordering::Relaxed) => {
                InstanceLookup::Absent
            }
            (Wrong::AbsentAfterTheEnd, _) if self.is_stopped() => InstanceLookup::Absent,
            (Wrong::EndsAll, _) if self.common.has_ended.load(Ordering::Relaxed) => unknown(),
            (Wrong::GivesNoId, InstanceLookup::Present(mut instance)) => {
                instance.provider_id = None;
                InstanceLookup::Present(instance)
            }
            (Wrong::ChangesIds, InstanceLookup::Present(mut instance)) if node.provider_id.is_some() => {
                let id = instance.provider_id.map(|id| id.as_str().to_uppercase());
                instance.provider_id = id.and_then(|id| id.parse::<ProviderId>().ok());
                InstanceLookup::Present(instance)
            }
            (Wrong::OffIsAbsent, InstanceLookup::Present(instance)) if instance.power_state.is_shutdown() => {
                InstanceLookup::Absent
            }
            (Wrong::NeverForgets, InstanceLookup::Present(instance)) => {
                let id = instance.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
                self.common.seen.lock().insert(id, instance.clone());
                InstanceLookup::Present(instance)
            }
            (Wrong::NeverForgets, InstanceLookup::Absent) => {
                let seen = self.common.seen.lock();
                let known = node.provider_id.as_ref().and_then(|id| seen.get(id));
                known.map_or(InstanceLookup::Absent, |instance| InstanceLookup::Present(instance.clone()))
            }
            (Wrong::ShowsWhatItSawFirst, InstanceLookup::Present(instance)) => {
                let id = instance.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
                let mut seen = self.common.seen.lock();
                InstanceLookup::Present(seen.entry(id).or_insert(instance).clone())
            }
            (Wrong::AddressesAreWords, InstanceLookup::Present(mut instance)) => {
                instance.metadata.addresses.push(NodeAddress::internal_ip("notanip"));
                InstanceLookup::Present(instance)
            }
            (Wrong::StrangersAreUnknown, InstanceLookup::Absent) => unknown(),
            (Wrong::ErrorsAreAbsent, InstanceLookup::Unknown(_)) => InstanceLookup::Absent,
            (_, answer) => answer,
        }
    }
}

#[async_trait]
impl Instances for Mutant {
    fn owns(&self, provider_id: &str) -> bool {
        match self.wrong {
            Wrong::OwnsNothing => false,
            Wrong::OwnsEverything => true,
            Wrong::OwnsBySeason => {
                let is_ours = self.instances().owns(provider_id);
                is_ours != (provider_id == "/" && self.owned.fetch_add(1, Ordering::Relaxed) > 0)
            }
            _ => self.instances().owns(provider_id),
        }
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        let all_unknown = || nodes.iter().map(|_| unknown()).collect();
        match self.wrong {
            Wrong::PanicsOverNul if nodes.iter().any(|node| node.name.contains('\0')) => {
                std::panic::resume_unwind(Box::new("NUL"))
            }
            Wrong::KeepsItsLock | Wrong::OneCallAtATime => {
                let is_busy = self.is_busy.swap(true, Ordering::Relaxed);
                if is_busy && self.wrong == Wrong::KeepsItsLock {
                    return all_unknown();
                }
                let held = Held(&self.is_busy, self.wrong == Wrong::OneCallAtATime && !is_busy);
                tokio::task::yield_now().await;
                if is_busy {
                    return all_unknown();
                }
                let answers = self.instances().lookup(nodes).await;
                self.is_busy.store(false, Ordering::Relaxed);
                drop(held);
                return answers;
            }
            _ => {}
        }
        let answers = self.instances().lookup(nodes).await.into_iter().zip(nodes);
        let mut answers: Vec<_> = answers.map(|(answer, node)| self.alter(node, answer)).collect();
        match self.wrong {
            Wrong::Reverses => answers.reverse(),
            Wrong::MixesMetadata => {
                let mut last = None;
                for answer in &mut answers {
                    if let InstanceLookup::Present(instance) = answer {
                        let own = instance.metadata.clone();
                        instance.metadata = last.replace(own).unwrap_or_else(|| instance.metadata.clone());
                    }
                }
            }
            Wrong::AnswersNobody if nodes.is_empty() => answers.push(InstanceLookup::Absent),
            Wrong::AnswersAThousand => answers.iter_mut().skip(1000).for_each(|answer| *answer = unknown()),
            _ => {}
        }
        answers
    }

    fn changes(&self) -> Option<InstanceStream> {
        let inner = self.instances().changes()?;
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        let stop = self.stop.lock().clone();
        let silent = || stream::pending().take_until(stop.clone().cancelled_owned()).boxed();
        Some(match self.wrong {
            Wrong::TellsNothing => silent(),
            Wrong::NamesNobody => inner.map(|_| InstanceChange::Changed(Vec::new())).boxed(),
            Wrong::OneStream if number > 0 => silent(),
            Wrong::NoResync => {
                inner.filter(|change| std::future::ready(*change != InstanceChange::Resync)).boxed()
            }
            Wrong::StreamsNeverEnd => inner.chain(stream::pending()).boxed(),
            Wrong::DropsWhatIsUnread => {
                let lossy = stream::unfold(inner, |mut inner| async {
                    loop {
                        let first = inner.next().await?;
                        let more = std::iter::from_fn(|| inner.next().now_or_never().flatten()).count();
                        if more < 4 {
                            return Some((first, inner));
                        }
                    }
                });
                lossy.boxed()
            }
            _ => inner,
        })
    }
}

/// A lock that is released on drop, or not.
struct Held<'a>(&'a AtomicBool, bool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.store(false, Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl Zones for Mutant {
    async fn zones(&self, nodes: &[&NodeIdentity]) -> Vec<Result<Zone>> {
        let mut zones = self.inner.zones().expect("the fake has zones").zones(nodes).await;
        zones.reverse();
        zones
    }
}

#[async_trait]
impl Clusters for Mutant {
    async fn list(&self) -> Result<Vec<String>> {
        Ok(vec!["b".to_owned(), "a".to_owned()])
    }
    async fn control_plane_endpoint(&self, _: &str) -> Result<Option<ControlPlaneEndpoint>> {
        Ok(None)
    }
}

#[async_trait]
impl CloudProvider for Mutant {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn start(&self, context: StartContext) -> Result<()> {
        self.is_started.store(!context.stop.is_cancelled(), Ordering::Relaxed);
        self.common.has_ended.store(false, Ordering::Relaxed);
        *self.stop.lock() = context.stop.clone();
        if self.wrong == Wrong::StartWaitsForTheCloud {
            let node = NodeIdentity::default();
            while matches!(self.instances().lookup(&[&node]).await[..], [InstanceLookup::Unknown(_)]) {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        }
        self.inner.start(context).await
    }

    async fn ended(&self) {
        if self.wrong == Wrong::EndWaitsForAStart && !self.is_started.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.common.has_ended.store(true, Ordering::Relaxed);
        self.inner.ended().await;
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn zones(&self) -> Option<&dyn Zones> {
        let is_there = self.wrong != Wrong::GainsZones || self.is_started.load(Ordering::Relaxed);
        match self.wrong {
            Wrong::Reverses => Some(self),
            _ => self.inner.zones().filter(|_| is_there),
        }
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        match self.wrong {
            Wrong::Reverses => Some(self),
            _ => self.inner.clusters(),
        }
    }

    fn machines(&self) -> Option<&dyn DynMachines> {
        self.inner.machines()
    }
}

fn mutant(wrong: Wrong) -> Subject {
    let (mut subject, common) = (Subject::new(), Arc::<Common>::default());
    subject.wrap = Box::new(move |inner| {
        Arc::new(Mutant {
            inner,
            wrong,
            common: common.clone(),
            is_busy: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            owned: AtomicUsize::new(0),
            is_started: AtomicBool::new(false),
            stop: Mutex::default(),
        })
    });
    subject
}

fn with_factory(factory: fn(&FactoryInput) -> Result<Arc<dyn CloudProvider>>) -> Subject {
    Subject { factory, ..Subject::new() }
}

fn config(input: &FactoryInput) -> &str {
    input.config.as_deref().unwrap_or_default()
}

/// Each rule, and a subject that breaks it.
fn broken() -> Vec<(&'static str, Subject)> {
    let of = |rule, wrong| (rule, mutant(wrong));
    let lenient = Subject::new();
    lenient.cloud.ignore_provider_ids();
    let hangs = Subject::new();
    hangs.cloud.fail(Operation::Ended, Fault::Hang);
    vec![
        of("lookups/present", Wrong::GivesNoId),
        of("lookups/absent", Wrong::StrangersAreUnknown),
        ("lookups/provider-id-decides", lenient),
        of("lookups/powered-off", Wrong::OffIsAbsent),
        of("lookups/destroyed", Wrong::NeverForgets),
        of("lookups/addresses", Wrong::AddressesAreWords),
        of("lookups/metadata", Wrong::MixesMetadata),
        of("lookups/order", Wrong::Reverses),
        of("lookups/no-nodes", Wrong::AnswersNobody),
        of("lookups/many-nodes", Wrong::AnswersAThousand),
        of("lookups/strange-nodes", Wrong::PanicsOverNul),
        of("lookups/cancelled", Wrong::KeepsItsLock),
        of("lookups/concurrent", Wrong::OneCallAtATime),
        of("lookups/fault", Wrong::ErrorsAreAbsent),
        of("lookups/disconnected", Wrong::ErrorsAreAbsent),
        of("lookups/zones", Wrong::Reverses),
        of("lookups/clusters", Wrong::Reverses),
        of("changes/told", Wrong::TellsNothing),
        of("changes/told", Wrong::NamesNobody),
        of("changes/told", Wrong::ShowsWhatItSawFirst),
        of("changes/every-stream", Wrong::OneStream),
        of("changes/unread", Wrong::DropsWhatIsUnread),
        of("changes/reconnect", Wrong::NoResync),
        of("changes/stop", Wrong::StreamsNeverEnd),
        of("provider-ids/form", Wrong::OwnsNothing),
        of("provider-ids/round-trip", Wrong::ChangesIds),
        ("provider-ids/other-forms", Subject { other_ids: |_| vec!["old-1".to_owned()], ..Subject::new() }),
        (
            "provider-ids/other-forms",
            Subject { other_ids: |_| vec!["fake:///u9".to_owned()], ..Subject::new() },
        ),
        of("provider-ids/foreign", Wrong::OwnsEverything),
        of("provider-ids/broken", Wrong::OwnsEverything),
        of("provider-ids/any-text", Wrong::OwnsBySeason),
        (
            "configuration/good",
            with_factory(|input| {
                input.warn(ConfigProblem::new("user", "is odd"));
                factory(input)
            }),
        ),
        (
            "configuration/every-problem",
            with_factory(|input| {
                factory(input).map_err(|error| Error::invalid_configuration(error.problems()[..1].to_vec()))
            }),
        ),
        (
            "configuration/any-text",
            with_factory(|input| {
                assert!(config(input).lines().count() < 3, "too long");
                factory(input)
            }),
        ),
        (
            "configuration/no-secret",
            with_factory(|input| {
                factory(input).map_err(|error| {
                    let words = config(input).lines().last().unwrap_or_default().to_owned();
                    Error::invalid_configuration(
                        [error.problems(), &[ConfigProblem::new(words, "is bad")]].concat(),
                    )
                })
            }),
        ),
        of("lifecycle/parts", Wrong::GainsZones),
        of("lifecycle/before-the-start", Wrong::AbsentBeforeTheStart),
        of("lifecycle/cloud-away", Wrong::StartWaitsForTheCloud),
        ("lifecycle/end", hangs),
        of("lifecycle/after-the-end", Wrong::AbsentAfterTheEnd),
        of("lifecycle/stop-at-once", Wrong::EndWaitsForAStart),
        of("lifecycle/two-at-once", Wrong::EndsAll),
        ("lifecycle/no-secret", Subject { fault: "user me, password correct-horse", ..Subject::new() }),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_rule_finds_who_breaks_it() {
    let broken: Vec<_> =
        broken().into_iter().chain(broken_parts::broken()).chain(broken_machines::broken()).collect();
    for (rule, subject) in &broken {
        let (suite, _) = rule.split_once('/').expect("a suite");
        let suite = Suite::ALL.iter().find(|one| one.as_str() == suite).expect("a suite");
        let is_seen_elsewhere = *rule == "lifecycle/no-secret";
        let suites = if is_seen_elsewhere { vec![Suite::Lookups, *suite] } else { vec![*suite] };
        let report = run_suites(subject, &suites).await;
        let names: Vec<_> = report.failed().map(|(rule, _)| rule.to_string()).collect();
        assert!(names.contains(&(*rule).to_owned()), "{rule} finds nothing: {report}");
        if is_seen_elsewhere {
            assert!(
                !report.failed().any(|(rule, why)| rule.suite == Suite::Lifecycle && why.contains(SECRET))
            );
        }
    }
    for suite in Suite::ALL {
        for check in checks(*suite) {
            let rule = format!("{}/{}", suite.as_str(), check.name);
            assert!(broken.iter().any(|(broken, _)| *broken == rule), "nobody breaks {rule}");
        }
    }
}
