//! The streams of a daemon that nobody reads.

use std::fs::{self, OpenOptions};
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use crate::common::{Daemon, Place, program, rampack, refused, said, wait_until};

/// A pipe that takes no more bytes.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    // SAFETY: the request takes no argument; the descriptor is borrowed from an open pipe.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![b'.'; usize::try_from(size).unwrap()]).unwrap();
    (reader, writer)
}

/// A process that is killed if it has not ended.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(place: &Place, writer: &PipeWriter) -> Running {
    let mut command = program();
    command.arg("--root").arg(place.root()).args(["-vv", "up", "--transport", "nbd"]);
    let stream = || Stdio::from(writer.try_clone().unwrap());
    Running(command.stdout(stream()).stderr(stream()).process_group(0).spawn().unwrap())
}

#[track_caller]
fn ends(mut daemon: Running) {
    wait_until("the daemon's end", || daemon.0.try_wait().unwrap().is_some());
    assert!(daemon.0.wait().unwrap().success());
}

#[test]
fn a_daemon_whose_streams_are_full_stops_on_a_signal_and_on_request() {
    let place = Place::new();
    let (_reader, writer) = full_pipe();
    let socket = place.root().join("control.sock");
    for by_signal in [true, false] {
        let daemon = start(&place, &writer);
        wait_until("the control socket", || socket.exists());
        let root = place.root();
        wait_until("the device", || {
            let said = rampack(&format!("--root {} get zram0 disksize", root.display()));
            said.code == 0
        });
        if by_signal {
            // SAFETY: kill takes two numbers; the child is ours and not yet waited for.
            unsafe { libc::kill(daemon.0.id() as i32, libc::SIGTERM) };
        } else {
            let said = rampack(&format!("--root {} stop", root.display()));
            assert_eq!(said.code, 0, "{}", said.err);
        }
        ends(daemon);
        place.is_clean();
    }
}

#[test]
fn a_result_that_cannot_be_printed_is_a_failure() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --size 1M --transport nbd");
    let file = place.path().join("pages");
    fs::write(&file, vec![7; 64 << 10]).unwrap();
    let estimate = format!("estimate {}", file.display());
    for line in [
        "help",
        "--help",
        "--version",
        "set --help",
        "keep serve --help",
        "layouts",
        &estimate,
        "status",
        "get zram0 disksize",
        "tree",
        "add --size 1M",
    ] {
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = daemon.command(line).stdout(full()).output().unwrap();
        refused(&said(&output), 1, &["cannot print", "no space left on device", "ENOSPC"]);
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = daemon.command(line).stdout(writer).output().unwrap();
        assert_eq!(said(&output).code, 0, "{line}: its reader has read enough");
    }
    daemon.stop();
}
