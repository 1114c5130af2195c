//! The modules of a crate, and the file that defines a name.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{Import, Names, Path, Start};
use crate::source::Source;

/// The most `pub use` items that a name may pass. More are a circle themselves.
const FORWARDED: u32 = 16;

/// The imports between the files of a crate: the path of a file, the paths it needs, and for each
/// the first line that needs it.
pub type Imports = BTreeMap<String, BTreeMap<String, usize>>;

struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    names: Names,
}

/// The modules with their own files, the crate's top first.
pub struct Modules {
    all: Vec<Module>,
}

/// The target of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// This module itself.
    Module(usize),
    /// An item in the file of this module.
    Item(usize),
    /// A name of another crate or of the prelude.
    Foreign,
}

impl Modules {
    /// The modules that `mod` lines reach from the file `root`.
    pub fn new(root: &str, sources: &BTreeMap<&str, &Source>) -> Modules {
        let mut modules = Modules { all: Vec::new() };
        modules.add(root, None, sources);
        modules
    }

    fn add(
        &mut self,
        file: &str,
        parent: Option<usize>,
        sources: &BTreeMap<&str, &Source>,
    ) -> Option<usize> {
        let names = Names::of(sources.get(file)?);
        let (directory, last) = file.rsplit_once('/')?;
        let directory = match parent.is_none() || last == "mod.rs" {
            true => directory.to_string(),
            false => file.trim_end_matches(".rs").to_string(),
        };
        let number = self.all.len();
        let declared = names.children.clone();
        let children = BTreeMap::new();
        self.all.push(Module { file: file.to_string(), parent, children, names });
        for child in declared {
            let places = [format!("{directory}/{child}.rs"), format!("{directory}/{child}/mod.rs")];
            let added = places.iter().find_map(|place| self.add(place, Some(number), sources));
            if let Some(added) = added {
                self.all[number].children.insert(child, added);
            }
        }
        Some(number)
    }

    /// The imports between files.
    pub fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (from, module) in self.all.iter().enumerate() {
            let mut needed: Vec<(Found, usize)> = Vec::new();
            for (path, line) in &module.names.paths {
                needed.push((self.path(from, path, FORWARDED), *line));
            }
            let used = self.first_names(from);
            for import in &module.names.imports {
                let found = self.path(from, &import.path, FORWARDED);
                // A module that only begins other paths is not needed itself. The targets of these
                // paths are needed, and they have been counted. A name that the file only
                // re-exports is not needed. The users of the name need its file.
                if import.forwarded
                    && import.name.as_ref().is_some_and(|name| !module.names.words.contains(name))
                {
                    continue;
                }
                let begins = import.name.as_ref().is_some_and(|name| used.contains(name.as_str()));
                if !(begins && matches!(found, Found::Module(_))) {
                    needed.push((found, import.line));
                }
            }
            let lines = imports.entry(module.file.clone()).or_default();
            for (found, line) in needed {
                let (Found::Module(to) | Found::Item(to)) = found else { continue };
                if to != from {
                    let first = lines.entry(self.all[to].file.clone()).or_insert(line);
                    *first = line.min(*first);
                }
            }
        }
        imports
    }

    /// The names in scope with which paths in a module begin.
    fn first_names(&self, module: usize) -> BTreeSet<&str> {
        let names = &self.all[module].names;
        let imported = names.imports.iter().filter(|it| it.path.names.len() > 1).map(|it| &it.path);
        let paths = names.paths.iter().map(|(path, _)| path).chain(imported);
        let begins = paths.filter(|path| path.start == Start::Here);
        begins.filter_map(|path| Some(path.names.first()?.as_str())).collect()
    }

    fn path(&self, from: usize, path: &Path, forwarded: u32) -> Found {
        match path.start {
            Start::Top => self.walk(0, &path.names, forwarded),
            Start::Up(above) => {
                let parent = |module: usize, _| self.all[module].parent.unwrap_or(module);
                self.walk((0..above).fold(from, parent), &path.names, forwarded)
            }
            Start::Here => {
                let Some((first, rest)) = path.names.split_first() else { return Found::Foreign };
                match self.in_scope(from, first, path, forwarded) {
                    Some(Found::Module(module)) => self.walk(module, rest, forwarded),
                    found => found.unwrap_or(Found::Foreign),
                }
            }
        }
    }

    /// A path that goes down from `module`.
    fn walk(&self, module: usize, names: &[String], forwarded: u32) -> Found {
        let Some((first, rest)) = names.split_first() else { return Found::Module(module) };
        match self.named(module, first, forwarded) {
            Some(Found::Module(child)) => self.walk(child, rest, forwarded),
            found => found.unwrap_or(Found::Item(module)),
        }
    }

    /// The target of `name` in a module: a child, an import, an item, or a name from a glob import.
    fn named(&self, module: usize, name: &str, forwarded: u32) -> Option<Found> {
        let forwarded = forwarded.checked_sub(1)?;
        let here = &self.all[module];
        if let Some(child) = here.children.get(name) {
            return Some(Found::Module(*child));
        }
        let import = here.names.imports.iter().find(|it| it.name.as_deref() == Some(name));
        if let Some(import) = import {
            return Some(self.path(module, &import.path, forwarded));
        }
        if here.names.items.contains(name) {
            return Some(Found::Item(module));
        }
        here.names.imports.iter().filter(|import| import.name.is_none()).find_map(|import| {
            match self.path(module, &import.path, forwarded) {
                Found::Module(other) if other != module => self.named(other, name, forwarded),
                _ => None,
            }
        })
    }

    /// The target of the bare `name` at the start of a path: a child or an import, but not `path`
    /// itself (`use sync::Mutex` does not define `sync`).
    fn in_scope(&self, module: usize, name: &str, path: &Path, forwarded: u32) -> Option<Found> {
        let forwarded = forwarded.checked_sub(1)?;
        let here = &self.all[module];
        if let Some(child) = here.children.get(name) {
            return Some(Found::Module(*child));
        }
        let names_it = |it: &&Import| it.name.as_deref() == Some(name) && it.path != *path;
        let import = here.names.imports.iter().find(names_it)?;
        Some(self.path(module, &import.path, forwarded))
    }
}
