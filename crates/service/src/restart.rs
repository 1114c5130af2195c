//! Is the end of a service the first half of a restart?
//!
//! In a restart systemd keeps the descriptors of the service and hands them over to the next
//! process; after a stop it closes them (systemd.service(5) `FileDescriptorStorePreserve=`). Its
//! signal alone does not tell: a stop that comes after a restart sends none of its own, and before
//! version 245 there is no `RestartKillSignal=`. What is to become of a service is in the list of
//! jobs (systemctl(1) `list-jobs`).

use std::env;
use std::fs;
use std::os::unix::process::{ExitStatusExt, parent_id};
use std::process::{self, Command};

use host::{ask, signal};

/// How often systemd is asked, if what asks is ended by a signal.
const TRIES: u32 = 5;

/// What systemd is to do with a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Job {
    /// Its next process gets what this one has.
    Restart,
    /// Nothing comes after it.
    Stop,
}

/// What systemd is to do with the service of this process. None if it does not answer, if there is
/// no such job, or no systemd.
#[must_use]
pub fn job() -> Option<Job> {
    // Another process of the service, such as a keeper, is stopped with it. Before version 248
    // systemd does not tell which process it has started.
    let is_main = match env::var("SYSTEMD_EXEC_PID") {
        Ok(pid) => pid.parse() == Ok(process::id()),
        Err(_) => parent_id() == 1,
    };
    if !is_main {
        return None;
    }
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let (unit, of_user) = service(&groups)?;
    let mut command = Command::new("systemctl");
    if of_user {
        command.arg("--user");
    }
    command.args(["list-jobs", "--no-legend", "--no-pager", "--plain", &unit]);
    job_of(&answer(&mut command)?, &unit)
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
fn job_of(jobs: &str, unit: &str) -> Option<Job> {
    jobs.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, of, "restart", ..] if of == unit => Some(Job::Restart),
            [_, of, "stop", ..] if of == unit => Some(Job::Stop),
            _ => None,
        }
    })
}

/// What a command prints; None if it fails or takes too long. systemd sends its signal to every
/// process of a service without `KillMode=process`, also to one that was just started: then it is
/// started again.
fn answer(command: &mut Command) -> Option<String> {
    for _ in 0..TRIES {
        let (status, said) = ask(command).ok()?;
        if !matches!(status.signal(), Some(signal::SIGTERM | signal::SIGUSR1)) {
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
    fn a_job_is_one_of_the_unit() {
        let of = |jobs: &str| job_of(jobs, "rampack.service");
        assert_eq!(of("173 rampack.service restart running\n"), Some(Job::Restart));
        let stop = "9 other.service restart waiting\n173 rampack.service stop running\n";
        assert_eq!(of(stop), Some(Job::Stop));
        for other in ["", "9 other.service stop waiting", "173 rampack.service reload running"] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_command_that_fails_or_is_missing_says_nothing() {
        assert_eq!(answer(&mut Command::new("/nonexistent")), None);
        assert_eq!(answer(Command::new("sh").args(["-c", "echo x; exit 3"])), None);
        assert_eq!(answer(Command::new("echo").arg("x")).as_deref(), Some("x\n"));
        let dir = testkit::TempDir::new();
        for signal in ["TERM", "USR1"] {
            let script = "test -e $0 && echo again || { touch $0; kill -$0 $$; }";
            let mut command = Command::new("sh");
            command.args(["-c", script, signal]).current_dir(dir.path());
            assert_eq!(answer(&mut command).as_deref(), Some("again\n"));
        }
    }
}
