use super::*;

#[test]
fn lines_are_read() {
    let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
        /dev/loop3                              partition\t65532\t\t12\t\t100\n\
        /a\\040file                              file\t\t8\t\t0\t\t-2\n\
        strange\n";
    let path = PathBuf::from("/dev/loop3");
    let first = Active { path, bytes: 65532 << 10, used: 12 << 10, priority: 100 };
    let path = PathBuf::from("/a file");
    let second = Active { path, bytes: 8192, used: 0, priority: -2 };
    assert_eq!(parse(text), [first, second]);
    assert!(parse(b"").is_empty());
}

#[test]
fn a_new_area_comes_before_one_whose_device_is_gone() {
    let line = |path: &str, priority| format!("{path} partition 1024 8 {priority}\n");
    let text = |lines: &[String]| format!("Filename Type Size Used Priority\n{}", lines.concat());
    let above = |lines: &[String]| above_dead_among(&parse(text(lines).as_bytes()));
    let living = line("/dev/sda2", 500);
    assert_eq!(above(std::slice::from_ref(&living)), None);
    assert_eq!(above(&[living.clone(), line("/dev/ublkb0\\040(deleted)", 100)]), Some(101));
    assert_eq!(above(&[living, line("/dev/ublkb0\\040(deleted)", -2)]), Some(0));
    assert_eq!(above(&[line("/dev/ublkb0\\040(deleted)", 32767)]), Some(HIGHEST_PRIORITY));
}

#[test]
fn partitions_are_added_up() {
    let text = b"Filename Type Size Used Priority\n\
        /dev/ublkb0p1 partition 1024 512 100\n\
        /dev/ublkb0p2 partition 1024 8 99\n\
        /dev/ublkb01 partition 1 1 1\n\
        /dev/ublkb0p2x partition 1 1 1\n\
        /dev/ublkb0p partition 1 1 1\n";
    let path = PathBuf::from("/dev/ublkb0");
    let sum = Active { path: path.clone(), bytes: 2 << 20, used: 520 << 10, priority: 100 };
    assert_eq!(find_among(parse(text), &path), Some(sum));
    assert_eq!(find_among(parse(text), Path::new("/dev/ublkb1")), None);
    let part = find_among(parse(text), Path::new("/dev/ublkb0p2")).unwrap();
    assert_eq!((part.used, part.priority), (8 << 10, 99));
}
