//! The metrics of a program. Each part defines its [`MetricSet`] beside the code that counts, and gets this
//! set from outside. This module has the collection of all sets, and the metrics of every program: its build
//! and its process.

mod build;
mod process;
mod register;
mod text;

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;
use prometheus::Registry;

pub use process::start_time;
pub use register::{Described, MetricSet, Register};
pub use text::encode;

use build::BuildInfo;
use process::Process;

/// All metrics of a program, in sets. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    namespace: &'static str,
    sets: Arc<Mutex<Sets>>,
}

#[derive(Default)]
struct Sets {
    by_type: HashMap<TypeId, Box<dyn Any + Send>>,
    described: Vec<Described>,
}

impl Metrics {
    /// The metrics that every program has. `namespace` is the prefix of the metrics that upstream does not
    /// have.
    ///
    /// # Errors
    /// The same as [`get`](Self::get).
    pub fn new(namespace: &'static str) -> prometheus::Result<Self> {
        let metrics = Self { registry: Registry::new(), namespace, sets: Arc::default() };
        metrics.get::<BuildInfo>()?;
        metrics.get::<Process>()?;
        Ok(metrics)
    }

    /// The metrics of one part. The first call registers them, and all callers share them.
    ///
    /// # Errors
    /// A name is registered twice, which is a mistake in the program.
    pub fn get<M: MetricSet>(&self) -> prometheus::Result<M> {
        let mut sets = self.sets.lock();
        if let Some(set) = sets.by_type.get(&TypeId::of::<M>()).and_then(|set| set.downcast_ref::<M>()) {
            return Ok(set.clone());
        }
        let mut register = Register::new(&self.registry, self.namespace, &mut sets.described);
        let set = M::register(&mut register)?;
        sets.by_type.insert(TypeId::of::<M>(), Box::new(set.clone()));
        Ok(set)
    }

    /// All registered metrics, sorted by name.
    pub fn described(&self) -> Vec<Described> {
        let mut described = self.sets.lock().described.clone();
        described.sort_by(|a, b| a.name.cmp(&b.name));
        described
    }

    /// The registry of all metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All metrics in Prometheus' text format.
    pub fn text(&self) -> String {
        encode(&self.registry.gather())
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use prometheus::IntGauge;

    use super::*;

    #[derive(Clone)]
    struct Sheep(IntGauge);

    impl MetricSet for Sheep {
        fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
            let name = register.own("sheep");
            Ok(Self(register.gauge(&name, "Sheep on the meadow.")?))
        }
    }

    /// A set with a metric of the same name.
    #[derive(Clone)]
    struct Goats;

    impl MetricSet for Goats {
        fn register(register: &mut Register<'_>) -> prometheus::Result<Self> {
            Sheep::register(register).map(|_| Self)
        }
    }

    #[test]
    fn a_set_is_registered_once_and_shared() {
        let metrics = Metrics::new("farm").expect("metrics");
        assert!(!metrics.text().contains("farm_sheep"));
        metrics.get::<Sheep>().expect("sheep").0.set(3);
        metrics.clone().get::<Sheep>().expect("the same sheep").0.inc();
        assert!(
            metrics
                .text()
                .contains("# HELP farm_sheep Sheep on the meadow.\n# TYPE farm_sheep gauge\nfarm_sheep 4\n")
        );
        assert!(metrics.get::<Goats>().is_err(), "two sets with one name");
        let described = metrics.described();
        assert!(described.windows(2).all(|pair| pair[0].name < pair[1].name), "{described:?}");
    }

    #[test]
    fn every_program_shows_its_build_and_its_process() {
        let text = Metrics::new("farm").expect("metrics").text();
        assert!(
            text.contains("process_resident_memory_bytes ") && text.contains("kubernetes_build_info{"),
            "{text}"
        );
    }
}
