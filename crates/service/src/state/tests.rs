use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use block::{BlockDevice, Plain};
use host::For;
use pagealloc::Region as Mapped;
use testkit::{Ends, TempDir};

use super::*;

/// How often the service manager looks whether the test has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// A service manager that has room for so many descriptors, and does not say when it is full.
struct Manager {
    socket: UnixDatagram,
    room: usize,
    /// The names of those that it has.
    kept: Mutex<Vec<String>>,
}

impl Manager {
    fn run(&self, ends: &AtomicBool) {
        while !ends.load(Ordering::Relaxed) {
            let until = Instant::now() + PAUSE;
            if host::wait_until(self.socket.as_fd(), For::Reading, until).unwrap() {
                self.receive();
            }
        }
    }

    fn receive(&self) {
        let mut text = [0; 256];
        let received = match host::receive_message(&self.socket, &mut text) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // Its descriptor is closed at the end: that answers a barrier.
            received => received.unwrap(),
        };
        let text = str::from_utf8(&text[..received.length]).unwrap();
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or("");
        let mut kept = self.kept.lock();
        if text.starts_with("FDSTORE=1") && kept.len() < self.room {
            kept.push(name.into());
        }
        if text.starts_with("FDSTOREREMOVE=1") {
            kept.retain(|it| it != name);
        }
    }
}

/// A new state at a service manager that listens at `path` and says that it has this much room.
fn state(path: &Path, most: usize) -> State {
    let (memory, page) = (Memfds::new(), page_bytes() as u32);
    let written = Written {
        table: Table::create(memory.file(Table::BYTES).unwrap(), page).unwrap(),
        is_kept: false,
        regions: BTreeMap::new(),
        others: BTreeMap::new(),
        files: BTreeMap::new(),
        devices: BTreeSet::new(),
        asked: Asked::new(),
    };
    State {
        store: Store::at(path.as_os_str()).unwrap(),
        most,
        memory,
        left: Vec::new(),
        is_inherited: false,
        left_swap: Mutex::new(None),
        ublks: Mutex::new(Default::default()),
        saved_at: Mutex::new(Default::default()),
        swaps: Mutex::new(Default::default()),
        file_systems: Mutex::new(Default::default()),
        backings: Arc::new(Backings::take(&mut Vec::new(), &[])),
        written: Mutex::new(written),
    }
}

/// Three regions of a generation of a disk.
fn regions(memory: &Memfds, generation: u64) -> Vec<Mapped> {
    let region = |name| memory.region(&format!("zram0.{generation}.{name}"), 1).unwrap();
    ["record", "slots", "zspages"].map(region).into()
}

/// The disk, with `path` below it.
fn disk(generation: u64, path: &str) -> Vec<Device> {
    let settings = [(backings::OF_DISK.to_owned(), path.to_owned())].into();
    vec![Device { name: "zram0".into(), bytes: 4096, generation, settings }]
}

/// A device below, which `state` holds as `path`.
fn backing(state: &State, path: &str) -> Arc<dyn BlockDevice> {
    let device: Arc<dyn BlockDevice> = Arc::new(Plain::new(4096));
    let file = File::open("/dev/null").unwrap();
    state.backings.hold(Path::new(path), file, &device).unwrap();
    device
}

/// Replaces all that a disk has while the service manager has room for `most` descriptors. Whatever
/// comes of it, the service manager has what the table names.
fn replace(most: usize) -> Result<(), String> {
    let (place, ends) = (TempDir::new(), AtomicBool::new(false));
    let path = place.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let manager = Manager { socket, room: most, kept: Mutex::new(Vec::new()) };
    thread::scope(|scope| {
        scope.spawn(|| manager.run(&ends));
        let _ends = Ends(&ends);
        let state = state(&path, most);
        let (first, below) = (regions(&state.memory, 1), backing(&state, "/a"));
        state.write(|| disk(1, "/a")).unwrap();
        assert_eq!(manager.kept.lock().len(), 5, "three regions, a backing device, the table");
        drop((first, below));
        let (_second, _below) = (regions(&state.memory, 2), backing(&state, "/b"));
        let replaced = state.write(|| disk(2, "/b")).map_err(|error| error.to_string());
        state.settle().unwrap();
        let written = state.written.lock();
        let table = written.regions.keys().map(|name| format!("{PREFIX}{name}"));
        let kept = manager.kept.lock().clone();
        for name in table.chain([TABLE.to_owned()]) {
            assert!(kept.contains(&name), "room for {most}: {name} is not among {kept:?}");
        }
        assert_eq!(kept.len(), 5, "room for {most}: {kept:?}");
        replaced
    })
}

#[test]
fn what_is_given_up_takes_room_until_the_table_is_written() {
    for most in 5..9 {
        let why = replace(most).expect_err("there is no room for both");
        assert!(why.starts_with("9 descriptors have to be kept, and"), "room for {most}: {why}");
    }
    replace(9).unwrap();
}

/// What a save that failed has given to the service manager is in no table.
#[test]
fn a_save_that_fails_leaves_nothing_with_the_service_manager() {
    let (place, ends) = (TempDir::new(), AtomicBool::new(false));
    let path = place.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let manager = Manager { socket, room: usize::MAX, kept: Mutex::new(Vec::new()) };
    thread::scope(|scope| {
        scope.spawn(|| manager.run(&ends));
        let _ends = Ends(&ends);
        let state = state(&path, 99);
        let kept = || {
            state.settle().unwrap();
            manager.kept.lock().clone()
        };
        let asked = |text: &str| state.set_asked([("a".into(), text.into())].into());
        for has_table in [false, true] {
            let before = kept();
            let refused = regions(&state.memory, 1);
            // There is no room for it in the table.
            asked(&"x".repeat(1 << 20));
            state.write(|| disk(1, "/a")).unwrap_err();
            assert_eq!(kept(), before, "{has_table}");
            drop(refused);
            asked("x");
            state.write(|| disk(1, "/a")).unwrap();
            assert_eq!(kept(), [TABLE], "{has_table}");
        }
    });
}

/// A device whose backing device was not there left what opens it to a later daemon.
#[test]
fn a_swap_device_that_is_given_up_leaves_no_region() {
    let place = TempDir::new();
    let path = place.join("notify");
    let _socket = UnixDatagram::bind(&path).unwrap();
    let (state, before) = (state(&path, 9), Memfds::new());
    for name in ["swap1.key.1", "swap1.seals.1", "swap10.seals.1", "swap.frames"] {
        let _region = before.region(name, 1).unwrap();
        let left = before.regions().remove(0);
        let file = left.file.try_clone().unwrap().into();
        state.memory.adopt(name, file, left.bytes).unwrap();
    }
    let _frames = state.memory.region("swap.frames", 1).unwrap();
    state.give_up_swap(1);
    let names = state.memory.regions().into_iter().map(|region| region.name);
    assert_eq!(names.collect::<Vec<_>>(), ["swap10.seals.1", "swap.frames"]);
}
