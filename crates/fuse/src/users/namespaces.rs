//! Finds programs that have our mount, or a mount of our device, in another mount namespace. There
//! it is another mount, and does not make an unmount of ours fail.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{User, name_of};
use crate::mounts::{self, Mounted};

/// The directory in the namespace of a command where `rampack exec` mounts a part of the tree.
const THERE: &str = "/dev";

/// The processes of other mount namespaces with a mount that `matches`: where it is mounted, the
/// number and the directory in /proc of each.
fn others(matches: impl Fn(&Mounted) -> bool) -> Vec<(PathBuf, u32, PathBuf)> {
    let own = fs::read_link("/proc/self/ns/mnt").ok();
    let mut seen = HashMap::new();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let home = process.path();
        let Ok(namespace) = fs::read_link(home.join("ns/mnt")) else { continue };
        if Some(&namespace) == own.as_ref() {
            continue;
        }
        let place = seen.entry(namespace).or_insert_with(|| {
            let text = fs::read(home.join("mountinfo")).unwrap_or_default();
            let mut lines = text.split(|byte| *byte == b'\n').filter_map(mounts::parse);
            lines.find(|mounted| matches(mounted)).map(|mounted| mounted.at)
        });
        if let Some(at) = place {
            found.push((at.clone(), pid, home));
        }
    }
    found
}

/// Processes in other mount namespaces that have the file system 0:`minor` at `/dev`.
pub(crate) fn elsewhere(minor: u32) -> Vec<User> {
    let is_it = |mounted: &Mounted| mounted.device == (0, minor) && mounted.at == Path::new(THERE);
    let user = |(_, pid, home): (_, _, PathBuf)| User::Process { pid, name: name_of(&home) };
    others(is_it).into_iter().map(user).collect()
}

/// The first process in another mount namespace where loop device `number` is mounted.
pub(crate) fn mounted_elsewhere(number: u32) -> Option<User> {
    let (at, pid, home) = others(|mounted| mounted.device == (7, number)).into_iter().next()?;
    Some(User::MountedElsewhere { at, pid, name: name_of(&home) })
}
