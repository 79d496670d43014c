use cloudprovider::{ConfigProblem, Error, FactoryInput, testing::FakeCloud};

use super::*;
use crate::flags;

fn found(text: &str) -> Vec<(Verdict, String)> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    let mut registry = Registry::new();
    let factory = |input: &FactoryInput| {
        let text = input.config.as_deref().unwrap_or_default();
        for line in text.lines().filter(|line| line.starts_with('?')) {
            input.warn(ConfigProblem::new(line, "is odd"));
        }
        let problem = ConfigProblem::new("!", "is bad");
        if text.contains('!') {
            return Err(Error::invalid_configuration(vec![problem]));
        }
        Ok(FakeCloud::named("x").provider())
    };
    registry.register("x", factory).expect("free");
    let config = format!("--cloud-config={}", file.path().display());
    let flags = flags::parse(["ccm", "--cloud-provider=x", &config]).expect("a good command line");
    let mut report = Report::default();
    let provider = provider(&flags, &registry, &mut report);
    assert_eq!(provider.is_some(), !text.contains('!'));
    let place = file.path().display().to_string();
    let findings = report.findings().iter();
    findings.map(|finding| (finding.verdict, finding.detail.replace(&place, "FILE"))).collect()
}

#[test]
fn every_warning_of_a_configuration_is_shown() {
    let row = |verdict, detail: &str| (verdict, detail.to_owned());
    assert_eq!(found(""), [row(Verdict::Ok, "FILE is good")]);
    assert_eq!(
        found("?a\n"),
        [
            row(Verdict::Ok, "FILE can be used; one thing in it is to look at"),
            row(Verdict::Warning, "?a: is odd")
        ]
    );
    assert_eq!(
        found("?a\n?b\n"),
        [
            row(Verdict::Ok, "FILE can be used; 2 things in it are to look at"),
            row(Verdict::Warning, "?a: is odd"),
            row(Verdict::Warning, "?b: is odd")
        ]
    );
}

#[test]
fn a_refusal_shows_the_warnings_too() {
    let found = found("!\n?a\n");
    assert!(found[0].0 == Verdict::Failed && found[0].1.contains("!: is bad"), "{found:?}");
    assert_eq!(found[1..], [(Verdict::Warning, "?a: is odd".to_owned())]);
}
