//! Reads files of a configuration and lays them over each other. Pure: it knows the form of a file,
//! not what may be in it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use toml_edit::{Document, Item, TableLike, Value};

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file.
    pub file: Rc<Path>,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Something that is wrong in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Where.
    pub at: Place,
    /// What, and what is allowed.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// A value, as the command line would have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Given {
    /// Text or a whole number.
    Word(String),
    /// `true` or `false`.
    Switch(bool),
    /// Several words.
    List(Vec<String>),
}

impl Given {
    /// The value of an attribute, as it is stored.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Given::Word(text) => text.clone(),
            Given::Switch(on) => u8::from(*on).to_string(),
            Given::List(words) => words.join(" "),
        }
    }

    /// The value of an option, for a reader.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Given::Word(text) => text.clone(),
            Given::Switch(on) => on.to_string(),
            Given::List(words) => words.join(","),
        }
    }
}

/// A value and where it is from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// The value.
    pub given: Given,
    /// As it is written in the file.
    pub written: String,
    /// Where its key is.
    pub at: Place,
}

impl Entry {
    /// What is wrong with its value.
    #[must_use]
    pub fn fault(&self, why: &str) -> Fault {
        // An address may have a password in it, and a log may get this.
        let is_secret = self.written.contains("://");
        let value = if is_secret { String::new() } else { format!(" = {}", self.written) };
        Fault { at: self.at.clone(), what: format!("{}{value}: {why}", self.key) }
    }
}

/// A table of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Its name, such as `zram0`.
    pub name: String,
    /// The first place that names it.
    pub at: Place,
    /// Its values, in the order of their keys' first places.
    pub entries: Vec<Entry>,
    /// Those of its table `set`.
    pub set: Vec<Entry>,
}

impl Section {
    /// The rest of it, without `entry`.
    #[must_use]
    pub fn without(&self, entry: &Entry) -> Section {
        let rest = |entries: &[Entry]| entries.iter().filter(|it| *it != entry).cloned().collect();
        let (entries, set) = (rest(&self.entries), rest(&self.set));
        Section { entries, set, ..self.clone() }
    }
}

/// The name of the table of attributes in a section.
pub const SET: &str = "set";

/// All sections, in the order of their names; numbers are compared as such.
pub type Sections = Vec<Section>;

/// Lays the files `texts` over each other: a value of a later file counts. Each fault that is found
/// is added to `faults`, and the rest is read.
pub fn merge(texts: &[(PathBuf, String)], faults: &mut Vec<Fault>) -> Sections {
    let mut sections = Sections::new();
    for (path, text) in texts {
        let file = File { path: Rc::from(path.as_path()), text };
        file.read(&mut sections, faults);
    }
    sections.sort_by_key(|section| {
        let at = section.name.find(|c: char| c.is_ascii_digit()).unwrap_or(section.name.len());
        let (kind, number) = section.name.split_at(at);
        (kind.to_owned(), number.parse::<u64>().ok(), number.to_owned())
    });
    sections
}

struct File<'a> {
    path: Rc<Path>,
    text: &'a str,
}

impl File<'_> {
    /// The place of `span`, or of the beginning of the file.
    fn place(&self, span: Option<Range<usize>>) -> Place {
        let before = self.text.get(..span.map_or(0, |span| span.start)).unwrap_or_default();
        Place { file: self.path.clone(), line: 1 + before.matches('\n').count() }
    }

    fn read(&self, sections: &mut Sections, faults: &mut Vec<Fault>) {
        let document = match Document::parse(self.text) {
            Ok(document) => document,
            Err(error) => {
                let what = format!("not TOML: {}", error.message().replace('\n', "; "));
                return faults.push(Fault { at: self.place(error.span()), what });
            }
        };
        let top = document.as_table();
        for (name, item) in top.iter() {
            let at = self.place(span_of(top, name, item));
            let Some(table) = item.as_table_like() else {
                let what = format!("{name} is outside of a section: write it below [zram0], …");
                faults.push(Fault { at, what });
                continue;
            };
            let found = sections.iter().position(|section| section.name == name);
            let index = found.unwrap_or_else(|| {
                let name = name.to_owned();
                sections.push(Section { name, at, entries: Vec::new(), set: Vec::new() });
                sections.len() - 1
            });
            self.section(table, &mut sections[index], faults);
        }
    }

    fn section(&self, table: &dyn TableLike, section: &mut Section, faults: &mut Vec<Fault>) {
        for (key, item) in table.iter() {
            let into = match item.as_table_like() {
                Some(set) if key == SET => {
                    for (key, item) in set.iter() {
                        self.entry((set, key, item), &mut section.set, faults);
                    }
                    continue;
                }
                _ => &mut section.entries,
            };
            self.entry((table, key, item), into, faults);
        }
    }

    fn entry(
        &self,
        (table, key, item): (&dyn TableLike, &str, &Item),
        into: &mut Vec<Entry>,
        faults: &mut Vec<Fault>,
    ) {
        let at = self.place(span_of(table, key, item));
        let Some(given) = item.as_value().and_then(given) else {
            let kind = item.type_name();
            let what = format!(
                "{key} is {} {kind}: text, a whole number, true, false or a list of text is \
                 allowed",
                if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
            );
            return faults.push(Fault { at, what });
        };
        let written = item.span().and_then(|span| self.text.get(span)).unwrap_or_default();
        let entry = Entry { key: key.to_owned(), given, written: written.to_owned(), at };
        match into.iter_mut().find(|entry| entry.key == key) {
            Some(before) => *before = entry,
            None => into.push(entry),
        }
    }
}

/// The span of a key, or else of its value.
fn span_of(table: &dyn TableLike, key: &str, item: &Item) -> Option<Range<usize>> {
    table.get_key_value(key).and_then(|(key, _)| key.span()).or_else(|| item.span())
}

fn given(value: &Value) -> Option<Given> {
    let word = |value: &Value| match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        _ => None,
    };
    match value {
        Value::Boolean(on) => Some(Given::Switch(*on.value())),
        Value::Array(list) => list.iter().map(word).collect::<Option<_>>().map(Given::List),
        value => word(value).map(Given::Word),
    }
}

/// The configuration as one file, with where each value is from.
#[must_use]
pub fn text(sections: &[Section]) -> String {
    let mut text = String::new();
    let mut table = |name: &str, entries: &[Entry]| {
        text += &format!("\n[{name}]\n");
        for Entry { key, written, at, .. } in entries {
            text += &format!("{key} = {written}  # {at}\n");
        }
    };
    for Section { name, entries, set, .. } in sections {
        table(name, entries);
        if !set.is_empty() {
            table(&format!("{name}.{SET}"), set);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(texts: &[(&str, &str)]) -> (String, Vec<String>) {
        let texts: Vec<(PathBuf, String)> =
            texts.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
        let mut faults = Vec::new();
        let sections = merge(&texts, &mut faults);
        (text(&sections), faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn later_files_count() {
        let (text, faults) = merged(&[
            (
                "/usr/lib/a.toml",
                "[zram10]\nsize = '1G'\n\n[zram2]\nsize = \"1G\" # why\nauto = true\n\
                 set.mem_limit = 0\n[serve]\ntransport = 'nbd'\n",
            ),
            (
                "/etc/b.toml",
                "# more\n[zram2]\nauto = false\nset = { when_full = 'fail', mem_limit = '1M' }\n\
                 [swap0]\nset.x = 1\n",
            ),
            ("/etc/c.toml", "[serve]\nnbd-allow-uid = [\n  1,\n  2,\n]\n"),
        ]);
        assert_eq!(faults, [""; 0]);
        assert_eq!(
            text,
            "\n[serve]\ntransport = 'nbd'  # /usr/lib/a.toml:9\nnbd-allow-uid = [\n  1,\n  2,\n]  # \
             /etc/c.toml:2\n\n[swap0]\n\n[swap0.set]\nx = 1  # /etc/b.toml:6\n\n[zram2]\nsize = \
             \"1G\"  # /usr/lib/a.toml:5\nauto = false  # /etc/b.toml:3\n\n[zram2.set]\nmem_limit = \
             '1M'  # /etc/b.toml:4\nwhen_full = 'fail'  # /etc/b.toml:4\n\n[zram10]\nsize = '1G'  # \
             /usr/lib/a.toml:2\n"
        );
    }

    #[test]
    fn faults_have_their_file_and_line() {
        let (_, faults) = merged(&[
            ("a", "size = '1G'\n"),
            ("b", "[zram0]\nsize = 1.5\n\n[zram0.x]\ny = 1\n"),
            ("c", "[zram0]\nremote = [1, true]\nset = 1979-05-27\n"),
            ("d", "[zram0]\n\nsize = '1G\n"),
            ("e", "[zram0]\nsize = 1\nsize = 2\n"),
        ]);
        let allowed = "text, a whole number, true, false or a list of text is allowed";
        assert_eq!(faults[0], "a:1: size is outside of a section: write it below [zram0], …");
        assert_eq!(faults[1], format!("b:2: size is a float: {allowed}"));
        assert_eq!(faults[2], format!("b:4: x is a table: {allowed}"));
        assert_eq!(faults[3], format!("c:2: remote is an array: {allowed}"));
        assert_eq!(faults[4], format!("c:3: set is a datetime: {allowed}"));
        assert!(faults[5].starts_with("d:3: not TOML: "), "{}", faults[5]);
        assert!(faults[6].starts_with("e:3: not TOML: duplicate key"), "{}", faults[6]);
        assert_eq!(faults.len(), 7);
    }
}
