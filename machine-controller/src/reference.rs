//! The page that explains every field of a provider's kinds, made from their definitions. So it says what the API server
//! checks, in the words that `kubectl explain` prints.

mod field;

use std::fmt::Write as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use self::field::{Field, fields};
use super::crds::Definitions;

/// The field of a template that has the spec of what is made from it.
const OF_TEMPLATE: &str = "spec.template.spec";

/// The page about the kinds of a provider, such as `libvirt`, in Markdown.
pub fn reference(provider: &str, definitions: &Definitions) -> String {
    let group = &definitions.machine.spec.group;
    let version = definitions.machine.spec.versions.first().map_or("", |version| &version.name);
    let mut page = format!(
        "# Fields of the machines of {provider}\n\
         \n\
         <!-- Made from the code by `make manifests`; do not edit. -->\n\
         \n\
         The kinds of `{group}/{version}`, as the API server checks them. `kubectl explain` prints the same in a\n\
         cluster.\n\
         \n\
         A path with `[]` is a field of each item of a list, one with `{{}}` of each value of a map. **required** means:\n\
         where the object around it is given.\n"
    );
    let pairs = [
        (&definitions.machine, &definitions.machine_template),
        (&definitions.cluster, &definitions.cluster_template),
    ];
    for (made, template) in pairs {
        page += &kind(made, None);
        page += &kind(template, Some(made));
    }
    for crd in &definitions.auxiliary {
        page += &kind(crd, None);
    }
    page
}

/// The section about one kind. `made` is the kind of what is made from it, if it is a template.
fn kind(crd: &CustomResourceDefinition, made: Option<&CustomResourceDefinition>) -> String {
    let names = &crd.spec.names;
    let schema = schema(crd);
    let about = schema["description"].as_str().unwrap_or_default();
    let of_kubectl = [&names.plural].into_iter().chain(names.short_names.iter().flatten());
    let of_kubectl: Vec<_> = of_kubectl.map(|name| format!("`{name}`")).collect();
    let mut text = format!("\n## {}\n\n{about} With `kubectl`: {}.\n", names.kind, of_kubectl.join(", "));
    let mut spec = fields("spec", &schema["properties"]["spec"]);
    if let Some(made) = made {
        let like = fields("spec", &self::schema(made)["properties"]["spec"]);
        shorten(&mut spec, &like, &made.spec.names.kind);
    }
    text += &section("spec", &spec, true);
    text += &section("status", &fields("status", &schema["properties"]["status"]), false);
    text + &columns(crd)
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let version = crd.spec.versions.first();
    let schema = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    schema.and_then(|schema| serde_json::to_value(schema).ok()).unwrap_or_default()
}

/// In place of the fields that a template has for `kind`: where they are explained, and which it has not.
fn shorten(spec: &mut Vec<Field>, like: &[Field], kind: &str) {
    let of_template = |field: &Field| field.path.strip_prefix(OF_TEMPLATE).map(|rest| format!("spec{rest}"));
    let has: Vec<String> = spec.iter().filter_map(of_template).collect();
    let is_missing = |field: &&Field| !has.contains(&field.path) && field.depth() == 1;
    let missing: Vec<_> = like.iter().filter(is_missing).map(Field::name).collect();
    spec.retain(|field| field.path == OF_TEMPLATE || of_template(field).is_none());
    if let Some(field) = spec.iter_mut().find(|field| field.path == OF_TEMPLATE) {
        let without = if missing.is_empty() {
            String::new()
        } else {
            format!(
                " without {}",
                missing.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            )
        };
        field.meaning = format!("The fields of `spec` of [{kind}](#{}){without}.", kind.to_ascii_lowercase());
        field.limits = vec!["cannot change".to_owned()];
    }
}

/// The table of the fields in `part`. `is_given` tells those that a user gives from those that the controller writes.
fn section(part: &str, fields: &[Field], is_given: bool) -> String {
    let mut text = String::new();
    let (of_part, fields): (Vec<_>, Vec<_>) = fields.iter().partition(|field| field.path == part);
    if fields.is_empty() {
        return text;
    }
    let _ = write!(text, "\n### {part}\n\n");
    let rules: Vec<&str> = of_part.iter().flat_map(|field| &field.rules).map(String::as_str).collect();
    if !rules.is_empty() {
        let _ = write!(text, "Rules: {}.\n\n", rules.join("; "));
    }
    text += if is_given {
        "| Field | Type | Default | Limits | Meaning |\n|---|---|---|---|---|\n"
    } else {
        "| Field | Type | Meaning |\n|---|---|---|\n"
    };
    for field in fields {
        let _ = write!(text, "| `{}` | {} |", field.path, cell(&field.kind));
        if is_given {
            let default = if field.is_required { "**required**" } else { &field.default };
            let limits = [&field.limits[..], &field.rules].concat().join("\n");
            let _ = write!(text, " {} | {} |", cell(default), cell(&limits));
        }
        let _ = writeln!(text, " {} |", cell(&field.meaning));
    }
    text
}

/// The columns of `kubectl get`.
fn columns(crd: &CustomResourceDefinition) -> String {
    let version = crd.spec.versions.first();
    let columns = version.into_iter().flat_map(|version| version.additional_printer_columns.iter().flatten());
    let named = |is_wide: bool| {
        let names =
            columns.clone().filter(move |column| column.priority.is_some_and(|number| number > 0) == is_wide);
        names.map(|column| format!("`{}`", column.name.to_uppercase())).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("\nColumns of `kubectl get`: {}", named(false));
    let wide = named(true);
    if !wide.is_empty() {
        let _ = write!(text, "; with `-o wide` also {wide}");
    }
    text + ".\n"
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', "<br>")
}

#[cfg(test)]
mod tests;
