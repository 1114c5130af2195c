//! How the service manager gets what is new, and the table says so.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use host::KeptRegion;
use kept::{Contents, Device, Mount, Region};

use super::handed_over::PATIENCE;
use super::{PREFIX, State, TABLE, Written, backings, connections, generations, swaps};
use crate::plan::Asked;

impl State {
    /// The devices are asked for here, so that of two callers the later one has the later ones.
    pub(super) fn write(
        &self,
        devices: impl FnOnce() -> Vec<Device>,
    ) -> Result<(), Box<dyn Error>> {
        let (mut written, mut given) = (self.written.lock(), Vec::new());
        let devices = devices();
        let done = self.give(&mut written, devices, &mut given);
        // Nobody would have it give up what no table names.
        given.iter().for_each(|name| _ = self.store.forget(name));
        done
    }

    /// Gives the service manager what is new, and writes the table. Until that is written, `given`
    /// has the names of what is new.
    fn give(
        &self,
        written: &mut Written,
        devices: Vec<Device>,
        given: &mut Vec<String>,
    ) -> Result<(), Box<dyn Error>> {
        if !self.has_manager() {
            // The devices end with this process, as any without a service manager, and clients
            // need not wait.
            written.devices = generations(&devices);
            return Ok(());
        }
        let now = self.memory.regions();
        // The service manager does not say that it has no room. What is given up takes room until
        // the table is written.
        let is_gone = |name: &&String| now.iter().all(|region| region.name != **name);
        let regions = now.len() + written.regions.keys().filter(is_gone).count();
        let others: usize = written.others.values().map(|other| other.fds.len()).sum();
        let below = backings::paths(&devices);
        let (count, most) = (regions + others + self.backings.count(&below) + 1, self.most);
        if !devices.is_empty() && count > most {
            let text = format!(
                "{count} descriptors have to be kept, and the service manager keeps {most} \
                 (FileDescriptorStoreMax=)"
            );
            return Err(text.into());
        }
        let (mut regions, mut by_name) = (Vec::new(), BTreeMap::new());
        let was_kept = written.is_kept;
        let mut are_new = !was_kept;
        for KeptRegion { name, file, bytes } in now {
            let descriptor = format!("{PREFIX}{name}");
            let is_kept = written.regions.get(&name).is_some_and(|it| Arc::ptr_eq(it, &file));
            if !is_kept {
                // An earlier one of the name is not taken for it.
                self.store.forget(&descriptor)?;
                given.push(descriptor.clone());
                self.store.keep(&descriptor, file.as_fd())?;
                are_new = true;
            }
            by_name.insert(name.clone(), file);
            regions.push(Region { name, descriptor, bytes });
        }
        let Written { table, others, files, asked, .. } = &mut *written;
        if !was_kept {
            for (name, other) in others.iter_mut().filter(|(_, other)| !other.is_kept) {
                other.fds.iter().try_for_each(|fd| self.store.keep(name, fd.as_fd()))?;
                other.is_kept = true;
            }
            given.push(TABLE.to_owned());
            self.store.keep(TABLE, table.as_fd())?;
        }
        let keep = |name: &str, file: &File| self.store.keep(name, file.as_fd());
        if self.backings.keep(&below, keep)? || are_new {
            self.store.settle(PATIENCE)?;
        }
        let of_swap = self.swaps.lock().0.keys().map(|number| swaps::mount(*number)).collect();
        let mut mounts: Vec<Mount> = [vec![connections::mount(files)], of_swap].concat();
        mounts.retain(|mount| others.contains_key(&mount.descriptor));
        mounts.extend(self.backings.mount(&below));
        let generations = generations(&devices);
        let asked = if devices.is_empty() { Asked::new() } else { asked.clone() };
        table.write(&Contents { regions, devices, mounts, asked })?;
        given.clear();
        (written.is_kept, written.devices) = (true, generations);
        let gone = written.regions.keys().filter(|name| !by_name.contains_key(*name));
        let gone = gone.map(|name| format!("{PREFIX}{name}"));
        let gone: Vec<String> = gone.chain(self.backings.give_up(&below)).collect();
        written.regions = by_name;
        gone.iter().try_for_each(|name| self.store.forget(name))?;
        Ok(())
    }
}
