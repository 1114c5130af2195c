use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use machine::MachineOptions;
use nbd::{Exports, OpenError};
use units::Cpu;
use zram::HostFiles;

use super::*;
use crate::exports::DiskExports;

fn devices() -> Devices {
    let dir = Path::new("/nonexistent/rampack");
    let root = Root::choose(Some(dir)).unwrap();
    let machine = crate::engine::new().unwrap();
    let devices = Devices::new(root, machine, None);
    devices.serve_nbd(vec!["nbd+unix:///?socket=/s".into()], None);
    devices
}

fn sized(size: &str) -> Add {
    Add { size: Some(size.into()), ..Add::default() }
}

#[test]
fn uris_name_the_device_before_the_query() {
    let unix = "nbd+unix:///?socket=/run/a%20b/nbd.sock";
    assert_eq!(export_uri(unix, "zram0"), "nbd+unix:///zram0?socket=/run/a%20b/nbd.sock");
    assert_eq!(export_uri("nbd://[::1]:10809", "zram1"), "nbd://[::1]:10809/zram1");
}

#[test]
fn devices_come_with_the_lowest_number_and_go() {
    let devices = devices();
    for name in ["zram0", "zram1", "zram2"] {
        assert_eq!(devices.add(&Add::default()).unwrap().name(), name);
    }
    devices.remove("zram1", false).unwrap();
    assert_eq!(devices.add(&sized("1M")).unwrap().name(), "zram1");
    let names: Vec<String> = devices.reports().into_iter().map(|r| r.name).collect();
    assert_eq!(names, ["zram0", "zram1", "zram2"]);
    assert_eq!(devices.reports()[1].nbd, ["nbd+unix:///zram1?socket=/s"]);
    assert!(devices.reports()[0].nbd.is_empty(), "a device without a size cannot be reached");
}

#[test]
fn an_unknown_device_is_told_the_known_ones() {
    let devices = devices();
    let fault = devices.remove("zram0", false).unwrap_err();
    assert_eq!(fault.errno, Errno::ENODEV);
    assert!(fault.message.contains("rampack add"), "{fault}");
    devices.add(&Add::default()).unwrap();
    let fault = devices.get("zram7", &[]).unwrap_err();
    assert!(fault.message.contains("\"zram7\"") && fault.message.contains("zram0"), "{fault}");
    assert!(devices.get("/run/rampack/dev/zram0", &[]).is_ok(), "a path does as well");
}

#[test]
fn a_device_that_cannot_be_made_leaves_nothing() {
    let devices = devices();
    for options in [
        Add { algorithm: Some("lzma".into()), ..sized("1M") },
        Add { mem_limit: Some("much".into()), ..sized("1M") },
        Add { level: Some(12345), algorithm: Some("zstd".into()), ..sized("1M") },
        sized("0"),
        sized("1Mx"),
    ] {
        let fault = devices.add(&options).err().unwrap_or_else(|| panic!("{options:?}"));
        assert_eq!(fault.errno, Errno::EINVAL, "{options:?}: {fault}");
        assert!(devices.reports().is_empty());
    }
}

#[test]
fn a_file_has_the_snapshot_of_one_device() {
    let dir = testkit::TempDir::new();
    let devices = devices();
    let saved = |path: &Path| Add { snapshot: Some(machine::text_of(path)), ..sized("1M") };
    let (one, other) = (dir.join("one"), dir.join("other"));
    devices.add(&saved(&one)).unwrap();
    let again = dir.join("..").join(dir.path().file_name().unwrap()).join("one");
    let fault = devices.add(&saved(&again)).err().unwrap();
    assert_eq!(fault.errno, Errno::EBUSY);
    assert!(fault.message.contains("zram0 is saved there"), "{fault}");
    devices.add(&saved(&other)).unwrap();
    let save_to = |path: &Path| devices.save_to([(1, Some(path.to_owned()))].into());
    assert_eq!(save_to(&again)[&1].errno, Errno::EBUSY);
    assert!(save_to(&other).is_empty());
    devices.remove("zram0", false).unwrap();
    assert!(save_to(&again).is_empty());
}

#[test]
fn devices_exchange_the_files_that_they_are_saved_to() {
    let dir = testkit::TempDir::new();
    let devices = devices();
    let files = ["one", "other", "none/file"].map(|name| machine::text_of(&dir.join(name)));
    let [one, other, nowhere] = &files;
    for file in [one, other] {
        devices.add(&Add { snapshot: Some(file.clone()), ..sized("1M") }).unwrap();
    }
    let set = |first: &str, second: &str| {
        let changes = [("zram0/snapshot", first), ("zram1/snapshot", second)];
        let changes = changes.map(|(option, value)| (option.to_owned(), value.to_owned()));
        let failed = devices.set_all(&changes.into()).failed;
        failed.into_iter().map(|(option, _)| option).collect::<Vec<_>>()
    };
    let are_at = |first: &str, second: &str| {
        let at = [(0, first), (1, second)].map(|(id, path)| (id, machine::path_of(path)));
        *devices.saved_at.lock() == at.into()
    };
    assert_eq!(set(other, one), [""; 0]);
    assert!(are_at(other, one));
    // The one that stays where it is keeps the other from there.
    assert_eq!(set(nowhere, other), ["zram0/snapshot", "zram1/snapshot"]);
    assert!(are_at(other, one));
    // Two never share a file.
    assert_eq!(set(one, one), ["zram0/snapshot"]);
    assert!(are_at(other, one));
    // What was saved before is only that of its own device.
    let old = machine::text_of(&dir.join("old"));
    for file in [one, other, &old] {
        std::fs::write(machine::path_of(file), "saved before").unwrap();
    }
    assert_eq!(set(one, &old), ["zram0/snapshot", "zram1/snapshot"]);
    assert_eq!(set(one, other), ["zram0/snapshot", "zram1/snapshot"]);
    assert_eq!(set(other, one), [""; 0]);
    assert!(are_at(other, one));
    for file in [one, other] {
        std::fs::remove_file(machine::path_of(file)).unwrap();
    }
    assert_eq!(set("", other), [""; 0]);
    assert_eq!(*devices.saved_at.lock(), [(1, machine::path_of(other))].into());
}

/// What cannot be restored is put aside: here it would be all that somebody has.
#[test]
fn a_directory_in_the_place_of_a_snapshot_stays() {
    let dir = testkit::TempDir::new();
    let there = dir.join("there");
    std::fs::create_dir(&there).unwrap();
    std::fs::write(there.join("precious"), "").unwrap();
    let devices = devices();
    let add = Add { snapshot: Some(machine::text_of(&there)), ..sized("1M") };
    let fault = devices.add(&add).err().unwrap();
    assert_eq!(fault.errno, Errno::EISDIR, "{fault}");
    assert!(there.join("precious").exists() && devices.numbers().is_empty());
}

#[test]
fn options_become_attributes() {
    let devices = devices();
    let options = Add {
        algorithm: Some("zstd".into()),
        level: Some(-1),
        mem_limit: Some("8M".into()),
        ..sized("64M")
    };
    devices.add(&options).unwrap();
    let value = |name: &str| devices.get("zram0", &[name.into()]).unwrap()[0].value.clone();
    assert_eq!(value("disksize"), (64 << 20).to_string());
    assert!(value("comp_algorithm").contains("[zstd]"));
    assert_eq!(value("mm_stat").split_whitespace().nth(3), Some("8388608"));
}

#[test]
fn the_algorithm_is_fixed_once_there_is_a_size() {
    let devices = devices();
    devices.add(&sized("1M")).unwrap();
    let fault = devices.set("zram0", "comp_algorithm", "zstd").unwrap_err();
    assert_eq!(fault.errno, Errno::EBUSY);
    assert_eq!(devices.set("zram0", "disksize", "2M").unwrap_err().errno, Errno::EBUSY);
    devices.set("zram0", "reset", "1").unwrap();
    devices.set("zram0", "comp_algorithm", "zstd").unwrap();
    devices.set("zram0", "disksize", "2M\n").unwrap();
}

#[test]
fn a_device_with_users_is_neither_reset_nor_removed() {
    let devices = devices();
    let disk = devices.add(&sized("1M")).unwrap();
    let user = disk.open();
    for refused in [
        devices.reset("zram0", "1", false),
        devices.reset("zram0", "1", true),
        devices.set("zram0", "reset", "1"),
        devices.remove("zram0", false),
        devices.stop(false),
    ] {
        let fault = refused.unwrap_err();
        assert_eq!(fault.errno, Errno::EBUSY);
        assert!(fault.message.contains("1 NBD client"), "{fault}");
    }
    assert_eq!(devices.reset("zram0", "0", false).unwrap_err().errno, Errno::EINVAL);
    assert_eq!(devices.reports()[0].nbd_clients, 1);
    drop(user);
    devices.reset("zram0", "1", false).unwrap();
    devices.remove("zram0", false).unwrap();
}

/// A client that has chosen an export.
fn client(server: &Server, name: &str) -> UnixStream {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    server.spawn(nbd::Stream::from(theirs)).unwrap();
    let length = (name.len() as u32).to_be_bytes();
    let export_name = [b"\0\0\0\x03IHAVEOPT\0\0\0\x01", &length[..], name.as_bytes()].concat();
    ours.write_all(&export_name).unwrap();
    ours.read_exact(&mut [0; 18 + 10]).unwrap();
    ours
}

#[test]
fn a_client_that_has_just_gone_is_no_user() {
    let devices = devices();
    let exports = crate::exports::DiskExports::new(devices.machine().clone(), false, None);
    let server = Arc::new(Server::new(Arc::new(exports), nbd::Options::default()).unwrap());
    devices.serve_nbd(Vec::new(), Some(server.clone()));
    // The server notices a moment later.
    for round in 0..100 {
        devices.add(&sized("1M")).unwrap();
        drop(client(&server, "zram0"));
        match round % 3 {
            0 => devices.remove("zram0", false).unwrap(),
            1 => devices.reset("/run/rampack/dev/zram0", "1", false).unwrap(),
            _ => devices.set("zram0", "reset", "1").unwrap(),
        }
        if round % 3 != 0 {
            devices.remove("zram0", false).unwrap();
        }
    }
    server.shutdown();
    assert!(server.join());
}

#[test]
fn clients_that_connect_again_at_once_keep_no_device_from_force() {
    let devices = devices();
    let server = Server::new(Arc::new(devices.exports(false)), nbd::Options::default()).unwrap();
    let server = Arc::new(server);
    devices.serve_nbd(Vec::new(), Some(server.clone()));
    let over = std::sync::atomic::AtomicBool::new(false);
    let mut refused = Vec::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let (mut ours, theirs) = UnixStream::pair().unwrap();
                    server.spawn(nbd::Stream::from(theirs)).unwrap();
                    let export_name = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x05zram0";
                    let _ = ours.write_all(export_name);
                    // Until it is cut off, or refused.
                    let _ = ours.read_to_end(&mut Vec::new());
                }
            });
        }
        let _ends = testkit::Ends(&over);
        for _ in 0..200 {
            devices.add(&sized("64K")).unwrap();
            refused.extend(devices.reset("zram0", "1", true).err());
            refused.extend(devices.remove("zram0", true).err());
            let end = Instant::now() + Duration::from_secs(60);
            while !names(&devices).is_empty() && devices.remove("zram0", true).is_err() {
                assert!(Instant::now() < end, "it is always refused");
            }
        }
    });
    let count = refused.len();
    assert!(refused.is_empty(), "{count} times, first: {}", refused[0]);
    server.shutdown();
    assert!(server.join());
}

#[test]
fn nothing_comes_after_the_stop() {
    let devices = devices();
    devices.add(&sized("1M")).unwrap();
    devices.stop(false).unwrap();
    assert!(devices.add(&Add::default()).is_err());
    assert!(devices.reset("zram0", "1", false).is_err());
    devices.stop(false).unwrap();
}

#[test]
fn every_attribute_that_can_be_read_is() {
    let devices = devices();
    devices.add(&Add::default()).unwrap();
    let values = devices.get("zram0", &[]).unwrap();
    let rows = devices.describe("zram0").unwrap();
    // What only its owner may read is told when it is asked for by name.
    let readable = rows.iter().filter(|row| row.mode & 0o044 != 0);
    assert_eq!(values.len(), readable.count());
    for name in ["disksize", "initstate", "comp_algorithm", "mm_stat", "io_stat"] {
        assert!(values.iter().any(|value| value.name == name), "{name}");
    }
    let fault = devices.get("zram0", &["colour".into()]).unwrap_err();
    assert!(fault.message.contains("disksize"), "{fault}");
    assert_eq!(devices.get("zram0", &["reset".into()]).unwrap_err().errno, Errno::EACCES);
}

#[test]
fn the_path_of_the_backing_device_is_the_resolved_one() {
    let dir = testkit::TempDir::new();
    let real = dir.path().canonicalize().unwrap().join("file");
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(&real).unwrap();
    file.set_len(1 << 20).unwrap();
    drop(file);
    let (link, to_dir) = (dir.path().join("link"), dir.path().join("dir"));
    std::os::unix::fs::symlink(&real, &link).unwrap();
    std::os::unix::fs::symlink(dir.path(), &to_dir).unwrap();
    let devices = devices();
    devices.add(&Add::default()).unwrap();
    for path in [link, to_dir.join("./file"), real.clone()] {
        devices.set("zram0", "backing_dev", &format!("{}\n", path.display())).unwrap();
        let shown = devices.get("zram0", &["backing_dev".into()]).unwrap()[0].value.clone();
        assert_eq!(shown, real.to_str().unwrap());
    }
    let fault = devices.set("zram0", "backing_dev", "/nonexistent/../file").unwrap_err();
    assert!(fault.message.contains("/nonexistent/../file"), "{fault}");
}

fn names(devices: &Devices) -> Vec<String> {
    devices.reports().into_iter().map(|report| report.name).collect()
}

#[test]
fn loading_makes_the_devices_that_are_missing() {
    let devices = devices();
    assert!(devices.is_loaded(), "from the start");
    devices.add(&sized("1M")).unwrap();
    devices.add(&Add::default()).unwrap();
    devices.remove("zram0", false).unwrap();
    devices.load(1).unwrap();
    assert_eq!(names(&devices), ["zram0", "zram1"]);
    devices.load(4).unwrap();
    assert_eq!(names(&devices), ["zram0", "zram1", "zram2", "zram3"]);
    devices.load(2).unwrap();
    devices.load(0).unwrap();
    assert_eq!(names(&devices).len(), 4);
    assert_eq!(devices.load(1025).unwrap_err().errno, Errno::EINVAL);
}

#[test]
fn unloading_removes_all_devices_or_none() {
    let devices = devices();
    devices.load(3).unwrap();
    devices.set("zram1", "disksize", "1M").unwrap();
    let user = devices.disk("zram1").unwrap().open();
    assert_eq!(devices.count_used(), 1);
    let fault = devices.unload().unwrap_err();
    assert_eq!(fault.errno, Errno::EBUSY);
    assert!(fault.message.contains("zram1 is in use: 1 NBD client"), "{fault}");
    assert_eq!(names(&devices).len(), 3);
    assert!(devices.is_loaded());
    drop(user);
    assert_eq!(devices.count_used(), 0);
    devices.unload().unwrap();
    assert!(names(&devices).is_empty() && !devices.is_loaded());
    devices.unload().unwrap();
    devices.load(0).unwrap();
    assert!(devices.is_loaded());
    devices.unload().unwrap();
    devices.add(&Add::default()).unwrap();
    assert!(devices.is_loaded(), "there is a device");
    devices.stop(false).unwrap();
    assert!(devices.unload().is_err() && devices.load(2).is_err());
}

#[test]
fn numbers_of_devices_are_read_as_the_kernel_does() {
    for (text, count) in [("4", 4), ("4\n", 4), ("0", 0), ("0x1F", 31), ("010", 8), ("00", 0)] {
        assert_eq!(device_count(text).unwrap(), count, "{text}");
    }
    for text in ["", "-1", "+1", "four", "0x", "08", "4 5", "99999999999"] {
        let fault = device_count(text).unwrap_err();
        assert_eq!(fault.errno, Errno::EINVAL, "{text}");
        assert!(fault.message.contains("num_devices"), "{fault}");
    }
}

/// Runs `look` on a thread; it must end though this thread holds the locks of an administrator.
fn ends_beside<R: Send + 'static>(
    devices: &Arc<Devices>,
    look: impl FnOnce(&Arc<Devices>) -> R + Send + 'static,
) -> R {
    let (_loading, _lifecycle) = (devices.loading.lock(), devices.lifecycle.lock());
    let (sender, looked) = std::sync::mpsc::channel();
    let devices = devices.clone();
    thread::spawn(move || sender.send(look(&devices)));
    looked.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for nobody")
}

#[test]
fn who_looks_waits_for_nobody() {
    let devices = Arc::new(devices());
    let disk = devices.add(&sized("1M")).unwrap();
    assert_eq!(ends_beside(&devices, |devices| devices.count_used()), 0);
    let user = disk.open();
    assert_eq!(ends_beside(&devices, |devices| devices.count_used()), 1);
    drop(user);
    assert_eq!(ends_beside(&devices, |devices| devices.reports()).len(), 1);
}

#[test]
fn others_have_their_turn_while_a_device_is_open() {
    let devices = Arc::new(devices());
    let waiting = devices.clone();
    let way = || Box::new(Way::File(attached::Attachment::default()));
    // It is open until there is a device, which somebody else adds meanwhile.
    let (begun, has_begun) = std::sync::mpsc::channel();
    let waiting = thread::spawn(move || {
        waiting.when_closed(|_| {
            let _ = begun.send(());
            match waiting.machine().disks().len() {
                0 => Err(Refusal::InUse("zram9".into(), way(), Hold::Open)),
                _ => Ok(()),
            }
        })
    });
    has_begun.recv().unwrap();
    devices.add(&Add::default()).unwrap();
    waiting.join().unwrap().expect("the device came while it waited");
    let claimed =
        devices.when_closed(|_| Err(Refusal::InUse("zram9".into(), way(), Hold::Claimed)));
    assert_eq!(claimed.unwrap_err().errno, Errno::EBUSY);
}

#[test]
fn a_client_of_a_device_without_a_size_is_told_what_to_do() {
    let devices = devices();
    devices.add(&Add::default()).unwrap();
    let exports = DiskExports::new(devices.machine().clone(), false, None);
    let Err(OpenError::Refused(why)) = exports.open("zram0") else { panic!("it is refused") };
    assert_eq!(why, "zram0 has no size yet: rampack set zram0 disksize=SIZE");
    devices.set("zram0", "disksize", "1M").unwrap();
    assert!(exports.open("zram0").is_ok());
}

#[test]
fn nothing_changes_while_changes_stand_still() {
    let devices = Arc::new(devices());
    devices.add(&sized("1M")).unwrap();
    let under_way = devices.changes().begin().unwrap();
    assert!(devices.changes().stand_still().is_none());
    devices.add(&Add::default()).expect("it may have parts");
    drop(under_way);
    let store = |path: &str, name: &str, value: &str| {
        crate::tree::attribute(&devices, path, name).unwrap().store(value)
    };
    let still = devices.changes().stand_still().expect("nothing is under way");
    for refused in [
        devices.add(&Add::default()).map(drop),
        store("zram0", "mem_limit", "1M"),
        store("zram0", "reset", "1"),
        store("class/zram-control", "hot_remove", "1"),
        store("class/zram-control", "load", "4"),
        store("class/zram-control", "unload", "1"),
        store("module/zswap/parameters", "max_pool_percent", "10"),
    ] {
        let fault = refused.unwrap_err();
        assert_eq!(fault.errno, Errno::EBUSY, "{fault}");
        assert!(fault.message.contains("being handed over"), "{fault}");
    }
    assert_eq!(names(&devices), ["zram0", "zram1"]);
    drop(still);
    store("class/zram-control", "unload", "1").unwrap();
}

#[test]
fn no_client_comes_while_all_devices_are_taken_away() {
    let devices = devices();
    let exports = DiskExports::new(devices.machine().clone(), false, None);
    let exports = exports.by(devices.admission().clone());
    devices.add(&sized("1M")).unwrap();
    let closed = devices.admission().close();
    let Err(OpenError::Refused(why)) = exports.open("zram0") else { panic!("it is refused") };
    assert!(why.contains("taken away"), "{why}");
    drop(closed);
    let client = exports.open("zram0").expect("it is there on");
    assert_eq!(devices.unload().unwrap_err().errno, Errno::EBUSY);
    drop(client);
    drop(exports.open("zram0").expect("unloading was refused"));
    devices.unload().unwrap();
    // All go, or none, whoever comes meanwhile.
    let (over, is_over) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while is_over.try_recv() == Err(TryRecvError::Empty) {
                (0..4).for_each(|id| drop(exports.open(&format!("zram{id}"))));
            }
        });
        // It ends with this, also with a panic.
        let _over = over;
        let end = Instant::now() + Duration::from_secs(120);
        for _ in 0..100 {
            devices.load(4).unwrap();
            (0..4).for_each(|id| devices.set(&format!("zram{id}"), "disksize", "64K").unwrap());
            while devices.unload().is_err() {
                assert_eq!(names(&devices).len(), 4);
                assert!(Instant::now() < end, "it is always refused");
            }
        }
    });
}

#[test]
fn no_device_is_cloned_while_all_are_removed() {
    let devices = Arc::new(devices());
    devices.add(&sized("64K")).unwrap();
    let unloading = devices.loading.lock();
    let clones = devices.clone();
    let cloning = thread::spawn(move || clones.clone_device("zram0").map(|it| it.name()));
    thread::sleep(Duration::from_millis(50));
    assert_eq!(names(&devices), ["zram0"]);
    drop(unloading);
    assert_eq!(cloning.join().unwrap().unwrap(), "zram1");
    // A clone that takes long holds up no other one, and the removal of all is refused meanwhile.
    *devices.cloning.lock() += 1;
    assert_eq!(devices.clone_device("zram0").unwrap().name(), "zram2");
    assert!(devices.unload().unwrap_err().to_string().contains("a clone is being made"));
    *devices.cloning.lock() -= 1;
    devices.unload().unwrap();
}

/// A backing device whose writes are held.
struct Held {
    next: Plain,
    begun: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl BlockDevice for Held {
    fn geometry(&self) -> Geometry {
        self.next.geometry()
    }

    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if matches!(operation, Operation::Write { .. }) {
            let _ = self.begun.lock().send(());
            let _ = self.go_on.lock().recv();
        }
        self.next.perform(context, operation)
    }
}

struct HeldFiles(Arc<Held>);

impl HostFiles for HeldFiles {
    fn open_backing(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn BlockDevice>, ControlError> {
        Ok(self.0.clone())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(ControlError::invalid(path))
    }
}

#[test]
fn nobody_waits_for_the_reset_of_a_disk_that_is_written_back() {
    let ((begun, has_begun), (go_on, may_go_on)) = (channel(), channel());
    let (begun, go_on_at) = (Mutex::new(begun), Mutex::new(may_go_on));
    let held = Held { next: Plain::new(64 << 12), begun, go_on: go_on_at };
    let files = Arc::new(HeldFiles(Arc::new(held)));
    let options = MachineOptions { files, ..MachineOptions::of_this_system() };
    let machine = Arc::new(Machine::new(Arc::new(host::Mmap), options).unwrap());
    let root = Root::choose(Some(Path::new("/nonexistent/rampack"))).unwrap();
    let devices = Arc::new(Devices::new(root, machine, None));
    let dir = testkit::TempDir::new();
    let disk = devices.add(&Add::default()).unwrap();
    devices.set("zram0", "backing_dev", &dir.join("file").display().to_string()).unwrap();
    devices.set("zram0", "disksize", "1M").unwrap();
    let page: Vec<u8> = (0..4096u32).map(|at| ((at * at) >> 3) as u8).collect();
    let write = Operation::Write { offset: 0, from: &page };
    disk.perform(Context::waiting(Cpu(0)), write).unwrap();
    let on = |what: fn(&Devices) -> Result<(), ControlError>| {
        let devices = devices.clone();
        thread::spawn(move || what(&devices))
    };
    let writing = on(|devices| devices.set("zram0", "writeback", "page_index=0"));
    has_begun.recv_timeout(Duration::from_secs(60)).expect("it is written back");
    let waiting = [
        on(|devices| devices.reset("zram0", "1", false)),
        on(|devices| devices.set("zram0", "resize", "2M").or(Ok(()))),
        on(|devices| devices.set("zram0", "reset", "1").or(Ok(()))),
    ];
    // Whatever they do by now, others have their turn.
    let (sender, made) = channel();
    let others = devices.clone();
    thread::spawn(move || {
        for _ in 0..100 {
            let _ = sender
                .send(others.add(&sized("1M")).and_then(|it| others.remove(&it.name(), false)));
        }
    });
    for _ in 0..100 {
        made.recv_timeout(Duration::from_secs(60)).expect("nobody waits").unwrap();
    }
    assert_eq!(disk.bytes(), 1 << 20);
    drop(go_on);
    let _ = writing.join().unwrap();
    waiting.into_iter().for_each(|it| it.join().unwrap().unwrap());
    assert_eq!(disk.bytes(), 0);
}

#[test]
fn a_disk_that_was_cut_off_replaces_nothing_that_was_saved() {
    let dir = testkit::TempDir::new();
    let path = dir.join("saved");
    let devices = devices();
    let snapshot = Some(machine::text_of(&path));
    devices.add(&Add { snapshot, ..sized("1M") }).unwrap();
    std::fs::write(&path, "good").unwrap();
    devices.waits.note_cut();
    devices.save_by_force();
    assert_eq!(std::fs::read(&path).unwrap(), b"good");
    let names = std::fs::read_dir(dir.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let beside: Vec<String> = names.filter(|name| name != "saved").collect();
    assert!(beside.len() == 1 && beside[0].starts_with("saved.cut-off-"), "{beside:?}");
}
