//! `rampack fsck`: checks devices that outlive their daemon, and changes nothing.
//!
//! The state is in descriptors of the keeper and of the daemon. It is opened through
//! `/proc/PID/fd`, mapped privately and recovered there, as the next daemon would
//! ([`machine::inspect`]). docs/internals/kept-state.md lists the invariants.

mod process;

use std::io;
use std::path::Path;
use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::{KeptRegion, page_bytes};
use kept::{Contents, Table, TableError};
use machine::{BelowSeen, Inspected, SwapSeen, inspect};
use serde_json::{Value, json};
use store::is_key;
use units::{PAGE_SIZE, human};
use zram::{Recovered, SavedDisk};
use zswap::{RecoveredArea, SwapType};

use self::process::{Held, held, serving};
use crate::args::Fsck;
use crate::table;
use crate::terminal::answer;
use service::failure::{failed, say, sentence};
use service::root::Root;
use service::state::disks;
use service::state::swaps::{self, LeftSwap, SavedBacking};
use service::swap;

/// Exit codes of fsck(8): errors were left, and the check could not be made.
const ERRORS_LEFT: i32 = 4;
const NOT_CHECKED: i32 = 8;
/// A daemon that was sent a SIGSTOP stands still within this time, and how often that is looked at.
const STOPS_WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// What was found of a whole state.
struct Report {
    process: u32,
    layout: Option<u32>,
    found: Inspected,
}

/// `rampack fsck`. Ends the process with an exit code of fsck(8), unless the state is clean.
pub fn run(root: Option<&Path>, options: &Fsck) {
    let report =
        process(root, options).and_then(|process| check_stopped(process, options.contents));
    let told = report.and_then(|report| {
        answer(if options.json { report.json() } else { report.text() })?;
        Ok(report.found.is_clean())
    });
    match told {
        Ok(true) => {}
        Ok(false) => exit(ERRORS_LEFT),
        Err(error) => {
            let why = sentence(&error);
            say(&format!("rampack: not checked: {why}\n"));
            if options.json {
                // Standard output may be what failed.
                let _ = answer(format!("{:#}\n", json!({ "clean": null, "not_checked": why })));
            }
            exit(NOT_CHECKED);
        }
    }
}

/// The process that has the descriptors: the one that is named, or the daemon of the root.
fn process(root: Option<&Path>, options: &Fsck) -> Result<u32, ControlError> {
    if let Some(process) = options.pid {
        return Ok(process);
    }
    let root = Root::choose(root)?;
    root.pid().filter(|process| process::exists(*process)).ok_or_else(|| {
        let message = format!(
            "no daemon lives in {}; name the process that keeps its descriptors, such as `rampack \
             keep`, with --pid",
            root.path().display()
        );
        ControlError::new(Errno::ENOENT, message)
    })
}

/// As [`check`], but waits a moment for a daemon that is about to stop: `kill -STOP` returns before
/// it stands still.
fn check_stopped(process: u32, contents: bool) -> Result<Report, ControlError> {
    let start = Instant::now();
    loop {
        match check(process, contents) {
            Err(error) if error.errno == Errno::EBUSY && start.elapsed() < STOPS_WITHIN => {
                thread::sleep(PAUSE);
            }
            report => return report,
        }
    }
}

fn check(process: u32, contents: bool) -> Result<Report, ControlError> {
    let files = held(process)?;
    let mut report = Report { process, layout: None, found: Inspected::default() };
    let table = only_table(&files, process)?;
    let what = |error: io::Error| failed(format!("the descriptors of process {process}"), &error);
    let opened = Table::open(table.open().map_err(what)?, page_bytes() as u32);
    let (table, saved_contents) = match opened {
        Ok(opened) => opened,
        Err(TableError::System(error)) => return Err(what(error)),
        Err(error @ TableError::Damaged(_)) => {
            report.add(format!("{error} (K2)"));
            return Ok(report);
        }
        Err(error) => {
            report.add(format!("{error} (K1)"));
            return Ok(report);
        }
    };
    report.layout = Some(table.layout());
    let Some((regions, disks, swap)) = report.parts(&files, saved_contents).map_err(what)? else {
        return Ok(report);
    };
    refuse_if_served(&files, &regions)?;
    match inspect(&regions, &disks, swap.as_ref(), contents, &|_| ()) {
        Ok(found) => report.found = found,
        // Nothing can be recovered of such a state.
        Err(error) if [Errno::EINVAL, Errno::ENOTSUP].contains(&error.errno) => {
            report.add(error.message);
        }
        Err(error) => return Err(error),
    }
    // A keeper may have started a daemon meanwhile.
    refuse_if_served(&files, &regions)?;
    Ok(report)
}

fn only_table(files: &[Held], process: u32) -> Result<&Held, ControlError> {
    let mut tables = files.iter().filter(|file| file.bytes == Table::BYTES);
    match (tables.next(), tables.count()) {
        (Some(table), 0) => Ok(table),
        (None, _) => {
            let message = format!(
                "process {process} has no state of devices; only a daemon under `rampack keep`, or \
                 of a service with FileDescriptorStoreMax=, has one"
            );
            Err(ControlError::new(Errno::ENOENT, message))
        }
        (_, more) => {
            let message = format!(
                "process {process} has the states of {} daemons; name a keeper or a stopped daemon",
                more + 1
            );
            Err(ControlError::invalid(message))
        }
    }
}

/// While a process serves, what is there changes under the eyes of the checker.
fn refuse_if_served(files: &[Held], regions: &[KeptRegion]) -> Result<(), ControlError> {
    let named = |file: &&Held| regions.iter().any(|region| file.is_of(&region.name));
    let Some(server) = serving(files.iter().filter(named)) else { return Ok(()) };
    let message = format!(
        "the daemon (process {server}) serves these devices, and changes them meanwhile; stop it \
         for the check: `kill -STOP {server}`, `rampack fsck`, `kill -CONT {server}`; not while \
         the system swaps to it, or has a file system on it that the check itself needs"
    );
    Err(ControlError::new(Errno::EBUSY, message))
}

/// The regions of a table, its disks, and the cache of swap devices.
type Parts = (Vec<KeptRegion>, Vec<SavedDisk>, Option<SwapSeen>);

/// The cache of swap devices, if there is one.
fn seen(left: LeftSwap) -> Result<Option<SwapSeen>, ControlError> {
    let LeftSwap { areas, cache: saved, .. } = left;
    let below = areas.into_iter().filter_map(|area| Some((area.number, area.pages, area.backing?)));
    let below = below.map(|(number, pages, SavedBacking { path, is_sealed, log_bytes, .. })| {
        let area = SwapType::new(number)?;
        Ok(BelowSeen { area, path, is_sealed, logged: log_bytes.map(|bytes| (pages, bytes)) })
    });
    let below = below.collect::<Result<_, ControlError>>()?;
    Ok((!saved.areas.is_empty()).then_some(SwapSeen { saved, below }))
}

impl Report {
    fn add(&mut self, text: String) {
        self.found.others.add(text);
    }

    /// The regions and devices of a table; `None` if not all is there, which is a finding.
    fn parts(&mut self, files: &[Held], contents: Contents) -> io::Result<Option<Parts>> {
        let mut regions = Vec::new();
        for region in contents.regions.into_iter().filter(|region| !is_key(&region.name)) {
            let mut found = files.iter().filter(|file| file.is_of(&region.name));
            match (found.find(|file| file.bytes == region.bytes), found.count()) {
                (Some(file), 0) => {
                    let (name, bytes) = (region.name, region.bytes);
                    regions.push(KeptRegion { name, file: Arc::new(file.open()?), bytes });
                }
                (Some(_), _) => self.add(format!("there are two files of {} (K3)", region.name)),
                (None, _) => {
                    self.add(format!("no file of {} bytes is {} (K3)", region.bytes, region.name));
                }
            }
        }
        let swap = swaps::left(&contents.devices);
        let parts = swap.and_then(|swap| Ok((disks(contents.devices)?, seen(swap)?)));
        let parts = parts.map_err(|error| self.add(format!("{} (K2)", error.message)));
        let parts = parts.ok().filter(|_| self.found.is_clean());
        Ok(parts.map(|(disks, swap)| (regions, disks, swap)))
    }

    fn json(&self) -> String {
        let disk = |disk: &Recovered| {
            json!({
                "name": format!("zram{}", disk.id),
                "disksize": disk.bytes,
                "pages": disk.pages,
                "compressed_bytes": disk.compressed_bytes,
                "lost_pages": disk.lost,
                "findings": disk.findings.told,
                "all_findings": disk.findings.all,
            })
        };
        let disks: Vec<Value> = self.found.disks.iter().map(disk).collect();
        let area = |area: &RecoveredArea| {
            json!({
                "name": swap::name(area.swap.number()),
                "size": area.pages * PAGE_SIZE as u64,
                "pages": area.cached,
                "disk_pages": area.on_device,
                "lost_pages": area.lost,
            })
        };
        let swap = self.found.swap.as_ref().map(|swap| {
            json!({
                "areas": swap.areas.iter().map(area).collect::<Vec<_>>(),
                "compressed_bytes": swap.compressed_bytes,
                "findings": swap.findings.told,
                "all_findings": swap.findings.all,
            })
        });
        let object = json!({
            "swap": swap,
            "process": self.process,
            "layout": self.layout,
            "clean": self.found.is_clean(),
            "not_checked": null,
            "devices": disks,
            "findings": self.found.others.told,
            "all_findings": self.found.others.all,
        });
        format!("{object:#}\n")
    }

    fn text(&self) -> String {
        let names = ["NAME", "DISKSIZE", "PAGES", "COMPR", "LOST", "FINDINGS"];
        let mut rows = vec![names.map(String::from).to_vec()];
        for disk in &self.found.disks {
            rows.push(vec![
                format!("zram{}", disk.id),
                human(disk.bytes).to_string(),
                disk.pages.to_string(),
                human(disk.compressed_bytes).to_string(),
                disk.lost.to_string(),
                disk.findings.all.to_string(),
            ]);
        }
        let swap = self.found.swap.iter();
        for area in swap.clone().flat_map(|swap| &swap.areas) {
            rows.push(vec![
                swap::name(area.swap.number()),
                human(area.pages * PAGE_SIZE as u64).to_string(),
                (area.cached + area.on_device).to_string(),
                String::from("-"),
                area.lost.to_string(),
                String::from("-"),
            ]);
        }
        let mut text = table::text(&rows, "  ", |n| n > 0);
        let disks = self.found.disks.iter();
        let told = disks.map(|disk| &disk.findings).chain(swap.map(|swap| &swap.findings));
        for findings in told.chain([&self.found.others]) {
            findings.told.iter().for_each(|finding| text += &format!("{finding}\n"));
            let more = findings.more();
            if more > 0 {
                text += &format!("and {more} more\n");
            }
        }
        text += match self.found.is_clean() {
            true => "clean\n",
            false => "docs/internals/kept-state.md explains the numbers\n",
        };
        text
    }
}

#[cfg(test)]
mod tests;
