//! A configuration that changed while the daemon runs: what it follows at once, and what it says of
//! the rest.

use std::cmp::Reverse;

use control::{ControlError, Errno};

use super::Commands;
use super::configuration::{DISKS, FILE, PART, SERVE, SWAPS};
use crate::failure::sentence;
use crate::plan::{
    Asked, Configured, Kept, KeptArea, KeptDisk, Observed, Plan, of_device, plan, shown,
};
use crate::protocol::{Applied, Apply, ConfiguredDisk, SwapOn};
use crate::swap;

impl Commands {
    /// Carries out [`Apply`], one after the other. What cannot be done now is found before anything
    /// changes. What fails stops nothing else, and stays asked for as it was: it is tried again.
    pub(super) fn apply(
        &self,
        it: Apply,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Applied, ControlError> {
        let _turn = self.configuration.turn.lock();
        let asked = self.devices.asked();
        let Some(part) = asked.get(PART).cloned() else {
            let message = "the daemon was not started with --config, and follows no files; \
                           `rampack set` changes its devices";
            return Err(ControlError::new(Errno::ENOTSUP, message));
        };
        let mut by = self.planned(&it, &asked, &part);
        let mut applied = Applied { not_followed: by.said.clone(), ..Applied::default() };
        let mut gone = Gone::of(&by);
        if !it.remove {
            applied.not_followed.extend(by.stays());
            gone.clear();
        }
        if part == DISKS {
            applied.not_followed.extend(serving(&asked, &it.serve));
        }
        gone.retain(|it| {
            let checked =
                if it.is_swap() { Ok(()) } else { self.file_systems.check_unused(&it.name) };
            noted(checked, |error| it.stays(error), &mut applied.failed)
        });
        by.changes.retain(|option, size| {
            let (Some(disk), "disksize") = of_device(option) else { return true };
            let checked = self.devices.disk(disk);
            let checked = checked.and_then(|it| self.devices.check_resize(&it, size));
            let stays =
                |error: &ControlError| format!("{disk}: disksize stays: {}", sentence(error));
            noted(checked, stays, &mut applied.failed)
        });
        let new = self.new_devices(&it, &part);
        if it.dry {
            let gone = gone.iter().map(|it| format!("{} would be {}", it.name, it.how));
            let set = |(name, value): (&String, &String)| match of_device(name) {
                (Some(device), name) => format!("{device}: {name} would be {}", shown(value)),
                (None, name) => format!("{name} would be {}", shown(value)),
            };
            let made = new.iter().map(|device| format!("{} would be made", device.name()));
            applied.changed = gone.chain(by.changes.iter().map(set)).chain(made).collect();
            return Ok(applied);
        }
        // Where a disk was mounted another may be to be mounted.
        if part == DISKS {
            self.take_down(&gone, &mut by.asked, &mut applied);
        }
        let followed = match &*part {
            SWAPS => swap::cache::follow(self.devices.machine(), &by.changes),
            _ => self.devices.set_all(&by.changes),
        };
        let mut now = followed.asked(&by);
        applied.changed.extend(followed.done);
        applied.failed.extend(followed.failed.into_iter().map(|(_, why)| why));
        for device in new {
            let fails = |error: &_| format!("{} is not made: {}", device.name(), sentence(error));
            if noted(self.make(&device, is_over), fails, &mut applied.failed) {
                applied.changed.push(format!("{} is made", device.name()));
            }
        }
        // A daemon of swap ends with its last device, and another takes what is read back of it.
        if part == SWAPS {
            self.take_down(&gone, &mut now, &mut applied);
        }
        // What is not there is new the next time. How devices are served stays as it is.
        let disks = self.devices.numbers().into_iter().map(|id| format!("zram{id}"));
        let there: Vec<String> =
            disks.chain(self.swaps.numbers().into_iter().map(swap::name)).collect();
        now.retain(|option, _| {
            of_device(option).0.is_some_and(|it| there.iter().any(|at| at == it))
        });
        now.extend(asked.into_iter().filter(|it| of_device(&it.0).0 == Some(SERVE)));
        self.devices.set_asked(now);
        self.devices.save()?;
        Ok(applied)
    }

    /// Takes down what is `gone`, and takes it out of what is asked for.
    fn take_down(&self, gone: &[Gone], asked: &mut Asked, applied: &mut Applied) {
        for it in gone {
            let done = match (it.is_mount(), it.is_swap()) {
                (true, _) => self.file_systems.unmount_disk(&it.name),
                (false, true) => self.swaps.off(&it.name),
                (false, false) => self.file_systems.remove_disk(&it.name),
            };
            if noted(done, |error| it.stays(error), &mut applied.failed) {
                applied.changed.push(format!("{} is {}", it.name, it.how));
                asked.remove(&it.what);
            }
        }
    }

    /// The plan from what there is to what is configured.
    fn planned(&self, it: &Apply, asked: &Asked, part: &str) -> Plan {
        let areas: Vec<usize> = self.swaps.numbers();
        let kept = Kept {
            asked: Some(asked.clone()),
            disks: (self.devices.numbers().into_iter())
                .map(|id| KeptDisk { id, ublk: self.devices.ublk(id), has_file: false })
                .collect(),
            areas: areas.iter().map(|number| KeptArea { number: *number, ublk: None }).collect(),
            has_files: true,
            ..Kept::default()
        };
        let configured = Configured {
            transport: self.configuration.transport,
            asked: it.asked(part),
            ..Configured::default()
        };
        let areas = areas.into_iter().collect();
        plan(&kept, &configured, &Observed { has_files: true, areas, ..Observed::default() })
    }

    /// The devices that are configured and not there, those of the outer mounts first.
    fn new_devices<'a>(&self, it: &'a Apply, part: &str) -> Vec<New<'a>> {
        if part == SWAPS {
            let there = self.swaps.numbers();
            let is_new =
                |number: Option<u32>| number.is_some_and(|it| !there.contains(&(it as usize)));
            return it.swaps.iter().filter(|it| is_new(it.number)).map(New::Swap).collect();
        }
        let there = self.devices.numbers();
        let is_new = |number: Option<u32>| number.is_some_and(|id| !there.contains(&id));
        let mut disks: Vec<_> = it.disks.iter().filter(|it| is_new(it.add.number)).collect();
        disks.sort_by_key(|disk| &disk.mount);
        disks.into_iter().map(New::Disk).collect()
    }

    fn make(&self, device: &New<'_>, is_over: &dyn Fn() -> bool) -> Result<(), ControlError> {
        match device {
            New::Disk(disk) => self.file_systems.make_configured(disk, self.root.path()).map(drop),
            New::Swap(swap) => self.swaps.on(swap, is_over).map(drop),
        }
    }
}

/// What is not configured any more: a device, or the mount of a disk.
struct Gone {
    /// As the plan has it.
    what: String,
    /// The name of the device.
    name: String,
    /// What is done with it.
    how: String,
}

impl Gone {
    /// Those of the plan, what is mounted innermost first.
    fn of(by: &Plan) -> Vec<Gone> {
        let at = |name: &str| by.asked.get(&format!("{name}/mount")).cloned().unwrap_or_default();
        let gone = |what: &String| {
            let (name, how) = match of_device(what) {
                (Some(disk), _) => (disk, format!("unmounted from {}", at(disk))),
                (None, name) if name.starts_with("swap") => (name, "swapped off".to_owned()),
                (None, name) => (name, "removed".to_owned()),
            };
            Gone { what: what.clone(), name: name.to_owned(), how }
        };
        let mut all: Vec<Gone> = by.gone.iter().map(gone).collect();
        all.sort_by_key(|it| Reverse(at(&it.name)));
        all
    }

    fn is_mount(&self) -> bool {
        self.what != self.name
    }

    fn is_swap(&self) -> bool {
        self.name.starts_with("swap")
    }

    fn stays(&self, error: &ControlError) -> String {
        format!("{} is not {}: {}", self.name, self.how, sentence(error))
    }
}

/// A device that is to be made.
enum New<'a> {
    Disk(&'a ConfiguredDisk),
    Swap(&'a SwapOn),
}

impl New<'_> {
    fn name(&self) -> String {
        match self {
            New::Disk(disk) => disk.name(),
            New::Swap(swap) => swap.name(),
        }
    }
}

/// What of the way devices are served would change.
fn serving(before: &Asked, now: &Asked) -> Vec<String> {
    let of_serving = |asked: &Asked| -> Asked {
        let all = asked.clone().into_iter();
        let is_own = |name: &str| [PART, FILE].contains(&name);
        all.filter(|(name, _)| !is_own(name) && of_device(name).0 == Some(SERVE)).collect()
    };
    let (before, now) = (of_serving(before), of_serving(now));
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| before.get(*name) != now.get(*name));
    let said = |name: &String| {
        let own = of_device(name).1;
        let now = now.get(name).map_or_else(|| format!("no {own}"), |it| format!("{own}={it}"));
        format!("[serve]: {now} is followed from the next start on: restart the service")
    };
    names.into_iter().map(said).collect()
}

/// Adds why something failed. Has it succeeded?
fn noted(
    result: Result<(), ControlError>,
    fails: impl FnOnce(&ControlError) -> String,
    failed: &mut Vec<String>,
) -> bool {
    failed.extend(result.as_ref().err().map(fails));
    result.is_ok()
}
