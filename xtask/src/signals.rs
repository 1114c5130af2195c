//! Signals that a background job of a shell, or nohup(1), has its programs ignore. The tests send
//! Ctrl-C to daemons, which leave a signal ignored that was ignored when they were started.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use fs_err as fs;

/// The signals that tests send: SIGHUP, SIGINT and SIGQUIT, as bits of a mask of signals.
const SENT: u64 = 0b111;

/// Set for the program that was started again.
const AGAIN: &str = "RAMPACK_SIGNALS";

/// Starts this program again where it ignores what tests send, so that no test inherits that.
pub fn listen() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignored(&status) & SENT == 0 || env::var_os(AGAIN).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut again = Command::new("env");
    again.arg("--default-signal=HUP,INT,QUIT").arg(program).args(env::args_os().skip(1));
    let error = again.env(AGAIN, "1").exec();
    eprintln!("SIGINT stays ignored, and tests that send it fail: env: {error}");
}

/// The mask of ignored signals in a `/proc/PID/status`.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::ignored;

    #[test]
    fn the_mask_of_ignored_signals_is_found() {
        assert_eq!(ignored("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001007\n"), 0x1007);
        assert_eq!(ignored("Name:\trampack\n"), 0);
    }
}
