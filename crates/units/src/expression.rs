//! Sizes as expressions of the memory of the machine.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use crate::parse::{ParseSizeError, parse_size, shift_of};

/// How deep parentheses may be in each other.
const DEEPEST: u32 = 32;

/// Why an expression was refused. The text gives the reason and the allowed forms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SizeError {
    /// It is neither a size nor an expression.
    Size(ParseSizeError),
    /// It is an expression that cannot be.
    Expression {
        /// The whole text.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(error @ ParseSizeError::TooLarge(_)) => error.fmt(f),
            Self::Size(error) => write!(f, "{error}, or an expression such as ram / 2 or 30%"),
            Self::Expression { text, why } => write!(
                f,
                "{text:?} is not a size: {why}; write numbers with K M G T P E, ram, N% of it, \
                 min(…), max(…), + - * / and parentheses, as in min(ram / 2, 8G)"
            ),
        }
    }
}

impl core::error::Error for SizeError {}

/// A size in bytes: as of [`parse_size`], or an expression of sizes and of `ram`, such as
/// `min(ram / 2, 8G)` or `30%`. `ram` tells how many bytes that is; it is asked only if the text
/// has it. Parts of a byte are left out.
///
/// # Errors
/// [`SizeError`], with the reason.
pub fn evaluate_size(text: &str, ram: impl FnOnce() -> u64) -> Result<u64, SizeError> {
    let error = match parse_size(text) {
        Ok(bytes) => return Ok(bytes),
        Err(error) => error,
    };
    let trimmed = text.trim();
    let is_one = trimmed.contains("ram")
        || trimmed.contains(['+', '*', '/', '%', '('])
        || trimmed.rfind('-').is_some_and(|at| at > 0);
    if !is_one {
        return Err(SizeError::Size(error));
    }
    let refused = |why| SizeError::Expression { text: trimmed.to_string(), why };
    let has_memory = trimmed.contains("ram") || trimmed.contains('%');
    let ram = if has_memory { ram() } else { 0 };
    if has_memory && ram == 0 {
        return Err(refused("how much memory there is cannot be read".to_string()));
    }
    let mut rest = Rest { text: trimmed, ram: ram as f64, depth: 0 };
    let bytes = rest.sum().and_then(|bytes| rest.is_over().map(|()| bytes)).map_err(refused)?;
    match bytes {
        // The largest size is one less than this.
        bytes if (0.0..18_446_744_073_709_551_616.0).contains(&bytes) => Ok(bytes as u64),
        bytes if bytes < 0.0 => Err(refused(format!("it is {bytes}, which is less than 0"))),
        _ => Err(refused("it is more than 18446744073709551615 bytes".to_string())),
    }
}

/// What is not read yet. Each method reads one part of the grammar and returns its value.
struct Rest<'a> {
    text: &'a str,
    ram: f64,
    depth: u32,
}

impl Rest<'_> {
    /// Takes `token`, if it comes next.
    fn takes(&mut self, token: char) -> bool {
        self.text = self.text.trim_start();
        let rest = self.text.strip_prefix(token);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    fn needs(&mut self, token: char) -> Result<(), String> {
        match self.takes(token) {
            true => Ok(()),
            false => Err(self.missing(&format!("{token:?}"))),
        }
    }

    fn missing(&self, what: &str) -> String {
        match self.text {
            "" => format!("{what} is missing at its end"),
            rest => format!("{what} is missing before {rest:?}"),
        }
    }

    fn is_over(&mut self) -> Result<(), String> {
        self.text = self.text.trim_start();
        match self.text {
            "" => Ok(()),
            rest => Err(format!("{rest:?} is too much")),
        }
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        loop {
            if self.takes('+') {
                value += self.product()?;
            } else if self.takes('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.part()?;
        loop {
            if self.takes('*') {
                value *= self.part()?;
            } else if self.takes('/') {
                let by = self.part()?;
                if by == 0.0 {
                    return Err("it divides by 0".to_string());
                }
                value /= by;
            } else {
                return Ok(value);
            }
        }
    }

    fn part(&mut self) -> Result<f64, String> {
        if self.takes('(') {
            return self.inside(Rest::sum);
        }
        let end = self.text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_');
        let (word, rest) = self.text.split_at(end.unwrap_or(self.text.len()));
        let before = core::mem::replace(&mut self.text, rest);
        match word {
            "ram" => Ok(self.ram),
            "min" | "max" => {
                self.needs('(')?;
                self.inside(|rest| rest.chosen(word == "min"))
            }
            _ => match number(word) {
                Some(number) if self.takes('%') => Ok(self.ram * number / 100.0),
                Some(number) => Ok(number),
                None => {
                    self.text = before;
                    Err(self.missing("a number, ram, min or max"))
                }
            },
        }
    }

    /// What is in parentheses, of which the first is read.
    fn inside(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<f64, String>,
    ) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("parentheses are more than {DEEPEST} deep"));
        }
        let value = read(self)?;
        self.needs(')')?;
        self.depth -= 1;
        Ok(value)
    }

    /// The smallest or largest of a list.
    fn chosen(&mut self, smallest: bool) -> Result<f64, String> {
        let mut value = self.sum()?;
        while self.takes(',') {
            let next = self.sum()?;
            value = if smallest { value.min(next) } else { value.max(next) };
        }
        Ok(value)
    }
}

/// A decimal number with an optional suffix.
fn number(word: &str) -> Option<f64> {
    let end = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
    let (digits, suffix) = word.split_at(end);
    let mut letters = suffix.chars();
    let shift = letters.next().map_or(Some(0), shift_of)?;
    if !letters.as_str().is_empty() || !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse::<f64>().ok()? * (1u64 << shift) as f64)
}
