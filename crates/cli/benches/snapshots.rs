//! How fast a disk is saved and restored, as users do it: `rampack snapshot zram0 > FILE` until the
//! file is on the disk below, and `rampack restore < FILE`. The disk has programs and libraries of
//! this system, one behind the other. Prints the median of five, the least and the most.
//!
//! ```sh
//! cargo bench -p rampack-cli --bench snapshots
//! ```

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use common::{measures, program, serve, wait_for};
use testkit::TempDir;

/// Where programs are.
const PROGRAMS: [&str; 3] = ["/usr/lib", "/usr/bin", "/usr/local"];
/// Small files are no programs.
const LEAST: u64 = 256 << 10;

/// Fills a disk with what is in files of a directory, as far as there is room.
fn fill(disk: &mut File, directory: &Path, left: &mut u64) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        // Of a link: nothing comes twice.
        let Ok(data) = entry.metadata() else { continue };
        if data.is_dir() {
            fill(disk, &entry.path(), left);
        } else if data.is_file() && data.len() >= LEAST && *left > 0 {
            let Ok(mut file) = File::open(entry.path()) else { continue };
            let mut bytes = vec![0; data.len().min(*left) as usize];
            if file.read_exact(&mut bytes).is_ok() {
                disk.write_all(&bytes).expect("there is room");
                *left -= bytes.len() as u64;
            }
        }
    }
}

fn same(one: &Path, other: &Path) -> bool {
    let [mut one, mut other] = [one, other].map(|path| File::open(path).expect("a disk"));
    let mut bytes = [vec![0; 1 << 20], vec![0; 1 << 20]];
    let [first, second] = &mut bytes;
    loop {
        let read = one.read(first).expect("a disk");
        if read == 0 {
            return true;
        }
        other.read_exact(&mut second[..read]).expect("a disk of the same size");
        if first[..read] != second[..read] {
            return false;
        }
    }
}

fn main() {
    let (mib, rounds) = if measures() { (2048, 5) } else { (8, 1) };
    let directory = TempDir::new();
    let root = directory.path().join("root");
    let Some((_daemon, disk)) = serve(&root, &format!("{mib}M")) else { return };
    let mut left = mib << 20;
    let mut to = OpenOptions::new().write(true).open(&disk).expect("the disk");
    PROGRAMS.iter().for_each(|from| fill(&mut to, Path::new(from), &mut left));
    to.sync_all().expect("it is written");
    let data = ((mib << 20) - left) as f64;
    assert!(data > 0.0, "there are no programs in {PROGRAMS:?}");

    let (path, copy) = (directory.path().join("zram0.snap"), root.join("files/zram1"));
    let mut seconds = [Vec::new(), Vec::new()];
    for round in 1..=rounds {
        let begun = Instant::now();
        let file = File::create(&path).expect("a file");
        let to = file.try_clone().expect("a file");
        let taken = program(&root).args(["snapshot", "zram0"]).stdout(to).status();
        file.sync_all().expect("a file");
        seconds[0].push(begun.elapsed().as_secs_f64());
        assert!(taken.expect("the program").success(), "no snapshot");
        let begun = Instant::now();
        let from = File::open(&path).expect("a file");
        let restored = program(&root).arg("restore").stdin(from).status();
        seconds[1].push(begun.elapsed().as_secs_f64());
        assert!(restored.expect("the program").success(), "it is not restored");
        wait_for(&copy);
        assert!(round < rounds || same(&disk, &copy), "what is restored differs");
        let removed = program(&root).args(["remove", "zram1"]).status();
        assert!(removed.expect("the program").success(), "it is not removed");
    }
    let bytes = fs::metadata(&path).expect("a file").len();
    println!("{:.2} GB of programs, {:.2} GB of snapshot", data / 1e9, bytes as f64 / 1e9);
    for (what, mut seconds) in ["saved", "restored"].into_iter().zip(seconds) {
        seconds.sort_by(f64::total_cmp);
        let speed = |at: usize| data / 1e9 * 60.0 / seconds[at];
        println!(
            "{what}: {:.1} GB of data a minute ({:.1} to {:.1})",
            speed(seconds.len() / 2),
            speed(seconds.len() - 1),
            speed(0)
        );
    }
}
