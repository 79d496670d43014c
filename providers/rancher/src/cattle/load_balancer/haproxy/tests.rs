//! Tests of the text.

use proptest::prelude::*;

use super::*;
use crate::cattle::load_balancer::demand::Port;

fn demand(ports: &[u16], ranges: &[&str]) -> Demand {
    Demand {
        ports: ports.iter().map(|port| Port { source: *port, target: 30000 + port }).collect(),
        source_ranges: ranges.iter().map(|range| range.parse().expect("a network")).collect(),
    }
}

const RANGES: [&str; 2] = ["10.0.0.0/8", "fd00::/8"];

const OURS: &str = "    acl kubernetes_source_range src 10.0.0.0/8\n    \
                    acl kubernetes_source_range src fd00::/8\n    \
                    tcp-request connection reject unless kubernetes_source_range\n";

#[test]
fn source_ranges_come_and_go() {
    let limited = demand(&[80], &RANGES);
    let text = with_source_ranges("", &limited);
    assert_eq!(text, format!("frontend 80\n{OURS}"));
    assert_eq!(with_source_ranges(&text, &limited), text);
    assert_eq!(with_source_ranges(&text, &demand(&[80], &[])), "");
    let two = with_source_ranges(&text, &demand(&[80, 443], &RANGES));
    assert_eq!(two, format!("frontend 80\n{OURS}frontend 443\n{OURS}"));
    assert_eq!(with_source_ranges(&two, &demand(&[443], &RANGES)), format!("frontend 443\n{OURS}"));
}

/// Of each pair, the first text becomes the second one with source ranges.
#[test]
fn lines_of_the_operator_stay_in_their_sections() {
    for (own, limited) in [
        // Below a header of theirs.
        (
            "global\n    maxconn 5\nfrontend 80\n    balance leastconn\n",
            format!("global\n    maxconn 5\nfrontend 80\n{OURS}    balance leastconn\n"),
        ),
        // With other ends of lines, empty lines, tabs, and no end of the last line.
        (
            "# mine\r\n\r\nglobal\r\n\tmaxconn 5\r\nbackend x\n\n  option y",
            format!("# mine\r\n\r\nglobal\r\n\tmaxconn 5\r\nbackend x\n\n  option y\nfrontend 80\n{OURS}"),
        ),
        // A name that only begins so, and words about our lines.
        (
            "frontend 8080\n    # kubernetes_source_range is not ours to touch\n",
            format!("frontend 8080\n    # kubernetes_source_range is not ours to touch\nfrontend 80\n{OURS}"),
        ),
        ("frontend 80", format!("frontend 80\n{OURS}")),
    ] {
        assert_eq!(with_source_ranges(own, &demand(&[80], &[])), own, "nothing to do");
        let text = with_source_ranges(own, &demand(&[80], &RANGES));
        assert_eq!(text, limited);
        let without = with_source_ranges(&text, &demand(&[80], &[]));
        assert!(own.starts_with(without.trim_end()), "{without:?} and {own:?}");
    }
    // The operator wrote below our lines: the section stays when our lines go.
    let text = format!("global\n    maxconn 5\nfrontend 80\n{OURS}    balance leastconn\n");
    let kept = with_source_ranges(&text, &demand(&[80], &[]));
    assert_eq!(kept, "global\n    maxconn 5\nfrontend 80\n    balance leastconn\n");
    // A port that is not served any more.
    let moved = with_source_ranges(&text, &demand(&[443], &RANGES));
    assert_eq!(moved, format!("{kept}frontend 443\n{OURS}"));
}

fn any_text() -> impl Strategy<Value = String> {
    "(frontend (80|443|8080)(\n|\r\n)|frontend 80\n    acl kubernetes_source_range src 10.0.0.0/8\n|    balance x\n|\tmode tcp\r\n|global\n|# y\n|\n|    tcp-request connection reject unless kubernetes_source_range\n){0,8}(    maxconn 5)?"
}

/// The lines of others, each with the header above it.
fn foreign(text: &str) -> Vec<(String, String)> {
    let lines = |section: Section<'_>| {
        let header = section.header.unwrap_or_default().trim_end().to_owned();
        section.lines.into_iter().map(move |line| (header.clone(), line.to_owned())).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = sections(text).into_iter().flat_map(lines).collect();
    // The last line of a text may have no end, and gets one when others follow it.
    for (_, line) in &mut all {
        if !line.ends_with('\n') {
            line.push('\n');
        }
    }
    // Empty lines may lose a section that was ours alone.
    all.retain(|(_, line)| !line.trim().is_empty());
    all
}

proptest! {
    #[test]
    fn no_line_of_the_operator_changes(
        text in any_text(),
        ranges in proptest::collection::vec("10\\.[0-9]\\.0\\.0/16", 0..3),
    ) {
        let ranges: Vec<_> = ranges.iter().map(String::as_str).collect();
        let wanted = demand(&[80, 443], &ranges);
        let changed = with_source_ranges(&text, &wanted);
        prop_assert_eq!(foreign(&changed), foreign(&text));
        prop_assert_eq!(with_source_ranges(&changed, &wanted), changed);
    }
}
