//! The programs that make a guest, and their packages.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Programs of this machine, and their Debian packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("apt-get", "apt"),
    ("bash", "bash"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
    ("dmsetup", "dmsetup"),
    ("dpkg-deb", "dpkg"),
    ("find", "findutils"),
    ("ldd", "libc-bin"),
    ("mke2fs", "e2fsprogs"),
    ("modprobe", "kmod"),
    ("setpriv", "util-linux"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
];

/// The programs for a guest that this machine lacks: `qemu-system-x86_64 (package qemu-system-x86),
/// …`.
pub fn missing() -> Option<String> {
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        return Some("x86-64 Linux".to_string());
    }
    missing_of(PROGRAMS)
}

fn missing_of(programs: &[(&str, &str)]) -> Option<String> {
    let missing = programs.iter().filter(|(name, _)| find(name).is_none());
    let missing: Vec<String> =
        missing.map(|(name, package)| format!("{name} (package {package})")).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// The program `name`, on the path or in a directory of programs for root.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// A command that runs `name`.
pub fn command(name: &str) -> Command {
    Command::new(find(name).unwrap_or_else(|| name.into()))
}

/// Runs the command. Shows its output if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs the command and returns its output.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let ended = command.stdin(Stdio::null()).output().with_context(|| shown.clone())?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        bail!("{shown}: {}\n{}", ended.status, said.trim_end());
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use fs_err as fs;
    use std::path::Path;

    use super::{PROGRAMS, missing_of};

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        assert_eq!(missing_of(&[("sh", "dash")]), None);
        let missing = missing_of(&[("sh", "dash"), ("no-such-program", "nothing")]);
        assert_eq!(missing.as_deref(), Some("no-such-program (package nothing)"));
    }

    #[test]
    fn ci_installs_what_a_guest_needs() {
        // Every Debian has these packages.
        let essential = ["apt", "bash", "findutils", "libc-bin", "tar"];
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let run = fs::read_to_string(checkout.join(".ci/run")).unwrap();
        let words: Vec<&str> = run.split_whitespace().collect();
        for (name, package) in PROGRAMS {
            assert!(words.contains(package) || essential.contains(package), "{name}: {package}");
        }
    }
}
