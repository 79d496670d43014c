//! The modules of a crate, one for each file, and which of them refer to which.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use crate::lexer::{is_word, tokens, without_tests};

/// The path of a module from the root of the crate. It is empty for the root.
pub(crate) type Module = Vec<String>;

/// Which module refers to which, with the paths by which it does.
pub(crate) type Arrows = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

/// The source files of one crate.
#[derive(Default)]
pub(crate) struct Crate {
    /// The tokens of each file without those for tests, by the file's module.
    files: BTreeMap<Module, Vec<String>>,
    /// Modules that are only for tests.
    tests: BTreeSet<Module>,
}

/// A path somewhere in a file.
struct Named {
    file: Module,
    /// The module that the path is in, which may be a module inside the file.
    within: Module,
    path: Vec<String>,
    /// Of an import: the name that it introduces, and whether other modules may use that name.
    import: Option<(String, bool)>,
}

impl Crate {
    /// Reads the files of `src`.
    pub(crate) fn read(src: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        read_folder(src, &Vec::new(), &mut files)?;
        let mut elsewhere = BTreeMap::new();
        for (path, module, source) in &files {
            let folder = path.parent().unwrap_or(path);
            let named = named_files(source).into_iter();
            elsewhere.extend(named.map(|(file, name)| (folder.join(file), joined(module, &[name]))));
        }
        let mut all = Self::default();
        for (path, module, source) in files {
            all.add(elsewhere.remove(&path).unwrap_or(module), &source);
        }
        Ok(all)
    }

    fn add(&mut self, module: Module, source: &str) {
        let all = tokens(source);
        let (kept, tests) = without_tests(&all);
        for name in tests {
            self.tests.insert(joined(&module, &[name.to_owned()]));
        }
        // A library and a binary of one crate share the root.
        self.files.entry(module).or_default().extend(kept.into_iter().map(str::to_owned));
    }

    /// Which file refers to which. An import that other modules may use (a door) is not an arrow: a path
    /// through it counts as a reference to its target.
    pub(crate) fn arrows(&self) -> Arrows {
        let named = self.named();
        let mut imports: BTreeMap<&Module, BTreeMap<&str, Module>> = BTreeMap::new();
        for one in &named {
            if let (Some((name, _)), Some(path)) = (&one.import, self.absolute(one)) {
                imports.entry(&one.within).or_default().insert(name, path);
            }
        }
        let mut arrows = Arrows::new();
        for one in &named {
            let Some(path) = self.absolute(one) else { continue };
            if matches!(one.import, Some((_, true))) {
                continue;
            }
            let target = self.file_of(&path, &imports, 0);
            if target != one.file {
                let paths = arrows.entry(one.file.clone()).or_default().entry(target).or_default();
                paths.insert(path.join("::"));
            }
        }
        arrows
    }

    fn named(&self) -> Vec<Named> {
        let is_test = |file: &Module| (0..=file.len()).any(|length| self.tests.contains(&file[..length]));
        let files = self.files.iter().filter(|(file, _)| !is_test(file));
        files.flat_map(|(file, tokens)| named_in(file, tokens)).collect()
    }

    /// The path from the root of the crate. `None` for a path into another crate, or to something in the same
    /// file.
    fn absolute(&self, one: &Named) -> Option<Module> {
        let mut path = &one.path[..];
        let mut from = one.within.clone();
        match path[0].as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" => path = &path[1..],
            "super" => {
                while path.first().is_some_and(|word| word == "super") {
                    from.pop();
                    path = &path[1..];
                }
            }
            first => {
                if !self.files.contains_key(&joined(&from, &[first.to_owned()])) {
                    return None;
                }
            }
        }
        Some(joined(&from, path))
    }

    /// The file that defines what a path names, after all doors.
    fn file_of(
        &self,
        path: &Module,
        imports: &BTreeMap<&Module, BTreeMap<&str, Module>>,
        doors: u32,
    ) -> Module {
        let is_file = |length: &usize| self.files.contains_key(&path[..*length]);
        let length = (1..=path.len()).take_while(is_file).last().unwrap_or_default();
        let file = path[..length].to_vec();
        let behind = path.get(length).and_then(|name| imports.get(&file)?.get(name.as_str()));
        match behind {
            // Doors that form a circle would have no end.
            Some(behind) if doors < 16 => {
                self.file_of(&joined(behind, &path[length + 1..]), imports, doors + 1)
            }
            _ => file,
        }
    }
}

/// Each file below a folder with its module, unless a `#[path]` says otherwise, and its text.
fn read_folder(folder: &Path, module: &Module, files: &mut Vec<(PathBuf, Module, String)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut inner = module.clone();
        if path.is_dir() {
            inner.push(stem);
            read_folder(&path, &inner, files)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let is_root = module.is_empty() && ["lib", "main"].contains(&stem.as_str());
            if stem != "mod" && !is_root {
                inner.push(stem);
            }
            let source = fs::read_to_string(&path)?;
            files.push((path, inner, source));
        }
    }
    Ok(())
}

/// Modules whose file is named, `#[path = "file.rs"] mod name;`: the file and the module.
fn named_files(source: &str) -> Vec<(String, String)> {
    let tokens = tokens(source);
    let named = tokens.windows(6).enumerate().filter_map(|(at, words)| match words {
        ["[", "path", "=", file, "]", _] => {
            let name = tokens[at..].iter().skip_while(|token| **token != "mod").nth(1)?;
            Some((file.trim_matches('"').to_owned(), (*name).to_owned()))
        }
        _ => None,
    });
    named.collect()
}

fn joined(module: &[String], rest: &[String]) -> Module {
    [module, rest].concat()
}

/// Every path of a file.
fn named_in(file: &Module, tokens: &[String]) -> Vec<Named> {
    let mut named = Vec::new();
    // The modules inside the file that are open, each with the depth of its bracket.
    let mut inner: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while at < tokens.len() {
        let token = |offset: usize| tokens.get(at + offset).map(String::as_str).unwrap_or_default();
        let within = || file.iter().chain(inner.iter().map(|(name, _)| name)).cloned().collect::<Module>();
        let before = at.checked_sub(1).map(|before| tokens[before].as_str()).unwrap_or_default();
        match token(0) {
            "mod" if token(2) == "{" => {
                inner.push((token(1).to_owned(), depth));
                depth += 1;
                at += 3;
            }
            // A path that says who may see an item is not a reference.
            "pub" if token(1) == "(" && ["crate", "in", "self", "super"].contains(&token(2)) => {
                at += tokens[at..].iter().position(|token| token == ")").unwrap_or_default() + 1;
            }
            "{" => (depth, at) = (depth + 1, at + 1),
            "}" => {
                depth = depth.saturating_sub(1);
                at += 1;
                inner.pop_if(|(_, opened)| *opened == depth);
            }
            // Not the `use<>` of a type.
            "use" if token(1) != "<" => {
                let is_door = before == "pub"
                    || (before == ")" && tokens[..at].iter().rev().nth(3).is_some_and(|word| word == "pub"));
                let mut imported = Vec::new();
                at = use_tree(tokens, at + 1, &[], &mut imported);
                let import = |(path, name)| Named {
                    file: file.clone(),
                    within: within(),
                    path,
                    import: Some((name, is_door)),
                };
                named.extend(imported.into_iter().map(import));
            }
            word if token(1) == "::" && before != "::" && word.starts_with(is_word) => {
                let mut path = vec![word.to_owned()];
                let mut next = at + 1;
                while tokens.get(next).is_some_and(|sign| sign == "::")
                    && tokens.get(next + 1).is_some_and(|word| word.starts_with(is_word))
                {
                    path.push(tokens[next + 1].clone());
                    next += 2;
                }
                named.push(Named { file: file.clone(), within: within(), path, import: None });
                at = next;
            }
            _ => at += 1,
        }
    }
    named
}

/// Reads what an import names, each with the name that it introduces. Returns where the import ends.
fn use_tree(
    tokens: &[String],
    mut at: usize,
    before: &[String],
    imported: &mut Vec<(Module, String)>,
) -> usize {
    let mut path = before.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = use_tree(tokens, at, &path, imported);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            "::" => at += 1,
            "*" => {
                imported.push((path, "*".to_owned()));
                return at + 1;
            }
            "as" => {
                let name = tokens.get(at + 1).cloned().unwrap_or_default();
                imported.push((path, name));
                return at + 2;
            }
            "self" if !path.is_empty() => at += 1,
            word if word.starts_with(is_word) => {
                path.push(word.to_owned());
                at += 1;
            }
            _ => break,
        }
    }
    if let Some(name) = path.last().cloned() {
        imported.push((path, name));
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Module {
        path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// The arrows of a crate with these files, as `from -> to`.
    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = Crate::default();
        for (path, source) in files {
            all.add(module(path), source);
        }
        let arrows = all.arrows();
        let pairs = arrows.iter().flat_map(|(from, to)| to.keys().map(move |to| (from, to)));
        pairs.map(|(from, to)| format!("{} -> {}", from.join("/"), to.join("/"))).collect()
    }

    #[test]
    fn every_way_to_name_a_module_is_an_arrow() {
        let found = arrows(&[
            ("", "mod a; mod b; mod c; mod d; mod e; mod f; mod g;"),
            ("a", "use crate::b::B; use std::fmt;"),
            ("b", "use super::{c::{self, C}, d as other};"),
            ("c", "fn c() { crate::d::call(); Self::e(); e::f(); }"),
            ("d", "mod inner; fn d() -> inner::Inner {}"),
            ("d/inner", "mod here { use super::super::super::e::E; use super::g; }"),
            ("e", "impl super::f::F for E {}"),
            ("f", "// crate::a\n fn f() { \"crate::a\"; }"),
            ("g", "fn g() -> impl Sized + use<> {}"),
        ]);
        assert_eq!(found, ["a -> b", "b -> c", "b -> d", "c -> d", "d -> d/inner", "d/inner -> e", "e -> f"]);
    }

    #[test]
    fn a_door_is_no_arrow_and_whoever_goes_through_it_names_what_is_behind() {
        let found = arrows(&[
            ("", "pub mod a; pub use a::Type; pub(crate) use b::{Other as Renamed};"),
            ("a", "mod kept; mod other; pub use kept::Type; pub use self::other::Hidden;"),
            ("a/kept", "use super::Hidden; use crate::Renamed; pub struct Type;"),
            ("a/other", "pub(in super::super) struct Hidden;"),
            ("b", "use crate::Type; use crate::a;"),
        ]);
        assert_eq!(found, ["a/kept -> a/other", "a/kept -> b", "b -> a", "b -> a/kept"]);
    }

    #[test]
    fn a_module_may_be_in_another_file() {
        let source =
            "mod a; #[cfg(test)] #[path = \"b_tests.rs\"] mod tests; #[path = \"c.rs\"] pub(super) mod d;";
        let named = named_files(source);
        let named: Vec<_> = named.iter().map(|(file, name)| (file.as_str(), name.as_str())).collect();
        assert_eq!(named, [("b_tests.rs", "tests"), ("c.rs", "d")]);
    }

    #[test]
    fn tests_may_name_what_they_like() {
        let found = arrows(&[
            ("", "mod a; mod b;"),
            ("a", "#[cfg(test)] mod tests { use crate::b; } #[cfg(test)] mod more;"),
            ("a/more", "use crate::b;"),
            ("a/more/deeper", "use crate::b;"),
            ("b", "use crate::a;"),
        ]);
        assert_eq!(found, ["b -> a"]);
    }
}
