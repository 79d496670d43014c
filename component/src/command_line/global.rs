//! The log and the version.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::{
    FeatureGates,
    notes::{Note, differs, no_effect},
    values::{VModule, VersionRequest, boolean, duration, level, quantity, version, vmodule},
};

/// How the log looks, and `--version`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global flags")]
pub struct GlobalFlags {
    /// Form of the log: text or json.
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub logging_format: String,

    /// Verbosity of the log: 0 to 3 is what an operator needs, 4 and 5 add debugging, 6 and more everything.
    #[arg(short = 'v', long = "v", default_value = "0", value_name = "LEVEL", value_parser = level)]
    pub v: i32,

    /// Verbosity of single files, for the form text only: pattern=N,... where a pattern is the name of a file without
    /// its ending, or a path with slashes, and may hold * and ?.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "PATTERN=N,...", value_parser = vmodule)]
    pub vmodule: std::vec::Vec<VModule>,

    /// Time between flushes of the log. It is never held back here.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    pub log_flush_frequency: Duration,

    /// In the form text, write errors to stderr and the rest to stdout. Needs the feature gate LoggingAlphaOptions.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub log_text_split_stream: bool,

    /// Buffer for that. Needs the feature gate LoggingAlphaOptions.
    #[arg(long, default_value = "0", value_name = "QUANTITY", value_parser = quantity)]
    pub log_text_info_buffer_size: u64,

    /// In the form json, write errors to stderr and the rest to stdout. Needs the feature gate LoggingAlphaOptions.
    #[arg(long, default_value = "false", value_name = "BOOL", action = ArgAction::Set, value_parser = boolean)]
    pub log_json_split_stream: bool,

    /// Buffer for that. Needs the feature gate LoggingAlphaOptions.
    #[arg(long, default_value = "0", value_name = "QUANTITY", value_parser = quantity)]
    pub log_json_info_buffer_size: u64,

    /// Print the version and end; with 'raw' all that is known of the build. --version=vX.Y.Z-suffix runs and reports
    /// that version.
    #[arg(long, default_value = "false", hide_default_value = true, value_name = "WHAT", value_parser = version)]
    pub version: VersionRequest,
}

const NO_BUFFER: &str = "the log is written at once, line by line";

/// Differences from upstream.
pub const NOTES: &[Note] = &[
    differs("v", "The levels are those of this program, see docs/reference/logging.md"),
    differs("vmodule", "Patterns are matched with this program's files, see docs/reference/logging.md"),
    no_effect("log-flush-frequency", NO_BUFFER),
    no_effect("log-text-info-buffer-size", NO_BUFFER),
    no_effect("log-json-info-buffer-size", NO_BUFFER),
];

impl GlobalFlags {
    /// The faults that upstream reports. Its messages name a field of the configuration instead of the flag.
    pub fn faults(&self, gates: &FeatureGates) -> Vec<String> {
        let mut faults = Vec::new();
        if self.log_flush_frequency.is_zero() {
            faults.push(
                "flushFrequency: Invalid value: \"0s\": Must be greater than zero (--log-flush-frequency)"
                    .to_owned(),
            );
        }
        match self.logging_format.as_str() {
            "json" if !gates.enabled("LoggingBetaOptions") => faults.push(
                "format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature (--logging-format, --feature-gates)".to_owned(),
            ),
            "text" | "json" => {}
            other => faults.push(format!(
                "format: Invalid value: {other:?}: Unsupported log format (--logging-format; expected text or json)"
            )),
        }
        if self.logging_format != "text" && !self.vmodule.is_empty() {
            faults.push("vmodule: Forbidden: Only supported for text log format (--vmodule)".to_owned());
        }
        if !gates.enabled("LoggingAlphaOptions") {
            for (given, field, flag) in [
                (self.log_text_split_stream, "text.splitStream", "log-text-split-stream"),
                (self.log_text_info_buffer_size != 0, "text.infoBufferSize", "log-text-info-buffer-size"),
                (self.log_json_split_stream, "json.splitStream", "log-json-split-stream"),
                (self.log_json_info_buffer_size != 0, "json.infoBufferSize", "log-json-info-buffer-size"),
            ] {
                if given {
                    faults.push(format!(
                        "options.{field}: Forbidden: Feature LoggingAlphaOptions is disabled (--{flag}, --feature-gates)"
                    ));
                }
            }
        }
        faults
    }
}
