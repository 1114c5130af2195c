//! Finds programs that have our mount in another mount namespace. There it is another mount, and
//! does not make an unmount of ours fail.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::User;
use crate::mounts;

/// The directory in the namespace of a command where `rampack exec` mounts a part of the tree.
const THERE: &str = "/dev";

/// Processes in other mount namespaces that have the file system 0:`minor` at `/dev`.
pub(crate) fn elsewhere(minor: u32) -> Vec<User> {
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
        let has = seen.entry(namespace).or_insert_with(|| {
            let text = fs::read(home.join("mountinfo")).unwrap_or_default();
            let mut lines = text.split(|byte| *byte == b'\n').filter_map(mounts::parse);
            lines.any(|mounted| mounted.device == (0, minor) && mounted.at == Path::new(THERE))
        });
        if *has {
            let name = fs::read_to_string(home.join("comm")).unwrap_or_default();
            found.push(User::Process { pid, name: name.trim().to_owned() });
        }
    }
    found
}
