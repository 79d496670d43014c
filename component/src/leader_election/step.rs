//! Decides what to do next, without calling the API and without reading a clock.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};
use tokio::time::Instant;

/// The duration that a released Lease contains, in seconds. The API server requires at least one.
const RELEASED_SECONDS: i32 = 1;

/// A process that wants to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its unique name on the Lease.
    pub identity: String,
    /// How long other candidates must wait after a renewal.
    pub lease_duration: Duration,
}

/// The part of a Lease that concerns the election. Missing fields count as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `holderIdentity`; empty if there is no holder.
    pub holder: String,
    /// `leaseDurationSeconds`
    pub duration_seconds: i32,
    /// `acquireTime`, by the holder's wall clock.
    pub acquired: Option<Timestamp>,
    /// `renewTime`, by the holder's wall clock.
    pub renewed: Option<Timestamp>,
    /// `leaseTransitions`: how often the holder changed. The first holder of a new Lease has 0. A release
    /// does not count, but the acquisition after it does.
    pub transitions: i32,
}

impl Record {
    /// Reads the record from a Lease.
    pub fn read(spec: Option<&LeaseSpec>) -> Self {
        let Some(spec) = spec else { return Self::default() };
        Self {
            holder: spec.holder_identity.clone().unwrap_or_default(),
            duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }

    /// The whole `spec` in client-go's form: all five fields and no others, with times in microseconds.
    pub fn write(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(self.duration_seconds),
            acquire_time: self.acquired.map(MicroTime),
            renew_time: self.renewed.map(MicroTime),
            lease_transitions: Some(self.transitions),
            ..LeaseSpec::default()
        }
    }

    /// This record after its holder released the Lease: it has no holder, and a reader that regards only the
    /// duration waits no longer than a second.
    #[must_use]
    pub fn released(&self, wall: Timestamp) -> Self {
        Self {
            holder: String::new(),
            duration_seconds: RELEASED_SECONDS,
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: self.transitions,
        }
    }
}

/// A record, and since when it has been unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The record as it was last read.
    pub record: Record,
    /// When this record was first read, on the local monotonic clock.
    pub changed: Instant,
}

impl Observation {
    /// Adds the record that was read at `now` to the observation `before`. The time begins anew only if the
    /// record differs: a change of the Lease's metadata is no renewal.
    #[must_use]
    pub fn of(record: Record, before: Option<&Self>, now: Instant) -> Self {
        let changed = before.filter(|before| before.record == record).map_or(now, |before| before.changed);
        Self { record, changed }
    }

    /// When the holder's term ends if it is not renewed. A Lease without a duration, which no elector writes,
    /// has the duration `default`.
    fn ends(&self, default: Duration) -> Instant {
        let seconds = u64::try_from(self.record.duration_seconds).ok().filter(|seconds| *seconds > 0);
        self.changed + seconds.map_or(default, Duration::from_secs)
    }
}

/// What to do about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// There is no Lease: create it with this record.
    Create(Record),
    /// Replace the observed record by this one, unless another candidate has written in the meantime.
    Replace(Record),
    /// Another candidate holds the Lease, until then if it is not renewed.
    Wait {
        /// The end of the other candidate's term.
        until: Instant,
    },
    /// This process led, and another candidate holds the Lease now.
    Lost {
        /// The new holder.
        holder: String,
    },
}

/// What `candidate` does about the Lease.
///
/// `leads` says whether the candidate has been the leader so far. `observed` is what was read, or `None` if
/// there is no Lease. `now` is the local monotonic time, and `wall` the time of day to write. The rules are
/// client-go's with one exception: a leader that finds another holder has lost, even if that holder's term is
/// over too, since the other candidate led in between.
pub fn step(
    candidate: &Candidate,
    leads: bool,
    observed: Option<&Observation>,
    now: Instant,
    wall: Timestamp,
) -> Op {
    let mine = Record {
        holder: candidate.identity.clone(),
        duration_seconds: whole_seconds(candidate.lease_duration),
        acquired: Some(wall),
        renewed: Some(wall),
        transitions: 0,
    };
    let Some(observed) = observed else { return Op::Create(mine) };
    let record = &observed.record;
    if record.holder == candidate.identity {
        // Also if this process does not know that it leads, because the response to its own write was lost.
        return Op::Replace(Record {
            acquired: record.acquired.or(mine.acquired),
            transitions: record.transitions,
            ..mine
        });
    }
    if !record.holder.is_empty() {
        if leads {
            return Op::Lost { holder: record.holder.clone() };
        }
        let until = observed.ends(candidate.lease_duration);
        if now < until {
            return Op::Wait { until };
        }
    }
    Op::Replace(Record { transitions: record.transitions.saturating_add(1), ..mine })
}

/// Rounds up: the written term must not be shorter than the intended one.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i32::try_from(seconds).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn me() -> Candidate {
        Candidate { identity: "me".into(), lease_duration: Duration::from_secs(15) }
    }

    /// A record of `holder`, acquired at 100 and renewed at `renewed`.
    fn record(holder: &str, renewed: i64, transitions: i32) -> Record {
        Record {
            holder: holder.into(),
            duration_seconds: 15,
            acquired: Some(wall(100)),
            renewed: Some(wall(renewed)),
            transitions,
        }
    }

    fn seen(record: Record, changed: Instant) -> Observation {
        Observation { record, changed }
    }

    #[test]
    fn no_lease_is_created() {
        for leads in [false, true] {
            let Op::Create(record) = step(&me(), leads, None, Instant::now(), wall(7)) else {
                panic!("not created")
            };
            let expected = Record {
                holder: "me".into(),
                duration_seconds: 15,
                acquired: Some(wall(7)),
                renewed: Some(wall(7)),
                transitions: 0,
            };
            assert_eq!(record, expected);
        }
    }

    #[test]
    fn a_held_lease_is_left_alone_until_its_time_is_over() {
        let start = Instant::now();
        let observed = seen(record("rival", 0, 4), start);
        let at = |seconds: u32| step(&me(), false, Some(&observed), start + seconds * SECOND, wall(900));
        assert_eq!(at(0), Op::Wait { until: start + 15 * SECOND });
        assert_eq!(at(14), Op::Wait { until: start + 15 * SECOND });
        let Op::Replace(taken) = at(15) else { panic!("not taken over") };
        assert_eq!(taken, Record { acquired: Some(wall(900)), ..record("me", 900, 5) });
    }

    #[test]
    fn the_others_duration_counts_not_ours() {
        let start = Instant::now();
        for (seconds, ends) in [(60, 60), (3, 3), (0, 15), (-5, 15)] {
            let observed = seen(Record { duration_seconds: seconds, ..record("rival", 0, 0) }, start);
            let op = step(&me(), false, Some(&observed), start, wall(0));
            assert_eq!(op, Op::Wait { until: start + ends * SECOND }, "{seconds}");
        }
    }

    #[test]
    fn the_wall_clock_decides_nothing() {
        let start = Instant::now();
        for renewed in [0, 1_000_000, 2_000_000] {
            for ours in [0, 1_000_000, 2_000_000] {
                let observed = seen(record("rival", renewed, 0), start);
                let op = |now| step(&me(), false, Some(&observed), now, wall(ours));
                assert!(matches!(op(start + 14 * SECOND), Op::Wait { .. }), "{renewed} {ours}");
                assert!(matches!(op(start + 15 * SECOND), Op::Replace(_)), "{renewed} {ours}");
            }
        }
    }

    #[test]
    fn a_released_lease_is_taken_at_once_and_counts_as_a_change() {
        let start = Instant::now();
        let released = record("rival", 50, 4).released(wall(60));
        assert_eq!(
            released,
            Record {
                holder: String::new(),
                duration_seconds: 1,
                acquired: Some(wall(60)),
                renewed: Some(wall(60)),
                transitions: 4
            }
        );
        let Op::Replace(taken) = step(&me(), false, Some(&seen(released, start)), start, wall(61)) else {
            panic!("not taken")
        };
        assert_eq!((taken.holder.as_str(), taken.transitions, taken.acquired), ("me", 5, Some(wall(61))));
    }

    #[test]
    fn a_renewal_keeps_what_the_acquisition_wrote() {
        let start = Instant::now();
        // With `leads` false, this is the process's own write whose response was lost.
        for leads in [false, true] {
            let observed = seen(record("me", 100, 3), start);
            let op = step(&me(), leads, Some(&observed), start + 60 * SECOND, wall(160));
            assert_eq!(op, Op::Replace(record("me", 160, 3)));
        }
    }

    #[test]
    fn a_leader_that_meets_another_holder_has_lost() {
        let start = Instant::now();
        let observed = seen(record("rival", 0, 0), start);
        for now in [start, start + 60 * SECOND] {
            let op = step(&me(), true, Some(&observed), now, wall(0));
            assert_eq!(op, Op::Lost { holder: "rival".into() });
        }
    }

    #[test]
    fn only_another_record_begins_a_new_time() {
        let start = Instant::now();
        let first = Observation::of(record("rival", 1, 0), None, start);
        let same = Observation::of(record("rival", 1, 0), Some(&first), start + SECOND);
        assert_eq!(same.changed, start);
        let renewed = Observation::of(record("rival", 2, 0), Some(&same), start + 2 * SECOND);
        assert_eq!(renewed.changed, start + 2 * SECOND);
    }

    #[test]
    fn terms_are_rounded_up() {
        for (millis, seconds) in [(15_000, 15), (15_001, 16), (500, 1), (0, 1)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn the_wire_form_is_client_gos() {
        let text = serde_json::to_value(record("me", 160, 3).write()).expect("JSON");
        assert_eq!(
            text,
            serde_json::json!({
                "holderIdentity": "me",
                "leaseDurationSeconds": 15,
                "acquireTime": "1970-01-01T00:01:40.000000Z",
                "renewTime": "1970-01-01T00:02:40.000000Z",
                "leaseTransitions": 3,
            })
        );
        let back: LeaseSpec = serde_json::from_value(text).expect("a spec");
        assert_eq!(Record::read(Some(&back)), record("me", 160, 3));
        assert_eq!(Record::read(None), Record::default());
        let released = serde_json::to_value(record("me", 1, 0).released(wall(2)).write()).expect("JSON");
        assert_eq!(released["holderIdentity"], "");
    }
}
