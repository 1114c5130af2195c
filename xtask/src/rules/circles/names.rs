//! The declarations, imports and names of a file, as far as its words alone show them.

use std::collections::BTreeSet;

use crate::source::Source;

/// A path and its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    pub start: Start,
    pub names: Vec<String>,
}

/// Where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With `crate::`.
    Top,
    /// With `self::` (0) or with this number of `super::`.
    Up(usize),
    /// With a name that is in scope.
    Here,
}

/// A name that a `use` imports.
#[derive(Debug, PartialEq, Eq)]
pub struct Import {
    pub path: Path,
    /// The name in this file; `None` for all names of a module.
    pub name: Option<String>,
    /// True for a `pub use`.
    pub forwarded: bool,
    pub line: usize,
}

/// The names of a file.
#[derive(Default)]
pub struct Names {
    /// Modules that this file declares and that have their own files.
    pub children: Vec<String>,
    pub imports: Vec<Import>,
    /// Paths outside of `use` items, with their lines.
    pub paths: Vec<(Path, usize)>,
    /// Items, including those of inline modules and `impl` blocks.
    pub items: BTreeSet<String>,
    /// Every word of the code that is not in a `use`.
    pub words: BTreeSet<String>,
}

const ITEMS: &[&str] =
    &["fn", "struct", "enum", "union", "trait", "type", "const", "static", "macro_rules", "mod"];

impl Names {
    /// Reads the code of `source`, without its tests.
    pub fn of(source: &Source) -> Names {
        let mut reader = Reader { words: words(source), at: 0, inline: Vec::new(), depth: 0 };
        let mut names = Names::default();
        while reader.at < reader.words.len() {
            reader.item(&mut names);
        }
        names
    }
}

struct Word {
    text: String,
    line: usize,
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(source: &Source) -> Vec<Word> {
    let mut words = Vec::new();
    for (line, source_line) in source.product_lines() {
        let mut rest = source_line.code.as_str();
        while let Some(c) = rest.chars().next() {
            let length = if is_part(c) {
                rest.find(|c| !is_part(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                c.len_utf8()
            };
            if !c.is_whitespace() {
                words.push(Word { text: rest[..length].to_string(), line });
            }
            rest = &rest[length..];
        }
    }
    words
}

struct Reader {
    words: Vec<Word>,
    at: usize,
    /// Inline modules around this place, with the depth of braces inside each.
    inline: Vec<usize>,
    depth: usize,
}

impl Reader {
    /// The word `ahead` of this one; empty at the end.
    fn word(&self, ahead: usize) -> &str {
        self.words.get(self.at + ahead).map_or("", |word| &word.text)
    }

    fn before(&self, back: usize) -> &str {
        self.at.checked_sub(back).map_or("", |at| &self.words[at].text)
    }

    fn item(&mut self, names: &mut Names) {
        let word = self.word(0).to_string();
        let line = self.words[self.at].line;
        match word.as_str() {
            "{" => self.depth += 1,
            "}" => {
                self.depth = self.depth.saturating_sub(1);
                self.inline.retain(|inside| *inside <= self.depth);
            }
            "mod" if self.word(2) == ";" => names.children.push(self.word(1).to_string()),
            "mod" if self.word(2) == "{" => self.inline.push(self.depth + 1),
            // Not `impl Trait + use<'a>`.
            "use" if self.word(1) != "<" => {
                // `pub use`, `pub(crate) use`.
                let forwarded = matches!(self.before(1), "pub" | ")");
                let first = names.imports.len();
                self.at += 1;
                self.imports(&Path { start: Start::Here, names: Vec::new() }, true, names);
                for import in &mut names.imports[first..] {
                    import.forwarded = forwarded;
                }
                return;
            }
            _ if word.starts_with(is_part) && self.word(1) == "::" => {
                let is_known = !matches!(self.before(1), "." | "::" | "'");
                let is_scope = self.before(1) == "in" && self.before(3) == "pub";
                let path = self.path(Path { start: Start::Here, names: Vec::new() }, true);
                names.words.extend(path.names.iter().cloned());
                if is_known && !is_scope {
                    names.paths.push((path, line));
                }
                return;
            }
            _ => {}
        }
        // A method's name does not show an import.
        if word.starts_with(is_part) && self.before(1) != "." {
            names.words.insert(word.clone());
        }
        if ITEMS.contains(&word.as_str()) {
            let skipped = usize::from(self.word(1) == "!");
            names.items.insert(self.word(1 + skipped).to_string());
        }
        self.at += 1;
    }

    /// Reads names and `::` to the end of the path, after `path`.
    fn path(&mut self, mut path: Path, mut is_first: bool) -> Path {
        while self.word(0).starts_with(is_part) && self.word(0) != "as" {
            let name = self.word(0).to_string();
            match name.as_str() {
                "crate" if is_first => path.start = Start::Top,
                "self" if is_first => path.start = self.up(0),
                "super" => {
                    path.start = match path.start {
                        Start::Up(above) if !is_first => Start::Up(above + 1),
                        _ => self.up(1),
                    }
                }
                // `use crate::root::{self, Root}`.
                "self" => {}
                _ => path.names.push(name),
            }
            is_first = false;
            self.at += 1;
            if self.word(0) != "::" {
                break;
            }
            self.at += 1;
        }
        path
    }

    /// The start `above` modules above this place. Inline modules among them are in this file.
    fn up(&self, above: usize) -> Start {
        Start::Up(above.saturating_sub(self.inline.len()))
    }

    /// Reads a tree of imports after `prefix`, and stops before the `;`, `,` or `}` behind it.
    fn imports(&mut self, prefix: &Path, is_first: bool, names: &mut Names) {
        let line = self.words.get(self.at).map_or(0, |word| word.line);
        if self.word(0) == "::" {
            // The import is of another crate.
            while !matches!(self.word(0), ";" | "") {
                self.at += 1;
            }
            return;
        }
        let path = self.path(prefix.clone(), is_first);
        let is_first = is_first && path == *prefix;
        match self.word(0) {
            "{" => {
                while !matches!(self.word(0), "}" | "") {
                    self.at += 1;
                    if self.word(0) != "}" {
                        self.imports(&path, is_first, names);
                    }
                }
                self.at += 1;
            }
            "*" => {
                self.at += 1;
                names.imports.push(Import { path, name: None, forwarded: false, line });
            }
            "as" => {
                let name = Some(self.word(1).to_string());
                self.at += 2;
                names.imports.push(Import { path, name, forwarded: false, line });
            }
            _ => {
                let name = path.names.last().cloned();
                if name.is_some() {
                    names.imports.push(Import { path, name, forwarded: false, line });
                }
            }
        }
    }
}
