//! Values of flags in Go's notation. The errors have Go's text, and add what would be right where Go does not
//! say it.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use basics::go::{NumError, parse_bool, parse_duration, parse_uint31};
pub use basics::go::{parse_float as float, parse_int as integer, parse_int32 as int32};

use crate::{program::Program, serving::NamedCertificate};

/// A boolean in one of the spellings that Go's flags accept.
pub fn boolean(text: &str) -> Result<bool, String> {
    parse_bool(text).map_err(|error| format!("{error} (expected true or false)"))
}

/// A duration such as `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| {
        if text.strip_prefix('-').is_some_and(|positive| parse_duration(positive).is_some()) {
            return "a negative duration has no meaning here".to_owned();
        }
        let fault = if text.parse::<f64>().is_ok() { "missing unit in" } else { "invalid" };
        format!("time: {fault} duration {text:?} (expected a duration such as 5s, 1m30s or 500ms)")
    })
}

/// A duration. A negative duration means none.
pub fn duration_or_none(text: &str) -> Result<Duration, String> {
    let is_negative = text.strip_prefix('-').is_some_and(|positive| parse_duration(positive).is_some());
    if is_negative { Ok(Duration::ZERO) } else { duration(text) }
}

/// A verbosity: a decimal number that is not negative.
pub fn level(text: &str) -> Result<i32, NumError> {
    parse_uint31(text).map(u32::cast_signed)
}

/// An IP address. As in upstream, an empty text means all addresses.
pub fn ip(text: &str) -> Result<IpAddr, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(IpAddr::from([0, 0, 0, 0]));
    }
    text.parse().map_err(|_| format!("failed to parse IP: {text:?}"))
}

/// A path. `None` for an empty text.
pub fn path(text: &str) -> Result<Option<PathBuf>, String> {
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

/// A list: one record of comma-separated values. Quotes protect commas. An empty text is the empty list.
pub fn list(text: &str) -> Result<Vec<String>, String> {
    let mut values = Vec::new();
    if text.is_empty() {
        return Ok(values);
    }
    let mut rest = text;
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (value, tail) = quoted_value(quoted)?;
            values.push(value);
            match tail.strip_prefix(',') {
                Some(next) => rest = next,
                None if tail.is_empty() => return Ok(values),
                None => return Err("extraneous or missing \" in quoted-field".to_owned()),
            }
            continue;
        }
        let (value, next) = match rest.split_once(',') {
            Some((value, next)) => (value, Some(next)),
            None => (rest, None),
        };
        if value.contains('"') {
            return Err("bare \" in non-quoted-field".to_owned());
        }
        values.push(value.to_owned());
        match next {
            Some(next) => rest = next,
            None => return Ok(values),
        }
    }
}

/// The value after its opening quote, and the text after the closing quote. Two quotes stand for one.
fn quoted_value(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let Some((before, after)) = rest.split_once('"') else {
            return Err("extraneous or missing \" in quoted-field".to_owned());
        };
        value.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                value.push('"');
                rest = more;
            }
            None => return Ok((value, after)),
        }
    }
}

/// A comma-separated list of numbers.
pub fn int32_list(text: &str) -> Result<Vec<i32>, NumError> {
    text.split(',').map(int32).collect()
}

/// A number of bytes in Kubernetes' notation for quantities, such as `512`, `1K`, `1Ki` or `3M`.
pub fn quantity(text: &str) -> Result<u64, String> {
    let invalid = || format!("{text:?} is no quantity (expected a number of bytes such as 512, 64Ki or 1M)");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor: f64 = match suffix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(invalid()),
    };
    let bytes = number.parse::<f64>().map_err(|_| invalid())? * factor;
    // Rounded up, as in Kubernetes. No buffer size comes near the end of the range.
    Duration::try_from_secs_f64(bytes.ceil()).map(|whole| whole.as_secs()).map_err(|_| invalid())
}

/// `cert,key` or `cert,key:name,name`.
pub fn named_certificate(text: &str) -> Result<NamedCertificate, String> {
    let (pair, names) = match text.split_once(':') {
        Some((_, names)) if names.trim().is_empty() => {
            return Err("empty names list is not allowed".to_owned());
        }
        Some((pair, names)) => (pair, names.split(',').map(|name| name.trim().to_owned()).collect()),
        None => (text, Vec::new()),
    };
    let Some((cert, key)) = pair.split_once(',').filter(|(_, key)| !key.contains(',')) else {
        return Err("expected comma separated certificate and key file paths".to_owned());
    };
    Ok(NamedCertificate { cert_file: cert.trim().into(), key_file: key.trim().into(), names })
}

/// What `--version` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionRequest {
    /// The flag is not set.
    No,
    /// Print the version.
    Print,
    /// Print everything that is known about the build.
    PrintRaw,
    /// Report this version instead of the program's.
    Report(String),
}

/// Parses `raw`, a boolean, or the version to report. That must be the program's version with another suffix.
pub fn version(text: &str) -> Result<VersionRequest, String> {
    if text == "raw" {
        return Ok(VersionRequest::PrintRaw);
    }
    let Some(number) = text.strip_prefix('v') else {
        return boolean(text).map(|print| if print { VersionRequest::Print } else { VersionRequest::No });
    };
    let core = number.split(['-', '+']).next().unwrap_or_default();
    let is_version = core.split('.').count() == 3
        && core.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        && number.chars().all(|c| c.is_ascii_alphanumeric() || "-+.".contains(c));
    if !is_version {
        return Err(format!("could not parse {text:?} as version"));
    }
    let own = Program::current();
    if core != own.core_version() {
        return Err(format!(
            "version {text:?} must match major/minor/patch of default version {:?}",
            own.version()
        ));
    }
    Ok(VersionRequest::Report(text.to_owned()))
}

/// One setting of `--vmodule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VModule {
    /// The name of a file without its extension, or a path with slashes. `*` and `?` stand for any
    /// characters.
    pub pattern: String,
    /// The verbosity of matching files.
    pub level: i32,
}

/// `pattern=N,...`
pub fn vmodule(text: &str) -> Result<Vec<VModule>, String> {
    let item = |item: &str| {
        let no_format = || format!("{item:?} does not have the pattern=N format");
        let (pattern, number) = item.split_once('=').ok_or_else(no_format)?;
        if pattern.is_empty() || number.is_empty() || number.contains('=') {
            return Err(no_format());
        }
        let level = level(number).map_err(|error| format!("parsing verbosity in {item:?}: {error}"))?;
        Ok(VModule { pattern: pattern.to_owned(), level })
    };
    text.split(',').filter(|item| !item.is_empty()).map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_go_reads_them() {
        for (text, values) in [
            ("", vec![]),
            ("a", vec!["a"]),
            ("a,b", vec!["a", "b"]),
            (",", vec!["", ""]),
            ("\"a,b\",c", vec!["a,b", "c"]),
            ("\"a\"\"b\"", vec!["a\"b"]),
            ("a,", vec!["a", ""]),
        ] {
            assert_eq!(list(text), Ok(values.into_iter().map(str::to_owned).collect()), "{text}");
        }
        for text in ["\"a", "a\"", "\"a\"b"] {
            assert!(list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn certificates_for_names() {
        let read = named_certificate(" a.crt , a.key : *.foo.com, 10.0.0.1").expect("good");
        assert_eq!((read.cert_file, read.key_file), ("a.crt".into(), "a.key".into()));
        assert_eq!(read.names, ["*.foo.com", "10.0.0.1"]);
        assert!(named_certificate("a,b").expect("good").names.is_empty());
        for text in ["", "a", "a,b,c", "a,b:", "a:b,c"] {
            assert!(named_certificate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_reported_version_is_ours_with_another_suffix() {
        assert_eq!(version("raw"), Ok(VersionRequest::PrintRaw));
        assert_eq!(version("T"), Ok(VersionRequest::Print));
        assert_eq!(version("false"), Ok(VersionRequest::No));
        let other = format!("{}-distribution.1", Program::current().version());
        assert_eq!(version(&other), Ok(VersionRequest::Report(other.clone())));
        for text in ["", "v", "v1", "v99.0.0", "v0.1", "vraw", "maybe", "v0.1.0 x"] {
            assert!(version(text).is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_and_modules() {
        assert_eq!(quantity("0"), Ok(0));
        assert_eq!(quantity("1.5Ki"), Ok(1536));
        assert_eq!(quantity("3M"), Ok(3_000_000));
        for text in ["", "-1", "1Q", "x", "."] {
            assert!(quantity(text).is_err(), "{text}");
        }
        let module = |pattern: &str, level| VModule { pattern: pattern.to_owned(), level };
        assert_eq!(vmodule("a*=2,,b=0"), Ok(vec![module("a*", 2), module("b", 0)]));
        for text in ["a", "a=", "=1", "a=1=2", "a=-1", "a=x"] {
            assert!(vmodule(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_addresses_and_durations() {
        assert_eq!(level("4"), Ok(4));
        for text in ["", "-1", "+1", "0x4", "ersion", "2147483648"] {
            assert!(level(text).is_err(), "{text}");
        }
        assert_eq!(ip(""), Ok(IpAddr::from([0, 0, 0, 0])));
        assert_eq!(ip(" ::1 ").map(|ip| ip.to_string()), Ok("::1".to_owned()));
        assert_eq!(ip("localhost"), Err("failed to parse IP: \"localhost\"".to_owned()));
        assert_eq!(float("1e3"), Ok(1000.0));
        assert!(duration("5").expect_err("no unit").starts_with("time: missing unit in duration \"5\""));
        assert!(duration("soon").expect_err("no").starts_with("time: invalid duration \"soon\""));
        assert!(duration("-5s").expect_err("negative").contains("negative"));
    }
}
