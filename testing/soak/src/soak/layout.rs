//! Who works on which pages of which device, and what the processes of a soak say to each other.
//! Each process gets its part as JSON on its command line, and says lines of JSON.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::admin::Acts;
use super::worker::{Counts, Share};

/// A kind of way to the pages.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Transport {
    /// Calls of the library, in the process of the server
    Library,
    /// NBD over a Unix socket
    Nbd,
    /// A file of a FUSE mount
    Fuse,
    /// A loop device on such a file
    Loop,
    /// Swap areas with the cache in front of a file: by calls, and through the file for swap below
    /// a loop device
    Swap,
}

impl Transport {
    /// All of them.
    pub const ALL: [Transport; 5] =
        [Transport::Library, Transport::Nbd, Transport::Fuse, Transport::Loop, Transport::Swap];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Library => "library",
            Transport::Nbd => "nbd",
            Transport::Fuse => "fuse",
            Transport::Loop => "loop",
            Transport::Swap => "swap",
        }
    }
}

/// The disks; the numbers of devices from here on are swap areas.
pub const DISKS: u32 = 2;
/// The swap area whose pages are reached through a loop device.
pub const SERVED_AREA: u32 = DISKS;
/// The swap area whose pages are reached by calls.
pub const CALLED_AREA: u32 = DISKS + 1;

/// A worker of the soak.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub struct Place {
    pub transport: Transport,
    /// It is a thread of the server.
    pub inside: bool,
    pub share: Share,
}

/// The workers for these transports, each with `pages` pages.
pub fn places(transports: &[Transport], pages: usize, seed: u64) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut add = |transport, device, inside| {
        let own = places.iter().filter(|place| place.share.device == device);
        let first = own.map(|place| place.share.pages as u64).sum();
        let seed = seed.wrapping_add(places.len() as u64 * 0x1_0001);
        places.push(Place { transport, inside, share: Share { device, first, pages, seed } });
    };
    for transport in transports {
        match transport {
            Transport::Library => (0..DISKS).for_each(|disk| add(*transport, disk, true)),
            Transport::Nbd => (0..DISKS + 1).for_each(|n| add(*transport, n % DISKS, false)),
            Transport::Fuse => add(*transport, 0, false),
            Transport::Loop => add(*transport, 1, false),
            Transport::Swap => {
                add(*transport, CALLED_AREA, true);
                // Without /dev/fuse the area is reached by calls alone.
                if transports.contains(&Transport::Fuse) || transports.contains(&Transport::Loop) {
                    add(*transport, SERVED_AREA, false);
                }
            }
        }
    }
    places
}

/// The pages of a device that somebody owns.
pub fn pages_of(places: &[Place], device: u32) -> u64 {
    let own = places.iter().filter(|place| place.share.device == device);
    own.map(|place| place.share.pages as u64).sum()
}

/// What a process of a soak is.
#[derive(Serialize, Deserialize, Debug)]
pub enum Part {
    Server(ServerPart),
    Client(ClientPart),
}

/// The server of a soak.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct ServerPart {
    pub directory: PathBuf,
    pub seed: u64,
    pub places: Vec<Place>,
    /// Its disks now and then answer an old page.
    pub stale: bool,
}

impl ServerPart {
    pub fn socket(&self) -> PathBuf {
        self.directory.join("nbd.sock")
    }
    pub fn mount(&self) -> PathBuf {
        self.directory.join("files")
    }
    pub fn swap_file(&self) -> PathBuf {
        self.directory.join("swap")
    }
    pub fn backing(&self, device: u32) -> PathBuf {
        self.directory.join(format!("backing{device}"))
    }
    pub fn uses(&self, transport: Transport) -> bool {
        self.places.iter().any(|place| place.transport == transport)
    }
}

/// The name of a disk's export and file.
pub fn disk_name(device: u32) -> String {
    format!("disk{device}")
}

/// A client of a soak.
#[derive(Serialize, Deserialize, Debug)]
pub struct ClientPart {
    pub share: Share,
    pub way: Way,
    /// The file of its versions.
    pub log: PathBuf,
}

/// Where a client finds its pages.
#[derive(Serialize, Deserialize, Debug)]
pub enum Way {
    Nbd { socket: PathBuf, export: String },
    File(PathBuf),
    Block(PathBuf),
}

impl Way {
    /// The way of the client of `place`.
    pub fn of(place: &Place, server: &ServerPart, blocks: &Blocks) -> Way {
        let device = place.share.device;
        let block = |path: &Option<PathBuf>| Way::Block(path.clone().unwrap_or_default());
        match place.transport {
            Transport::Fuse => Way::File(server.mount().join(disk_name(device))),
            Transport::Loop => block(&blocks.disk),
            Transport::Swap => block(&blocks.swap),
            Transport::Nbd | Transport::Library => {
                Way::Nbd { socket: server.socket(), export: disk_name(device) }
            }
        }
    }
}

/// The loop devices of a server.
#[derive(Clone, Default, Serialize, Deserialize, Debug)]
pub struct Blocks {
    pub disk: Option<PathBuf>,
    pub swap: Option<PathBuf>,
}

/// What a server says now and then.
#[derive(Clone, Default, Serialize, Deserialize, Debug)]
pub struct Status {
    /// Its loop devices, when it serves all.
    pub ready: Option<Blocks>,
    /// The counts of the workers in it, in their order.
    pub inside: Vec<Counts>,
    /// Its NBD connections.
    pub connections: usize,
    /// Operations of backing devices that failed.
    pub faults: u64,
    pub acts: Acts,
}

/// The file of the versions of worker `number`.
pub fn log_of(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("versions{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_has_two_owners() {
        let places = places(&Transport::ALL, 100, 1);
        for (number, one) in places.iter().enumerate() {
            for other in &places[..number] {
                let apart = one.share.device != other.share.device
                    || one.share.first >= other.share.first + 100
                    || other.share.first >= one.share.first + 100;
                assert!(apart, "{one:?} and {other:?}");
                assert_ne!(one.share.seed, other.share.seed);
            }
        }
        assert_eq!((0..4).map(|device| pages_of(&places, device)).sum::<u64>(), 900);
        assert!(pages_of(&places, 0) > 0 && pages_of(&places, CALLED_AREA) == 100);
    }
}
