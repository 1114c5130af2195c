//! A Rust source file, split line by line into code and comments, as far as the rules need.
//!
//! This is a lexer, not a parser: it knows strings, characters, comments and matching brackets.

/// The directories of crates: the product, the experiments, and the helpers of tests.
pub const GROUPS: [&str; 3] = ["crates", "research", "testing"];

/// One line.
pub struct Line {
    /// The line as written.
    pub text: String,
    /// The line without comments. String and character literals are emptied; their quotes stay.
    pub code: String,
    /// The text of comments on this line, without the slashes.
    pub comment: String,
    /// True if the line is part of an item under `#[cfg(test)]`.
    pub test: bool,
}

/// One file.
pub struct Source {
    /// The path from the top of the checkout.
    pub path: String,
    pub lines: Vec<Line>,
    /// True if the whole file is a test, benchmark or example.
    pub test: bool,
}

impl Source {
    /// Splits `text`.
    pub fn new(path: &str, text: &str) -> Source {
        let mut lines = lex(text);
        mark_test_items(&mut lines);
        let test =
            is_test_path(path) || lines.iter().any(|line| line.code.contains("#![cfg(test)]"));
        Source { path: path.to_string(), lines, test }
    }

    /// Marks the whole file as test code.
    pub fn mark_as_test(&mut self) {
        self.test = true;
    }

    /// The lines of the product's code, with their numbers from one.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        let lines = if self.test { &[][..] } else { &self.lines[..] };
        lines
            .iter()
            .enumerate()
            .filter(|(_, line)| !line.test)
            .map(|(index, line)| (index + 1, line))
    }

    /// The workspace crate of this file: `zram` for `crates/zram/src/slot.rs`, `lab` for
    /// `research/lab/src/main.rs`.
    pub fn crate_name(&self) -> Option<&str> {
        let mut parts = self.path.split('/');
        match (parts.next()?, parts.next()?, parts.next()) {
            (group, name, Some(_)) if GROUPS.contains(&group) => Some(name),
            ("xtask", _, _) => Some("xtask"),
            _ => None,
        }
    }

    /// Paths, without `.rs`, of the modules that this file declares under `#[cfg(test)]`.
    pub fn test_modules(&self) -> Vec<String> {
        let (directory, file) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let directory = match file {
            "lib.rs" | "main.rs" | "mod.rs" => directory.to_string(),
            _ => format!("{directory}/{}", file.trim_end_matches(".rs")),
        };
        let declared = self.lines.iter().filter(|line| line.test).filter_map(|line| {
            let (before, name) = line.code.trim().strip_suffix(';')?.rsplit_once("mod ")?;
            let plain = before.is_empty() || before.starts_with("pub");
            plain.then(|| format!("{directory}/{}", name.trim()))
        });
        declared.collect()
    }

    /// Whether a comment on line `number` (from one), or on one of the `above` lines before it,
    /// contains `words`. Case does not matter.
    pub fn comment_near(&self, number: usize, above: usize, words: &str) -> bool {
        let first = number.saturating_sub(above + 1);
        let words = words.to_lowercase();
        // A phrase may span two lines of one comment.
        let joined: Vec<String> = self.lines[first..number]
            .iter()
            .map(|line| line.comment.trim().to_lowercase())
            .collect();
        joined.join(" ").contains(&words)
    }
}

fn is_test_path(path: &str) -> bool {
    let mut parts: Vec<&str> = path.split('/').collect();
    let file = parts.pop().unwrap_or_default();
    file == "tests.rs" || parts.iter().any(|part| matches!(*part, "tests" | "benches" | "examples"))
}

/// Whether `code` has `word` as a whole word.
pub fn has_word(code: &str, word: &str) -> bool {
    word_at(code, word).is_some()
}

/// The first place of `word` in `code` as a whole word.
pub fn word_at(code: &str, word: &str) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).find(|&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let word_starts = word.starts_with(is_part);
        let word_ends = word.ends_with(is_part);
        let joined_before = word_starts && before.is_some_and(is_part);
        let joined_after = word_ends && after.is_some_and(is_part);
        !joined_before && !joined_after
    })
}

enum State {
    Code,
    LineComment,
    BlockComment(u32),
    /// The number of `#` that end a raw string; `None` for a string with escapes.
    Text(Option<usize>),
}

fn lex(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut state = State::Code;
    for text in text.lines() {
        let mut code = String::new();
        let mut comment = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let mut taken = c.len_utf8();
            match state {
                State::Code => {
                    if rest.starts_with("//") {
                        state = State::LineComment;
                        taken = rest.len() - rest.trim_start_matches('/').len();
                        // `//!` and `///` begin comments, too. Their text follows.
                        if rest[taken..].starts_with('!') {
                            taken += 1;
                        }
                    } else if rest.starts_with("/*") {
                        state = State::BlockComment(1);
                        taken = 2;
                    } else if c == '"' {
                        state = State::Text(raw_hashes(&code));
                        code.push('"');
                    } else if c == '\'' {
                        taken = character(rest);
                        code.push_str(if taken > 1 { "''" } else { "'" });
                    } else {
                        code.push(c);
                    }
                }
                State::LineComment => comment.push(c),
                State::BlockComment(depth) => {
                    if rest.starts_with("*/") {
                        taken = 2;
                        state =
                            if depth == 1 { State::Code } else { State::BlockComment(depth - 1) };
                    } else if rest.starts_with("/*") {
                        taken = 2;
                        state = State::BlockComment(depth + 1);
                    } else {
                        comment.push(c);
                    }
                }
                State::Text(None) => {
                    if c == '\\' {
                        taken += rest[1..].chars().next().map_or(0, char::len_utf8);
                    } else if c == '"' {
                        code.push('"');
                        state = State::Code;
                    }
                }
                State::Text(Some(hashes)) => {
                    let end = format!("\"{}", "#".repeat(hashes));
                    if rest.starts_with(&end) {
                        taken = end.len();
                        code.push_str(&end);
                        state = State::Code;
                    }
                }
            }
            rest = &rest[taken..];
        }
        if matches!(state, State::LineComment) {
            state = State::Code;
        }
        lines.push(Line { text: text.to_string(), code, comment, test: false });
    }
    lines
}

/// For a quote that follows `code`: `Some(n)` when it opens a raw string with `n` hashes.
fn raw_hashes(code: &str) -> Option<usize> {
    let start = code.trim_end_matches('#');
    let hashes = code.len() - start.len();
    let before = start.strip_suffix('r')?;
    let before = before.strip_suffix(['b', 'c']).unwrap_or(before);
    let ident = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    (!ident).then_some(hashes)
}

/// The bytes of the character literal at the start of `rest`. For a lifetime: one, the quote.
fn character(rest: &str) -> usize {
    let mut inside = rest.char_indices().skip(1);
    match inside.next() {
        Some((_, '\\')) => {
            inside.next();
            inside.find(|&(_, c)| c == '\'').map_or(rest.len(), |(at, _)| at + 1)
        }
        Some(_) => match inside.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

/// Marks each item under `#[cfg(test)]`, from the attribute to the final `;` or `}`.
fn mark_test_items(lines: &mut [Line]) {
    let mut inside = false;
    let mut depth = 0i32;
    for line in lines {
        let mut code = line.code.as_str();
        if !inside {
            let starts = ["#[cfg(test)]", "#[cfg(all(test,"];
            let Some(at) = starts.iter().find_map(|start| code.find(start)) else { continue };
            (inside, depth, code) = (true, 0, &code[at..]);
        }
        line.test = true;
        for c in code.chars() {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' => depth -= 1,
                '}' => {
                    depth -= 1;
                    inside = depth > 0;
                }
                ';' if depth == 0 => inside = false,
                _ => {}
            }
            if !inside {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
