use super::*;

#[test]
fn why_it_is_not_off_is_a_sentence_and_an_error_number() {
    let system = |errno| NotOff::Refused(io::Error::from_raw_os_error(errno));
    for (why, errno, words) in [
        (system(libc::ENOMEM), libc::ENOMEM, "not enough memory"),
        (system(libc::EINTR), libc::EINTR, "interrupted"),
        (system(libc::EINVAL), libc::EINVAL, "swapoff failed: invalid argument"),
        (NotOff::Killed(libc::SIGKILL), libc::ENOMEM, "was killed, as the kernel does"),
        (NotOff::Killed(libc::SIGSEGV), libc::ENOMEM, "signal 11"),
        (NotOff::NoHelper(io::Error::other("exit status: 2")), libc::EIO, "exit status: 2"),
    ] {
        assert_eq!(why.errno(), Errno(errno), "{why}");
        assert!(why.to_string().contains(words), "{why}");
    }
}

#[test]
fn a_program_that_does_not_say_that_it_is_done_is_not_believed() {
    // This one is no rampack.
    assert!(swap_off(Path::new("/nonexistent")).is_err());
}
