//! What the daemon before left, as the plan sees it.

use zram::SavedDisk;

use super::connections::{address_of_socket, path_of_socket};
use super::swaps::SavedArea;
use super::{Connection, State};
use crate::plan::{Kept, KeptArea, KeptDisk};

impl State {
    /// What the daemon before left, for [`crate::plan`]. Nothing of it was taken yet.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let written = self.written.lock();
        let has = |connection| written.left(connection).is_some();
        let has_files = has(Connection::Files);
        let ublks = self.ublks.lock();
        let disk = |it: &SavedDisk| {
            let has_file = has_files && written.files.contains_key(&format!("zram{}", it.id));
            KeptDisk { id: it.id, ublk: ublks.get(&it.id).map(|id| id.number), has_file }
        };
        let areas = self.swaps.lock();
        let area = |it: &SavedArea| KeptArea {
            number: it.number,
            ublk: it.ublk.as_ref().map(|id| id.number),
        };
        // The sockets are in the root of the daemon before.
        let sockets = [Connection::Control, Connection::Nbd];
        let mut paths = sockets.iter().filter_map(|it| path_of_socket(written.left(*it)?));
        Kept {
            root: paths.next().and_then(|path| Some(path.parent()?.to_owned())),
            asked: self.is_inherited.then(|| written.asked.clone()),
            disks: self.left.iter().map(disk).collect(),
            areas: areas.0.values().map(area).collect(),
            has_files,
            has_control: has(Connection::Control),
            has_nbd: has(Connection::Nbd),
            nbd_tcp: written.left(Connection::NbdTcp).and_then(address_of_socket),
        }
    }
}
