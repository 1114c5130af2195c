use std::fs;
use std::io::Read;

use testkit::TempDir;

use super::*;

fn open(backings: &Backings, path: &Path) -> Result<Arc<dyn BlockDevice>, ControlError> {
    backings.open_backing(path.to_str().unwrap(), None)
}

fn make(path: &Path, fill: u8) {
    fs::write(path, vec![fill; 8192]).unwrap();
}

fn names(paths: &[&Path]) -> BTreeSet<String> {
    paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
}

/// What a next daemon finds of `paths`.
fn next(backings: &Backings, paths: &BTreeSet<String>) -> Backings {
    let mut left = vec![("rampack.other".into(), OwnedFd::from(tempfile()))];
    let keep = |name: &str, file: &File| {
        left.push((name.to_owned(), file.try_clone()?.into()));
        std::io::Result::Ok(())
    };
    assert!(backings.keep(paths, keep).unwrap());
    let mount = backings.mount(paths).unwrap();
    let next = Backings::take(&mut left, &[mount]);
    assert_eq!(left.len(), 1, "what is none of them stays");
    next
}

fn tempfile() -> File {
    File::open("/dev/null").unwrap()
}

fn first_byte(device: &Arc<dyn BlockDevice>) -> u8 {
    let mut page = [0; 4096];
    let read = block::Operation::Read { offset: 0, into: &mut page };
    device.submit(host::cpu(), read).unwrap();
    page[0]
}

#[test]
fn a_file_without_a_path_is_opened_again() {
    let dir = TempDir::new();
    let path = dir.join("backing");
    make(&path, 1);
    let backings = Backings::take(&mut Vec::new(), &[]);
    let device = open(&backings, &path).unwrap();
    fs::remove_file(&path).unwrap();
    make(&path, 2);
    let next = next(&backings, &names(&[&path]));
    // The descriptor has no part in the lock, so that the next one sees when that ends.
    assert_eq!(open(&next, &path).err().unwrap().errno, Errno::EBUSY);
    drop(device);
    let device = open(&next, &path).unwrap();
    assert_eq!(first_byte(&device), 1);
    let mut text = [0];
    next.file(&path).unwrap().unwrap().read_exact(&mut text).unwrap();
    assert_eq!(text, [1]);
    // The other file at the path is not mixed up with it, while it is in use and after that.
    next.end_recovery();
    let error = open(&next, &path).err().unwrap();
    assert_eq!(error.errno, Errno::EBUSY);
    assert!(error.message.contains("another file that had this path"), "{error}");
    drop(device);
    assert!(next.give_up(&names(&[&path])).is_empty(), "it is still named");
    assert_eq!(next.give_up(&names(&[])), ["rampack.backing.1"]);
    assert_eq!(first_byte(&open(&next, &path).unwrap()), 2);
}

#[test]
fn what_nobody_uses_is_given_up() {
    let dir = TempDir::new();
    let [one, two] = ["one", "two"].map(|name| dir.join(name));
    make(&one, 1);
    make(&two, 2);
    let backings = Backings::take(&mut Vec::new(), &[]);
    let [first, second] = [&one, &two].map(|path| open(&backings, path).unwrap());
    assert_eq!(backings.count(&names(&[&one])), 1);
    let mut kept = Vec::new();
    let mut keep = |paths: &[&Path]| {
        let keep = |name: &str, _: &File| {
            kept.push(name.to_owned());
            Ok::<_, ()>(())
        };
        backings.keep(&names(paths), keep).unwrap()
    };
    assert!(keep(&[&one]));
    assert!(!keep(&[&one]));
    assert_eq!(kept, ["rampack.backing.1"]);
    // Somebody is about to use it.
    assert!(backings.give_up(&names(&[&one])).is_empty());
    assert!(backings.file(&two).unwrap().is_some());
    drop(second);
    assert!(backings.give_up(&names(&[&one])).is_empty(), "the service manager has none");
    assert!(backings.file(&two).unwrap().is_none());
    drop(first);
    assert_eq!(backings.give_up(&names(&[])), ["rampack.backing.1"]);
    assert_eq!(backings.mount(&names(&[&one])), None);
}

#[test]
fn paths_are_those_of_disks_and_of_swap_devices() {
    let device = |name: &str, setting: &str| Device {
        name: name.into(),
        bytes: 0,
        generation: 0,
        settings: [(setting.to_owned(), format!("/{name}"))].into(),
    };
    let devices =
        [device("zram0", "backing_dev"), device("swap1", "backing"), device("zram1", "other")];
    let expected: BTreeSet<String> = ["/zram0".to_owned(), "/swap1".to_owned()].into();
    assert_eq!(paths(&devices), expected);
}
