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
