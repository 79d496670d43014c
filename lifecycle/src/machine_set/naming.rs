//! Names of new Machines.

/// The longest name, as long as a label's value: the name of a Machine is one on other objects.
const LONGEST: usize = 63;

/// So many random characters make a name unique.
pub const RANDOM: usize = 5;

/// The characters of random parts: neither vowels nor digits that look like vowels, so that they spell no word.
pub const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// `spec.machineNaming.template` cannot be a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTemplate(String);

impl std::fmt::Display for InvalidTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "spec.machineNaming.template: {}", self.0)
    }
}

impl std::error::Error for InvalidTemplate {}

/// The name of a new Machine, after `spec.machineNaming.template` of its `MachineSet`, or after Cluster API's own template where there
/// is none. `random` has [`RANDOM`] characters of the [`ALPHABET`]. A name that is too long ends with them.
///
/// The template may have `{{ .cluster.name }}`, `{{ .machineSet.name }}` and, once at least, `{{ .random }}`. Go's template language can do
/// more; nothing else of it makes sense in a name.
///
/// # Errors
/// If the template has another variable, or no random part.
pub fn machine_name(
    template: Option<&str>,
    cluster: &str,
    machine_set: &str,
    random: &str,
) -> Result<String, InvalidTemplate> {
    let template = template.unwrap_or("{{ .machineSet.name }}-{{ .random }}");
    let (mut name, mut rest, mut is_random) = (String::new(), template, false);
    while let Some((text, after)) = rest.split_once("{{") {
        name.push_str(text);
        let (variable, after) = after
            .split_once("}}")
            .ok_or_else(|| InvalidTemplate(format!("{template:?} has {{{{ without }}}}")))?;
        match variable.trim_matches(|c: char| c == '-' || c.is_whitespace()) {
            ".cluster.name" => name.push_str(cluster),
            ".machineSet.name" => name.push_str(machine_set),
            ".random" => {
                name.push_str(random);
                is_random = true;
            }
            other => {
                return Err(InvalidTemplate(format!(
                    "{other:?} is unknown; known are .cluster.name, .machineSet.name and .random"
                )));
            }
        }
        rest = after;
    }
    name.push_str(rest);
    if !is_random {
        return Err(InvalidTemplate(format!(
            "{template:?} has no {{{{ .random }}}}, so all Machines had one name"
        )));
    }
    if name.len() > LONGEST {
        let mut end = LONGEST - RANDOM;
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.truncate(end);
        name.push_str(random);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_template() {
        let name = |template| machine_name(template, "c", "set", "x7z2b");
        for (template, expected) in [
            (None, "set-x7z2b"),
            (Some("{{ .cluster.name }}-{{.random}}"), "c-x7z2b"),
            (Some("a-{{ .random }}-{{ .machineSet.name }}"), "a-x7z2b-set"),
            (Some("{{- .random -}}"), "x7z2b"),
        ] {
            assert_eq!(name(template).as_deref(), Ok(expected));
        }
        for (template, words) in [
            ("set", "no {{ .random }}"),
            ("{{ .random", "without }}"),
            ("{{ .random }}-{{ .env.SECRET }}", "\".env.SECRET\" is unknown"),
        ] {
            let error = name(Some(template)).expect_err("it is refused").to_string();
            assert!(error.contains(words) && error.starts_with("spec.machineNaming.template: "), "{error}");
        }
    }

    #[test]
    fn a_long_name_ends_with_the_random_part() {
        let set = "s".repeat(70);
        let name = machine_name(None, "c", &set, "x7z2b").expect("a name");
        assert_eq!(name, format!("{}x7z2b", "s".repeat(58)));
        let template = format!("{}{{{{ .random }}}}", "ä".repeat(40));
        assert!(machine_name(Some(&template), "c", "s", "x7z2b").expect("a name").len() <= LONGEST);
    }
}
