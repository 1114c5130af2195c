use testkit::TempDir;

use super::*;

/// A setting that is `value`, and where its value from before goes.
fn place(directory: &TempDir, value: &str) -> (PathBuf, PathBuf) {
    let setting = directory.join("setting");
    fs::write(&setting, value).unwrap();
    (setting, directory.join("before"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap().trim().to_string()
}

#[test]
fn the_last_one_sets_it_back() {
    for was in ["1\n", "0\n", "Y\n"] {
        let directory = TempDir::new();
        let (setting, before) = place(&directory, was);
        let first = Setting::begin(&setting, &before, "0").unwrap();
        let second = Setting::begin(&setting, &before, "0").unwrap();
        assert_eq!(read(&setting), "0");
        drop(first);
        assert_eq!(read(&setting), "0", "the second one goes on");
        drop(second);
        assert_eq!(read(&setting), was.trim());
        assert!(!before.exists());
    }
}

#[test]
fn what_a_killed_one_left_is_set_back_by_the_next() {
    let directory = TempDir::new();
    let (setting, before) = place(&directory, "1\n");
    fs::write(&setting, "0").unwrap();
    fs::write(&before, "1\n").unwrap();
    let next = Setting::begin(&setting, &before, "0").unwrap();
    assert_eq!(read(&setting), "0");
    drop(next);
    assert_eq!(read(&setting), "1");
}

#[test]
fn what_a_killed_one_left_is_set_back_unless_another_wants_it() {
    let directory = TempDir::new();
    let (setting, before) = place(&directory, "N\n");
    let other = Setting::begin(&setting, &before, "Y").unwrap();
    Setting::end_left(&setting, &before);
    assert_eq!(read(&setting), "Y");
    drop(other);
    assert_eq!(read(&setting), "N");
    Setting::end_left(&setting, &before);
    assert!(!before.exists() && read(&setting) == "N", "there was nothing to restore");
    fs::write(&setting, "Y").unwrap();
    fs::write(&before, "N\n").unwrap();
    Setting::end_left(&setting, &before);
    assert!(!before.exists() && read(&setting) == "N");
}

#[test]
fn a_file_that_says_nothing_is_written_anew_and_a_link_is_refused() {
    let directory = TempDir::new();
    let (setting, before) = place(&directory, "1\n");
    fs::write(&before, "nonsense").unwrap();
    drop(Setting::begin(&setting, &before, "0").unwrap());
    assert_eq!(read(&setting), "1");
    std::os::unix::fs::symlink(&setting, &before).unwrap();
    assert!(Setting::begin(&setting, &before, "0").is_err());
    assert_eq!(read(&setting), "1");
}
