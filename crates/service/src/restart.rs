//! Is this end of a service the first half of a restart?
//!
//! systemd sends the same signal for `systemctl stop` and `systemctl restart`. In a restart it
//! keeps the descriptors of the service and hands them over to the next process; after a stop it
//! closes them (systemd.service(5) `FileDescriptorStorePreserve=`). What is to become of a service
//! is in the list of jobs (systemctl(1) `list-jobs`).

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, Command};

use host::{ask, signal};

/// How often systemd is asked, if what asks is ended by a signal.
const TRIES: u32 = 5;

/// Does systemd restart the service of this process? False if it does not answer, or if there is no
/// systemd.
#[must_use]
pub fn is_under_way() -> bool {
    // Another process of the service, such as a keeper, is stopped with it.
    let main = env::var("SYSTEMD_EXEC_PID").ok().and_then(|pid| pid.parse().ok());
    if main != Some(process::id()) {
        return false;
    }
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some((unit, of_user)) = service(&groups) else { return false };
    let mut command = Command::new("systemctl");
    if of_user {
        command.arg("--user");
    }
    command.args(["list-jobs", "--no-legend", "--no-pager", "--plain", &unit]);
    answer(&mut command).is_some_and(|text| has_restart(&text, &unit))
}

/// The service that a process of these control groups (cgroups(7)) belongs to, and whether it is
/// one of a user.
fn service(groups: &str) -> Option<(String, bool)> {
    let own = groups.lines().find(|line| {
        line.starts_with("0::") && *line != "0::/" || line.contains(":name=systemd:")
    })?;
    let path = own.splitn(3, ':').nth(2)?;
    // A service may have groups of its own below its one.
    let unit = path.rsplit('/').find(|name| name.ends_with(".service"))?;
    let of_user = path.contains("/user@") && !unit.starts_with("user@");
    Some((unit.to_owned(), of_user))
}

/// `list-jobs` prints a line for each job: its number, the unit, its type, its state.
fn has_restart(jobs: &str, unit: &str) -> bool {
    jobs.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&unit) && words.get(2) == Some(&"restart")
    })
}

/// What a command prints; None if it fails or takes too long. systemd sends its signal to every
/// process of the service, also to one that was just started: then it is started again.
fn answer(command: &mut Command) -> Option<String> {
    for _ in 0..TRIES {
        let (status, said) = ask(command).ok()?;
        if status.signal() != Some(signal::SIGTERM) {
            return status.success().then(|| String::from_utf8_lossy(&said).into_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_their_control_group() {
        let found = |text: &str| service(text).map(|(unit, of_user)| format!("{unit} {of_user}"));
        let of = |text: &str| found(text).unwrap_or_default();
        assert_eq!(of("0::/system.slice/rampack.service\n"), "rampack.service false");
        assert_eq!(of("0::/system.slice/a.service/rampack-swap\n"), "a.service false");
        let hybrid = "4:memory:/x.service\n1:name=systemd:/system.slice/b.service\n0::/\n";
        assert_eq!(of(hybrid), "b.service false");
        let user = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/r.service";
        assert_eq!(of(user), "r.service true");
        for none in ["", "0::/\n", "0::/user.slice/session-2.scope", "1:memory:/a.service\n0::/"] {
            assert_eq!(found(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_restart_is_a_job_of_the_unit() {
        assert!(has_restart("173 rampack.service restart running\n", "rampack.service"));
        for other in ["", "173 rampack.service stop running", "9 other.service restart waiting"] {
            assert!(!has_restart(other, "rampack.service"), "{other:?}");
        }
    }

    #[test]
    fn a_command_that_fails_or_is_missing_says_nothing() {
        assert_eq!(answer(&mut Command::new("/nonexistent")), None);
        assert_eq!(answer(Command::new("sh").args(["-c", "echo x; exit 3"])), None);
        assert_eq!(answer(Command::new("echo").arg("x")).as_deref(), Some("x\n"));
        let dir = testkit::TempDir::new();
        let script = "test -e here && echo again || { touch here; kill -TERM $$; }";
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(dir.path());
        assert_eq!(answer(&mut command).as_deref(), Some("again\n"));
    }
}
