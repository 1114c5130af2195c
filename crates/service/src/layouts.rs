//! The layouts of kept state that a program reads: what must fit before one program takes over the
//! devices of another.
//!
//! `rampack layouts` prints them as JSON. A daemon asks a program for them before it lets that
//! program take its place.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process::Command;

use control::ControlError;
use host::ask;
use serde::{Deserialize, Serialize};

use crate::failure::failed;

/// Names, for the program that follows in a process, the process: a child does not take it for
/// itself.
pub const UPGRADED: &str = "RAMPACK_UPGRADED";

/// The part of a state: the table of what is kept.
pub const TABLE: &str = "table";
/// The part of a state: the record and the tables of a device.
pub const DISK: &str = "disk";

/// The part of a state: the cache of swap devices.
pub const SWAP: &str = "swap";
/// The part of a state: logs below swap devices.
pub const SWAP_LOG: &str = "swap log";
/// The layout of those. In 1 all pages had one codec.
pub const SWAP_LOG_LAYOUT: u32 = 2;

/// The layouts of one part of a state that a program reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reads {
    /// The oldest.
    pub oldest: u32,
    /// The newest, which it writes.
    pub newest: u32,
}

/// What a program says of itself. Later programs may say more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layouts {
    /// Its version.
    pub rampack: String,
    /// The layouts that it reads, by the parts of a state.
    pub reads: BTreeMap<String, Reads>,
    /// Can it say in a rehearsal whether it could take over (`crate::rehearsal`)?
    #[serde(default)]
    pub rehearses: bool,
}

/// A part of a state, and its layout there.
pub type PartLayout = (&'static str, u32);

impl Layouts {
    /// Those of this program.
    #[must_use]
    pub fn own() -> Layouts {
        let table = Reads { oldest: kept::OLDEST_LAYOUT, newest: kept::LAYOUT };
        let disk = Reads { oldest: zram::OLDEST_LAYOUT, newest: zram::LAYOUT };
        let swap = Reads { oldest: zswap::OLDEST_LAYOUT, newest: zswap::LAYOUT };
        let log = Reads { oldest: 1, newest: SWAP_LOG_LAYOUT };
        let reads = [(TABLE, table), (DISK, disk), (SWAP, swap), (SWAP_LOG, log)];
        let reads = reads.into_iter().map(|(part, reads)| (part.to_owned(), reads)).collect();
        Layouts { rampack: env!("CARGO_PKG_VERSION").to_owned(), reads, rehearses: true }
    }

    /// Asks the program at `path`, and waits for its answer for ten seconds.
    ///
    /// # Errors
    /// `EINVAL` for a program that has none to tell, `ETIMEDOUT`, the error of the system if it
    /// cannot be run.
    pub fn of(path: &Path) -> Result<Layouts, ControlError> {
        let name = path.display();
        let mut command = Command::new(path);
        // It is no service, and its devices are not these.
        for variable in ["NOTIFY_SOCKET", "FDSTORE", "LISTEN_PID", "WATCHDOG_USEC", UPGRADED] {
            command.env_remove(variable);
        }
        let asked = ask(command.arg("layouts"));
        let (status, text) = asked.map_err(|error| failed(format!("cannot run {name}"), &error))?;
        serde_json::from_slice(&text).ok().filter(|_| status.success()).ok_or_else(|| {
            ControlError::invalid(format!(
                "{name} is no rampack that takes over kept devices: `{name} layouts` told no \
                 layouts ({status})"
            ))
        })
    }

    /// Checks that the program at `path`, which said this, reads a state of these `parts`.
    ///
    /// # Errors
    /// `EINVAL`; the message names the first part that it does not read.
    pub fn check(&self, path: &Path, parts: &[PartLayout]) -> Result<(), ControlError> {
        let name = path.display();
        for (part, layout) in parts {
            let text = match self.reads.get(*part) {
                Some(reads) if (reads.oldest..=reads.newest).contains(layout) => continue,
                Some(Reads { oldest, newest }) => format!(
                    "{name} (rampack {}) reads layouts {oldest}..={newest} of the {part}, and this \
                     state has layout {layout}",
                    self.rampack
                ),
                None => format!(
                    "{name} (rampack {}) reads no {part}, and this state has one of layout \
                     {layout}",
                    self.rampack
                ),
            };
            return Err(ControlError::invalid(text));
        }
        Ok(())
    }
}

/// Did another program serve in this process before, and hand its devices over?
#[must_use]
pub fn is_upgrade() -> bool {
    let own = std::process::id().to_string();
    env::var(UPGRADED).is_ok_and(|process| process == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_must_read_each_part() {
        let reads = |oldest, newest| Reads { oldest, newest };
        let parts = [(TABLE, 2), (DISK, 1)];
        let path = Path::new("/opt/rampack");
        let judged = |table: Reads, disk: Option<Reads>| {
            let disk = disk.map(|reads| (DISK.to_owned(), reads));
            let reads = disk.into_iter().chain([(TABLE.to_owned(), table)]).collect();
            let layouts = Layouts { rampack: "7.1".into(), reads, rehearses: false };
            layouts.check(path, &parts).map_err(|error| error.message)
        };
        assert_eq!(judged(reads(1, 2), Some(reads(1, 1))), Ok(()));
        assert_eq!(judged(reads(2, 9), Some(reads(1, 4))), Ok(()));
        assert_eq!(
            judged(reads(1, 1), Some(reads(1, 1))).unwrap_err(),
            "/opt/rampack (rampack 7.1) reads layouts 1..=1 of the table, and this state has \
             layout 2"
        );
        assert!(judged(reads(3, 5), Some(reads(1, 1))).unwrap_err().contains("3..=5"));
        assert!(judged(reads(2, 2), Some(reads(2, 2))).unwrap_err().contains("2..=2 of the disk"));
        assert_eq!(
            judged(reads(2, 2), None).unwrap_err(),
            "/opt/rampack (rampack 7.1) reads no disk, and this state has one of layout 1"
        );
    }

    #[test]
    fn this_program_reads_what_it_writes() {
        let own = Layouts::own();
        let parts = [(TABLE, kept::LAYOUT), (DISK, zram::LAYOUT), (SWAP, zswap::LAYOUT)];
        own.check(Path::new("own"), &parts).unwrap();
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<Layouts>(&text).unwrap(), own);
    }
}
