//! The `User-Agent` header in upstream's form, so that audit logs and API priority rules keep working.

use http::HeaderValue;

use crate::program::{Program, platform};

/// `<binary>/<version> (<os>/<architecture>) kubernetes/<commit>/<suffix>`.
pub(super) fn with_suffix(suffix: &str) -> HeaderValue {
    let binary = std::env::args_os()
        .next()
        .and_then(|path| Some(std::path::Path::new(&path).file_name()?.to_string_lossy().into_owned()))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_owned());
    let program = Program::current();
    let agent = format!(
        "{binary}/{} ({}) kubernetes/{}/{suffix}",
        program.version(),
        platform(),
        program.short_commit(),
    );
    // A binary may have any name, so the header may be invalid.
    HeaderValue::from_str(&agent)
        .or_else(|_| HeaderValue::from_str(program.name()))
        .unwrap_or(HeaderValue::from_static("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_upstream() {
        let agent = with_suffix("node-controller");
        let agent = agent.to_str().expect("text");
        let (binary, rest) = agent.split_once("/v").expect("a version");
        assert!(!binary.is_empty());
        assert!(rest.contains(" (linux/") && rest.contains(") kubernetes/"), "{agent}");
        assert!(rest.ends_with("/node-controller"), "{agent}");
    }
}
