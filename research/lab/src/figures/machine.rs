//! The commit, the day and the machine of a measurement.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::programs::{find, now, said, version};

/// What the figures depend on.
pub struct Machine {
    /// The commit, with `+` at the end if the tree had changes.
    pub commit: String,
    lines: Vec<(&'static str, String)>,
}

impl Machine {
    /// This machine, now.
    pub fn now(commit: Option<&str>) -> Result<Machine> {
        let commit = match commit {
            Some(commit) => commit.to_owned(),
            None => {
                from_git().context("git knows of no commit here; name it with --commit HASH")?
            }
        };
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name"));
        let cpu = cpu.unwrap_or_default().trim_matches([' ', '\t', ':']);
        let mut lines = vec![
            ("commit", commit.clone()),
            ("date", now()),
            ("CPU", format!("{cpu}, {} of them", host::allowed_cpus().len())),
            ("memory", units::human(host::machine_memory()).to_string()),
            ("kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
            ("load before", read("/proc/loadavg").split(' ').next().unwrap_or("").to_owned()),
        ];
        for (program, option) in [
            ("rustc", "--version"),
            ("fio", "--version"),
            ("nbdkit", "--version"),
            ("python3", "--version"),
            ("java", "-version"),
            ("node", "--version"),
            ("redis-server", "--version"),
        ] {
            if let Some(path) = find(program) {
                lines.push((program, version(&path, option)));
            }
        }
        Ok(Machine { commit, lines })
    }

    /// Names, and what each is.
    pub fn lines(&self) -> &[(&'static str, String)] {
        &self.lines
    }
}

/// The commit of the tree, with a `+` if files of it were changed; `None` without git.
fn from_git() -> Option<String> {
    let git = find("git")?;
    let commit = said(Path::new(&git), &["rev-parse", "--short=12", "HEAD"]).ok()?;
    let changes = said(&git, &["status", "--porcelain", "--untracked-files=no"]).ok()?;
    Some(if changes.is_empty() { commit } else { commit + "+" })
}
