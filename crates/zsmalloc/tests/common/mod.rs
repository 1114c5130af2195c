//! A pool, and an owner of its handles.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use pagealloc::{Frames, Zone, ZoneOptions};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, Pass, Pool, Room, StoreError};

pub const CPU: Cpu = Cpu(0);

/// The stamp and the length of each live object, by its handle.
pub type Live = BTreeMap<u32, (u64, usize)>;

pub struct Site {
    pub frames: Arc<dyn Frames>,
    pub pool: Pool,
}

pub fn site(max_frames: u32) -> Site {
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(2, max_frames)).unwrap();
    let frames: Arc<dyn Frames> = Arc::new(zone);
    let pool = Pool::new(&host::Mmap, frames.clone()).unwrap();
    Site { frames, pool }
}

/// Bytes that tell their own story: a length and a stamp repeated.
pub fn contents(stamp: u64, length: usize) -> Vec<u8> {
    let seed = Rng::new(stamp).next_u64();
    (0..length).map(|n| (seed >> (n % 8 * 8)) as u8 ^ n as u8).collect()
}

/// Sizes as compressed pages have them: mostly middling, some tiny, some whole pages.
pub fn some_size(rng: &mut Rng) -> usize {
    match rng.below(10) {
        0 => 1 + rng.below(64) as usize,
        1 => PAGE_SIZE,
        2 => 1 + rng.below(PAGE_SIZE as u64) as usize,
        _ => 300 + rng.below(2000) as usize,
    }
}

pub fn pick(rng: &mut Rng, live: &Live) -> Option<u32> {
    let from = rng.next_u64() as u32;
    live.range(from..).chain(live.iter()).next().map(|(handle, _)| *handle)
}

/// The handles of the objects that have to leave their zspages.
pub fn leaving(pass: &Pass<'_>, live: &Live) -> Vec<Handle> {
    let handles = live.keys().map(|handle| Handle::from_raw(*handle));
    handles.filter(|handle| pass.is_leaving(*handle)).collect()
}

impl Site {
    pub fn store(&self, cpu: Cpu, bytes: &[u8]) -> Result<Handle, StoreError> {
        self.pool.store(cpu, Room::Open, bytes, None)
    }

    /// Stores an object of `length` bytes, and notes it. Returns whether there was space.
    pub fn add(&self, live: &mut Live, stamp: u64, length: usize) -> bool {
        let Ok(handle) = self.store(CPU, &contents(stamp, length)) else { return false };
        let before = live.insert(handle.get(), (stamp, length));
        assert!(before.is_none(), "a live handle was given out again");
        true
    }

    pub fn free(&self, cpu: Cpu, handle: Handle) {
        // SAFETY: each test frees what it stored, and reads no more of it; of an object that is
        // freed twice the pool knows, as none took its place.
        unsafe { self.pool.free(cpu, handle) }
    }

    /// Keeps the objects for which `keep` is true, and frees the others.
    pub fn thin_out(&self, live: &mut Live, mut keep: impl FnMut() -> bool) {
        live.retain(|handle, _| {
            let stays = keep();
            if !stays {
                self.free(CPU, Handle::from_raw(*handle));
            }
            stays
        });
    }

    pub fn read(&self, handle: Handle, length: usize) -> Vec<u8> {
        let mut copy = vec![0; length];
        // SAFETY: the tests read what they stored with this length and have not freed.
        unsafe {
            self.pool.read(handle, length, |object| {
                object.copy_to(&mut copy);
            });
        }
        copy
    }

    /// Compacts as the owner of the handles.
    pub fn compact(&self, live: &mut Live) -> u64 {
        self.pool.compact(CPU, |pass| self.move_all(pass, live))
    }

    /// Moves all objects that have to leave their zspages and for which there is a place.
    pub fn move_all(&self, pass: &mut Pass<'_>, live: &mut Live) {
        for from in leaving(pass, live) {
            let Some(to) = pass.place_for(from) else { continue };
            // SAFETY: the object is live, and the place was taken for it.
            unsafe { pass.copy(from, to) };
            let object = live.remove(&from.get()).unwrap();
            assert!(live.insert(to.get(), object).is_none(), "a live handle was given out again");
            self.free(CPU, from);
        }
    }

    pub fn check(&self, live: &Live) {
        self.pool.validate();
        assert_eq!(self.pool.stats().objects, live.len() as u64);
        for (handle, (stamp, length)) in live {
            let read = self.read(Handle::from_raw(*handle), *length);
            assert!(read == contents(*stamp, *length), "object {handle:#x} changed");
        }
    }
}
