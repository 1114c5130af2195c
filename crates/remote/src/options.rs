//! What a user says of stores: their URIs, and what may be spent on them.

use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

use control::{ControlError, Errno, without_secrets};
use units::parse_size;

/// The most stores: a word has a bit for each.
pub const MOST_STORES: usize = 8;

/// What is allowed.
const ALLOWED: &str = "URIs (redis://HOST:PORT/DB, s3://BUCKET/PREFIX?region=…&endpoint=…, \
                       fs:///DIRECTORY), cold=SECONDS, copies=NUMBER, keep=SIZE, \
                       bandwidth=SIZE, requests=NUMBER, deadline=MILLISECONDS";

/// Stores, and how they are used. [`FromStr`] reads words with blanks between them; [`Options::
/// shown`] gives them back without secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The stores: URIs as [OpenDAL](https://opendal.apache.org) reads them.
    pub stores: Vec<String>,
    /// What was not used for so long may go to the stores. A minute by default.
    pub cold: Duration,
    /// This many stores must have acknowledged a chunk before it goes from the device below. All of
    /// them by default.
    pub copies: usize,
    /// Bytes that may stay on the device below although the stores have them. None by default.
    pub keep: u64,
    /// Bytes a second that are written to each store; `None` is no limit.
    pub bandwidth: Option<u64>,
    /// Requests an hour, to all stores together; `None` is no limit. Reads are counted and never
    /// wait for this.
    pub requests: Option<u64>,
    /// A store that has not answered a read by then has failed. Five seconds by default.
    pub deadline: Duration,
}

impl FromStr for Options {
    type Err = ControlError;

    fn from_str(text: &str) -> Result<Options, ControlError> {
        let mut options = Options {
            stores: Vec::new(),
            cold: Duration::from_secs(60),
            copies: 0,
            keep: 0,
            bandwidth: None,
            requests: None,
            deadline: Duration::from_secs(5),
        };
        let mut copies = None;
        for word in text.split_whitespace() {
            if word.contains("://") {
                check_directory(word)?;
                options.stores.push(word.to_owned());
                continue;
            }
            match word.split_once('=') {
                Some(("cold", value)) => {
                    options.cold = Duration::from_secs(number("cold", value, 0, u32::MAX.into())?);
                }
                Some(("copies", value)) => {
                    copies = Some(number("copies", value, 1, MOST_STORES as u64)? as usize);
                }
                Some(("keep", value)) => options.keep = size("keep", value)?,
                Some(("bandwidth", value)) => {
                    options.bandwidth = Some(size("bandwidth", value)?.max(1));
                }
                Some(("requests", value)) => {
                    options.requests = Some(number("requests", value, 1, u32::MAX.into())?);
                }
                Some(("deadline", value)) => {
                    let limit = number("deadline", value, 1, 600_000)?;
                    options.deadline = Duration::from_millis(limit);
                }
                _ => {
                    // What follows may be a secret.
                    let name = word.split([':', '=', '/', '@']).next().unwrap_or_default();
                    let message = format!("a remote knows no \"{name}…\"; it takes {ALLOWED}");
                    return Err(ControlError::invalid(message));
                }
            }
        }
        let count = options.stores.len();
        if count == 0 || count > MOST_STORES {
            let message = format!("a remote takes 1 to {MOST_STORES} URIs, not {count}");
            return Err(ControlError::invalid(message));
        }
        options.copies = copies.unwrap_or(count);
        if options.copies > count {
            let message = format!("copies={} of {count} stores: name more", options.copies);
            return Err(ControlError::invalid(message));
        }
        Ok(options)
    }
}

/// Checks that the directory of a store is named from the top: the process that uses it has another
/// working directory than who names it.
fn check_directory(uri: &str) -> Result<(), ControlError> {
    let (scheme, rest) = uri.split_once("://").unwrap_or_default();
    if !["fs", "file"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut roots = query.split('&').filter_map(|it| it.strip_prefix("root="));
    let is_absolute = |path: &str| path.starts_with('/') || path.to_lowercase().starts_with("%2f");
    if is_absolute(path) && roots.all(is_absolute) {
        return Ok(());
    }
    let message = format!("{uri}: a directory is named by an absolute path, fs:///DIRECTORY");
    Err(ControlError::invalid(message))
}

fn number(what: &str, value: &str, least: u64, most: u64) -> Result<u64, ControlError> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| {
        let message = format!("{what}={value}: {least} to {most} are allowed");
        ControlError::new(Errno::EINVAL, message)
    })
}

fn size(what: &str, value: &str) -> Result<u64, ControlError> {
    parse_size(value).map_err(|error| ControlError::invalid(format!("{what}={value}: {error}")))
}

impl Options {
    /// The words again, without secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        let stores: Vec<String> = self.stores.iter().map(|uri| without_secrets(uri)).collect();
        let mut text = stores.join(" ");
        let _ = write!(text, " cold={} copies={}", self.cold.as_secs(), self.copies);
        let _ = write!(text, " keep={} deadline={}", self.keep, self.deadline.as_millis());
        for (name, limit) in [("bandwidth", self.bandwidth), ("requests", self.requests)] {
            if let Some(limit) = limit {
                let _ = write!(text, " {name}={limit}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_shown() {
        let text = "fs:///mnt/a s3://b/p?region=x cold=5 copies=1 keep=1M bandwidth=2M \
                    requests=100 deadline=250";
        let options: Options = text.parse().unwrap();
        assert_eq!(options.stores, ["fs:///mnt/a", "s3://b/p?region=x"]);
        assert_eq!((options.cold, options.copies), (Duration::from_secs(5), 1));
        assert_eq!((options.keep, options.bandwidth), (1 << 20, Some(2 << 20)));
        assert_eq!(options.requests, Some(100));
        assert_eq!(options.shown().parse::<Options>().unwrap(), options);
        let all: Options = "fs:///a fs:///b".parse().unwrap();
        assert_eq!(all.copies, 2, "all stores by default");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |text: &str| text.parse::<Options>().unwrap_err().message;
        for (text, word) in [
            ("", "1 to 8 URIs"),
            ("cold=5", "1 to 8 URIs"),
            ("fs:///a copies=2", "copies=2 of 1"),
            ("fs:///a copies=0", "1 to 8"),
            ("fs:///a keep=x", "keep=x"),
            ("fs:///a warm=1", "warm…"),
            ("/mnt", "redis://HOST"),
            ("fs://mnt/nfs", "fs://mnt/nfs: a directory is named by an absolute path"),
            ("fs:///?root=nfs", "absolute path"),
            ("fs:///a deadline=0", "deadline=0"),
        ] {
            assert!(refused(text).contains(word), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        for word in ["redis:/me:hush@host", "password=hush", "me@hush"] {
            let error = word.parse::<Options>().unwrap_err();
            assert!(!error.message.contains("hush"), "{error}");
        }
    }
}
