//! What becomes of what a daemon left: one pure function of what was kept, what is configured now,
//! and what is there.
//!
//! A daemon makes its plan before it takes anything over, and the program that is to follow in an
//! upgrade makes its own before the one before gives anything up. The plan
//! holds this, whatever it is given (`plan/tests.rs`):
//!
//! * What the kernel uses is never given up.
//! * Nothing is open wider than configured.
//! * One object that cannot come back does not stop another.
//! * An option that cannot be followed is said aloud.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use control::ControlError;

use crate::failure::sentence;
use crate::swap;
use crate::transport::{NbdOptions, Transport};

/// What a daemon was asked for, by the names of options, as it was written. An option of one device
/// has that in front: `zram0/mem_limit`.
pub type Asked = BTreeMap<String, String>;

/// The device that an option is of, if it is of one, and the option's own name.
#[must_use]
pub fn of_device(name: &str) -> (Option<&str>, &str) {
    let parts = name.split_once('/');
    parts.map_or((None, name), |(device, name)| (Some(device), name))
}

/// `asked`, of `device` alone.
pub fn for_device(device: &str, asked: Asked) -> impl Iterator<Item = (String, String)> {
    asked.into_iter().map(move |(name, value)| (format!("{device}/{name}"), value))
}

/// A disk that was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptDisk {
    /// Its number.
    pub id: u32,
    /// The N of its `/dev/ublkbN`, if it has one.
    pub ublk: Option<u32>,
    /// The mount that was kept has its file.
    pub has_file: bool,
}

/// A swap device that was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptArea {
    /// Its number.
    pub number: usize,
    /// The N of its `/dev/ublkbN`; without one it has a file and a loop device.
    pub ublk: Option<u32>,
}

/// What a daemon left with its service manager.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Kept {
    /// The root of that daemon; `None` if it had no socket.
    pub root: Option<PathBuf>,
    /// What it was asked for; `None` if it did not keep that.
    pub asked: Option<Asked>,
    /// The disks.
    pub disks: Vec<KeptDisk>,
    /// The swap devices.
    pub areas: Vec<KeptArea>,
    /// The descriptor of the mount of the files.
    pub has_files: bool,
    /// The socket of commands.
    pub has_control: bool,
    /// The Unix socket of NBD.
    pub has_nbd: bool,
    /// The TCP socket of NBD, by its address.
    pub nbd_tcp: Option<SocketAddr>,
}

/// What the daemon is to do now.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Configured {
    /// The root that was chosen.
    pub root: PathBuf,
    /// How disks are reached.
    pub transport: Transport,
    /// How NBD is served.
    pub nbd: NbdOptions,
    /// What it is asked for.
    pub asked: Asked,
}

/// What is there.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Observed {
    /// The file of the kept socket of commands is at its path.
    pub has_control: bool,
    /// The file of the kept Unix socket of NBD is at its path.
    pub has_nbd: bool,
    /// The mount of the files is there.
    pub has_files: bool,
    /// The disks whose block devices are swapped to, are mounted, or have a device above them.
    pub used_disks: BTreeSet<u32>,
    /// The swap devices whose mount or block device is there.
    pub areas: BTreeSet<usize>,
    /// The swap devices that the kernel swaps to.
    pub used_areas: BTreeSet<usize>,
}

/// What a daemon does with what was left. What does not go on is given up; what is configured is
/// made anew then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The root.
    pub root: PathBuf,
    /// The mount of the files goes on.
    pub files: bool,
    /// Disks are served by ublk.
    pub by_driver: bool,
    /// The socket of commands goes on.
    pub control: bool,
    /// The Unix socket of NBD goes on.
    pub nbd: bool,
    /// The TCP socket of NBD goes on.
    pub nbd_tcp: bool,
    /// How NBD is served.
    pub serves: NbdOptions,
    /// The disks whose ways besides NBD are closed, once it is known that nobody uses them. Those
    /// to the others go on.
    pub closed: BTreeSet<u32>,
    /// The swap devices of which nothing can be served, and that the kernel swaps to: everything
    /// stays as it is, with the service manager.
    pub left: BTreeSet<usize>,
    /// Options that have other values now, and that a device follows while it is in use.
    pub changes: Asked,
    /// What is there and not configured any more: devices, and mounts of disks, as `zram0/mount`.
    pub gone: BTreeSet<String>,
    /// What is followed without these changes ([`Followed::asked`]): what the next daemon compares
    /// with what it is asked for.
    pub asked: Asked,
    /// What the user should know.
    pub said: Vec<String>,
}

/// The option of the file that a disk is saved to when its daemon ends. As a change, an empty path
/// is none.
pub const SNAPSHOT: &str = "snapshot";

/// Attributes of a disk and parameters of the swap cache that change while it is in use.
const LIVE: [&str; 12] = [
    SNAPSHOT,
    "mem_limit",
    "when_full",
    "auto",
    "auto_target",
    "auto_cpu_percent",
    "auto_slowest_read",
    "auto_writeback",
    "max_pool_percent",
    "max_pool_bytes",
    "compressor",
    "accept_threshold_percent",
];

/// Can a device follow an option while it is in use? A disk that had a size of its own can get
/// another one; before Linux 6.16 the driver ublk refuses that, by name.
fn is_live(option: &str, had_one: bool) -> bool {
    let (device, name) = of_device(option);
    let is_disk = device.is_some_and(|it| it.starts_with("zram"));
    LIVE.contains(&name) || name == "disksize" && had_one && is_disk
}

impl Plan {
    /// What the user should know of what is not configured any more and stays.
    #[must_use]
    pub fn stays(&self) -> Vec<String> {
        const REMOVE: &str = "`rampack config apply --remove`";
        let said = |it: &String| match of_device(it) {
            (Some(disk), _) => {
                let at = self.asked.get(it).map_or("", |at| at);
                format!("{disk} is to be mounted no more, and stays at {at} until {REMOVE}")
            }
            (None, name) => {
                let how = if name.starts_with("zram") { "remove" } else { "swap off" };
                format!(
                    "{name} is not configured any more, and stays until {REMOVE} or `rampack {how} \
                     {name}`"
                )
            }
        };
        self.gone.iter().map(said).collect()
    }
}

/// What became of options that were to have other values.
#[derive(Default, Debug)]
pub struct Followed {
    /// What was done, in sentences.
    pub done: Vec<String>,
    /// The options that have the values that they had, and why, in sentences.
    pub failed: Vec<(String, String)>,
}

impl Followed {
    /// Adds what became of `option`, which `whose` is to have with `value`.
    pub fn note(
        &mut self,
        (option, value): (&str, &str),
        whose: &str,
        result: &Result<(), ControlError>,
    ) {
        let name = of_device(option).1;
        match result {
            Ok(()) => self.done.push(format!("{whose}: {name} is {} now", shown(value))),
            Err(error) => {
                let why = format!("{whose}: {name} stays: {}", sentence(error));
                self.failed.push((option.to_owned(), why));
            }
        }
    }

    /// What is asked for then: without what failed, so that another try finds it changed again.
    #[must_use]
    pub fn asked(&self, by: &Plan) -> Asked {
        let mut asked = by.asked.clone();
        let is_made = |option: &String| !self.failed.iter().any(|(failed, _)| failed == option);
        asked.extend(by.changes.clone().into_iter().filter(|(option, _)| is_made(option)));
        asked.retain(|option, value| of_device(option).1 != SNAPSHOT || !value.is_empty());
        asked
    }

    /// What the user should know.
    pub fn notes(self) -> impl Iterator<Item = String> {
        self.done.into_iter().chain(self.failed.into_iter().map(|(_, why)| why))
    }
}

/// The value of a change, as a user reads it.
#[must_use]
pub fn shown(value: &str) -> &str {
    if value.is_empty() { "none" } else { value }
}

/// Makes the plan.
#[must_use]
pub fn plan(kept: &Kept, configured: &Configured, observed: &Observed) -> Plan {
    let mut said = Vec::new();
    let has_objects = kept.has_files || !kept.disks.is_empty() || !kept.areas.is_empty();
    let root = match &kept.root {
        Some(root) if has_objects && *root != configured.root => {
            said.push(format!(
                "--root {}: what the daemon before left is in {}, and is served there until it is \
                 stopped",
                configured.root.display(),
                root.display()
            ));
            root.clone()
        }
        _ => configured.root.clone(),
    };
    let is_there = kept.root.as_ref() == Some(&root);
    let transport = configured.transport;
    let has_nbd = !transport.is_fuse();
    let by_kept_driver = kept.disks.iter().any(|disk| disk.ublk.is_some());
    let Changes { changes, gone, asked } = changes(kept, configured, has_objects, &mut said);
    if kept.has_files && !observed.has_files {
        said.push(
            "the users of block devices and files of the daemon before get errors: its mount is \
             not there any more"
                .into(),
        );
    }
    let closed = kept.disks.iter().filter(|disk| is_closed(disk, transport, observed, &mut said));
    let closed = closed.map(|disk| disk.id).collect();
    // Served is also what is not used: what the kernel still writes to it ends first.
    let is_left =
        |number: &usize| observed.used_areas.contains(number) && !observed.areas.contains(number);
    let left: BTreeSet<usize> = kept.areas.iter().map(|it| it.number).filter(is_left).collect();
    said.extend(left.iter().map(|number| {
        format!(
            "{} cannot be served on, because the way to it is gone; the kernel swaps to it, so its \
             pages stay in memory: `swapoff` gives it up",
            swap::name(*number)
        )
    }));
    let asked_tcp = configured.nbd.tcp.filter(|_| has_nbd);
    let tcp = kept.nbd_tcp.zip(asked_tcp);
    Plan {
        files: kept.has_files && observed.has_files,
        by_driver: by_kept_driver || transport == Transport::Ublk,
        control: kept.has_control && is_there && observed.has_control,
        nbd: kept.has_nbd && is_there && observed.has_nbd && has_nbd,
        nbd_tcp: tcp.is_some_and(|(kept, asked)| is_asked_for(kept, asked)),
        serves: configured.nbd.clone(),
        closed,
        left,
        changes,
        gone,
        asked,
        said,
        root,
    }
}

/// Is the kept port that which is asked for?
fn is_asked_for(kept: SocketAddr, asked: SocketAddr) -> bool {
    kept.ip() == asked.ip() && (asked.port() == 0 || kept.port() == asked.port())
}

/// Are disks reached by files with this transport?
fn has_files(transport: Transport) -> bool {
    transport == Transport::Auto || transport.is_fuse()
}

/// Is the way to a disk closed? One that is not configured stays while it is used, and that is
/// `said`.
fn is_closed(
    disk: &KeptDisk,
    transport: Transport,
    observed: &Observed,
    said: &mut Vec<String>,
) -> bool {
    let is_wanted = match disk.ublk {
        Some(_) => transport == Transport::Ublk,
        None => !disk.has_file || has_files(transport),
    };
    let is_used = observed.used_disks.contains(&disk.id);
    if !is_wanted && is_used {
        said.push(format!(
            "--transport is not followed for zram{}: its block device is in use, and stays until \
             the daemon is stopped",
            disk.id
        ));
    }
    !is_wanted && !is_used
}

/// What [`Plan`] has of options.
#[derive(Default)]
struct Changes {
    changes: Asked,
    gone: BTreeSet<String>,
    asked: Asked,
}

/// What was asked otherwise before: what can be followed, and what is said instead. An option that
/// has the value it had changes nothing: since then an administrator may have set something else.
fn changes(
    kept: &Kept,
    configured: &Configured,
    has_objects: bool,
    said: &mut Vec<String>,
) -> Changes {
    let Some(before) = kept.asked.as_ref().filter(|_| has_objects) else {
        return Changes { asked: configured.asked.clone(), ..Changes::default() };
    };
    let disks = kept.disks.iter().map(|disk| format!("zram{}", disk.id));
    let devices: BTreeSet<String> =
        disks.chain(kept.areas.iter().map(|area| swap::name(area.number))).collect();
    let is_wanted =
        |device: &str| configured.asked.keys().any(|name| of_device(name).0 == Some(device));
    let (mut changes, mut gone, mut followed) = (Asked::new(), BTreeSet::new(), before.clone());
    let names: BTreeSet<&String> = before.keys().chain(configured.asked.keys()).collect();
    for name in names {
        let (device, own) = of_device(name);
        match (before.get(name), configured.asked.get(name)) {
            // It is made as it is configured now, or is gone already.
            (_, now) if device.is_some_and(|device| !devices.contains(device)) => {
                followed.remove(name);
                followed.extend(now.map(|now| (name.clone(), now.clone())));
            }
            (before, now) if before == now => {}
            (_, None) if device.is_some_and(|device| !is_wanted(device)) => {
                gone.extend(device.map(str::to_owned));
            }
            (_, None) if device.is_some() && own == "mount" => _ = gone.insert(name.clone()),
            (_, None) if device.is_some() && own == SNAPSHOT => {
                changes.insert(name.clone(), String::new());
            }
            (before, Some(now)) if is_live(name, before.is_some()) => {
                changes.insert(name.clone(), now.clone());
            }
            (before, now) if device.is_some() => {
                let written = |value: Option<&String>| {
                    value.map_or_else(|| format!("no {own}"), |value| format!("{own}={value}"))
                };
                said.push(format!(
                    "{}: {} is not followed: it was made with {}",
                    device.unwrap_or_default(),
                    written(now),
                    written(before)
                ));
            }
            (before, Some(now)) => said.push(format!(
                "{name}={now} is not followed: what the daemon before left was made with {}",
                before.map_or_else(|| format!("no {name}"), |before| format!("{name}={before}"))
            )),
            (_, None) => said.push(format!(
                "{name} is not asked for any more, and stays as it is until the daemon is stopped"
            )),
        }
    }
    Changes { changes, gone, asked: followed }
}

#[cfg(test)]
mod tests;
