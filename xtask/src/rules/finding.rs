//! What a rule finds.

use std::fmt;

/// A line that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the top of the checkout.
    pub path: String,
    /// The line from one; zero when the whole file is meant.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// What is wrong, and what to do instead.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line.max(1), self.rule, self.message)
    }
}
