//! Files with the format `Template`: the part of Go's `text/template` that their only variable, `.controlPlane.version`, needs.
//!
//! Conditions (`if`, `else`, `with`), comparisons (`eq`, `ne`, `lt`, `le`, `gt`, `ge`), `not`, `and`, `or`, texts, comments, and
//! the marks that trim white space. Everything else is an error: loops, variables, pipelines, other functions, other templates.

mod expression;
mod node;
mod parse;

use expression::Scope;
use node::Node;

/// The text with its actions done. The version of the control plane may be unknown. Errors are parts of a sentence.
pub(crate) fn render(text: &str, version: Option<&str>) -> Result<String, String> {
    let nodes = parse::template(text)?;
    let mut out = String::new();
    write(&mut out, &nodes, Scope::root(version))?;
    Ok(out)
}

fn write(out: &mut String, nodes: &[Node], scope: Scope<'_>) -> Result<(), String> {
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Output(expression) => out.push_str(&expression.value(scope)?.printed()?),
            Node::Condition { rebinds, condition, then, otherwise } => {
                let value = condition.value(scope)?;
                if !value.is_true() {
                    write(out, otherwise, scope)?;
                } else if *rebinds {
                    write(out, then, scope.inside(&value)?)?;
                } else {
                    write(out, then, scope)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_and_without_a_version() {
        for (template, with, without) in [
            ("plain", "plain", "plain"),
            ("{{ .controlPlane.version }}", "v1.36.2", "the version of the control plane is not known"),
            ("{{.controlPlane.version}}", "v1.36.2", "the version of the control plane is not known"),
            ("{{ with .controlPlane }}{{ .version }}{{ end }}", "v1.36.2", ""),
            ("{{ if .controlPlane }}a{{ else }}b{{ end }}", "a", "b"),
            ("a {{- if not .controlPlane -}} b {{- end }} c", "a c", "ab c"),
            (
                "{{ if eq .controlPlane.version \"v1.36.2\" }}a{{ end }}",
                "a",
                "the version of the control plane is not known",
            ),
            ("{{ if and .controlPlane (ge .controlPlane.version `v1.36`) }}a{{ end }}", "a", ""),
            ("{{ if or .controlPlane \"\" }}a{{ else if .controlPlane }}b{{ else }}c{{ end }}", "a", "c"),
            ("{{/* x */}}{{- /* y */ -}} z", "z", "z"),
            ("{{ \"a\\n\\\"b\" }}{{ `{{` }}", "a\n\"b{{", "a\n\"b{{"),
            ("{{ eq \"a\" \"b\" \"a\" }}", "true", "true"),
        ] {
            let text = |version| render(template, version).unwrap_or_else(|problem| problem);
            assert_eq!(text(Some("v1.36.2")), with, "{template}");
            assert_eq!(text(None), without, "{template}");
        }
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for template in [
            "{{",
            "{{ }}",
            "{{ if }}{{ end }}",
            "{{ if . }}",
            "{{ end }}",
            "{{ else }}",
            "{{ range . }}{{ end }}",
            "{{ .x }}",
            "{{ .controlPlane.version.major }}",
            "{{ . }}",
            "{{ .controlPlane }}",
            "{{ $x := 1 }}",
            "{{ printf \"%s\" . }}",
            "{{ .controlPlane | len }}",
            "{{ \"a }}",
            "{{ (eq \"a\" \"b\" }}",
            "{{ eq \"a\" }}",
            "{{ eq . \"a\" }}",
            "{{ template \"x\" }}",
            "{{ `a }}",
            "{{ if . }}{{ else }}{{ else }}{{ end }}",
            "{{/* x }}",
            "{{ \"\\x\" }}",
            "{{ with \"a\" }}{{ .version }}{{ end }}",
            "{{ not }}",
            "{{ lt \"a\" }}",
        ] {
            assert!(render(template, Some("v1.36.2")).is_err(), "{template}");
        }
        let deep = format!("{}{}", "{{ if . }}".repeat(100_000), "{{ end }}".repeat(100_000));
        assert!(render(&deep, None).is_err());
        let deep = format!("{{{{ {}.{} }}}}", "(not ".repeat(100_000), ")".repeat(100_000));
        assert!(render(&deep, None).is_err());
    }
}
