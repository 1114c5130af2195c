//! The command line of the guest's programs: names with values, such as `--mib 700`.

use std::str::FromStr;

/// The words of a command line that no call has read yet.
#[derive(Debug)]
pub struct Options {
    words: Vec<String>,
}

impl Options {
    /// Options of these words.
    pub fn new(words: impl IntoIterator<Item = String>) -> Options {
        Options { words: words.into_iter().collect() }
    }

    /// Whether the words have `--name`.
    pub fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| word == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// The value after `--name`, or `otherwise`.
    ///
    /// # Errors
    /// A sentence, if the value is missing or invalid.
    pub fn value<T: FromStr>(&mut self, name: &str, otherwise: T) -> Result<T, String> {
        let Some(at) = self.words.iter().position(|word| word == name) else {
            return Ok(otherwise);
        };
        if at + 1 == self.words.len() {
            return Err(format!("{name} needs a value"));
        }
        let value = self.words.remove(at + 1);
        self.words.remove(at);
        value.parse().map_err(|_| format!("{name} {value}: no such value"))
    }

    /// Checks that no word is left.
    ///
    /// # Errors
    /// A sentence, if a word is left.
    pub fn done(self) -> Result<(), String> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(format!("{word}: no such option")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn options(line: &str) -> Options {
        Options::new(line.split_whitespace().map(String::from))
    }

    #[test]
    fn values_flags_and_defaults() {
        let mut it = options("--mib 700 --random --name a");
        assert_eq!(it.value("--mib", 64), Ok(700));
        assert_eq!(it.value("--passes", 3), Ok(3));
        assert!(it.flag("--random"));
        assert!(!it.flag("--random"));
        assert_eq!(it.value("--name", String::new()), Ok("a".to_string()));
        assert_eq!(it.done(), Ok(()));
    }

    #[test]
    fn mistakes_are_sentences() {
        assert_eq!(options("--mib").value("--mib", 1), Err("--mib needs a value".to_string()));
        assert_eq!(options("--mib x").value("--mib", 1), Err("--mib x: no such value".to_string()));
        assert_eq!(options("--other").done(), Err("--other: no such option".to_string()));
    }
}
