//! Rules about configurations.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt as _;

use super::{
    ConfigurationCases,
    check::{Check, panic_words},
    run::{Checked, Run, Stop, ensure, failed, not_checked, tells},
    strange::texts,
};
use crate::{Error, ErrorKind, FactoryInput};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "good",
        says: "A good configuration makes a provider, each time another one, without a warning.",
        look: |run| async { good(run) }.boxed(),
    },
    Check {
        name: "every-problem",
        says: "A bad configuration is refused with every problem at once, each with its key.",
        look: |run| async { every_problem(run) }.boxed(),
    },
    Check {
        name: "any-text",
        says: "Any text makes a provider or an error of kind InvalidConfiguration, without a panic.",
        look: |run| async { any_text(run) }.boxed(),
    },
    Check {
        name: "no-secret",
        says: "No error, no warning and nothing that is printed tells a secret, however the text is damaged.",
        look: |run| async { no_secret(run) }.boxed(),
    },
];

/// Everything that a factory says about a text.
struct Told {
    refusal: Option<Error>,
    warnings: Vec<String>,
    texts: Vec<String>,
}

fn try_text(cases: &ConfigurationCases, text: &str) -> Checked<Told> {
    let input = FactoryInput::new(text);
    let made = catch_unwind(AssertUnwindSafe(|| (cases.factory)(&input)));
    let made = made.map_err(|panic| {
        let line = text.lines().count();
        Stop::Failed(format!("a panic over a text of {line} lines: {}", panic_words(&*panic)))
    })?;
    let warnings: Vec<String> = input.warnings().iter().map(ToString::to_string).collect();
    let mut texts = warnings.clone();
    let refusal = match made {
        Ok(provider) => {
            texts.push(format!("{provider:?} {:?}", provider.secrets()));
            None
        }
        Err(error) => {
            texts.extend([error.report(), error.to_string(), format!("{error:?}")]);
            texts.extend(error.problems().iter().map(|problem| format!("{problem} {problem:?}")));
            Some(error)
        }
    };
    Ok(Told { refusal, warnings, texts })
}

fn good(run: &Run<'_>) -> Checked {
    let cases = run.hooks.configuration()?;
    if cases.good.is_empty() {
        return not_checked("a good configuration");
    }
    for text in &cases.good {
        for _ in 0..2 {
            let told = try_text(&cases, text)?;
            if let Some(error) = told.refusal {
                return failed(format!("a good configuration is refused: {}", error.report()));
            }
            ensure(told.warnings.is_empty(), || format!("warnings: {}", told.warnings.join("; ")))?;
        }
    }
    Ok(format!("{} texts, each twice", cases.good.len()))
}

fn every_problem(run: &Run<'_>) -> Checked {
    let cases = run.hooks.configuration()?;
    if cases.bad.is_empty() {
        return not_checked("a bad configuration");
    }
    let mut count = 0;
    for (number, bad) in (1..).zip(&cases.bad) {
        let Some(error) = try_text(&cases, &bad.text)?.refusal else {
            return failed(format!("bad configuration {number} is taken"));
        };
        ensure(error.kind() == ErrorKind::InvalidConfiguration, || {
            format!("bad configuration {number} gives an error of kind {}", error.kind())
        })?;
        let keys: Vec<_> = error.problems().iter().map(|problem| problem.key.as_str()).collect();
        for key in &bad.keys {
            ensure(keys.contains(&key.as_str()), || {
                format!("bad configuration {number}: {key:?} is not among the problems {keys:?}")
            })?;
        }
        let is_empty = error.problems().iter().any(|problem| problem.message.trim().is_empty());
        ensure(!is_empty, || format!("bad configuration {number}: a problem without words"))?;
        count += bad.keys.len();
    }
    Ok(format!("{} texts with {count} faults", cases.bad.len()))
}

/// The texts of the cases, whole and with the damage that careless editing does.
fn damaged(cases: &ConfigurationCases) -> Vec<String> {
    let whole = cases.good.iter().chain(cases.bad.iter().map(|bad| &bad.text));
    let mut damaged = Vec::new();
    for text in whole {
        damaged.extend([
            text.clone(),
            text.replace('\n', "\r\n"),
            text.replace('\n', " "),
            text.replace(':', ""),
        ]);
        damaged.extend(['"', '\'', '{', '[', '\t', '\0'].map(|extra| format!("{text}{extra}")));
        let lines: Vec<&str> = text.lines().collect();
        for (place, line) in lines.iter().enumerate() {
            let half: String = line.chars().take(line.chars().count() / 2).collect();
            let changed = [
                String::new(),
                half,
                format!("  {line}"),
                format!("\t{line}"),
                line.trim_start().to_owned(),
                format!("{line}\n{line}"),
                format!("{line} x"),
                line.replacen(':', "", 1),
                line.replacen(' ', "", 1),
                line.replacen(['"', '\''], "", 1),
            ];
            damaged.extend(changed.map(|changed| {
                let mut lines: Vec<&str> = lines.clone();
                lines[place] = &changed;
                lines.join("\n")
            }));
            damaged.push(lines[..place].join("\n"));
        }
    }
    damaged
}

fn any_text(run: &Run<'_>) -> Checked {
    let cases = run.hooks.configuration()?;
    let all: Vec<String> = damaged(&cases).into_iter().chain(texts()).collect();
    for text in &all {
        if let Some(error) = try_text(&cases, text)?.refusal {
            let kind = error.kind();
            ensure(kind == ErrorKind::InvalidConfiguration, || format!("an error of kind {kind}"))?;
        }
    }
    let made = catch_unwind(AssertUnwindSafe(|| (cases.factory)(&FactoryInput::default())));
    ensure(made.is_ok(), || "a panic where there is no configuration".to_owned())?;
    Ok(format!("{} texts, and none", all.len()))
}

fn no_secret(run: &Run<'_>) -> Checked {
    let cases = run.hooks.configuration()?;
    if cases.secrets.is_empty() {
        return not_checked("a secret in the configurations");
    }
    let all = damaged(&cases);
    for secret in &cases.secrets {
        ensure(all.iter().any(|text| text.contains(secret)), || {
            "a hook does not work: a secret stands in no configuration".to_owned()
        })?;
    }
    let mut messages = 0;
    for (number, text) in all.iter().enumerate() {
        let told = try_text(&cases, text)?;
        messages += told.texts.len();
        for secret in &cases.secrets {
            if let Some(leak) = told.texts.iter().find(|told| tells(told, secret)) {
                // The secret may be shown: it comes from the author's own test.
                return failed(format!("text {number} of {}: {leak:?}", all.len()));
            }
        }
    }
    Ok(format!("{messages} messages about {} texts", all.len()))
}
