use super::*;

use std::os::unix::net::UnixListener;

fn record(root: &Path, text: &str) -> (Made, Option<u32>) {
    let path = root.join("lock");
    fs::write(&path, text).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    Made::new(root, file).unwrap()
}

fn said(root: &Path) -> Said {
    read(&mut File::open(root.join("lock")).unwrap()).unwrap()
}

#[test]
fn a_record_says_what_is_there_now() {
    let dir = testkit::TempDir::new();
    let root = dir.path();
    let (made, before) = record(root, MARK);
    assert_eq!(before, None);
    made.directory(&root.join("dev")).unwrap();
    made.link(&root.join("dev/zram0"), Path::new("/dev/loop0")).unwrap();
    made.link(&root.join("dev/zram0"), Path::new("/a b\\\n")).unwrap();
    made.socket(&root.join("s")).unwrap();
    assert!(!made.remove(&root.join("s")), "it was never made");
    let said = said(root);
    assert_eq!(said.pid, Some(std::process::id()));
    let link = ThingKind::Link("/a\\x20b\\x5c\\x0a".into());
    let there = [("dev".to_string(), ThingKind::Directory), ("dev/zram0".to_string(), link)];
    assert_eq!(said.things, there.into());
    made.end(&root.join("lock"));
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
}

#[test]
fn what_is_not_understood_is_passed_over() {
    let text = format!(
        "{MARK}pid 7\ndir dev\nlink dev/a /x\ngone dev/a\n\nlin\nfuture a b\ndir ../etc\ndir /etc\n\
         dir \nsocket s"
    );
    let said = parse(&text);
    assert_eq!(said.pid, Some(7));
    let names: Vec<&str> = said.things.keys().map(String::as_str).collect();
    assert_eq!(names, ["dev", "s"]);
    assert_eq!(parse(&format!("{MARK}pid 7\nended\n")).pid, None);
    assert_eq!(parse("dir dev\n"), Said::default(), "no record");
}

#[test]
fn only_what_is_still_as_it_was_made_is_removed() {
    let dir = testkit::TempDir::new();
    let root = dir.path();
    let text = format!(
        "{MARK}pid 7\ndir dev\nlink dev/a /x\nlink dev/b /x\nlink dev/c /x\nsocket s\nsocket t\n\
         socket u\nlink dir /x\n"
    );
    let (made, before) = record(root, &text);
    assert_eq!(before, Some(7));
    fs::create_dir(root.join("dev")).unwrap();
    fs::create_dir(root.join("dir")).unwrap();
    for (name, target) in [("a", "/x"), ("b", "/y"), ("foreign", "/x")] {
        symlink(target, root.join("dev").join(name)).unwrap();
    }
    fs::write(root.join("dev/c"), "precious").unwrap();
    drop(UnixListener::bind(root.join("s")).unwrap());
    let listener = UnixListener::bind(root.join("t")).unwrap();
    fs::write(root.join("u"), "precious").unwrap();
    let cleared = made.clear(&[]);
    assert_eq!(cleared.len(), 2, "{cleared:?}");
    assert!(cleared[0].contains("the link") && cleared[0].ends_with("dev/a"), "{cleared:?}");
    assert!(cleared[1].contains("the socket") && cleared[1].ends_with("/s"), "{cleared:?}");
    for kept in ["dev/b", "dev/c", "dev/foreign", "t", "u", "dir"] {
        assert!(fs::symlink_metadata(root.join(kept)).is_ok(), "{kept}");
    }
    drop(listener);
    // Something foreign is left, so the record stays and says what else is ours.
    made.end(&root.join("lock"));
    let said = said(root);
    assert_eq!((said.pid, said.things.len()), (None, 1), "{said:?}");
    assert_eq!(said.things.get("dev"), Some(&ThingKind::Directory));
}

#[test]
fn nothing_is_made_over_what_is_not_ours() {
    let dir = testkit::TempDir::new();
    let root = dir.path();
    let (made, _) = record(root, MARK);
    fs::create_dir(root.join("dev")).unwrap();
    fs::set_permissions(root.join("dev"), Permissions::from_mode(0o700)).unwrap();
    symlink("/x", root.join("dev/zram0")).unwrap();
    fs::write(root.join("s"), "precious").unwrap();
    let faults = [
        made.directory(&root.join("dev")),
        made.link(&root.join("dev/zram0"), Path::new("/x")),
        made.socket(&root.join("s")),
    ];
    for fault in faults {
        let fault = fault.unwrap_err();
        assert_eq!(fault.errno, Errno::EEXIST);
        assert!(fault.message.contains("--root"), "{fault}");
    }
    assert!(!made.remove(&root.join("dev/zram0")));
    assert_eq!(fs::metadata(root.join("dev")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(made.directory(Path::new("/elsewhere")).is_err());
    assert_eq!(said(root).things.len(), 0);
}

#[test]
fn a_block_device_with_users_goes_on_without_its_link() {
    let dir = testkit::TempDir::new();
    let (made, _) = record(dir.path(), MARK);
    let (link, device) = (dir.join("zram0"), Path::new("/dev/ublkb0"));
    fs::write(&link, "mine").unwrap();
    assert_eq!(made.link_for(&link, device, true).unwrap_err().errno, Errno::EEXIST);
    made.link_for(&link, device, false).unwrap();
    assert_eq!(fs::read(&link).unwrap(), b"mine");
    fs::remove_file(&link).unwrap();
    made.link_for(&link, device, false).unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), device);
}

#[test]
fn a_long_record_is_shortened() {
    let dir = testkit::TempDir::new();
    let root = dir.path();
    let (made, _) = record(root, MARK);
    made.link(&root.join("first"), Path::new("/x")).unwrap();
    for number in 0..4000 {
        let path = root.join(format!("{number}"));
        made.link(&path, Path::new("/dev/loop0")).unwrap();
        assert!(made.remove(&path));
    }
    made.link(&root.join("last"), Path::new("/y")).unwrap();
    let length = fs::metadata(root.join("lock")).unwrap().len();
    assert!(length < SHORTENED_AT + 2 * THING, "{length} bytes");
    let said = said(root);
    let names: Vec<&str> = said.things.keys().map(String::as_str).collect();
    assert_eq!((names, said.pid), (vec!["first", "last"], Some(std::process::id())));
}

#[test]
fn a_record_whose_shortening_is_killed_forgets_nothing() {
    // The beginning of the new text over the old one, up to anywhere.
    let old =
        format!("{MARK}pid 7\nlink a /x\ndir b\ngone a\nlink c /y\nlink a /z\ngone b\nsocket d\n");
    let now = parse(&old);
    let mut new = format!("{MARK}pid 7\n");
    new.extend(now.things.iter().map(|(name, kind)| line(name, kind)));
    let blank = "\n".repeat(old.len() - new.len());
    let new = format!("{new}{blank}");
    for cut in MARK.len() + 6..=old.len() {
        let mixed = parse(&format!("{}{}", &new[..cut], &old[cut..])).things;
        assert!(now.things.keys().all(|name| mixed.contains_key(name)), "up to {cut}: {mixed:?}");
        // A line that is half new and half old may name what never was.
        assert!(mixed.len() <= now.things.len() + 1, "up to {cut}: {mixed:?}");
    }
}

#[test]
fn links_of_devices_that_stay_are_left_alone() {
    let dir = testkit::TempDir::new();
    let root = dir.path();
    let (made, _) = record(root, MARK);
    let devices = root.join("dev");
    made.directory(&devices).unwrap();
    let [a, b] = ["a", "b"].map(|name| devices.join(name));
    made.link(&a, Path::new("/x")).unwrap();
    made.link(&b, Path::new("/x")).unwrap();
    let inode = |path: &Path| fs::symlink_metadata(path).map(|it| it.ino()).ok();
    let before = inode(&a);
    made.link(&a, Path::new("/x")).unwrap();
    assert_eq!(inode(&a), before, "the link is there all the time");
    made.keep_links(&devices, std::slice::from_ref(&a));
    assert_eq!((inode(&a), inode(&b)), (before, None));
    made.link(&a, Path::new("/y")).unwrap();
    assert_eq!(fs::read_link(&a).unwrap(), Path::new("/y"));
}

/// What `maker` counts for: the same place over restarts, and no copy of it.
#[test]
fn the_daemons_of_a_root_have_one_maker_and_copies_have_others() {
    let (dir, other) = (testkit::TempDir::new(), testkit::TempDir::new());
    let again = |root: &Path| {
        let file = File::options().read(true).write(true).open(root.join("lock")).unwrap();
        Made::new(root, file).unwrap().0
    };
    let first = record(dir.path(), MARK).0;
    let maker = first.maker();
    assert!(maker > 1 << 22, "{maker} could be a process");
    // It is killed, and half a line is left.
    drop(first);
    File::options().append(true).open(dir.path().join("lock")).unwrap().write_all(b"mak").unwrap();
    let second = again(dir.path());
    assert_eq!(second.maker(), maker);
    second.inner.lock().shorten().unwrap();
    drop(second);
    assert_eq!(again(dir.path()).maker(), maker, "the record was written anew");
    fs::copy(dir.path().join("lock"), other.path().join("lock")).unwrap();
    let copy = again(other.path()).maker();
    assert_ne!(copy, maker, "a container of the same image");
    assert_eq!(again(other.path()).maker(), copy);
    for text in ["", "maker\n", "maker x 1 2\n", "maker 1 2\n", "maker 4294967296 1 2\n"] {
        let unknown = record(other.path(), &format!("{MARK}{text}")).0;
        assert!(![0, 1, maker, copy].contains(&unknown.maker()), "{text:?}");
    }
}
