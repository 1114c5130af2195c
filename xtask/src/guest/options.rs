//! The command line of `cargo xtask guest`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::kernel::Flavour;

/// The command of a guest, and its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The memory in qemu's notation: `512M`, `2G`.
    pub memory: String,
    pub cpus: u32,
    /// More arguments for the kernel.
    pub append: String,
    pub kernel: Flavour,
    /// The time limit of the run.
    pub time: Duration,
    /// The time without swap traffic and progress that counts as a hang; zero: no limit.
    pub hang: Duration,
    /// The guest has disks of a daemon of this machine, which is killed every so many seconds, or
    /// never if that is zero.
    pub served: Option<u64>,
    /// Files to copy beside the scripts.
    pub files: Vec<PathBuf>,
    /// The command line, or a script of `guest/` and its arguments.
    pub command: Vec<String>,
}

impl Options {
    /// Reads the words after `cargo xtask guest`.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Options> {
        let mut options = Options {
            memory: "512M".to_string(),
            cpus: 2,
            append: String::new(),
            kernel: Flavour::Cloud,
            time: Duration::from_secs(600),
            hang: Duration::from_secs(60),
            served: None,
            files: Vec::new(),
            command: Vec::new(),
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                options.command = words.by_ref().map(String::from).collect();
                break;
            }
            let known = [
                "--memory", "--cpus", "--append", "--kernel", "--time", "--hang", "--served",
                "--file",
            ];
            if !known.contains(&word) {
                bail!("{word}: no such option; the command comes after `--`");
            }
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            let number =
                || value.parse::<u64>().with_context(|| format!("{word} {value}: no number"));
            match word {
                "--memory" => options.memory = memory(value)?,
                "--cpus" => options.cpus = number()?.clamp(1, 255) as u32,
                "--append" => options.append = value.to_string(),
                "--kernel" => options.kernel = Flavour::parse(value)?,
                "--time" => options.time = Duration::from_secs(number()?),
                "--hang" => options.hang = Duration::from_secs(number()?),
                "--served" => options.served = Some(number()?),
                _ => options.files.push(value.into()),
            }
        }
        if options.command.is_empty() {
            bail!("no command: `cargo xtask guest [OPTIONS] -- COMMAND...`");
        }
        Ok(options)
    }
}

fn memory(text: &str) -> Result<String> {
    let digits = text.strip_suffix(['M', 'G']).unwrap_or(text);
    if digits.parse::<u32>().is_ok_and(|number| number > 0) {
        return Ok(text.to_string());
    }
    bail!("--memory {text}: not a number of MiB, or with M or G behind it")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::Options;
    use crate::guest::kernel::Flavour;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace()).map_err(|error| error.to_string())
    }

    #[test]
    fn options_stand_before_the_command() {
        let it = parse("--memory 1G --cpus 4 --time 90 --hang 0 --kernel generic -- a --cpus 9");
        let it = it.unwrap();
        assert_eq!((it.memory.as_str(), it.cpus, it.kernel), ("1G", 4, Flavour::Generic));
        assert_eq!((it.time, it.hang), (Duration::from_secs(90), Duration::ZERO));
        assert_eq!(it.command, ["a", "--cpus", "9"]);
        assert_eq!(it.served, None);
        assert_eq!(parse("--served 5 -- a").unwrap().served, Some(5));
        let it = parse("--file a/b --append quiet --file c -- d").unwrap();
        assert_eq!(it.files, [PathBuf::from("a/b"), PathBuf::from("c")]);
        assert_eq!((it.append.as_str(), it.memory.as_str(), it.cpus), ("quiet", "512M", 2));
        assert_eq!(it.kernel, Flavour::Cloud);
    }

    #[test]
    fn mistakes_are_told() {
        for (line, message) in [
            ("", "no command: `cargo xtask guest [OPTIONS] -- COMMAND...`"),
            ("--cpus 2 --", "no command: `cargo xtask guest [OPTIONS] -- COMMAND...`"),
            ("true", "true: no such option; the command comes after `--`"),
            ("--cpus", "--cpus needs a value"),
            ("--cpus two -- true", "--cpus two: no number"),
            ("--memory 1T -- true", "--memory 1T: not a number of MiB, or with M or G behind it"),
            ("--memory G -- true", "--memory G: not a number of MiB, or with M or G behind it"),
            (
                "--kernel old -- true",
                "--kernel old: there are cloud, generic, and paths of unpacked packages",
            ),
        ] {
            assert_eq!(parse(line).unwrap_err(), message, "{line}");
        }
    }
}
