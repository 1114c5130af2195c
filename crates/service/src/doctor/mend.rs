//! Commands that mend something, as a user of this machine would type them.

use super::observed::{NBD_CLIENT, Observed};

/// The commands of package managers, each with words that distributions call themselves, and the
/// package there of the kernel's NBD client.
const MANAGERS: [(&str, &[&str], &str); 5] = [
    ("apt install", &["debian", "ubuntu"], "nbd-client"),
    ("dnf install", &["fedora", "rhel", "centos"], "nbd"),
    ("zypper install", &["suse", "opensuse"], "nbd"),
    ("pacman -S", &["arch"], "nbd"),
    ("apk add", &["alpine"], "nbd-client"),
];

/// `command`, with `sudo` for who is not root.
pub(super) fn as_root(observed: &Observed, command: &str) -> String {
    match observed.is_privileged() && !observed.is_by_sudo {
        true => command.to_owned(),
        false => format!("sudo {command}"),
    }
}

/// As [`as_root`], for what belongs to the kernel: of a container it is done on the host.
pub(super) fn to_kernel(observed: &Observed, command: &str) -> String {
    match observed.container {
        None => as_root(observed, command),
        Some(_) => format!("{command}   # as root of the host"),
    }
}

/// Writes `value` to a file of the kernel.
pub(super) fn write(observed: &Observed, value: &str, file: &str) -> String {
    let tee = to_kernel(observed, &format!("tee {file}"));
    format!("echo {value} | {tee}")
}

/// Installs a package. All but that of the program `nbd-client` have one name everywhere.
pub(super) fn install(observed: &Observed, package: &str) -> String {
    let is_of =
        |words: &[&str]| observed.distribution.split_whitespace().any(|word| words.contains(&word));
    match MANAGERS.iter().find(|(_, words, _)| is_of(words)) {
        Some((manager, _, nbd)) => {
            let package = if package == NBD_CLIENT { nbd } else { package };
            as_root(observed, &format!("{manager} {package}"))
        }
        None => format!("# install the package {package}"),
    }
}

/// Starts the container anew with `options`; `None` where there is none that takes them.
pub(super) fn run_with(observed: &Observed, options: &str) -> Option<String> {
    let kind = observed.container.as_deref()?;
    ["docker", "podman"].contains(&kind).then(|| format!("{kind} run {options} …"))
}

/// Loads a module, and gives a container `options` to use it.
pub(super) fn load(observed: &Observed, module: &str, options: &str) -> String {
    match run_with(observed, options) {
        None => to_kernel(observed, &format!("modprobe {module}")),
        Some(run) => to_kernel(observed, &format!("modprobe {module} && {run}")),
    }
}
