//! Serves uncompressed RAM disks as files until its standard input ends:
//! `serve_file DIRECTORY [--workers N] [--waiters N] [--shared-fd] [--ring]`.
//!
//! Commands, one per line, each answered by one line that begins with `ok` or `error`:
//! `add NAME BYTES`, `add-kind NAME KIND BYTES` (a kind of `sim::roads`), `remove NAME`,
//! `opens NAME`, `map NAME` (extents as KIND:LENGTH), `names`, `ring` (is it served by io_uring?),
//! `loop-limits` (of a loop device on a file: KIB DEPTH), `unmount`, `force`.
//!
//! Commands for devices whose pages can be held, or that can be resized: `add-gated NAME BYTES`,
//! `resize NAME BYTES` (up to the first size), `hold NAME PAGE`, `waiting NAME COUNT` (waits until
//! COUNT operations wait), `release NAME`, `release-when NAME PATH` (when the file PATH exists),
//! `lengthen-discards NAME` (until the release, also where they may not wait).

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, Checked, Plain};
use fuse::{LoopOptions, Mount, Options};
use sim::roads::Kind;

mod gated;

use gated::Gated;

type Gates = HashMap<String, Arc<Gated>>;
type Disks = HashMap<String, Arc<dyn BlockDevice>>;

fn main() {
    if let Err(error) = serve() {
        println!("error {error}");
        std::process::exit(1);
    }
}

/// A call that the role of a serving thread lacks ends this process.
fn sandbox() -> Result<(), Box<dyn Error>> {
    host::sandbox::choose(host::Sandbox::Strict)?;
    Ok(())
}

fn serve() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("which directory?")?;
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--workers" => {
                options.workers = Some(arguments.next().ok_or("how many workers?")?.parse()?);
            }
            "--waiters" => {
                options.waiters = arguments.next().ok_or("how many waiters?")?.parse()?
            }
            "--shared-fd" => options.clone_fd = false,
            "--ring" => options.ring = true,
            _ => return Err(format!("unknown option {argument}").into()),
        }
    }
    sandbox()?;
    let mut mount = Mount::new(Path::new(&directory), options)?;
    let mut disks = Disks::new();
    let mut gates = Gates::new();
    println!("ok mounted at {}", mount.at().display());
    for line in io::stdin().lock().lines() {
        match answer(&mut mount, &mut disks, &mut gates, &line?) {
            Ok(text) => println!("ok {text}"),
            Err(error) => println!("error {error}"),
        }
        io::stdout().flush()?;
    }
    Ok(())
}

fn answer(
    mount: &mut Mount,
    disks: &mut Disks,
    gates: &mut Gates,
    line: &str,
) -> Result<String, Box<dyn Error>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let gate = |name| gates.get(name).ok_or("no such gated disk");
    match words[..] {
        ["add-gated", name, bytes] => {
            let gated = Arc::new(Gated::new(bytes.parse()?));
            gates.insert(name.to_owned(), gated.clone());
            add(mount, disks, name, Arc::new(Checked::new(gated)))
        }
        ["resize", name, bytes] => Ok(gate(name)?.resize(bytes.parse()?)),
        ["hold", name, page] => Ok(gate(name)?.hold(page.parse()?)),
        ["waiting", name, count] => Ok(gate(name)?.until_waiting(count.parse()?)?),
        ["release", name] => Ok(gate(name)?.release()),
        ["lengthen-discards", name] => Ok(gate(name)?.lengthen_discards()),
        ["release-when", name, path] => {
            let (gate, path) = (gate(name)?.clone(), path.to_owned());
            std::thread::spawn(move || {
                while !Path::new(&path).exists() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                gate.release();
            });
            Ok(String::new())
        }
        ["add", name, bytes] => {
            let disk = Arc::new(Checked::new(Plain::new(bytes.parse()?)));
            add(mount, disks, name, disk)
        }
        ["add-kind", name, kind, bytes] => {
            let kind = Kind::named(kind).ok_or("no such kind")?;
            add(mount, disks, name, kind.of(bytes.parse()?).device())
        }
        ["remove", name] => {
            mount.remove(name).ok_or("no such file")?;
            disks.remove(name);
            Ok(String::new())
        }
        ["opens", name] => Ok(mount.opens(name).count().to_string()),
        ["ring"] => Ok(mount.is_by_ring().to_string()),
        ["loop-limits"] => {
            let LoopOptions { largest_kib, depth, .. } = mount.loop_options();
            let text = |limit: Option<u32>| limit.map_or("-".into(), |it| it.to_string());
            Ok(format!("{} {}", text(largest_kib), text(depth)))
        }
        ["names"] => Ok(mount.names().join(" ")),
        ["map", name] => map(&**disks.get(name).ok_or("no such disk")?),
        ["unmount"] => Ok(mount.unmount(false).map(|()| String::new())?),
        ["force"] => Ok(mount.unmount(true).map(|()| String::new())?),
        _ => Err(format!("unknown command {line}").into()),
    }
}

fn add(
    mount: &Mount,
    disks: &mut Disks,
    name: &str,
    disk: Arc<dyn BlockDevice>,
) -> Result<String, Box<dyn Error>> {
    let path = mount.add(name, disk.clone())?;
    disks.insert(name.to_owned(), disk);
    Ok(path.display().to_string())
}

fn map(disk: &dyn BlockDevice) -> Result<String, Box<dyn Error>> {
    let mut runs: Vec<(String, u64)> = Vec::new();
    disk.extents(units::Cpu(0), 0, disk.geometry().bytes, &mut |extent| {
        let kind = format!("{:?}", extent.kind);
        match runs.last_mut().filter(|(last, _)| *last == kind) {
            Some((_, length)) => *length += extent.length,
            None => runs.push((kind, extent.length)),
        }
        ControlFlow::Continue(())
    })?;
    let runs = runs.iter().map(|(kind, length)| format!("{kind}:{length}"));
    Ok(runs.collect::<Vec<_>>().join(" "))
}
