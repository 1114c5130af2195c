//! The configuration in files: `rampack.toml` and its drop-ins.
//!
//! [`files`] finds them, [`merge`] lays them over each other, [`options`] gives what is in them to
//! the parser of the command line, so that each option is defined once. [`import`] reads the files
//! of zram-generator. [`commands`] is `rampack config`.

pub mod commands;
pub mod files;
pub mod import;
pub mod merge;
pub mod options;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use control::{ControlError, Errno, Object};
use service::daemon::{FILE, PART};
use service::devices::configure;
use service::engine::{self, Machine};
use service::failure::failed;
use service::plan::Asked;
use service::protocol::{self, Apply};
use service::swap::cache::parameters;
use zram::Disk;

use crate::args::{DiskOptions, FrontendOptions, Size, SwapOn, Transport};
use crate::running::check_frontends;
use files::Found;
use merge::{Entry, Fault, Section, Sections};
use options::Kind;

/// Attributes whose values cannot be checked before there is what they name.
const OF_THE_MACHINE: [&str; 4] =
    ["auto_writeback", "backing_dev", "backing_layout", "sealed_backing"];

/// Can the value of an attribute be checked, of a device that `has_backing`? Pages spill to that.
fn can_be_tried(name: &str, value: &str, has_backing: bool) -> bool {
    !OF_THE_MACHINE.contains(&name) && (name, value, has_backing) != ("when_full", "spill", true)
}

/// What is configured.
#[derive(Default)]
pub struct Configuration {
    /// The files.
    pub found: Found,
    /// As it was written.
    pub sections: Sections,
    /// How disks are served, if a file says so.
    pub serve: Option<FrontendOptions>,
    /// The disks, by their numbers.
    pub disks: BTreeMap<u32, DiskOptions>,
    /// The swap devices, by their numbers.
    pub swaps: BTreeMap<u32, SwapOn>,
    /// The kernel's command line turns everything off.
    pub is_off: bool,
}

/// Reads the configuration of the system, or `only` these files.
///
/// # Errors
/// `EINVAL` with a line for each fault; the error of a file that cannot be read.
pub fn load(only: &[PathBuf]) -> Result<Configuration, ControlError> {
    let top = files::top();
    let found = match only {
        [] => files::find(&top, &files::OWN, files::MAIN)?,
        only => Found { read: only.to_vec(), hiding: Vec::new() },
    };
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path);
        let text = text.map_err(|e| failed(format!("cannot read {}", path.display()), &e))?;
        Ok((path.clone(), text))
    };
    let texts = found.read.iter().map(read).collect::<Result<Vec<_>, ControlError>>()?;
    let (mut configuration, faults) = understand(&texts);
    configuration.found = found;
    configuration.is_off = files::is_off(&top);
    refuse(&faults).map(|()| configuration)
}

/// How a daemon serves that was asked for this ([`protocol::Apply::asked`]).
#[must_use]
pub fn serving(asked: &Asked) -> Configuration {
    let asked = asked.iter().filter(|(name, _)| ![PART, FILE].contains(&&***name));
    let line = |(name, written): (&String, &String)| {
        Some(format!("{} = {written}\n", name.strip_prefix("serve/")?))
    };
    let text = format!("[serve]\n{}", asked.filter_map(line).collect::<String>());
    understand(&[("what was asked for".into(), text)]).0
}

/// # Errors
/// `EINVAL` with a line for each of `faults`.
fn refuse(faults: &[Fault]) -> Result<(), ControlError> {
    if faults.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Err(ControlError::new(Errno::EINVAL, lines.join("\n")))
}

/// Reads `texts`. The faults are in the order of the files.
#[must_use]
pub fn understand(texts: &[(PathBuf, String)]) -> (Configuration, Vec<Fault>) {
    let mut faults = Vec::new();
    let sections = merge::merge(texts, &mut faults);
    let mut configuration = Configuration::default();
    for section in &sections {
        let all = &mut faults;
        match Kind::of(section) {
            Ok(Kind::Serve) => {
                let serve: Option<FrontendOptions> = options::options(section, Kind::Serve, all);
                // What this user may not do the user of the daemon may be allowed to.
                if let Some(Err(ControlError { errno, message })) =
                    serve.as_ref().map(check_frontends)
                    && errno != Errno::EPERM
                {
                    // Keys are the options without their dashes, and the first word is one.
                    let what = message.trim_start_matches("--").replace(" --", " ");
                    let key = what.split([' ', ':']).next();
                    let entry = section.entries.iter().find(|entry| key == Some(&entry.key));
                    let at = entry.map_or(&section.at, |entry| &entry.at).clone();
                    all.push(Fault { at, what: what.replace("(--", "(") });
                }
                configuration.serve = serve;
            }
            Ok(kind @ Kind::Disk(number)) => {
                let disk = options::options(section, kind, all);
                configuration.disks.extend(disk.map(|disk| (number, disk)));
            }
            Ok(kind @ Kind::Swap(number)) => {
                let swap = options::options(section, kind, all);
                configuration.swaps.extend(swap.map(|swap| (number, swap)));
            }
            Err(fault) => all.push(fault),
        }
    }
    check_places(&configuration, &sections, &mut faults);
    share(&mut configuration.swaps, &sections, &mut faults);
    let order = |fault: &Fault| texts.iter().position(|(path, _)| **path == *fault.at.file);
    faults.sort_by_key(|fault| (order(fault), fault.at.line));
    configuration.sections = sections;
    (configuration, faults)
}

/// Places that two devices would have, and file systems that cannot be mounted.
fn check_places(configuration: &Configuration, sections: &[Section], faults: &mut Vec<Fault>) {
    let by_nbd =
        configuration.serve.as_ref().is_some_and(|serve| serve.transport == Transport::Nbd);
    let mut taken: BTreeMap<PathBuf, (&str, &str)> = BTreeMap::new();
    for section in sections {
        let of = |key: &str| section.entries.iter().find(|entry| entry.key == key);
        let mut find = |entry: &Entry, what| faults.push(Fault { at: entry.at.clone(), what });
        if let (true, Some(entry)) = (by_nbd, of("mount").or_else(|| of("fs"))) {
            let what = "a file system needs a block device or a file, and transport = \"nbd\" in \
                        [serve] makes none";
            find(entry, what.to_owned());
        }
        for entry in ["mount", "snapshot", "backing"].into_iter().filter_map(of) {
            let path = PathBuf::from(entry.given.word());
            let shown = path.display();
            match taken.get(&path) {
                Some((key, other)) => find(entry, format!("{shown} is the {key} of [{other}] too")),
                None => _ = taken.insert(path, (&entry.key, &section.name)),
            }
        }
    }
}

/// Gives all swap devices what a daemon has for them together, of whatever section has it.
fn share(swaps: &mut BTreeMap<u32, SwapOn>, sections: &[Section], faults: &mut Vec<Fault>) {
    let headroom = swaps.values().find_map(|swap| swap.headroom.clone());
    let oom_after = swaps.values().find_map(|swap| swap.oom_after);
    for (number, swap) in swaps {
        let bytes = |size: &Option<Size>| size.as_ref().map(|size| size.bytes);
        let same = [
            ("headroom", swap.headroom.is_none() || bytes(&swap.headroom) == bytes(&headroom)),
            ("oom-after", swap.oom_after.is_none() || swap.oom_after == oom_after),
        ];
        for (key, _) in same.into_iter().filter(|(_, is_same)| !is_same) {
            let mut entries = sections
                .iter()
                .filter(|it| it.name == format!("swap{number}"))
                .flat_map(|it| &it.entries);
            faults.extend(entries.find(|entry| entry.key == key).map(|entry| Fault {
                at: entry.at.clone(),
                what: format!("another section has another {key}, and all swap devices share one"),
            }));
        }
        (swap.headroom, swap.oom_after) = (headroom.clone(), oom_after);
    }
}

impl Configuration {
    /// What a daemon is to follow.
    #[must_use]
    pub fn apply(&self) -> Apply {
        let serve = self.of_serve().map(|it| (format!("serve/{}", it.key), it.written.clone()));
        let force = self.serve.as_ref().is_some_and(|serve| serve.force);
        let disk = |(number, disk): (&u32, &DiskOptions)| disk.configured(Some(*number), force);
        let swap = |(number, it): (&u32, &SwapOn)| protocol::SwapOn {
            number: Some(*number),
            ..it.request()
        };
        let (disks, swaps) = (self.disks.iter().map(disk), self.swaps.iter().map(swap));
        let (serve, disks, swaps) = (serve.collect(), disks.collect(), swaps.collect());
        Apply { serve, disks, swaps, ..Apply::default() }
    }

    /// The values of `[serve]`.
    fn of_serve(&self) -> impl Iterator<Item = &Entry> {
        self.sections.iter().filter(|it| it.name == "serve").flat_map(|it| &it.entries)
    }

    /// Does a file say what threads that serve may do?
    #[must_use]
    pub fn says_sandbox(&self) -> bool {
        self.of_serve().any(|entry| entry.key == "sandbox")
    }

    /// Checks the values of attributes, by setting them on devices that nobody sees.
    ///
    /// # Errors
    /// As [`load`].
    pub fn check_values(&self) -> Result<(), ControlError> {
        if self.sections.is_empty() {
            return Ok(());
        }
        let machine = engine::new()?;
        let mut faults = Vec::new();
        for section in &self.sections {
            if let Err(fault) = self.check_section(&machine, section, &mut faults) {
                faults.push(fault);
            }
        }
        refuse(&faults)
    }

    fn check_section(
        &self,
        machine: &Machine,
        section: &Section,
        faults: &mut Vec<Fault>,
    ) -> Result<(), Fault> {
        let of_section = |error: &ControlError| Fault {
            at: section.at.clone(),
            what: format!("[{}]: {}", section.name, error.message),
        };
        let kind = Kind::of(section)?;
        let number = match kind {
            Kind::Serve => return Ok(()),
            Kind::Disk(number) => number,
            Kind::Swap(_) => {
                let rows = parameters(machine).map_err(|error| of_section(&error))?;
                try_set(&rows, section, false, faults);
                return Ok(());
            }
        };
        let Some(disk) = self.disks.get(&number) else { return Ok(()) };
        let tried = |section: &Section, disk: &DiskOptions, faults: &mut Vec<Fault>| {
            let made = machine.add_at(number)?;
            let tried = try_disk(made, section, disk, faults);
            machine.remove(number).and(tried)
        };
        let Err(error) = tried(section, disk, faults) else { return Ok(()) };
        // It is the last value without which this is not wrong.
        let is_it = |entry: &&Entry| {
            let rest = section.without(entry);
            let disk = options::options(&rest, kind, &mut Vec::new());
            disk.is_some_and(|disk| tried(&rest, &disk, &mut Vec::new()) != Err(error.clone()))
        };
        let entry = section.entries.iter().chain(&section.set).rev().find(is_it);
        Err(entry.map_or_else(|| of_section(&error), |entry| entry.fault(&error.message)))
    }
}

/// Makes `disk` what `section` says, with a size: it has its codecs then. What is wrong in the
/// table of attributes goes to `faults`.
fn try_disk(
    disk: Arc<Disk>,
    section: &Section,
    options: &DiskOptions,
    faults: &mut Vec<Fault>,
) -> Result<(), ControlError> {
    let below = ["backing_dev", "backing_remote"];
    let mut options = options.device.clone();
    options.set.clear();
    let mut request = options.request(None, true);
    let has_backing = section.set.iter().any(|it| below.contains(&&*it.key))
        || request.attributes.iter().any(|it| below.contains(&&*it.name));
    request.attributes.retain(|it| can_be_tried(&it.name, &it.value, has_backing));
    configure(&disk, &request)?;
    let rows = zram::attributes(disk);
    try_set(&rows, section, has_backing, faults);
    rows.store("disksize", "1M")
}

/// Sets the attributes of `section`.
fn try_set(rows: &dyn Object, section: &Section, has_backing: bool, faults: &mut Vec<Fault>) {
    for entry in &section.set {
        // What is wrong with a size was told before.
        let value = options::value_of(entry).unwrap_or_default();
        if can_be_tried(&entry.key, &value, has_backing)
            && let Err(error) = rows.store(&entry.key, &value)
        {
            faults.push(Fault { at: entry.at.clone(), what: error.message });
        }
    }
}

#[cfg(test)]
mod tests;
