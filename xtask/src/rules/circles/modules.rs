//! The modules of a crate, and the file that defines a name.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{Import, Names, Path, Start};
use crate::source::Source;

/// How many `pub use` a name may go through: more are a circle of their own.
const FORWARDED: u32 = 16;

/// Where files of one crate import others: from the path of a file to the paths it needs, each
/// with the line that needs it first.
pub type Imports = BTreeMap<String, BTreeMap<String, usize>>;

struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    names: Names,
}

/// The modules that are in files of their own, the crate's top first.
pub struct Modules {
    all: Vec<Module>,
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// This module itself.
    Module(usize),
    /// Something that is defined in the file of this module.
    Item(usize),
    /// Something of another crate, or of the prelude.
    Foreign,
}

impl Modules {
    /// Those that can be reached from the file `root` by `mod` lines.
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

    /// Which files import which.
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
                // A module that only begins other paths is not needed itself: what those lead to
                // is, and they have been counted.
                // Nor is a name that is only handed on: whoever uses it needs its file.
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

    /// What a module calls `name`: a child, an import, an item, or something that comes with all
    /// names of another module.
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

    /// What a path that begins with a bare `name` begins with: a child or an import, not `path`
    /// itself (`use sync::Mutex` says nothing of what `sync` is).
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
