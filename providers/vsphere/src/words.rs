//! What a word means among the objects of an inventory. Pure.
//!
//! The rules are those of the tools of vSphere (govmomi). A word without a slash is a name, anywhere below the folder of its kind. A word that
//! begins with a slash is a whole path. Any other word with a slash is a path from the folder of its kind. Each part may be a pattern,
//! which matches one name, and `%2f` is a slash within a name.
//!
//! Unlike there, what is written out comes before a pattern, a slash within a name may also stand as it is, and a word may be a managed
//! object ID.

use crate::{glob::matches_path_part, inventory::unescaped, moref::MoRef};

/// An object with the names that lead to it from the root, which has no name itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named<T> {
    pub(crate) path: Vec<String>,
    pub(crate) moref: MoRef,
    pub(crate) object: T,
}

impl<T> Named<T> {
    pub(crate) fn name(&self) -> &str {
        self.path.last().map(String::as_str).unwrap_or_default()
    }

    /// The whole path as a word that means this object.
    pub(crate) fn escaped(&self) -> String {
        let escaped = |name: &String| name.replace('%', "%25").replace('/', "%2f").replace('\\', "%5c");
        format!("/{}", self.path.iter().map(escaped).collect::<Vec<_>>().join("/"))
    }

    /// The whole path, for people.
    pub(crate) fn shown(&self) -> String {
        format!("/{}", self.path.join("/"))
    }
}

/// The ways in which a word may mean an object. The first one in which it means any counts.
#[derive(Clone, Copy)]
enum Way {
    Name,
    Path,
    /// A path in which slashes within names stand as they are.
    Text,
    Id,
    Pattern,
    /// A path from the datacenter, or from the root, without a slash at its beginning.
    LongerPath,
}

const WAYS: [Way; 6] = [Way::Name, Way::Path, Way::Text, Way::Id, Way::Pattern, Way::LongerPath];

/// The objects that a word means. `root` leads to the folder of their kind.
pub(crate) fn meant<'a, T>(word: &str, root: &[String], all: &'a [Named<T>]) -> Vec<&'a Named<T>> {
    let word = Word::new(word);
    WAYS.into_iter()
        .map(|way| all.iter().filter(|one| word.means(way, root, one)).collect::<Vec<_>>())
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

struct Word<'a> {
    /// As it was written.
    text: &'a str,
    is_whole: bool,
    /// Its parts, unescaped. `None`: it leads out of where it begins.
    parts: Option<Vec<Box<str>>>,
}

impl<'a> Word<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, is_whole: text.starts_with('/'), parts: parts(text) }
    }

    fn means<T>(&self, way: Way, root: &[String], one: &Named<T>) -> bool {
        let Some(parts) = &self.parts else { return false };
        let is_path = self.is_whole || self.text.contains('/');
        let own = if self.is_whole { Some(&*one.path) } else { below(one, root) };
        match way {
            Way::Name => !self.is_whole && *unescaped(self.text) == *one.name(),
            Way::Path => is_path && own.is_some_and(|path| is_written_out(parts, path)),
            Way::Text => is_path && own.is_some_and(|path| path.join("/") == parts.join("/")),
            Way::Id => {
                let bare = self.text.strip_prefix(one.moref.kind()).and_then(|rest| rest.strip_prefix(':'));
                bare.unwrap_or(self.text) == one.moref.id()
            }
            Way::Pattern if is_path => own.is_some_and(|path| fits(parts, path)),
            Way::Pattern => fits(parts, std::slice::from_ref(&one.name().to_owned())),
            Way::LongerPath => {
                let of_datacenter = root.split_last().map_or(&[][..], |(_, datacenter)| datacenter);
                let mut paths = [of_datacenter, &[]].into_iter().filter_map(|root| below(one, root));
                is_path && !self.is_whole && paths.any(|path| fits(parts, path))
            }
        }
    }
}

/// The part of the path of an object that comes after these names.
fn below<'a, T>(one: &'a Named<T>, root: &[String]) -> Option<&'a [String]> {
    one.path.strip_prefix(root)
}

/// Whether a word may mean an object with this name and reference, wherever that is. Of very many objects, the paths of the others need
/// not be made.
pub(crate) fn could_mean(word: &str, name: &str, moref: &MoRef) -> bool {
    let last = parts(word).and_then(|mut parts| parts.pop()).unwrap_or_default();
    *last == *name
        || unescaped(word).ends_with(name)
        || word.rsplit(':').next() == Some(moref.id())
        || matches_path_part(&last, name)
}

/// The parts of a path, without those that say nothing.
fn parts(text: &str) -> Option<Vec<Box<str>>> {
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(unescaped(part)),
        }
    }
    Some(parts)
}

fn is_written_out(parts: &[Box<str>], path: &[String]) -> bool {
    parts.len() == path.len() && parts.iter().zip(path).all(|(part, name)| **part == **name)
}

fn fits(parts: &[Box<str>], path: &[String]) -> bool {
    parts.len() == path.len() && parts.iter().zip(path).all(|(part, name)| part_means(part, name))
}

/// Whether a part of a path means this name: it is the name, or a pattern that matches it.
pub(crate) fn part_means(part: &str, name: &str) -> bool {
    part == name || matches_path_part(part, name)
}

/// The first whole paths of objects, for people.
pub(crate) fn listed<'a, T: 'a>(objects: impl IntoIterator<Item = &'a Named<T>>) -> String {
    /// How many objects an error lists.
    const MAX_LISTED: usize = 5;
    let mut paths: Vec<_> = objects.into_iter().map(Named::shown).collect();
    paths.sort();
    let more = if paths.len() > MAX_LISTED { ", ..." } else { "" };
    paths.truncate(MAX_LISTED);
    format!("{}{more}", paths.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(paths: &[&[&str]]) -> Vec<Named<usize>> {
        let one = |(number, path): (usize, &&[&str])| Named {
            path: path.iter().map(|&name| name.to_owned()).collect(),
            moref: MoRef::new("Network", &format!("network-{number}")),
            object: number,
        };
        paths.iter().enumerate().map(one).collect()
    }

    /// What govmomi's finder answers, but where the comment says otherwise.
    #[test]
    fn words_mean_what_they_mean_to_the_tools_of_vsphere() {
        let root = ["DC0", "network"].map(str::to_owned);
        let objects = all(&[
            &["DC0", "network", "VM Network"],                       // 0
            &["DC0", "network", "site-a", "prod"],                   // 1
            &["DC0", "network", "site-b", "prod"],                   // 2
            &["DC0", "network", "24"],                               // 3
            &["DC0", "network", "DHCP_10.1.1.0/24"],                 // 4
            &["DC0", "network", "site-a", "test"],                   // 5
            &["DC0", "network", "pg-*"],                             // 6
            &["DC0", "network", "pg-1"],                             // 7
            &["DC0", "network", "site-a", "DC0", "network", "deep"], // 8
            &["DC0", "network", "network-0"],                        // 9
            &["DC0", "network", "50% \\ [x]"],                       // 10
        ]);
        let none: &[usize] = &[];
        for (word, expected) in [
            ("VM Network", &[0][..]),
            ("vm network", none),
            ("prod", &[1, 2]),
            ("site-a/prod", &[1]),
            ("./site-a/prod", &[1]),
            ("/DC0/network/site-a/prod", &[1]),
            ("/DC0/network/site-b/prod/", &[2]),
            ("/DC0//network/./site-b/x/../prod", &[2]),
            ("/DC0/network/prod", none),
            ("/prod", none),
            ("network/prod", none),
            ("/DC1/network/VM Network", none),
            ("/nowhere/at/all/VM Network", none),
            ("nowhere/VM Network", none),
            ("../network/VM Network", none),
            ("VM Net*", &[0]),
            ("V? [^a-m]etwork", &[0]),
            ("*/prod", &[1, 2]),
            ("*/test", &[5]),
            ("/*/network/site-[a]/p*", &[1]),
            ("/DC0/*/VM Network", &[0]),
            ("/DC0/*", none),
            ("/DC0/network/*/*/*/deep", &[8]),
            ("24", &[3]),
            ("/DC0/network/24", &[3]),
            ("DHCP_10.1.1.0%2f24", &[4]),
            ("DHCP_10.1.1.0%2F24", &[4]),
            ("/DC0/network/DHCP_10.1.1.0%2f24", &[4]),
            ("DHCP*24", &[4]),
            // not so there: a slash within a name
            ("DHCP_10.1.1.0/24", &[4]),
            ("/DC0/network/DHCP_10.1.1.0/24", &[4]),
            // not so there: it would match both
            ("pg-*", &[6]),
            ("pg-?", &[6, 7]),
            ("pg-[1]", &[7]),
            ("[", none),
            ("50%25 %5c [x]", &[10]),
            ("50% \\ [x]", &[10]),
            ("/DC0/network/50%25 %5c [x]", &[10]),
            // not so there: a path without the slash at its beginning, once it is no path from the folder
            ("DC0/network/VM Network", &[0]),
            ("network/VM Network", &[0]),
            ("site-a/DC0/network/deep", &[8]),
            // not so there: a managed object ID, unless something has it as its name
            ("network-5", &[5]),
            ("network-0", &[9]),
            ("Network:network-0", &[0]),
            ("Datastore:network-0", none),
            ("", none),
            ("/", none),
        ] {
            let found: Vec<_> = meant(word, &root, &objects).iter().map(|one| one.object).collect();
            assert_eq!(found, expected, "{word}");
            for one in found.iter().map(|number| &objects[*number]) {
                assert!(could_mean(word, one.name(), &one.moref), "{word}");
            }
        }
    }

    #[test]
    fn a_name_with_a_slash_comes_before_a_path() {
        let root = ["DC0", "network"].map(str::to_owned);
        let objects = all(&[&["DC0", "network", "a", "b"], &["DC0", "network", "a/b"]]);
        let found =
            |word: &str| meant(word, &root, &objects).iter().map(|one| one.object).collect::<Vec<_>>();
        assert_eq!(
            (found("a/b"), found("/DC0/network/a/b"), found("/DC0/network/a%2fb")),
            (vec![1], vec![0], vec![1])
        );
    }
}
