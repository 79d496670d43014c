//! client-go's rules for frequent events: similar ones are combined, and each object has a budget.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio::time::Instant;

use super::{EventObject, EventType, Recorded};
use crate::api_text::truncated;

/// From this number on, events about one object with the same reason but different messages are combined.
const MOST_SIMILAR: usize = 10;

/// Similar events count together while the pause between two of them is not longer than this.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);

/// Prefix of the message of a combined event.
const COMBINED: &str = "(combined from similar events): ";

/// The budget for each source, object and type: a burst of 25, then one event in 300 s.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);

/// Number of remembered objects and reasons after which old ones are forgotten.
const MANY: usize = 4096;

/// How often old ones are looked for, at most. With thousands of living objects a look finds nothing and takes long.
const FORGET_INTERVAL: Duration = Duration::from_secs(60);

/// Everything in an event except its message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    object: EventObject,
    event_type: EventType,
    reason: Cow<'static, str>,
    component: &'static str,
}

/// Identifies the events that share one object in the API, with a count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SeriesKey {
    /// Repetitions of the same event.
    Same(Recorded),
    /// Similar events that are combined.
    Combined(Group),
}

/// The memory of earlier events.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    similar: HashMap<Group, Similar>,
    budgets: HashMap<(EventObject, EventType, &'static str), Budget>,
    /// When old ones were last looked for.
    looked: Option<Instant>,
}

#[derive(Debug)]
struct Similar {
    messages: HashSet<String>,
    last: Instant,
}

#[derive(Debug)]
struct Budget {
    left: f64,
    at: Instant,
}

impl Correlator {
    /// The event to write, and the series that it belongs to. `None` if the budget is spent.
    pub(super) fn correlate(&mut self, event: Recorded, now: Instant) -> Option<(Recorded, SeriesKey)> {
        self.forget_old(now);
        let (event, key) = self.combine(event, now);
        self.spend(&event, now).then_some((event, key))
    }

    fn combine(&mut self, event: Recorded, now: Instant) -> (Recorded, SeriesKey) {
        let group = Group {
            object: event.object.clone(),
            event_type: event.event_type,
            reason: event.reason.clone(),
            component: event.component,
        };
        let similar = self
            .similar
            .entry(group.clone())
            .or_insert_with(|| Similar { messages: HashSet::new(), last: now });
        if now.duration_since(similar.last) > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        let is_one_more = !similar.messages.contains(&event.message);
        if similar.messages.len() + usize::from(is_one_more) < MOST_SIMILAR {
            similar.messages.insert(event.message.clone());
            return (event.clone(), SeriesKey::Same(event));
        }
        let message = truncated(format!("{COMBINED}{}", event.message));
        (Recorded { message, ..event }, SeriesKey::Combined(group))
    }

    fn spend(&mut self, event: &Recorded, now: Instant) -> bool {
        let key = (event.object.clone(), event.event_type, event.component);
        let budget = self.budgets.entry(key).or_insert(Budget { left: BURST, at: now });
        let refilled = now.duration_since(budget.at).as_secs_f64() / REFILL.as_secs_f64();
        budget.left = (budget.left + refilled).min(BURST);
        budget.at = now;
        if budget.left < 1.0 {
            return false;
        }
        budget.left -= 1.0;
        true
    }

    /// Limits the size of the maps, which would otherwise grow with every Node that ever existed.
    fn forget_old(&mut self, now: Instant) {
        let are_many = self.similar.len() > MANY || self.budgets.len() > MANY;
        if !are_many || self.looked.is_some_and(|looked| now.duration_since(looked) < FORGET_INTERVAL) {
            return;
        }
        self.looked = Some(now);
        self.similar.retain(|_, similar| now.duration_since(similar.last) <= SIMILAR_WITHIN);
        self.budgets.retain(|_, budget| now.duration_since(budget.at) < REFILL.mul_f64(BURST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: &str) -> Recorded {
        Recorded {
            object: EventObject::lease("n", "o", ""),
            event_type: EventType::Warning,
            reason: "Reason".into(),
            message: message.to_owned(),
            component: "c",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_tenth_similar_event_is_combined() {
        let (mut correlator, mut now) = (Correlator::default(), Instant::now());
        let mut correlate =
            |message: &str, now| correlator.correlate(event(message), now).expect("in budget");
        for number in 1..10 {
            let (written, key) = correlate(&number.to_string(), now);
            assert_eq!(written.message, number.to_string());
            assert_eq!(key, SeriesKey::Same(event(&number.to_string())));
        }
        // A message that was seen before does not count again.
        assert_eq!(correlate("3", now).0.message, "3");
        let (written, key) = correlate("10", now);
        assert_eq!(written.message, "(combined from similar events): 10");
        assert_eq!(correlate("11", now).1, key, "one object for all of them");
        now += SIMILAR_WITHIN;
        assert_eq!(correlate("12", now).1, key);
        now += SIMILAR_WITHIN + Duration::from_secs(1);
        assert_eq!(correlate("13", now).0.message, "13", "a pause ends it");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_has_a_burst_and_then_little() {
        let (mut correlator, now) = (Correlator::default(), Instant::now());
        let mut passes = |event: Recorded, now| correlator.correlate(event, now).is_some();
        assert_eq!((0..100).filter(|_| passes(event("same"), now)).count(), 25);
        let normal = Recorded { event_type: EventType::Normal, ..event("same") };
        assert!(passes(normal, now), "each type has its own budget");
        let later = now + REFILL;
        assert_eq!((0..5).filter(|_| passes(event("same"), later)).count(), 1);
        let other = Recorded { object: EventObject::lease("n", "other", ""), ..event("same") };
        assert!(passes(other, now));
    }

    #[tokio::test(start_paused = true)]
    async fn old_objects_are_forgotten_with_one_look_a_minute() {
        let (mut correlator, mut now) = (Correlator::default(), Instant::now());
        let about = |name: String| Recorded { object: EventObject::lease("n", &name, ""), ..event("same") };
        let fill = |correlator: &mut Correlator, round: u32, now| {
            for number in 0..=MANY {
                assert!(correlator.correlate(about(format!("{round}-{number}")), now).is_some());
            }
        };
        fill(&mut correlator, 0, now);
        now += SIMILAR_WITHIN + Duration::from_secs(1);
        fill(&mut correlator, 1, now);
        assert_eq!(correlator.looked, Some(now), "the first event looked, and no other did");
        assert_eq!(correlator.similar.len(), MANY + 1, "those of the first round are gone");
    }
}
