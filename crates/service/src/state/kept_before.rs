//! What the daemon before left, as the plan sees it.

use std::path::PathBuf;

use rampack::SavedDisk;

use super::connections::{address_of_socket, path_of_socket};
use super::handed_over::HandedOver;
use super::swaps::SavedArea;
use super::{Connection, State};
use crate::plan::{Kept, KeptArea, KeptDisk};

impl State {
    /// What the daemon before left, for [`crate::plan`]. Nothing of it was taken yet.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let handed_over = self.handed_over.lock();
        let has = |connection| handed_over.connections.contains_key(&connection);
        let ublks = self.ublks.lock();
        let files = handed_over.mount.as_ref().map(|(_, files)| files);
        let disk = |it: &SavedDisk| {
            let name = format!("zram{}", it.id);
            let has_file = files.is_some_and(|files| files.iter().any(|file| file.0 == name));
            KeptDisk { id: it.id, ublk: ublks.get(&it.id).map(|id| id.number), has_file }
        };
        let areas = self.swaps.lock();
        let area = |it: &SavedArea| KeptArea {
            number: it.number,
            ublk: it.ublk.as_ref().map(|id| id.number),
        };
        Kept {
            root: handed_over.root(),
            asked: self.is_inherited.then(|| self.written.lock().asked.clone()),
            disks: self.left.iter().map(disk).collect(),
            areas: areas.0.values().map(area).collect(),
            has_files: handed_over.mount.is_some(),
            has_control: has(Connection::Control),
            has_nbd: has(Connection::Nbd),
            nbd_tcp: handed_over.connections.get(&Connection::NbdTcp).and_then(address_of_socket),
        }
    }
}

impl HandedOver {
    /// The root of the daemon before: its sockets are there.
    fn root(&self) -> Option<PathBuf> {
        let sockets = [Connection::Control, Connection::Nbd];
        let mut paths = sockets.iter().filter_map(|it| path_of_socket(self.connections.get(it)?));
        Some(paths.next()?.parent()?.to_owned())
    }
}
