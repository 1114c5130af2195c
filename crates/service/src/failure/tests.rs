use super::*;

#[test]
fn system_errors_get_a_sentence_and_a_symbol() {
    let error = io::Error::from_raw_os_error(libc::EADDRINUSE);
    let text = sentence(&failed("cannot listen", &error));
    assert_eq!(text, "cannot listen: address already in use (EADDRINUSE)");
    let error = io::Error::from_raw_os_error(libc::ENOENT);
    assert!(sentence(&failed("x", &error)).ends_with("(ENOENT)"));
}

#[test]
fn errors_without_a_number_still_have_one() {
    let fault = failed("read", &io::Error::from(io::ErrorKind::UnexpectedEof));
    assert_eq!(symbol(fault.errno), "ECONNRESET");
    assert_eq!(symbol(Errno(9999)), "E?");
    assert_eq!(symbol(Errno(0)), "E?");
    // Of the kernel's attributes, and of system calls alone.
    for (number, name) in [(libc::EINVAL, "EINVAL"), (libc::EOPNOTSUPP, "ENOTSUP")] {
        assert_eq!(symbol(Errno(number)), name);
    }
    for (number, name) in [(libc::ESTALE, "ESTALE"), (libc::ECONNREFUSED, "ECONNREFUSED")] {
        assert_eq!(symbol(Errno(number)), name);
    }
}

#[test]
fn a_path_is_one_word_of_a_shell() {
    for (path, word) in [
        ("/run/rampack-1.0", "/run/rampack-1.0"),
        ("/run/a b", "'/run/a b'"),
        ("/run/it's", r"'/run/it'\''s'"),
        ("/run/$(x)", "'/run/$(x)'"),
        ("", "''"),
    ] {
        assert_eq!(quoted(Path::new(path)), word);
    }
}

#[test]
fn the_first_error_is_told_before_that_of_the_cleaning_up() {
    let first = ControlError::new(Errno::ENOSPC, "no room");
    assert_eq!(after(first.clone(), Ok(())), first);
    let second = ControlError::new(Errno::EBUSY, "zram0 is in use");
    let both = ControlError::new(Errno::ENOSPC, "no room; zram0 is in use");
    assert_eq!(after(first, Err(second)), both);
}
