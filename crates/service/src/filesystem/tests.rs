use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::*;

#[test]
fn an_unknown_file_system_is_told_the_known_ones() {
    let fault = kind("ext5").err().unwrap();
    assert_eq!(fault.errno, Errno::EINVAL);
    for known in &KINDS {
        assert!(fault.message.contains(known.name), "{fault}");
    }
}

#[test]
fn a_missing_program_names_its_package() {
    let kind = Kind { name: "absent", package: "absent-tools", arguments: &[], older: None };
    let fault = kind.check_installed().unwrap_err();
    assert_eq!(fault.errno, Errno::ENOENT);
    assert!(fault.message.contains("mkfs.absent"), "{fault}");
    assert!(fault.message.contains("package absent-tools"), "{fault}");
    assert_eq!(kind.make(Path::new("/nonexistent")), Err(fault));
}

#[test]
fn programs_are_found_on_the_path_only_where_it_is_absolute() {
    let dir = testkit::TempDir::new();
    fs::write(dir.path().join("mkfs.here"), "").unwrap();
    let found = find_program("mkfs.here", Some(dir.path().as_os_str()));
    assert_eq!(found, Some(dir.path().join("mkfs.here")));
    assert_eq!(find_program("mkfs.here", Some("relative:.".as_ref())), None);
    assert_eq!(find_program("mkfs.here", None), None);
}

#[test]
fn mount_points_must_be_directories_that_are_free() {
    let dir = testkit::TempDir::new();
    assert_eq!(mount_point(dir.path()), Ok(dir.path().canonicalize().unwrap()));
    let missing = mount_point(&dir.path().join("missing")).unwrap_err();
    assert_eq!(missing.errno, Errno::ENOENT);
    assert!(missing.message.contains("mkdir -p"), "{missing}");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(mount_point(&file).unwrap_err().errno, Errno(libc::ENOTDIR));
    assert_eq!(check_free(dir.path()), Ok(()));
    assert_eq!(check_free(Path::new("/proc")).unwrap_err().errno, Errno::EBUSY);
}

#[test]
fn programs_are_quoted_in_one_line() {
    let output = |status, stderr: &str| Output {
        status: ExitStatus::from_raw(status),
        stdout: Vec::new(),
        stderr: stderr.into(),
    };
    assert_eq!(words(&output(256, "mkfs: no\n\n  such thing \n")), "mkfs: no; such thing");
    assert_eq!(words(&output(256, "")), "exit status: 1");
}

#[test]
fn a_mount_does_not_hide_the_root() {
    let dir = testkit::TempDir::new();
    let at = dir.path().canonicalize().unwrap();
    let root = at.join("a/root");
    fs::create_dir(at.join("a")).unwrap();
    std::os::unix::fs::symlink(&at, at.join("link")).unwrap();
    for (target, root) in
        [(&root, &root), (&at.join("a"), &root), (&at, &at.join("link/a/root")), (&at, &at)]
    {
        let error = check_beside(target, root).unwrap_err();
        assert_eq!(error.errno, Errno::EINVAL);
        assert!(error.message.contains("would hide"), "{error}");
    }
    for target in ["a/root/mnt", "a/roo", "b"] {
        check_beside(&at.join(target), &root).unwrap();
    }
}
