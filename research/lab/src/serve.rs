//! `rampack-lab serve`: a device of any designs for real programs, until it is interrupted.
//!
//! A block device is a loop device on a FUSE file; over NBD the device is a socket. When the device
//! is ready, the command prints the same lines as `rampack up`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use block::BlockDevice;
use control::ControlError;
use designs::Machine;
use fuse::{LoopDevice, LoopOptions, Mount};
use nbd::{Listener, One, Server};
use units::{Cpu, PAGE_SIZE};
use zswap::{AreaOptions, SwapDevice, SwapType, Work, Zswap};

use crate::args::ServeArgs;
use crate::interrupt;

/// The name of the device, its file and its export.
const NAME: &str = "disk";

/// Runs the command.
pub fn run(args: &ServeArgs) -> Result<()> {
    let machine = Machine::of(args.variants()).map_err(|error| anyhow!("{error}"))?;
    let device = match &args.index {
        Some(_) => area(args, &machine),
        None => disk(args, &machine),
    };
    let device = device.map_err(|error| anyhow!("{error}"))?;
    match &args.nbd {
        Some(socket) => over_nbd(socket, device),
        None => as_block_device(device),
    }
}

fn disk(args: &ServeArgs, machine: &Machine) -> Result<Arc<dyn BlockDevice>, ControlError> {
    let disk = machine.add();
    disk.set_algorithm(&args.algorithm)?;
    disk.set_disksize(args.size)?;
    Ok(disk)
}

/// Makes a swap area, and a thread that writes pages back while the pool is crowded.
fn area(args: &ServeArgs, machine: &Machine) -> Result<Arc<dyn BlockDevice>, ControlError> {
    let zswap = machine.swap()?;
    zswap.set_compressor(&args.algorithm)?;
    if let Some(percent) = args.max_pool_percent {
        zswap.set_max_pool_percent(percent)?;
    }
    let backing = args.backing.as_deref();
    let open = |path: &Path| backing::open(path, backing::Options::default());
    let device = backing.map(open).transpose()?;
    let (swap, memcg) = (SwapType::new(0)?, zswap.memcg("default")?);
    zswap.swapon(swap, args.size / PAGE_SIZE as u64, AreaOptions { device, memcg })?;
    let worker = zswap.clone();
    thread::spawn(move || write_back(&worker));
    Ok(Arc::new(SwapDevice::new(zswap, swap)))
}

fn write_back(zswap: &Zswap) {
    loop {
        let ticket = zswap.event().ticket();
        match zswap.work(Cpu(0)) {
            Work::Again => {}
            Work::Later => thread::sleep(Duration::from_millis(100)),
            Work::Idle => zswap.event().wait(ticket),
        }
    }
}

fn over_nbd(socket: &Path, device: Arc<dyn BlockDevice>) -> Result<()> {
    let exports = Arc::new(One::new(NAME, "a device of the lab", device));
    let server = Server::new(exports, nbd::Options::default()).context("the NBD server")?;
    let listener = Listener::unix(socket).with_context(|| socket.display().to_string())?;
    server.listen(listener).context("the NBD server")?;
    ready(&format!("  NBD           nbd+unix:///{NAME}?socket={}\n", socket.display()))?;
    until_interrupted();
    server.shutdown();
    Ok(())
}

fn as_block_device(device: Arc<dyn BlockDevice>) -> Result<()> {
    let directory = tempfile::TempDir::with_prefix("rampack-lab-serve-")
        .context("cannot make a temporary directory")?;
    let mut mount = Mount::new(directory.path(), fuse::Options::default())?;
    let flush = device.abilities().flush;
    let file = mount.add(NAME, device)?;
    let options = LoopOptions { flush, ..LoopOptions::default() };
    let mut loop_device = LoopDevice::attach(&file, options)?;
    ready(&format!("  block device  {}\n", loop_device.path().display()))?;
    until_interrupted();
    loop_device.detach()?;
    mount.unmount(false)?;
    Ok(())
}

fn ready(place: &str) -> Result<()> {
    let mut out = std::io::stdout();
    write!(out, "{NAME} is ready\n\n{place}  end it        Ctrl-C\n")?;
    Ok(out.flush()?)
}

fn until_interrupted() {
    while interrupt::check().is_ok() {
        thread::sleep(Duration::from_millis(20));
    }
}
