//! `/debug/pprof/`: CPU profiles for `go tool pprof`.

use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use pprof::{ProfilerGuardBuilder, protos::Message as _};
use tokio::sync::Semaphore;

use super::{
    super::responses::{self, Answer},
    compression::gzip,
};
use crate::classified::without_secrets;

/// Go's default.
const DEFAULT_SECONDS: u64 = 30;

/// The connection of a longer profile would look idle.
const MOST_SECONDS: u64 = 60;

/// Samples per second. It does not divide evenly into the rate of any periodic work.
const FREQUENCY: i32 = 99;

const INDEX: &str = "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/<br>\n<ul>\n\
    <li><a href=\"cmdline\">cmdline</a>: the command line of this process\n\
    <li><a href=\"profile\">profile</a>: CPU profile; its duration is the parameter seconds, 60 at most\n\
    </ul>\nThere is no heap, goroutine or other profile of Go's: this is no Go program.\n</body>\n</html>\n";

/// Permits one profile at a time.
#[derive(Debug)]
pub(super) struct Profiler {
    turn: Semaphore,
}

impl Default for Profiler {
    fn default() -> Self {
        Self { turn: Semaphore::new(1) }
    }
}

/// A redirect from the folder's path without its slash.
pub(super) fn to_index() -> Answer {
    let mut answer = responses::text(StatusCode::FOUND, "");
    answer.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/debug/pprof/"));
    answer
}

/// Responds to paths under `/debug/pprof/`.
pub(super) async fn answer(profiler: &Profiler, name: &str, query: &str) -> Answer {
    match name {
        "" => responses::body(StatusCode::OK, "text/html; charset=utf-8", INDEX),
        "cmdline" => responses::text(StatusCode::OK, command_line(arguments()).join("\0")),
        "profile" => profile(profiler, seconds(query)).await,
        "allocs" | "block" | "goroutine" | "heap" | "mutex" | "symbol" | "threadcreate" | "trace" => {
            responses::text(
                StatusCode::NOT_IMPLEMENTED,
                format!(
                    "{name} is a profile of Go programs, which this is not; there is /debug/pprof/profile\n"
                ),
            )
        }
        _ => responses::text(StatusCode::NOT_FOUND, "Unknown profile\n"),
    }
}

fn seconds(query: &str) -> u64 {
    form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == "seconds")
        .and_then(|(_, value)| value.parse().ok())
        .filter(|seconds| *seconds > 0)
        .unwrap_or(DEFAULT_SECONDS)
        .min(MOST_SECONDS)
}

/// The program's arguments. Paths in them may not be UTF-8.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned())
}

/// The arguments. URLs in them are redacted as in `/flagz`.
fn command_line(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut before = String::new();
    arguments
        .map(|argument| {
            let shown = argument_without_secrets(&before, &argument);
            before = argument;
            shown
        })
        .collect()
}

/// An argument without its secrets. `before` is the argument before it.
fn argument_without_secrets(before: &str, argument: &str) -> String {
    let flag_of = |word: &str| word.trim_start_matches('-').to_owned();
    match argument.split_once('=') {
        Some((flag, value)) if flag.starts_with('-') => {
            format!("{flag}={}", without_secrets(&flag_of(flag), value))
        }
        _ => without_secrets(&flag_of(before), argument),
    }
}

async fn profile(profiler: &Profiler, seconds: u64) -> Answer {
    let failed = |why: &str| {
        let text = format!("Could not enable CPU profiling: {why}\n");
        responses::text(StatusCode::INTERNAL_SERVER_ERROR, text)
    };
    let Ok(_turn) = profiler.turn.try_acquire() else {
        return failed("cpu profiling already in use");
    };
    // Unwinding through these libraries can wait for a lock that the interrupted thread holds.
    let blocked = ["libc", "libgcc", "pthread", "vdso"];
    let guard = match ProfilerGuardBuilder::default().frequency(FREQUENCY).blocklist(&blocked).build() {
        Ok(guard) => guard,
        Err(error) => return failed(&error.to_string()),
    };
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    // Resolving the names of functions takes long.
    let report = tokio::task::spawn_blocking(move || {
        let profile = guard.report().build().and_then(|report| report.pprof());
        let encoded = profile.map_err(|error| error.to_string())?.encode_to_vec();
        gzip(&encoded).map_err(|error| error.to_string())
    });
    match report.await {
        Ok(Ok(profile)) => {
            let mut answer = responses::body(StatusCode::OK, "application/octet-stream", profile);
            let name = HeaderValue::from_static("attachment; filename=\"profile\"");
            answer.headers_mut().insert(header::CONTENT_DISPOSITION, name);
            answer
        }
        Ok(Err(why)) => failed(&why),
        Err(_) => failed("the profile cannot be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_bounded() {
        for (query, expected) in [
            ("", 30),
            ("seconds=5", 5),
            ("debug=1&seconds=5", 5),
            ("seconds=0", 30),
            ("seconds=-1", 30),
            ("seconds=x", 30),
            ("seconds=100000", 60),
        ] {
            assert_eq!(seconds(query), expected, "{query}");
        }
    }

    #[test]
    fn no_password_in_the_command_line() {
        let shown = |argument: &str| command_line(std::iter::once(argument.to_owned())).remove(0);
        for (argument, expected) in [
            ("--v=4", "--v=4"),
            ("--master=https://u:p@host:6443", "--master=https://CLASSIFIED@host:6443"),
            ("--master=https://u:p/w@host:6443", "--master=https://CLASSIFIED@host:6443"),
            ("--master=https://host?token=x", "--master=https://host?CLASSIFIED"),
            ("--master=u:p@host", "--master=CLASSIFIED@host"),
            ("--master=https://host:6443", "--master=https://host:6443"),
        ] {
            assert_eq!(shown(argument), expected);
        }
        let two = ["--master", "u:p@host"].map(str::to_owned).into_iter();
        assert_eq!(command_line(two), ["--master", "CLASSIFIED@host"]);
    }

    #[tokio::test]
    async fn what_go_has_and_we_do_not() {
        let profiler = Profiler::default();
        for (name, status) in [("", 200), ("cmdline", 200), ("heap", 501), ("trace", 501), ("nope", 404)] {
            assert_eq!(answer(&profiler, name, "").await.status().as_u16(), status, "{name}");
        }
        let _taken = profiler.turn.acquire().await.expect("free");
        assert_eq!(answer(&profiler, "profile", "seconds=1").await.status().as_u16(), 500);
    }
}
