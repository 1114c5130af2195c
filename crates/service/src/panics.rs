//! What a daemon does when a thread of it panics.
//!
//! The thread may be one that serves swap space. So the report takes no memory, no lock and no
//! time: it is written if standard error takes it at once, and is cut off after 2 KiB. With
//! `RUST_BACKTRACE` set it is Rust's own, which opens files and may wait.

use std::env;
use std::io::{self, Cursor, Write};
use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::LazyLock;
use std::thread;

use crate::outlet;

/// Reports every panic from now on. `end` says what happens then: the request that panicked fails,
/// or the process ends at once, as a kill ends it. The latter is for a daemon whose devices outlive
/// it: the next process recovers what this one has, and the request is made again. An unwinding end
/// would give up the devices.
pub fn report(end: bool) {
    LazyLock::force(&outlet::STDERR);
    let own = env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    let rusts = panic::take_hook();
    panic::set_hook(Box::new(move |why| {
        match own {
            true => rusts(why),
            false => {
                let mut text = Cursor::new([0; 2048]);
                // A text that is too long is an error, and what fits is there.
                let _ = tell(why, &mut text);
                let length = text.position() as usize;
                outlet::STDERR.write_without_lock(&text.get_ref()[..length]);
            }
        }
        if end {
            process::abort();
        }
    }));
}

fn tell(why: &PanicHookInfo<'_>, to: &mut impl Write) -> io::Result<()> {
    let thread = thread::current();
    write!(to, "rampack: thread '{}' panicked", thread.name().unwrap_or("<unnamed>"))?;
    if let Some(place) = why.location() {
        write!(to, " at {place}")?;
    }
    let said = why.payload().downcast_ref::<&str>().copied();
    let said = said.or_else(|| why.payload().downcast_ref::<String>().map(String::as_str));
    writeln!(to, ": {}", said.unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, pipe};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// Set in the process that panics, to what it says.
    const PANICS: &str = "RAMPACK_TEST_PANICS";
    const NAME: &str = "panics::tests::a_panic_ends_a_daemon_as_a_kill_does";

    fn panics(says: &str) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", NAME, "--nocapture"]);
        command.env(PANICS, says).env_remove("RUST_BACKTRACE").stdout(Stdio::null());
        command
    }

    #[test]
    fn a_panic_ends_a_daemon_as_a_kill_does() {
        if let Some(says) = env::var_os(PANICS) {
            report(true);
            let says = says.into_string().unwrap();
            // Without the hook nobody would notice.
            let named = thread::Builder::new().name("as-if".into());
            let _ = named.spawn(move || panic!("{says}")).unwrap().join();
            return;
        }
        let ended = panics("why").output().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:?}");
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains("rampack: thread 'as-if' panicked at "), "{said}");
        assert!(said.ends_with(": why\n"), "{said}");
    }

    #[test]
    fn a_long_message_is_cut_off() {
        let ended = panics(&"x".repeat(5000)).output().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:?}");
        assert_eq!(ended.stderr.len(), 2048);
    }

    #[test]
    fn a_panic_waits_for_no_reader() {
        let (mut reader, writer) = pipe().unwrap();
        let full = crate::outlet::Outlet::new(writer.try_clone().unwrap());
        for _ in 0..10_000 {
            full.write_at_once(&[b'x'; 100]);
        }
        let mut child = panics("why").stderr(writer).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > end => break None,
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        child.kill().unwrap_or_else(|error| assert_eq!(error.kind(), ErrorKind::InvalidInput));
        drop(full);
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        assert_eq!(ended.and_then(|it| it.signal()), Some(libc::SIGABRT), "it waited");
    }
}
