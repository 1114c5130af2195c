//! A configuration that changed while the daemon runs: what it follows at once, and what it says of
//! the rest.

use control::{ControlError, Errno};

use super::Commands;
use super::configuration::{DISKS, PART, SERVE, SWAPS};
use crate::failure::sentence;
use crate::plan::{Asked, Configured, Kept, KeptArea, KeptDisk, Observed, Plan, of_device, plan};
use crate::protocol::{Applied, Apply, ConfiguredDisk, SwapOn};
use crate::swap;

impl Commands {
    /// Carries out [`Apply`]. One after the other: the configuration is locked meanwhile.
    pub(super) fn apply(&self, it: Apply) -> Result<Applied, ControlError> {
        let mut asked = self.configuration.asked.lock();
        let Some(part) = asked.get(PART).cloned() else {
            let message = "the daemon was not started with --config, and follows no files; \
                           `rampack set` changes its devices";
            return Err(ControlError::new(Errno::ENOTSUP, message));
        };
        let by = self.planned(&it, &asked, &part);
        let serving = if part == DISKS { serving(&asked, &it.serve) } else { Vec::new() };
        let not_followed = by.said.iter().cloned().chain(serving).collect();
        let new = self.new_devices(&it, &part);
        if it.dry {
            let set = |(name, value): (&String, &String)| match of_device(name) {
                (Some(device), name) => format!("{device}: {name} would be {value}"),
                (None, name) => format!("{name} would be {value}"),
            };
            let made = new.iter().map(|device| format!("{} would be made", device.name()));
            let changed = by.changes.iter().map(set).chain(made).collect();
            return Ok(Applied { changed, not_followed });
        }
        let mut changed = self.devices.set_all(&by.changes);
        if part == SWAPS {
            changed.extend(swap::cache::follow(self.devices.machine(), &by.changes));
        }
        let mut followed = by.asked;
        for device in new {
            let name = device.name();
            match self.make(&device) {
                Ok(()) => changed.push(format!("{name} is made")),
                Err(error) => {
                    // The next time it is new again.
                    followed.retain(|option, _| of_device(option).0 != Some(&*name));
                    changed.push(format!("{name} is not made: {}", sentence(&error)));
                }
            }
        }
        // How devices are served stays as it is.
        followed.retain(|name, _| of_device(name).0 != Some(SERVE));
        followed.extend(asked.clone().into_iter().filter(|it| of_device(&it.0).0 == Some(SERVE)));
        *asked = followed;
        if let Some(state) = self.devices.state() {
            state.set_asked(asked.clone());
        }
        self.devices.save()?;
        Ok(Applied { changed, not_followed })
    }

    /// The plan from what there is to what is configured.
    fn planned(&self, it: &Apply, asked: &Asked, part: &str) -> Plan {
        let areas: Vec<usize> = self.swaps.numbers();
        let kept = Kept {
            asked: Some(asked.clone()),
            disks: (self.devices.numbers().into_iter())
                .map(|id| KeptDisk { id, ublk: None, has_file: false })
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

    fn make(&self, device: &New<'_>) -> Result<(), ControlError> {
        match device {
            New::Disk(disk) => self.file_systems.make_disk(disk, self.root.path()).map(drop),
            New::Swap(swap) => self.swaps.on(swap).map(drop),
        }
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
        all.filter(|(name, _)| name != PART && of_device(name).0 == Some(SERVE)).collect()
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
