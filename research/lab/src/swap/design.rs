//! Our cache with a chosen index, which this process serves: a loop device on a FUSE file.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use control::ControlError;
use designs::{Machine, Variants};
use fuse::{LoopDevice, LoopOptions, Mount};
use sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use units::{Cpu, PAGE_SIZE};
use zswap::{AreaOptions, SwapDevice, SwapType, Work, Zswap};

use super::area::{On, SwapFile};
use super::zswap::percent;
use super::{Area, Shop};

/// Swap space on a device that this process serves.
pub struct Design {
    // Dropped in this order.
    on: On,
    loop_device: LoopDevice,
    mount: Mount,
    _worker: Worker,
    _directory: TempDir,
    _backing: SwapFile,
}

impl Design {
    /// Makes the swap. The variant is an index, and optionally `+` and a codec.
    pub fn new(shop: &Shop, variant: Option<&str>) -> Result<Design> {
        let Some(variant) = variant else {
            bail!("which index? {}", designs::INDEXES.join(", "));
        };
        let backing = SwapFile::new(shop)?;
        let (zswap, device) = area(shop, variant, &backing)?;
        let worker = Worker::new(zswap);
        let directory =
            TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
        let mount = Mount::new(directory.path(), fuse::Options::default())?;
        let file = mount.add("disk", Arc::new(device))?;
        let loop_device = LoopDevice::attach(&file, LoopOptions::default())?;
        let on = On::new(loop_device.path(), shop.first).context("swap on our device")?;
        let (_worker, _directory, _backing) = (worker, directory, backing);
        Ok(Design { on, loop_device, mount, _worker, _directory, _backing })
    }
}

/// Makes a swap area with a file behind it.
fn area(
    shop: &Shop,
    variant: &str,
    backing: &SwapFile,
) -> Result<(Arc<Zswap>, SwapDevice), ControlError> {
    let (index, codec) = variant.split_once('+').unwrap_or((variant, ""));
    let variants = Variants { index: index.to_owned(), ..Variants::default() };
    let zswap = Machine::of(variants)?.swap()?;
    if !codec.is_empty() {
        zswap.set_compressor(codec)?;
    }
    if let Some(bytes) = shop.max_pool {
        zswap.set_max_pool_percent(percent(bytes, host::total_memory()) as u32)?;
    }
    let device = Some(backing::open(backing.path(), backing::Options::default())?);
    let (swap, memcg) = (SwapType::new(0)?, zswap.memcg("default")?);
    zswap.swapon(swap, shop.bytes / PAGE_SIZE as u64, AreaOptions { device, memcg })?;
    Ok((zswap.clone(), SwapDevice::new(zswap, swap)))
}

/// A thread that writes pages back while the pool is crowded, until drop.
struct Worker {
    zswap: Arc<Zswap>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn new(zswap: Arc<Zswap>) -> Worker {
        let over = Arc::new(AtomicBool::new(false));
        let theirs = (zswap.clone(), over.clone());
        let thread = Some(thread::spawn(move || write_back(&theirs.0, &theirs.1)));
        Worker { zswap, over, thread }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Relaxed: the event orders it.
        self.over.store(true, Ordering::Relaxed);
        self.zswap.event().notify_all();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn write_back(zswap: &Zswap, over: &AtomicBool) {
    loop {
        let ticket = zswap.event().ticket();
        if over.load(Ordering::Relaxed) {
            return;
        }
        match zswap.work(Cpu(0)) {
            Work::Again => {}
            Work::Later => thread::sleep(Duration::from_millis(100)),
            Work::Idle => zswap.event().wait(ticket),
        }
    }
}

/// The part that went to the disk is unknown.
impl Area for Design {
    fn end(mut self: Box<Self>) -> Result<()> {
        self.on.off()?;
        self.loop_device.detach()?;
        Ok(self.mount.unmount(false)?)
    }
}
