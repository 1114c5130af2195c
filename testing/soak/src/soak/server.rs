//! The server of a soak: a machine with two disks and two swap areas on devices that fail now and
//! then, all frontends, the workers that call the library, and the administrators.

use std::fs::OpenOptions;
use std::io::{Read, Write, stdin, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use block::BlockDevice;
use fuse::{LoopDevice, LoopOptions, Mount, SwapFile, SwapFileOptions};
use machine::{Machine, MachineOptions};
use nbd::{ExportInfo, Exports, Listener, OpenError, Server};
use sync::Mutex;
use sync::atomic::{AtomicBool, Ordering};
use units::PAGE_SIZE;
use zram::Disk;
use zswap::{AreaOptions, SwapDevice, SwapType, Work, Zswap};

use super::admin::{Acts, Done, OfDisk, OfSwap, TAIL};
use super::faults::{FaultyFiles, Stale};
use super::layout::{
    Blocks, CALLED_AREA, DISKS, SERVED_AREA, ServerPart, Status, Transport, disk_name, pages_of,
};
use super::target::Library;
use super::worker::{Tally, Worker};
use crate::interrupt;

/// How often the server says how it stands.
const SAY: Duration = Duration::from_millis(200);
/// Between two acts of an administrator.
const PAUSE: Duration = Duration::from_millis(200);
/// The pool of the swap cache, of a hundred bytes of all pages: some less than they need.
const POOL_PERCENT: u64 = 30;

/// The end of the threads, and the first error.
struct End {
    asked: AtomicBool,
    error: Mutex<Option<anyhow::Error>>,
}

impl End {
    fn new() -> End {
        End { asked: AtomicBool::new(false), error: Mutex::new(None) }
    }

    fn is_asked(&self) -> bool {
        // Relaxed: the flag is alone and publishes nothing.
        self.asked.load(Ordering::Relaxed)
    }

    fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            self.error.lock().get_or_insert(error);
            self.ask();
        }
    }
}

/// The exports: a disk each.
struct Disks(Vec<Arc<dyn BlockDevice>>);

impl Exports for Disks {
    fn list(&self) -> Vec<ExportInfo> {
        let info = |number| ExportInfo { name: disk_name(number), description: String::new() };
        (0..self.0.len() as u32).map(info).collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let mut all = self.0.iter().zip(0..);
        let found = all.find(|(_, number)| disk_name(*number) == name);
        found.map(|(device, _)| device.clone()).ok_or(OpenError::Unknown)
    }
}

/// What is served.
struct Served {
    disks: Vec<Arc<Disk>>,
    devices: Vec<Arc<dyn BlockDevice>>,
    zswap: Option<Arc<Zswap>>,
    faults: FaultyFiles,
    // Dropped in this order: a loop device holds the file below it.
    server: Option<Server>,
    disk_loop: Option<LoopDevice>,
    swap_loop: Option<LoopDevice>,
    swap_file: Option<SwapFile>,
    mount: Option<Mount>,
}

/// Runs the server until its standard input ends.
///
/// # Errors
/// Something cannot be served; a page is wrong or lost; an interrupt.
pub fn run(part: &ServerPart) -> Result<()> {
    let mut served = Served::new(part)?;
    let (end, done) = (Arc::new(End::new()), Done::new(Acts::default()));
    let asked = end.clone();
    // It may stand in its read when everything else has ended.
    thread::spawn(move || {
        let _ = stdin().lock().read(&mut [0]);
        asked.ask();
    });
    let result = thread::scope(|scope| {
        let said = during(part, &served, &end, &done, scope);
        end.ask();
        if let Some(zswap) = &served.zswap {
            zswap.event().notify_all();
        }
        said
    });
    served.take_down()?;
    result?;
    end.error.lock().take().map_or(Ok(()), Err)
}

/// Starts the threads, and says how it stands until the end.
fn during<'scope, 'env>(
    part: &'scope ServerPart,
    served: &'scope Served,
    end: &'scope End,
    done: &'scope Done,
    scope: &'scope thread::Scope<'scope, 'env>,
) -> Result<()> {
    let mut tallies: Vec<Arc<Tally>> = Vec::new();
    for place in part.places.iter().filter(|place| place.inside) {
        let target = Box::new(Library(served.devices[place.share.device as usize].clone()));
        let mut worker = Worker::new(place.share, target, None)?;
        tallies.push(worker.tally.clone());
        scope.spawn(move || end.note(until_asked(&mut worker, end)));
    }
    for (number, disk) in (0..).zip(&served.disks) {
        let random = fastrand::Rng::with_seed(part.seed ^ (u64::from(number) + 77));
        let owned = pages_of(&part.places, number);
        let mut admin = OfDisk { disk, owned, random, done };
        scope.spawn(move || end.note(repeat(end, || admin.act())));
    }
    if let Some(zswap) = &served.zswap {
        let random = fastrand::Rng::with_seed(part.seed ^ 99);
        let mut admin = OfSwap { zswap, bytes: pool_bytes(part), random, done };
        scope.spawn(move || end.note(repeat(end, || admin.act())));
        scope.spawn(move || write_back(zswap, end));
    }
    let mut ready = Some(served.blocks());
    while !end.is_asked() {
        interrupt::check()?;
        say(&served.status(ready.take(), &tallies, done))?;
        thread::sleep(SAY);
    }
    Ok(())
}

/// Works until the end, then reads all pages.
fn until_asked(worker: &mut Worker, end: &End) -> Result<()> {
    while !end.is_asked() {
        worker.step()?;
    }
    worker.read_all()
}

fn repeat(end: &End, mut act: impl FnMut() -> Result<()>) -> Result<()> {
    while !end.is_asked() {
        act()?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// The background work of the swap cache.
fn write_back(zswap: &Zswap, end: &End) {
    while !end.is_asked() {
        let ticket = zswap.event().ticket();
        match zswap.work(host::cpu()) {
            Work::Again => {}
            Work::Later => thread::sleep(PAUSE),
            Work::Idle if end.is_asked() => {}
            Work::Idle => zswap.event().wait(ticket),
        }
    }
}

fn say(status: &Status) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(status)?)?;
    Ok(out.flush()?)
}

/// The limit of the swap cache's pool.
fn pool_bytes(part: &ServerPart) -> u64 {
    let areas = [SERVED_AREA, CALLED_AREA].map(|area| pages_of(&part.places, area));
    areas.iter().sum::<u64>() * PAGE_SIZE as u64 * POOL_PERCENT / 100
}

impl Served {
    fn new(part: &ServerPart) -> Result<Served> {
        let failures = Arc::default();
        let faults = FaultyFiles { seed: part.seed, failures };
        let files = FaultyFiles { seed: part.seed + 1, failures: faults.failures.clone() };
        let options = MachineOptions {
            cpus: host::cpus(),
            memory: host::total_memory(),
            files: Arc::new(files),
            swap_memory: Arc::new(host::Mmap),
            track_access: false,
        };
        let machine = Machine::new(Arc::new(host::Mmap), options).map_err(|e| anyhow!("{e}"))?;
        let mut served = Served {
            disks: Vec::new(),
            devices: Vec::new(),
            zswap: None,
            faults,
            server: None,
            disk_loop: None,
            swap_loop: None,
            swap_file: None,
            mount: None,
        };
        for number in 0..DISKS {
            served.add_disk(part, &machine, number)?;
        }
        if part.uses(Transport::Swap) {
            served.add_areas(part, &machine)?;
        }
        served.serve(part)?;
        Ok(served)
    }

    fn add_disk(&mut self, part: &ServerPart, machine: &Machine, number: u32) -> Result<()> {
        let owned = pages_of(&part.places, number);
        let bytes = owned.max(1) * PAGE_SIZE as u64;
        let path = part.backing(number);
        make(&path, bytes + TAIL * PAGE_SIZE as u64)?;
        let set_up = || {
            let disk = machine.add()?;
            // One disk has sealed pages on its device, the other one compressed pages.
            disk.set_sealed_backing(number == 0)?;
            disk.set_backing(&path.display().to_string())?;
            disk.set_compressed_writeback(number == 1)?;
            disk.set_algorithm_at(1, "zstd")?;
            disk.set_disksize(bytes)?;
            Ok(disk)
        };
        let disk = set_up().map_err(|error: control::ControlError| anyhow!("{error}"))?;
        let device: Arc<dyn BlockDevice> = Arc::new(disk.open());
        let device = if part.stale { Arc::new(Stale::new(device)) } else { device };
        self.disks.push(disk);
        self.devices.push(device);
        Ok(())
    }

    fn add_areas(&mut self, part: &ServerPart, machine: &Machine) -> Result<()> {
        let zswap = machine.swap().map_err(|error| anyhow!("{error}"))?;
        zswap.set_max_pool_bytes(pool_bytes(part));
        zswap.policy().set_shrinker_enabled(true);
        for number in [SERVED_AREA, CALLED_AREA] {
            let pages = pages_of(&part.places, number).max(1);
            make(&part.backing(number), pages * PAGE_SIZE as u64)?;
            let set_up = || {
                let device = Some(self.faults.open(&part.backing(number))?);
                let (swap, memcg) = (SwapType::new(number as usize)?, zswap.memcg("soak")?);
                zswap.swapon(swap, pages, AreaOptions { device, memcg })?;
                Ok(swap)
            };
            let swap = set_up().map_err(|error: control::ControlError| anyhow!("{error}"))?;
            self.devices.push(Arc::new(SwapDevice::new(zswap.clone(), swap)));
        }
        self.zswap = Some(zswap);
        Ok(())
    }

    fn serve(&mut self, part: &ServerPart) -> Result<()> {
        let disks = self.devices[..DISKS as usize].to_vec();
        // With an even seed the kernel hands requests over by io_uring, where it can.
        let ring = part.seed.is_multiple_of(2);
        if part.uses(Transport::Nbd) {
            let options = nbd::Options { cpu: host::cpu, ..nbd::Options::default() };
            let server = Server::new(Arc::new(Disks(disks.clone())), options)?;
            server.listen(Listener::unix(&part.socket())?)?;
            self.server = Some(server);
        }
        if part.uses(Transport::Fuse) || part.uses(Transport::Loop) {
            let mount = Mount::new(&part.mount(), fuse::Options { ring, ..Default::default() })?;
            for (number, disk) in (0..).zip(disks) {
                mount.add(&disk_name(number), disk)?;
            }
            self.mount = Some(mount);
        }
        if let (Some(mount), true) = (&self.mount, part.uses(Transport::Loop)) {
            let file = mount.path(&disk_name(1));
            self.disk_loop = Some(LoopDevice::attach(&file, mount.loop_options())?);
        }
        if pages_of(&part.places, SERVED_AREA) > 0 {
            let device = self.devices[SERVED_AREA as usize].clone();
            let options = SwapFileOptions { cpu: host::cpu, ring, ..SwapFileOptions::default() };
            let file = SwapFile::serve(&part.swap_file(), device, options)?;
            let options = LoopOptions { flush: false, ..LoopOptions::default() };
            self.swap_loop = Some(LoopDevice::attach(file.path(), options)?);
            self.swap_file = Some(file);
        }
        Ok(())
    }

    fn blocks(&self) -> Blocks {
        let path = |it: &Option<LoopDevice>| it.as_ref().map(|it| it.path().to_path_buf());
        Blocks { disk: path(&self.disk_loop), swap: path(&self.swap_loop) }
    }

    fn status(&self, ready: Option<Blocks>, tallies: &[Arc<Tally>], done: &Done) -> Status {
        Status {
            ready,
            inside: tallies.iter().map(|tally| tally.counts()).collect(),
            connections: self.server.as_ref().map_or(0, Server::connections),
            faults: self.faults.failures.load(Ordering::Relaxed),
            acts: *done.lock(),
        }
    }

    fn take_down(&mut self) -> Result<()> {
        if let Some(server) = &self.server {
            server.shutdown();
            server.join();
        }
        for device in [&mut self.disk_loop, &mut self.swap_loop].into_iter().flatten() {
            device.detach()?;
        }
        if let Some(file) = &mut self.swap_file {
            file.unmount(true)?;
        }
        if let Some(mount) = &mut self.mount {
            mount.unmount(true)?;
        }
        Ok(())
    }
}

fn make(path: &Path, bytes: u64) -> Result<()> {
    let what = || path.display().to_string();
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    options.with_context(what)?.set_len(bytes).with_context(what)
}
