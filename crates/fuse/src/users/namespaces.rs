//! Names programs that have a mount of our device in another mount namespace. A list of mounts
//! there is a text that its owner makes: it names users, and decides nothing.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use host::{device_numbers, parse_mounts};

/// The first process in another mount namespace where loop device `number` is mounted: the place of
/// the mount, its number, and its directory in /proc.
pub(super) fn mounted_elsewhere(number: u32) -> Option<(PathBuf, u32, PathBuf)> {
    let own = fs::read_link("/proc/self/ns/mnt").ok();
    let numbers = device_numbers(&format!("loop{number}"));
    let mut seen = HashMap::new();
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
        let place: &Option<PathBuf> = seen.entry(namespace).or_insert_with(|| {
            let text = fs::read(home.join("mountinfo")).unwrap_or_default();
            let mut lines = parse_mounts(&text).into_iter();
            lines.find(|mounted| numbers.contains(&mounted.device)).map(|mounted| mounted.at)
        });
        if let Some(at) = place.clone() {
            return Some((at, pid, home));
        }
    }
    None
}
