//! The kernel's zram devices, through sysfs (kernel document `admin-guide/blockdev/zram.rst`).

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use units::PAGE_SIZE;

use super::target::Figures;

/// Time for programs such as udev, which open a changed device for moments.
const LOOKING: Duration = Duration::from_secs(5);

/// The sysfs directory of a device `/dev/zramN`.
fn directory(device: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(device).ok()?;
    let name = real.strip_prefix("/dev").ok()?.to_str()?;
    let number = name.strip_prefix("zram")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Path::new("/sys/block").join(name))
}

/// The figures of a kernel zram device. `None` for any other device.
pub fn figures(device: &Path) -> Option<Figures> {
    parse_mm_stat(&fs::read_to_string(directory(device)?.join("mm_stat")).ok()?)
}

/// Parses the text of `mm_stat`: original, compressed and used bytes come first.
fn parse_mm_stat(text: &str) -> Option<Figures> {
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    let (orig, compressed, pool) = (next()?, next()?, next()?);
    Some(Figures {
        orig: Some(orig),
        compressed: Some(compressed),
        pool: Some(pool),
        metadata: None,
    })
}

/// The algorithm of a kernel zram device. `None` for any other device.
pub fn algorithm(device: &Path) -> Option<String> {
    let text = fs::read_to_string(directory(device)?.join("comp_algorithm")).ok()?;
    selected(&text).map(str::to_owned)
}

/// The word in brackets.
fn selected(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// A kernel zram device that we set up. Drop resets it.
pub struct Setup {
    directory: PathBuf,
    algorithm_before: String,
}

impl Setup {
    /// Sets `device` up with `algorithm` and room for this many pages.
    pub fn new(device: &Path, algorithm: &str, pages: usize) -> Result<Setup> {
        let shown = device.display();
        let Some(directory) = directory(device) else {
            bail!("{shown} is no zram device of the kernel, that is no /dev/zramN");
        };
        let read = |name: &str| {
            fs::read_to_string(directory.join(name))
                .with_context(|| format!("cannot read {name} of {shown}"))
        };
        if read("initstate")?.trim() != "0" {
            bail!("{shown} is set up already, so somebody may be using it; reset it first");
        }
        let known = read("comp_algorithm")?;
        if !known.split_ascii_whitespace().any(|word| word.trim_matches(['[', ']']) == algorithm) {
            bail!("{shown} has no algorithm {algorithm:?}; it has {}", known.trim());
        }
        let algorithm_before = selected(&known).unwrap_or_default().to_owned();
        let setup = Setup { directory, algorithm_before };
        setup.write("comp_algorithm", algorithm)?;
        setup.write("disksize", &(pages * PAGE_SIZE).to_string())?;
        Ok(setup)
    }

    fn write(&self, name: &str, value: &str) -> Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        let begun = Instant::now();
        let reset = loop {
            let reset = self.write("reset", "1");
            if reset.is_ok() || begun.elapsed() > LOOKING {
                break reset;
            }
            thread::sleep(Duration::from_millis(10));
        };
        let restored = reset.and_then(|()| self.write("comp_algorithm", &self.algorithm_before));
        if let Err(error) = restored {
            eprintln!("rampack-lab: a device stays set up: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests;
