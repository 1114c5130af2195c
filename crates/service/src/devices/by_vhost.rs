//! Sockets of disks for virtual machines (vhost-user-blk). A disk has one as long as it has a size.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::ControlError;
use nbd::Exports;
use sync::Mutex;
use vhost::{Options, Server};
use zram::Disk;

use crate::engine::Machine;
use crate::exports::DiskExports;
use crate::failure::failed;
use crate::root::{Made, Root};
use crate::transport::VhostOptions;

/// The sockets. Any number of threads may call every method.
pub(super) struct Vhosts {
    /// None if disks are not served so.
    frontend: Mutex<Option<Frontend>>,
    served: Mutex<BTreeMap<u32, Served>>,
}

#[derive(Clone)]
struct Frontend {
    options: VhostOptions,
    root: Root,
    made: Arc<Made>,
    exports: Arc<DiskExports>,
}

struct Served {
    server: Arc<Server>,
    path: PathBuf,
}

impl Vhosts {
    /// None; disks are not served so yet.
    pub(super) fn new() -> Vhosts {
        Vhosts { frontend: Mutex::new(None), served: Mutex::new(BTreeMap::new()) }
    }

    /// Serves what `exports` opens from the next [`Vhosts::follow`] on.
    ///
    /// # Errors
    /// None: there is vhost-user in this program.
    pub(super) fn begin(
        &self,
        options: VhostOptions,
        root: Root,
        made: Arc<Made>,
        exports: DiskExports,
    ) -> Result<(), ControlError> {
        *self.frontend.lock() = Some(Frontend { options, root, made, exports: Arc::new(exports) });
        Ok(())
    }

    /// Makes sockets for the disks of `machine` that have none and a size, and removes those of
    /// disks that are gone. The caller has the lock of a change.
    ///
    /// # Errors
    /// That of the first socket that cannot be made; it is tried again the next time.
    pub(super) fn follow(&self, machine: &Machine) -> Result<(), ControlError> {
        let Some(frontend) = self.frontend.lock().clone() else { return Ok(()) };
        let mut disks = machine.disks();
        disks.retain(|disk| disk.bytes() != 0);
        let is_there = |id: &u32| disks.iter().any(|disk| disk.id() == *id);
        let gone: Vec<Served> = {
            let mut served = self.served.lock();
            let gone: Vec<u32> = served.keys().copied().filter(|id| !is_there(id)).collect();
            gone.iter().filter_map(|id| served.remove(id)).collect()
        };
        for it in gone {
            it.server.stop();
            frontend.made.remove(&it.path);
        }
        let mut result = Ok(());
        for disk in &disks {
            if self.served.lock().contains_key(&disk.id()) {
                continue;
            }
            match frontend.serve(disk) {
                Ok(served) => _ = self.served.lock().insert(disk.id(), served),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// The socket of disk `id`.
    pub(super) fn socket(&self, id: u32) -> Option<PathBuf> {
        self.served.lock().get(&id).map(|served| served.path.clone())
    }

    fn server(&self, id: u32) -> Option<Arc<Server>> {
        self.served.lock().get(&id).map(|served| served.server.clone())
    }

    /// Tells the virtual machine of disk `id` that this has another size.
    pub(super) fn resized(&self, id: u32) {
        if let Some(server) = self.server(id) {
            server.has_new_size();
        }
    }

    /// Cuts the virtual machine of disk `id` off, after its requests under way.
    pub(super) fn disconnect(&self, id: u32) {
        if let Some(server) = self.server(id) {
            server.disconnect();
        }
    }

    /// Waits for virtual machines that are just leaving the disk `name`, or all disks.
    pub(super) fn settle(&self, name: Option<&str>, limit: Duration) {
        let ids: Vec<u32> = self.served.lock().keys().copied().collect();
        for id in ids {
            if let (true, Some(server)) =
                (name.is_none_or(|name| name == format!("zram{id}")), self.server(id))
            {
                server.settle(limit);
            }
        }
    }

    /// Removes all sockets, after the requests under way. False if a disk does not carry them out.
    pub(super) fn end(&self) -> bool {
        let Some(frontend) = self.frontend.lock().take() else { return true };
        let served = std::mem::take(&mut *self.served.lock());
        let end = |it: Served| {
            let is_done = it.server.stop();
            frontend.made.remove(&it.path);
            is_done
        };
        served.into_values().filter_map(|it| (!end(it)).then_some(())).count() == 0
    }
}

impl Frontend {
    fn serve(&self, disk: &Arc<Disk>) -> Result<Served, ControlError> {
        let name = disk.name();
        let path = self.root.vhost_socket(&name);
        let what = |e: std::io::Error| failed(format!("cannot listen at {}", path.display()), &e);
        self.made.socket(&path)?;
        let listener = UnixListener::bind(&path).map_err(what)?;
        self.give(&path).map_err(what)?;
        let exports = self.exports.clone();
        let options = Options { id: name.clone(), cpu: host::cpu, ..Options::default() };
        let open = move || exports.open(&name).map_err(|error| error.to_string());
        let server = Server::new(listener, Arc::new(open), options);
        let server = Arc::new(server.map_err(|e| failed("cannot start a vhost-user server", &e))?);
        Ok(Served { server, path })
    }

    /// Gives the socket to its user. Until then it is of the daemon's own, as all that the daemon
    /// makes.
    fn give(&self, path: &Path) -> std::io::Result<()> {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        match self.options.owner {
            Some(owner) if owner != host::effective_user() => chown(path, Some(owner), None),
            _ => Ok(()),
        }
    }
}
