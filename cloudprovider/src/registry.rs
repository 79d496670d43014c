//! The registry of providers, filled by the binary.

use std::{
    any::type_name,
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{CloudProvider, ConfigProblem, Error, ErrorKind, Result, machines::MachineTypes};

type Factory = Arc<dyn Fn(&FactoryInput) -> Result<Arc<dyn CloudProvider>> + Send + Sync>;

/// Reads a whole file.
type Reader = Arc<dyn Fn(&Path) -> io::Result<Vec<u8>> + Send + Sync>;

/// The providers that a binary knows, each with its name and a factory. Clones share the factories.
#[derive(Clone, Default)]
pub struct Registry {
    factories: BTreeMap<String, Factory>,
    machines: BTreeMap<String, MachineTypes>,
    crates: BTreeSet<&'static str>,
}

/// The input from which a factory creates a provider.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct FactoryInput {
    /// The text of the file given by `--cloud-config`. `None` without that flag.
    pub config: Option<String>,
    /// The path of the file with this text, for messages and for relative paths in the text.
    pub config_path: Option<PathBuf>,
    reader: Option<Reader>,
    warnings: Arc<Mutex<Vec<ConfigProblem>>>,
}

impl FactoryInput {
    /// An input with this configuration text.
    pub fn new(config: impl Into<String>) -> Self {
        Self { config: Some(config.into()), ..Self::default() }
    }

    /// Sets the path that the text was read from.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.config_path = Some(path.into());
        self
    }

    /// Sets the function that reads further files. It may record which files were read.
    #[must_use]
    pub fn with_reader(
        mut self,
        reader: impl Fn(&Path) -> io::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        self.reader = Some(Arc::new(reader));
        self
    }

    /// Reads a file that the configuration names, such as a file with a password.
    ///
    /// Such a file belongs to the configuration: when it changes, the factory is called again, and the new
    /// provider takes the place of the old one. So keep the content, and do not read the file again later.
    ///
    /// # Errors
    /// The errors of [`std::fs::read`]. They do not contain the path.
    pub fn read_file(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        match &self.reader {
            Some(reader) => reader(path.as_ref()),
            None => std::fs::read(path),
        }
    }

    /// Warns of something in the configuration that is probably a mistake but works, or has no effect: for
    /// example an unknown key, or a value that seems cut off.
    ///
    /// The caller of the factory shows the warnings to the operator, even if the configuration is refused: a
    /// warning often explains why. So a factory does not log them itself.
    pub fn warn(&self, warning: ConfigProblem) {
        self.warnings.lock().push(warning);
    }

    /// The warnings so far, in order. Clones of an input share them.
    pub fn warnings(&self) -> Vec<ConfigProblem> {
        self.warnings.lock().clone()
    }
}

impl fmt::Debug for FactoryInput {
    /// Leaves out the text, since it may contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FactoryInput").field("config_path", &self.config_path).finish_non_exhaustive()
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider.
    ///
    /// The factory checks the whole configuration, with the files that it names
    /// ([`FactoryInput::read_file`]). It reports all faults at once ([`Error::invalid_configuration`]), with
    /// the names of their keys and without secrets. It warns of what is odd but not a fault
    /// ([`FactoryInput::warn`]). It makes no call to the cloud. It is called again whenever a file changes,
    /// and the providers that it created before may still be working then.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the name is taken.
    pub fn register<F>(&mut self, name: &str, factory: F) -> Result<()>
    where
        F: Fn(&FactoryInput) -> Result<Arc<dyn CloudProvider>> + Send + Sync + 'static,
    {
        if self.factories.contains_key(name) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("cloud provider {name:?} is registered already"),
            ));
        }
        self.factories.insert(name.to_owned(), Arc::new(factory));
        self.crates.extend(crate_of(type_name::<F>()));
        Ok(())
    }

    /// Says that the provider called `name` has machines, for the definitions of their kinds and for the permissions that they
    /// need: `registry.register_machines("libvirt", MachineTypes::of::<Libvirt>())`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such provider, and [`ErrorKind::Conflict`] if this was said before.
    pub fn register_machines(&mut self, name: &str, types: MachineTypes) -> Result<()> {
        if !self.factories.contains_key(name) {
            let words = format!("cloud provider {name:?} has machines, and is not registered itself");
            return Err(Error::new(ErrorKind::NotFound, words));
        }
        if self.machines.insert(name.to_owned(), types).is_some() {
            let words = format!("the machines of cloud provider {name:?} are registered already");
            return Err(Error::new(ErrorKind::Conflict, words));
        }
        Ok(())
    }

    /// The kinds and types of the machines of the provider called `name`, if it has any.
    pub fn machines(&self, name: &str) -> Option<MachineTypes> {
        self.machines.get(name).copied()
    }

    /// Logs the records of this crate at the daemon's own levels, not at those of a library. The crate that
    /// contains a factory is included by itself. This method is for the other crates of a provider, such as
    /// the client of its cloud. `crate_name` is written as in paths: `my_cloud`.
    pub fn log_crate(&mut self, crate_name: &'static str) {
        self.crates.insert(crate_name);
    }

    /// The crates whose records are logged at the daemon's own levels, sorted.
    pub fn logged_crates(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.crates.iter().copied()
    }

    /// The known names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }

    /// Creates the provider called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown name, with upstream's message and the known names. Otherwise
    /// the error of the factory, below upstream's `could not init cloud provider`.
    pub fn create(&self, name: &str, input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
        let Some(factory) = self.factories.get(name) else {
            let known = self.names().collect::<Vec<_>>().join(", ");
            let known =
                if known.is_empty() { "none is built in".to_owned() } else { format!("known: {known}") };
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("unknown cloud provider {name:?} ({known})"),
            ));
        };
        factory(input).map_err(|error| error.wrap(format!("could not init cloud provider {name:?}")))
    }
}

/// The crate that contains a function, according to the name of the function's type. `None` if that name does
/// not contain the crate, as with a function pointer.
fn crate_of(type_name: &'static str) -> Option<&'static str> {
    let words = type_name.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let first = words.into_iter().find(|word| !word.is_empty())?;
    let is_path = type_name.trim_start_matches(['<', '&']).strip_prefix(first)?.starts_with("::");
    (is_path && !["alloc", "core", "std"].contains(&first)).then_some(first)
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.factories.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::{Kind, Kinds};

    fn refusing(_: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
        Err(Error::invalid_configuration(vec![ConfigProblem::new("uri", "missing")]))
    }

    #[test]
    fn a_name_is_taken_once() {
        let mut registry = Registry::new();
        registry.register("a", refusing).expect("first");
        assert_eq!(registry.register("a", refusing).expect_err("second").kind(), ErrorKind::Conflict);
    }

    #[test]
    fn machines_belong_to_a_provider() {
        let mut registry = Registry::new();
        let kinds = Kinds::new("v1", Kind::new("A", "as"), Kind::new("B", "bs"));
        let types = MachineTypes::new(kinds, || unreachable!("nobody asks"));
        assert_eq!(registry.register_machines("a", types).expect_err("none").kind(), ErrorKind::NotFound);
        registry.register("a", refusing).expect("free");
        assert!(registry.machines("a").is_none());
        registry.register_machines("a", types).expect("first");
        assert_eq!(registry.register_machines("a", types).expect_err("second").kind(), ErrorKind::Conflict);
        assert_eq!(registry.machines("a").map(|types| types.kinds.machine.kind), Some("A"));
    }

    #[test]
    fn the_crate_of_each_factory_is_logged_as_ours() {
        let mut registry = Registry::new();
        assert_eq!(registry.logged_crates().count(), 0);
        registry.register("function", refusing).expect("free");
        let closure = |input: &FactoryInput| {
            input.warn(ConfigProblem::new("colour", "odd"));
            refusing(input)
        };
        registry.register("closure", closure).expect("free");
        let own = env!("CARGO_CRATE_NAME");
        assert_eq!(registry.logged_crates().collect::<Vec<_>>(), [own]);
        registry.log_crate("a_client");
        assert_eq!(registry.logged_crates().collect::<Vec<_>>(), ["a_client", own]);
        for (name, of) in [
            ("my_cloud::factory", Some("my_cloud")),
            ("my_cloud::Cloud::from_config", Some("my_cloud")),
            ("<my_cloud::Cloud as my_kit::Make>::make", Some("my_cloud")),
            ("my_cloud_controller_manager::main::{{closure}}", Some("my_cloud_controller_manager")),
            ("fn(&cloudprovider::registry::FactoryInput) -> cloudprovider::Result<()>", None),
            ("alloc::boxed::Box<dyn core::ops::Fn()>", None),
            ("", None),
        ] {
            assert_eq!(crate_of(name), of, "{name}");
        }
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let mut registry = Registry::new();
        let error = registry.create("x", &FactoryInput::default()).expect_err("unknown");
        assert_eq!(error.to_string(), "unknown cloud provider \"x\" (none is built in)");
        registry.register("b", refusing).expect("free");
        registry.register("a", refusing).expect("free");
        let error = registry.create("x", &FactoryInput::default()).expect_err("unknown");
        assert_eq!(error.to_string(), "unknown cloud provider \"x\" (known: a, b)");
    }

    #[test]
    fn factory_errors_keep_their_kind() {
        let mut registry = Registry::new();
        registry.register("a", refusing).expect("free");
        let error = registry.create("a", &FactoryInput::default()).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        assert!(error.report().starts_with("could not init cloud provider \"a\""), "{}", error.report());
    }

    #[test]
    fn further_files_are_read_through_the_reader() {
        let reader = |path: &Path| Ok(path.display().to_string().into_bytes());
        let input = FactoryInput::new("").with_reader(reader);
        assert_eq!(input.read_file("/a").expect("read"), b"/a");
        FactoryInput::new("").read_file("/no/such/file").expect_err("the file system has none");
    }

    #[test]
    fn warnings_are_there_whatever_becomes_of_the_configuration() {
        let mut registry = Registry::new();
        let factory = |input: &FactoryInput| {
            input.warn(ConfigProblem::new("colour", "is not known and ignored"));
            refusing(input)
        };
        registry.register("a", factory).expect("free");
        let input = FactoryInput::new("");
        registry.create("a", &input).expect_err("refused");
        assert_eq!(input.warnings(), [ConfigProblem::new("colour", "is not known and ignored")]);
        assert_eq!(FactoryInput::new("").warnings(), []);
    }

    #[test]
    fn debug_output_holds_no_configuration() {
        let input = FactoryInput::new("password: hunter2");
        assert!(!format!("{input:?}").contains("hunter2"));
    }
}
