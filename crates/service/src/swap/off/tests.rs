use std::cell::{Cell, RefCell};

use super::*;

#[test]
fn why_it_is_not_off_is_a_sentence_and_an_error_number() {
    let system = |errno| NotOff::Refused(io::Error::from_raw_os_error(errno));
    for (why, errno, words) in [
        (system(libc::ENOMEM), libc::ENOMEM, "not enough memory"),
        (system(libc::EINTR), libc::EINTR, "interrupted"),
        (system(libc::EINVAL), libc::EINVAL, "another process swaps it off"),
        (NotOff::Killed(libc::SIGKILL), libc::ENOMEM, "was killed, as the kernel does"),
        (NotOff::Killed(libc::SIGSEGV), libc::ENOMEM, "signal 11"),
        (NotOff::NoHelper(io::Error::other("exit status: 2")), libc::EIO, "exit status: 2"),
    ] {
        assert_eq!(why.errno(), Errno(errno), "{why}");
        assert!(why.to_string().contains(words), "{why}");
    }
}

#[test]
fn another_process_is_waited_for_while_it_gets_on() {
    let refused = |errno| Err(NotOff::Refused(io::Error::from_raw_os_error(errno)));
    // What each call results in, and what is there after it.
    let turns = |turns: Vec<(Result<(), NotOff>, Option<u64>)>| {
        let (results, left): (Vec<_>, Vec<_>) = turns.into_iter().unzip();
        let (results, left) = (RefCell::new(results.into_iter()), RefCell::new(left.into_iter()));
        let first = Cell::new(true);
        // The first look comes before the first call.
        let used =
            || if first.replace(false) { Some(9) } else { left.borrow_mut().next().unwrap() };
        let done = in_turn(|| results.borrow_mut().next().unwrap(), used, || {});
        (done.map_err(|why| why.errno().0), results.into_inner().count())
    };
    let busy = || refused(libc::EINVAL);
    // It gave up, and it has done it.
    assert_eq!(turns(vec![(busy(), Some(9)), (busy(), Some(4)), (Ok(()), None)]), (Ok(()), 0));
    assert_eq!(turns(vec![(busy(), Some(4)), (busy(), None)]), (Err(libc::EINVAL), 0));
    // What is no other process is not tried again.
    let more = (Ok(()), None);
    assert_eq!(turns(vec![(refused(libc::ENOMEM), Some(4)), more]), (Err(libc::ENOMEM), 1));
}

#[test]
fn a_program_that_does_not_say_that_it_is_done_is_not_believed() {
    // This one is no rampack.
    assert!(swap_off(Path::new("/nonexistent")).is_err());
}
