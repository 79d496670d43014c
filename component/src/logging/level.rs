//! Which records are shown: Kubernetes' verbosity in terms of tracing's levels.

use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::RwLock;
use tracing::{Level, level_filters::LevelFilter};

static VERBOSITY: AtomicI32 = AtomicI32::new(0);

/// The verbosity of this process's log.
#[derive(Clone, Copy, Debug)]
pub struct LogLevel;

impl LogLevel {
    /// The value of `-v`, or the value that was set later.
    pub fn get() -> i32 {
        VERBOSITY.load(Ordering::Relaxed)
    }

    /// Changes the verbosity for all further records.
    pub fn set(verbosity: i32) {
        if VERBOSITY.swap(verbosity.max(0), Ordering::Relaxed) != verbosity {
            tracing::callsite::rebuild_interest_cache();
        }
    }
}

/// The crates whose records are logged at the daemon's own levels. All others are libraries.
static OURS: RwLock<Vec<&'static str>> = RwLock::new(Vec::new());

/// Adds crates whose records are logged at the daemon's own levels.
pub(super) fn add_ours(crates: impl IntoIterator<Item = &'static str>) {
    OURS.write().extend(crates);
    tracing::callsite::rebuild_interest_cache();
}

/// Whether the records of this module are logged at the daemon's own levels.
pub(super) fn is_ours(module: &str) -> bool {
    OURS.read().contains(&crate_of(module))
}

fn crate_of(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

/// Prefixes of the names of libraries whose records below warnings reveal too much.
const PRINT_ADDRESSES: [&str; 2] = ["hyper", "reqwest"];

/// The least severe level of a module's records that is shown.
pub(super) fn least(verbosity: i32, module: &str, is_ours: bool) -> LevelFilter {
    let of_crate = crate_of(module);
    match (verbosity, is_ours) {
        // kube logs every answer that it cannot read, whole: a list of Secrets too. The daemon itself logs each request
        // that fails, once.
        (_, false) if of_crate.starts_with("kube_") => LevelFilter::OFF,
        // These libraries log URLs unchanged, with passwords in them.
        (_, false) if PRINT_ADDRESSES.iter().any(|name| of_crate.starts_with(name)) => LevelFilter::WARN,
        (..=7, false) => LevelFilter::WARN,
        (8.., false) | (4..=5, true) => LevelFilter::DEBUG,
        (..=3, true) => LevelFilter::INFO,
        (6.., true) => LevelFilter::TRACE,
    }
}

/// The verbosity from which on a record of the daemon is shown.
pub(super) fn verbosity_of(level: Level) -> i32 {
    match level {
        Level::ERROR | Level::WARN | Level::INFO => 0,
        Level::DEBUG => 4,
        Level::TRACE => 6,
    }
}

/// Whether a pattern of `--vmodule` matches a file. A pattern without slashes is the file's name without its
/// extension. One with slashes is the end of its path. One with `::` is a module.
pub(super) fn matches(pattern: &str, file: Option<&str>, module: &str) -> bool {
    if pattern.contains("::") {
        return is_like(pattern, module);
    }
    let Some(file) = file else { return false };
    let file = file.strip_suffix(".rs").unwrap_or(file);
    if !pattern.contains('/') {
        return is_like(pattern, file.rsplit('/').next().unwrap_or(file));
    }
    let is_start = |at: &usize| *at == 0 || file.as_bytes()[*at - 1] == b'/';
    (0..file.len())
        .filter(|at| file.is_char_boundary(*at))
        .filter(is_start)
        .any(|at| is_like(pattern, &file[at..]))
}

/// Whether `text` matches a pattern in which `*` stands for any characters and `?` for one.
fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // `star` is the position of the last star, and the position in the text up to which it matches.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, reached)) => {
                    star = Some((at, reached + 1));
                    (p, t) = (at + 1, reached + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_reads_our_words_first() {
        add_ours(["ccm", "my_cloud"]);
        for (verbosity, module, expected) in [
            (0, "ccm::daemon", LevelFilter::INFO),
            (3, "my_cloud::connection", LevelFilter::INFO),
            (4, "my_cloud", LevelFilter::DEBUG),
            (0, "ccmx", LevelFilter::WARN),
            (0, "my_cloud_client::session", LevelFilter::WARN),
            (0, "kube_client::client", LevelFilter::OFF),
            (0, "kube_runtime::watcher", LevelFilter::OFF),
            (3, "hyper", LevelFilter::WARN),
            (4, "ccm", LevelFilter::DEBUG),
            (7, "kube_client", LevelFilter::OFF),
            (10, "kube_client::client", LevelFilter::OFF),
            (10, "kube_runtime::watcher", LevelFilter::OFF),
            (7, "tower::buffer::worker", LevelFilter::WARN),
            (8, "tower::buffer::worker", LevelFilter::DEBUG),
            (6, "my_cloud::connection", LevelFilter::TRACE),
            (9, "hyper", LevelFilter::WARN),
            (10, "hyper_util::client::legacy::pool", LevelFilter::WARN),
            (10, "reqwest::connect", LevelFilter::WARN),
        ] {
            assert_eq!(least(verbosity, module, is_ours(module)), expected, "{verbosity} {module}");
        }
    }

    #[test]
    fn patterns_are_about_files_paths_and_modules() {
        let file = Some("ccm/src/controllers/node/controller.rs");
        let module = "ccm::controllers::node::controller";
        for (pattern, expected) in [
            ("controller", true),
            ("contr*", true),
            ("c?ntroller", true),
            ("*", true),
            ("node", false),
            ("contr", false),
            ("node/controller", true),
            ("ccm/*/controller", true),
            ("ode/controller", false),
            ("ccm::controllers::*", true),
            ("ccm::daemon", false),
        ] {
            assert_eq!(matches(pattern, file, module), expected, "{pattern}");
        }
        assert!(!matches("a", None, "a"));
    }
}
