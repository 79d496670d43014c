//! What the viewer sees: lines, a progress bar where there is a terminal, a table.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Without a terminal, progress is printed in this many lines.
const STEPS: usize = 5;

/// Standard output.
pub(crate) struct Screen {
    out: io::Stdout,
    is_terminal: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        Self { out, is_terminal }
    }

    pub(crate) fn line(&self, text: impl Display) {
        // A closed pipe (`... | head`) is not an error. The exit code says whether the demo succeeded.
        let _ = writeln!(&self.out, "{text}");
    }

    /// Prints a final error message to standard error.
    pub(crate) fn failure(text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Shows progress towards `total`, until the result is dropped.
    pub(crate) fn progress(&self, total: usize, what: &'static str) -> Progress<'_> {
        let bar = self.is_terminal.then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stdout_with_hz(20));
            if let Ok(style) = ProgressStyle::with_template("   [{bar:50}] {pos}/{len} {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.with_message(what)
        });
        Progress { screen: self, bar, total, what, told: 0 }
    }

    /// Shows a spinner while nothing happens, until the result is dropped.
    pub(crate) fn waiting(&self, what: &str) -> impl Drop + use<> {
        struct Waiting(Option<ProgressBar>);
        impl Drop for Waiting {
            fn drop(&mut self) {
                if let Some(spinner) = &self.0 {
                    spinner.finish_and_clear();
                }
            }
        }
        Waiting(self.is_terminal.then(|| {
            let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
            if let Ok(style) = ProgressStyle::with_template("   {spinner} {msg} ({elapsed})") {
                spinner.set_style(style);
            }
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner.with_message(what.to_owned())
        }))
    }

    pub(crate) fn table<const N: usize>(
        &self,
        header: [&str; N],
        right_aligned: usize,
        rows: impl IntoIterator<Item = [String; N]>,
    ) {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(header).add_rows(rows);
        if let Some(column) = table.column_mut(right_aligned) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self.line(table);
    }
}

pub(crate) struct Progress<'a> {
    screen: &'a Screen,
    bar: Option<ProgressBar>,
    total: usize,
    what: &'static str,
    told: usize,
}

impl Progress<'_> {
    pub(crate) fn set(&mut self, done: usize) {
        match &self.bar {
            Some(bar) => bar.set_position(done as u64),
            None => {
                let step = done * STEPS / self.total.max(1);
                if step > self.told {
                    self.told = step;
                    self.screen.line(format_args!("   {done}/{} {}", self.total, self.what));
                }
            }
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
