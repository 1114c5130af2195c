//! A finding of a rule.

use std::fmt;

/// A line that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the top of the checkout.
    pub path: String,
    /// The line from one; zero for the whole file.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// The fault and its remedy.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line.max(1), self.rule, self.message)
    }
}
