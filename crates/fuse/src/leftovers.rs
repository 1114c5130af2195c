//! What a daemon that was killed left of its frontends, and how it is cleared.
//!
//! Nothing here asks the dead file system for anything: it looks only at what the kernel tells
//! about mounts and loop devices, so it answers even when the mount does not.

use std::io;
use std::path::{Path, PathBuf};

use crate::loopdev;
use crate::loops::{self, backed_under};
use crate::mounts::{self, Mounted};
use crate::swapfile::remove_point;
use crate::sys::{self, Unmount};

/// The directory below a daemon's root that its files are mounted at.
pub const FILES: &str = "files";

/// The directory below a daemon's root that its control tree is mounted at.
pub const TREE: &str = "sys";

/// The directory below a daemon's root that its swap files are in, each a mount of its own.
pub const SWAP: &str = "swap";

/// What [`clear`] did, in sentences for a person.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// What was cleared.
    pub cleared: Vec<String>,
    /// What is still there, and why.
    pub remaining: Vec<String>,
}

/// Is there anything left at `root`? Does not tell a killed daemon from a living one.
#[must_use]
pub fn exist(root: &Path) -> bool {
    let tree = below(root, TREE).is_ok_and(|tree| !ours(&tree).is_empty());
    let files = |files: PathBuf| !backed_under(&files).is_empty() || !ours(&files).is_empty();
    let swap = |swap: PathBuf| !ours_in(&swap).is_empty();
    tree || below(root, FILES).is_ok_and(files) || below(root, SWAP).is_ok_and(swap)
}

/// Clears what a daemon of `root` left behind: file systems on its loop devices are unmounted, the
/// loop devices detached, the dead FUSE mounts taken down. Only what stands on `root`/files,
/// `root`/swap and `root`/sys is touched. The caller must know that no daemon of this root is
/// alive: its mounts would be aborted. What the kernel swaps to is not swapped off here.
#[must_use]
pub fn clear(root: &Path) -> Report {
    let mut report = Report::default();
    // Without a root there is nothing below it.
    let (Ok(files), Ok(tree)) = (below(root, FILES), below(root, TREE)) else { return report };
    let Ok(swap) = below(root, SWAP) else { return report };
    for mounted in ours(&tree) {
        abort(&mounted);
        clear_mount(&tree, &mut report);
    }
    let files_mounts = ours(&files);
    let swap_mounts = ours_in(&swap);
    for mounted in files_mounts.iter().chain(&swap_mounts) {
        abort(mounted);
    }
    // Other files may be in the directory of swap files: only what stands on a mount is ours.
    for stands_on in [&files].into_iter().chain(swap_mounts.iter().map(|mounted| &mounted.at)) {
        for (number, file) in backed_under(stands_on) {
            clear_loop(number, &file, &mut report);
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

fn below(root: &Path, directory: &str) -> io::Result<PathBuf> {
    // The root itself is asked, never what may be mounted below it.
    Ok(root.canonicalize()?.join(directory))
}

/// Comes before all else: whoever waits for the dead daemon, perhaps the remains of itself, gets an
/// error now.
fn abort(mounted: &Mounted) {
    // EBUSY is the usual answer, after the abort.
    let _ = sys::unmount(&mounted.at, Unmount::Abort);
    mounts::abort_fuse(mounted.device.1);
}

fn is_ours(mounted: &Mounted) -> bool {
    mounted.source == "rampack" && mounted.kind.starts_with("fuse")
}

/// Our mounts exactly at `at`.
fn ours(at: &Path) -> Vec<Mounted> {
    let mut mounted = mounts::at(at);
    mounted.retain(is_ours);
    mounted
}

/// Our mounts on entries of `directory`.
fn ours_in(directory: &Path) -> Vec<Mounted> {
    let mut mounted = mounts::all();
    mounted.retain(|mounted| mounted.at.parent() == Some(directory) && is_ours(mounted));
    mounted
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
        // Its data is lost. Once the mount below is gone nobody could tell whose it was, so the
        // kernel is asked now.
        Err(busy) => report.remaining.push(match loopdev::clear_later(number) {
            Ok(()) => format!("{busy}; it was on {file}, and goes when that ends"),
            Err(error) => error.to_string(),
        }),
    }
}

fn clear_mount(files: &Path, report: &mut Report) {
    let at = files.display();
    let plain = mounts::unmount_fuse(files, Unmount::Plain);
    match plain.or_else(|_| mounts::unmount_fuse(files, Unmount::Detach)) {
        Ok(()) => report.cleared.push(format!("unmounted the dead file system at {at}")),
        // The abort was enough: nobody used it.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            report.cleared.push(format!("unmounted the dead file system at {at}"));
        }
        Err(error) => report.remaining.push(format!("cannot unmount {at}: {error}")),
    }
}
