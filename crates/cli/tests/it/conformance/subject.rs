//! Devices that cases are tried on, and ways to reach them.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::cases::{Case, State};
use crate::common::{Daemon, said};

/// A device and a way to it. Outcomes are `ok` or the symbol of an error.
pub trait Subject {
    fn name(&self) -> &'static str;
    /// Writes an attribute of the device, or one whose path is given from the top.
    fn write(&self, attribute: &str, text: &str) -> String;
    fn read(&self, attribute: &str) -> Result<String, String>;

    /// Can this way bring the text at all?
    fn can_write(&self, _: &Case) -> bool {
        true
    }

    fn prepare(&self, state: State, size: &str) {
        assert_eq!(self.write("reset", "1"), "ok");
        if state == State::Sized {
            assert_eq!(self.write("disksize", size), "ok");
        }
    }

    /// What a refused write must not change.
    fn settings(&self) -> Vec<(&'static str, Result<String, String>)> {
        const SETTINGS: [&str; 10] = [
            "disksize",
            "initstate",
            "comp_algorithm",
            "recomp_algorithm",
            "mm_stat",
            "backing_dev",
            "writeback_limit",
            "writeback_limit_enable",
            "writeback_batch_size",
            "compressed_writeback",
        ];
        SETTINGS.into_iter().map(|name| (name, self.read(name))).collect()
    }
}

fn symbol(error: &io::Error) -> String {
    service::failure::symbol(control::Errno(error.raw_os_error().unwrap_or(0)))
}

fn write_file(path: &Path, text: &str) -> String {
    let written = OpenOptions::new().write(true).open(path).and_then(|mut file| {
        let taken = file.write(text.as_bytes())?;
        assert_eq!(taken, text.len(), "{}", path.display());
        Ok(())
    });
    written.map_or_else(|error| symbol(&error), |()| "ok".into())
}

fn read_file(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    read.map(|_| text).map_err(|error| symbol(&error))
}

/// The first device, by the files of the tree.
pub struct Files {
    pub tree: PathBuf,
}

impl Files {
    fn path(&self, attribute: &str) -> PathBuf {
        let top = attribute.split('/').next().unwrap_or("");
        match ["class", "kernel", "module"].contains(&top) {
            true => self.tree.join(attribute),
            false => self.tree.join("block/zram0").join(attribute),
        }
    }
}

impl Subject for Files {
    fn name(&self) -> &'static str {
        "the files"
    }
    fn write(&self, attribute: &str, text: &str) -> String {
        write_file(&self.path(attribute), text)
    }
    fn read(&self, attribute: &str) -> Result<String, String> {
        read_file(&self.path(attribute))
    }
}

/// The first device, by `rampack get` and `set`.
pub struct Commands<'a> {
    pub daemon: &'a Daemon,
}

impl Commands<'_> {
    fn ask(&self, verb: &str, attribute: &str, value: Option<&str>) -> Result<String, String> {
        let (device, attribute) = match attribute.rsplit_once('/') {
            Some((directory, name)) if !directory.starts_with("queue") => (directory, name),
            _ => ("zram0", attribute),
        };
        let mut command = self.daemon.command(verb);
        let said = said(&command.arg(device).arg(attribute).args(value).output().unwrap());
        if said.code == 0 {
            return Ok(said.out);
        }
        // The message ends with the symbol in parentheses.
        let symbol = said.err.trim_end().strip_suffix(')').and_then(|text| text.rsplit_once('('));
        Err(symbol.map(|(_, symbol)| symbol.to_string()).expect(&said.err))
    }
}

impl Subject for Commands<'_> {
    fn name(&self) -> &'static str {
        "the commands"
    }
    fn write(&self, attribute: &str, text: &str) -> String {
        self.ask("set", attribute, Some(text)).map_or_else(|errno| errno, |_| "ok".into())
    }
    fn read(&self, attribute: &str) -> Result<String, String> {
        self.ask("get", attribute, None)
    }
    /// One command for all.
    fn settings(&self) -> Vec<(&'static str, Result<String, String>)> {
        vec![("all", Ok(self.daemon.does("get zram0 --all")))]
    }
}

/// The kernel's first device. It is reset when this is dropped.
pub struct Kernel {
    device: PathBuf,
}

impl Kernel {
    /// Takes it; that nobody uses it was asked.
    pub fn take() -> Kernel {
        Kernel { device: "/sys/block/zram0".into() }
    }

    /// The names of its attributes.
    pub fn names() -> Vec<String> {
        let mut names = vec![
            "class/zram-control/hot_add".to_string(),
            "class/zram-control/hot_remove".to_string(),
        ];
        for below in ["", "queue/"] {
            for entry in fs::read_dir(Path::new("/sys/block/zram0").join(below)).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_file() {
                    names.push(format!("{below}{}", entry.file_name().to_str().unwrap()));
                }
            }
        }
        names
    }

    fn path(&self, attribute: &str) -> PathBuf {
        match attribute.starts_with("class/") {
            true => Path::new("/sys").join(attribute),
            false => self.device.join(attribute),
        }
    }

    /// The mode of an attribute, if it has it.
    pub fn mode(&self, attribute: &str) -> Option<u32> {
        let found = fs::metadata(self.path(attribute)).ok()?;
        found.is_file().then(|| found.permissions().mode() & 0o777)
    }
}

impl Subject for Kernel {
    fn name(&self) -> &'static str {
        "the kernel"
    }
    fn write(&self, attribute: &str, text: &str) -> String {
        write_file(&self.path(attribute), text)
    }
    fn read(&self, attribute: &str) -> Result<String, String> {
        read_file(&self.path(attribute))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = fs::write(self.device.join("reset"), "1");
    }
}

/// A value without what depends on the machine: names of algorithms, numbers of devices.
pub fn shape(attribute: &str, text: &str) -> String {
    let mut shape = String::new();
    let names = attribute == "comp_algorithm" || attribute == "recomp_algorithm";
    let numbers = attribute == "dev" || attribute == "uevent";
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    for c in text.chars() {
        match (names && is_name(c), numbers && c.is_ascii_digit()) {
            (true, _) if shape.ends_with('A') => {}
            (true, _) => shape.push('A'),
            (_, true) if shape.ends_with('N') => {}
            (_, true) => shape.push('N'),
            _ => shape.push(c),
        }
    }
    if names {
        // As many as were built; one of them chosen.
        let known = shape.replace("[A] ", "A ");
        if known.trim_end_matches('\n').split(' ').all(|word| word.is_empty() || word == "A") {
            return "A [A] A \\n".into();
        }
    }
    shape.replace('\n', "\\n")
}
