//! Finds and clears the mounts and loop devices that a killed daemon left.
//!
//! This code makes no request to the dead file system. It reads only the kernel's lists of mounts
//! and loop devices, so it works even when the mount does not answer.

use std::path::Path;

use host::{Mounted, Unmount, errno};

use crate::loopdev;
use crate::loops::{self, backed_under};
use crate::mounts::{self, Abort};
use crate::place::MOUNTS;
use crate::swapfile::remove_point;

/// The mount point of the files, below a daemon's root.
pub const FILES: &str = "files";

/// The mount point of the control tree, below a daemon's root.
pub const TREE: &str = "sys";

/// The directory of the swap files, below a daemon's root. Each swap file is a mount.
pub const SWAP: &str = "swap";

/// The report of [`clear`], in sentences for a person.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// The things that were cleared.
    pub cleared: Vec<String>,
    /// The things that remain, each with the reason.
    pub remaining: Vec<String>,
}

/// Is there a mount or a loop device of `root`? A killed and a living daemon look the same here. If
/// the mounts are not known, there may be one.
#[must_use]
pub fn exist(root: &Path) -> bool {
    let Ok(root) = root.canonicalize() else { return false };
    let Ok(mounts) = host::mounts() else { return true };
    let files = root.join(FILES);
    !ours(&mounts, &root.join(TREE)).is_empty()
        || !backed_under(&files).is_empty()
        || !ours(&mounts, &files).is_empty()
        || !ours_in(&mounts, &root.join(SWAP)).is_empty()
}

/// Why loop device `number` on `file`, a path of a killed daemon, must be left alone: it belongs to
/// a living daemon with the same path in another mount namespace. None if the killed daemon left
/// it. It may take two seconds.
#[must_use]
pub fn refusal(number: u32, file: &Path) -> Option<String> {
    let all = match host::mounts() {
        Ok(all) => all,
        Err(error) => return Some(format!("cannot {MOUNTS}: {error}")),
    };
    let below = file.parent().map(|directory| ours(&all, directory));
    loops::stranger(number, &[ours(&all, file), below.unwrap_or_default()].concat())
}

/// Clears what a killed daemon of `root` left. It unmounts the file systems on its loop devices,
/// detaches the loop devices and unmounts the dead FUSE mounts. It touches only `root`/files,
/// `root`/swap and `root`/sys, and loop devices on files of them. A loop device of a living daemon
/// with the same path in another mount namespace is left alone and reported. The caller must know
/// that no daemon of this root is alive, because its mounts would be aborted. Swap areas are not
/// swapped off here.
#[must_use]
pub fn clear(root: &Path) -> Report {
    clear_but(root, false, &[])
}

/// As [`clear`], but what is taken over stays, with its loop devices: the mount of the files if
/// `files` is true, and the swap files of these names.
#[must_use]
pub fn clear_but(root: &Path, files: bool, swap_files: &[String]) -> Report {
    let with_files = !files;
    let mut report = Report::default();
    // This resolves the root only, not what is mounted below it. If it does not exist, nothing is
    // below it.
    let Ok(root) = root.canonicalize() else { return report };
    let mounts = match host::mounts() {
        Ok(mounts) => mounts,
        Err(error) => {
            report.remaining.push(format!("cannot {MOUNTS}: {error}"));
            return report;
        }
    };
    let (files, tree, swap) = (root.join(FILES), root.join(TREE), root.join(SWAP));
    for mounted in ours(&mounts, &tree) {
        abort(&mounted);
        clear_mount(&tree, &mut report);
    }
    let files_mounts = if with_files { ours(&mounts, &files) } else { Vec::new() };
    let mut swap_mounts = ours_in(&mounts, &swap);
    swap_mounts.retain(|mounted| !swap_files.iter().any(|name| mounted.at == swap.join(name)));
    for mounted in files_mounts.iter().chain(&swap_mounts) {
        abort(mounted);
    }
    // The directory of swap files may hold other files: only a loop device on a mount is ours.
    let files = with_files.then_some(&files);
    for stands_on in files.into_iter().chain(swap_mounts.iter().map(|mounted| &mounted.at)) {
        for (number, file) in backed_under(stands_on) {
            match refusal(number, &file) {
                None => clear_loop(number, &file, &mut report),
                Some(why) => {
                    let (node, file) = (loops::node(number), file.display());
                    let node = node.display();
                    report.remaining.push(format!("{node} on {file} is left alone: {why}"));
                }
            }
        }
    }
    for mounted in files_mounts.iter().chain(&swap_mounts) {
        clear_mount(&mounted.at, &mut report);
    }
    for mounted in &swap_mounts {
        remove_point(&mounted.at);
    }
    report
}

/// Aborts a mount. It comes first: a process that waits for the dead daemon (perhaps the dying
/// daemon itself) gets an error now.
fn abort(mounted: &Mounted) {
    let abort = Abort::of(&mounted.at, mounted.device.1);
    // EBUSY is the usual answer, after the abort.
    let _ = host::unmount(&mounted.at, Unmount::Abort);
    abort.as_ref().map(Abort::now);
}

fn is_ours(mounted: &Mounted) -> bool {
    mounted.source.as_os_str() == "rampack" && mounted.kind.starts_with("fuse")
}

/// Our mounts exactly at `at`.
fn ours(mounts: &[Mounted], at: &Path) -> Vec<Mounted> {
    mounts.iter().filter(|it| it.at == at && is_ours(it)).cloned().collect()
}

/// Our mounts on entries of `directory`.
fn ours_in(mounts: &[Mounted], directory: &Path) -> Vec<Mounted> {
    let is_in = |it: &&Mounted| it.at.parent() == Some(directory) && is_ours(it);
    mounts.iter().filter(is_in).cloned().collect()
}

fn clear_loop(number: u32, file: &Path, report: &mut Report) {
    let node = loops::node(number);
    let (node, file) = (node.display(), file.display());
    match loopdev::unmount_all(number) {
        Ok(paths) => report.cleared.extend(paths.iter().map(|path| {
            format!("unmounted {}, which was on {node}, left by a killed daemon", path.display())
        })),
        Err(error) => report.remaining.push(error.to_string()),
    }
    match loopdev::clear(number) {
        Ok(()) => report.cleared.push(format!("detached {node} from {file}")),
        // Its data is lost. After the mount below is gone, the owner of the loop device is unknown,
        // so the kernel is asked now.
        Err(busy) => report.remaining.push(match loopdev::clear_later(number) {
            Ok(()) => format!("{busy}; it was on {file}, and goes when that ends"),
            Err(error) => error.to_string(),
        }),
    }
}

fn clear_mount(files: &Path, report: &mut Report) {
    let at = files.display();
    let plain = mounts::unmount_fuse(files, Unmount::WhenUnused);
    match plain.or_else(|_| mounts::unmount_fuse(files, Unmount::Lazily)) {
        Ok(()) => report.cleared.push(format!("unmounted the dead file system at {at}")),
        // The mount had no users: the abort was enough.
        Err(error) if error.raw_os_error() == Some(errno::EINVAL) => {
            report.cleared.push(format!("unmounted the dead file system at {at}"));
        }
        Err(error) => report.remaining.push(format!("cannot unmount {at}: {error}")),
    }
}
