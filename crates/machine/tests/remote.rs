//! Whether the library has remote stores is decided when it is built.

use control::Errno;
use machine::HostSystem;
use zram::HostFiles;

#[test]
fn remote_stores_are_there_or_refused_with_the_remedy() {
    let checked = HostSystem.check_remote("fs:///directory");
    if cfg!(feature = "remote") {
        assert!(checked.unwrap().starts_with("fs:///directory cold="));
    } else {
        let error = checked.unwrap_err();
        assert_eq!(error.errno, Errno::ENOTSUP);
        assert!(error.message.contains("--features remote"), "{error}");
    }
}
