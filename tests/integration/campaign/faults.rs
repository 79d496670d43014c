//! The kinds of faults, and the sequence of faults for a seed. Pure: the same seed gives the same sequence.

use std::time::Duration;

use super::{
    provider::KINDS,
    proxy::{What, Which},
};

/// The daemons that a fault of a daemon or of its connection to the API server affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    Leader,
    Number(usize),
    All,
}

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    // Nodes
    MachineVanishes,
    MachineOff(Duration),
    KubeletStops(Duration),
    NodeReplaced,
    NodeDeletedByOthers,
    Excluded(Duration),
    Allowed(Duration),
    TaintOfOthers(Duration),
    ShutdownTaintOfOthers { value: bool },
    AbsurdLease(i32, Duration),
    ReadyFlips(u32),
    LeaseDeleted,
    InstanceResized,
    // the cloud
    CloudFails(&'static str, Duration),
    SomeInstancesFail { percent: usize, time: Duration },
    CloudHangs,
    CloudSlow { delay: Duration, time: Duration },
    ProviderPanics(Duration),
    TooFewAnswers(Duration),
    WrongAbsences { percent: usize, time: Duration },
    ChangesLost,
    ChangesStorm(u32),
    // the API server
    ApiServerFrozen(Duration),
    ApiServerKilled,
    ApiServerRestarted,
    EtcdFrozen(Duration),
    ElectionLeaseDeleted,
    ElectionLeaseStolen,
    // the connection to the API server
    Spoilt { whom: Whom, which: Which, what: What, probability: f64, time: Duration },
    ConnectionsCut(Whom),
    WatchesCut(Whom),
    WatchesGarbled(Whom),
    // the daemons
    DaemonKilled(Whom),
    DaemonTerminated(Whom),
    DaemonFrozen(Whom, Duration),
    ClockJumps(Whom, i64),
}

/// The resource that a fault occupies: two faults with the same one are not active at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    /// One Node, which the fault chooses itself.
    Node,
    Cloud,
    WrongAbsences,
    ApiServer,
    Daemon,
    /// No resource: any number may be active.
    None,
}

impl Fault {
    /// The name of the fault in the report.
    pub(super) fn word(&self) -> String {
        let text = format!("{self:?}");
        match self {
            Self::Spoilt { which, what, .. } => {
                let what = format!("{what:?}");
                let what = what.split('(').next().unwrap_or_default();
                match self {
                    Self::Spoilt { what: What::Status(code), .. } => format!("answers {code} to {which:?}"),
                    _ => format!("answers {what} to {which:?}"),
                }
            }
            Self::WrongAbsences { percent, .. } if *percent > super::BREAKER_PERCENT => {
                "WrongAbsences, beyond the breaker".to_owned()
            }
            _ => text.split([' ', '(', '{']).next().unwrap_or_default().to_owned(),
        }
    }

    pub(super) fn group(&self) -> Group {
        match self {
            Self::CloudFails(..)
            | Self::CloudHangs
            | Self::CloudSlow { .. }
            | Self::ProviderPanics(_)
            | Self::TooFewAnswers(_) => Group::Cloud,
            Self::WrongAbsences { .. } => Group::WrongAbsences,
            Self::ApiServerFrozen(_)
            | Self::ApiServerKilled
            | Self::ApiServerRestarted
            | Self::EtcdFrozen(_)
            | Self::ElectionLeaseDeleted
            | Self::ElectionLeaseStolen => Group::ApiServer,
            Self::DaemonKilled(_)
            | Self::DaemonTerminated(_)
            | Self::DaemonFrozen(..)
            | Self::ClockJumps(..) => Group::Daemon,
            Self::SomeInstancesFail { .. }
            | Self::ChangesLost
            | Self::ChangesStorm(_)
            | Self::Spoilt { .. }
            | Self::ConnectionsCut(_)
            | Self::WatchesCut(_)
            | Self::WatchesGarbled(_) => Group::None,
            _ => Group::Node,
        }
    }
}

/// A fault at its position in the sequence.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    /// The time since the first fault.
    pub(super) at: Duration,
    /// Where to begin the search for a suitable Node.
    pub(super) target: usize,
    pub(super) fault: Fault,
}

/// The parameters of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) nodes: usize,
    pub(super) daemons: usize,
    /// Faults per second.
    pub(super) rate: f64,
    /// Leave out faults that take half a minute to recover from.
    pub(super) is_short: bool,
    pub(super) focus: Focus,
}

/// Which faults are in the sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Focus {
    #[default]
    Everything,
    /// The cloud is always wrong about some Nodes, and the API server freezes for almost as long as the
    /// timeouts of the daemon's requests: a daemon that measures silence carelessly would take kubelets for
    /// dead.
    Freezes,
    /// The cloud is wrong about many Nodes, and leaders change often: a new leader lacks its predecessor's
    /// memory.
    Leaders,
}

/// An endless sequence.
#[derive(Debug)]
pub(super) struct Sequence {
    rng: fastrand::Rng,
    shape: Shape,
    at: Duration,
}

impl Sequence {
    pub(super) fn new(seed: u64, shape: Shape) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), shape, at: Duration::ZERO }
    }

    fn seconds(&mut self, from: f64, to: f64) -> Duration {
        Duration::from_secs_f64(self.rng.f64().mul_add(to - from, from))
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.usize(..all.len())]
    }

    fn whom(&mut self) -> Whom {
        match self.rng.u8(0..10) {
            0..=4 => Whom::Leader,
            5 | 6 => Whom::All,
            _ => Whom::Number(self.rng.usize(..self.shape.daemons)),
        }
    }

    fn one_daemon(&mut self) -> Whom {
        match self.whom() {
            Whom::All => Whom::Leader,
            whom => whom,
        }
    }

    fn draw(&mut self) -> Fault {
        match (self.shape.focus, self.rng.u8(0..100)) {
            (Focus::Freezes, 0..=5) => {
                Fault::WrongAbsences { percent: self.rng.usize(8..13), time: self.seconds(40.0, 90.0) }
            }
            (Focus::Freezes, 6) => Fault::ApiServerFrozen(self.seconds(8.7, 9.9)),
            (Focus::Leaders, 0..=5) => {
                Fault::WrongAbsences { percent: self.rng.usize(22..60), time: self.seconds(40.0, 90.0) }
            }
            (Focus::Leaders, 6) => Fault::DaemonKilled(Whom::Leader),
            (Focus::Leaders, 7) => Fault::DaemonTerminated(Whom::Leader),
            (Focus::Leaders, 8) => Fault::ElectionLeaseStolen,
            (Focus::Everything, _) => self.draw_any(),
            _ => match self.rng.u8(0..30) {
                0..=4 => Fault::MachineVanishes,
                5..=8 => Fault::Excluded(self.seconds(0.5, 20.0)),
                9..=11 => Fault::Allowed(self.seconds(0.5, 20.0)),
                12..=15 => Fault::MachineOff(self.seconds(5.0, 40.0)),
                16..=18 => Fault::ReadyFlips(self.rng.u32(1..6)),
                19..=21 => Fault::KubeletStops(self.seconds(2.0, 40.0)),
                22 | 23 => Fault::NodeReplaced,
                24 => Fault::WatchesCut(self.whom()),
                _ => Fault::InstanceResized,
            },
        }
    }

    fn draw_any(&mut self) -> Fault {
        // Shortens the faults of a short campaign.
        let long = if self.shape.is_short { 0.3 } else { 1.0 };
        match self.rng.u32(0..1000) {
            0..=179 | 931 | 934..=937 | 964..=969 => Fault::MachineVanishes,
            180..=259 => Fault::MachineOff(self.seconds(3.0, 60.0 * long)),
            260..=339 => Fault::KubeletStops(self.seconds(2.0, 60.0 * long)),
            340..=389 => Fault::NodeReplaced,
            390..=429 => Fault::NodeDeletedByOthers,
            430..=509 => Fault::Excluded(self.seconds(0.5, 40.0 * long)),
            510..=569 => Fault::Allowed(self.seconds(0.5, 40.0 * long)),
            570..=629 => Fault::TaintOfOthers(self.seconds(0.5, 20.0)),
            630..=669 => Fault::ShutdownTaintOfOthers { value: self.rng.bool() },
            670..=704 => Fault::AbsurdLease(self.one_of(&[i32::MAX, 1, 3, 86_400]), self.seconds(5.0, 30.0)),
            705..=764 => Fault::ReadyFlips(self.rng.u32(1..6)),
            765..=804 => Fault::LeaseDeleted,
            805..=864 => Fault::InstanceResized,
            865..=869 => {
                let kind = KINDS[self.rng.usize(..KINDS.len())].0;
                Fault::CloudFails(kind, self.seconds(0.5, 20.0 * long))
            }
            870..=877 => {
                Fault::SomeInstancesFail { percent: self.rng.usize(1..30), time: self.seconds(1.0, 20.0) }
            }
            878..=879 => Fault::CloudHangs,
            880..=884 => {
                Fault::CloudSlow { delay: self.seconds(0.1, 5.0), time: self.seconds(1.0, 15.0 * long) }
            }
            885..=887 => Fault::ProviderPanics(self.seconds(0.2, 5.0)),
            888..=890 => Fault::TooFewAnswers(self.seconds(0.2, 5.0)),
            891..=904 => {
                Fault::WrongAbsences { percent: self.rng.usize(2..13), time: self.seconds(5.0, 60.0 * long) }
            }
            905..=907 => {
                Fault::WrongAbsences { percent: self.rng.usize(25..60), time: self.seconds(5.0, 40.0 * long) }
            }
            908..=915 => Fault::ChangesLost,
            916..=919 => Fault::ChangesStorm(self.rng.u32(1..200)),
            // The timeouts of the daemon's requests are near ten seconds.
            920..=926 if self.rng.bool() && !self.shape.is_short => {
                Fault::ApiServerFrozen(self.seconds(8.5, 10.5))
            }
            920..=926 => Fault::ApiServerFrozen(self.seconds(0.1, 12.0 * long.max(0.5))),
            932 if !self.shape.is_short => Fault::ApiServerKilled,
            933 if !self.shape.is_short => Fault::ApiServerRestarted,
            927..=930 | 932..=933 => Fault::EtcdFrozen(self.seconds(0.1, 8.0 * long.max(0.5))),
            938..=939 => Fault::ElectionLeaseDeleted,
            940..=941 => Fault::ElectionLeaseStolen,
            942..=963 => {
                let which = self.one_of(&[
                    Which::All,
                    Which::All,
                    Which::Writes,
                    Which::WatchStarts,
                    Which::NodeLeases,
                    Which::Election,
                ]);
                let what = match which {
                    Which::WatchStarts => self.one_of(&[What::Status(410), What::Status(500), What::Reset]),
                    Which::NodeLeases => self.one_of(&[
                        What::Status(403),
                        What::Status(503),
                        What::Stall,
                        What::Delay(Duration::from_secs(4)),
                    ]),
                    _ => {
                        let delay = self.seconds(0.05, 6.0);
                        self.one_of(&[
                            What::Status(429),
                            What::Status(500),
                            What::Status(503),
                            What::Status(504),
                            What::LoseAnswer,
                            What::Reset,
                            What::Stall,
                            What::Delay(delay),
                        ])
                    }
                };
                let probability = self.one_of(&[0.2, 0.5, 1.0]);
                Fault::Spoilt {
                    whom: self.whom(),
                    which,
                    what,
                    probability,
                    time: self.seconds(0.5, 10.0 * long.max(0.5)),
                }
            }
            970..=975 => Fault::ConnectionsCut(self.whom()),
            976..=980 => Fault::WatchesCut(self.whom()),
            981..=983 => Fault::WatchesGarbled(self.whom()),
            984..=987 => Fault::DaemonKilled(self.one_daemon()),
            988..=990 => Fault::DaemonTerminated(self.one_daemon()),
            991..=995 => Fault::DaemonFrozen(self.one_daemon(), self.seconds(0.5, 20.0 * long)),
            _ => Fault::ClockJumps(self.one_daemon(), self.one_of(&[-86_400, -60, -13, 13, 45, 3_600])),
        }
    }
}

impl Iterator for Sequence {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        let pause = -(1.0 - self.rng.f64()).ln() / self.shape.rate;
        self.at += Duration::from_secs_f64(pause);
        let target = self.rng.usize(..self.shape.nodes);
        Some(Planned { at: self.at, target, fault: self.draw() })
    }
}
