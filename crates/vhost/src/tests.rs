use std::fs::File;
use std::sync::Arc;

use block::{Checked, Plain};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use testkit::{Need, Rng, TempDir, met};
use vhost_protocol::vhost_user::message::{VhostUserInflight, VhostUserMemoryRegion};
use vm_memory::{Bytes, GuestAddress};

use crate::drive::{TABLE, USED, drive};
use crate::inflight::Inflight;
use crate::memory::{Memory, map};
use crate::ring::{Parts, Ring, Signal};

const SIZE: u16 = 16;
const AVAILABLE: u64 = 0x1000;
const USED_RING: u64 = 0x2000;

/// A ring, and what outlives the process that serves it.
struct World {
    memory: Arc<Memory>,
    told: VhostUserInflight,
    file: File,
    available: u16,
}

impl World {
    fn new() -> World {
        let (told, file) = Inflight::make(2, SIZE).unwrap();
        World { memory: Arc::new(Memory::own(1 << 16).unwrap()), told, file, available: 0 }
    }

    /// A process begins to serve.
    fn ring(&self) -> Ring {
        let inflight = Inflight::kept(&self.told, self.file.try_clone().unwrap()).unwrap();
        let parts = Parts {
            memory: self.memory.clone(),
            places: [0, AVAILABLE, USED_RING],
            size: SIZE,
            event_idx: false,
            taken: 0,
            under_way: Some(inflight.queue(1, SIZE).unwrap()),
            call: Signal::default(),
        };
        Ring::new(parts).unwrap()
    }

    fn offer(&mut self, heads: &[u16]) {
        for head in heads {
            let place = AVAILABLE + 4 + 2 * u64::from(self.available % SIZE);
            self.memory.guest.write_obj(*head, GuestAddress(place)).unwrap();
            self.available += 1;
        }
        self.memory.guest.write_obj(self.available, GuestAddress(AVAILABLE + 2)).unwrap();
    }

    fn used(&self) -> Vec<u16> {
        let count: u16 = self.memory.guest.read_obj(GuestAddress(USED_RING + 2)).unwrap();
        let head = |n: u16| {
            let place = USED_RING + 4 + 8 * u64::from(n % SIZE);
            self.memory.guest.read_obj::<u32>(GuestAddress(place)).unwrap() as u16
        };
        (0..count).map(head).collect()
    }

    fn all(&self, ring: &mut Ring) -> Vec<u16> {
        std::iter::from_fn(|| ring.take().unwrap()).collect()
    }
}

#[test]
fn what_a_process_left_is_taken_again_in_its_order() {
    let mut world = World::new();
    world.offer(&[3, 0, 9, 5, 7]);
    let mut ring = world.ring();
    let taken: Vec<u16> = (0..4).map(|_| ring.take().unwrap().unwrap()).collect();
    assert_eq!(taken, [3, 0, 9, 5]);
    ring.put(9, 1).unwrap();
    drop(ring);
    let mut ring = world.ring();
    assert_eq!(world.all(&mut ring), [3, 0, 5, 7]);
    for head in [5, 3] {
        ring.put(head, 1).unwrap();
    }
    world.offer(&[9]);
    assert_eq!(world.all(&mut ring), [9]);
    drop(ring);
    let mut ring = world.ring();
    assert_eq!(world.all(&mut ring), [0, 7, 9]);
    for head in [9, 0, 7] {
        ring.put(head, 1).unwrap();
    }
    drop(ring);
    assert!(world.all(&mut world.ring()).is_empty());
    assert_eq!(world.used(), [9, 5, 3, 9, 0, 7]);
}

#[test]
fn a_kill_within_an_answer_leaves_it_done_or_to_be_done() {
    // The steps of an answer that were done: noted as last; in the ring; not under way; counted.
    for steps in 0..=4 {
        let mut world = World::new();
        world.offer(&[4, 2, 6]);
        let mut ring = world.ring();
        assert_eq!(world.all(&mut ring), [4, 2, 6]);
        ring.put(6, 1).unwrap();
        drop(ring);
        let inflight = Inflight::kept(&world.told, world.file.try_clone().unwrap()).unwrap();
        let queue = inflight.queue(1, SIZE).unwrap();
        if steps >= 1 {
            queue.ends(4);
        }
        if steps >= 2 {
            world.memory.guest.write_obj(4u32, GuestAddress(USED_RING + 12)).unwrap();
            world.memory.guest.write_obj(2u16, GuestAddress(USED_RING + 2)).unwrap();
        }
        match steps {
            0..=2 => {}
            // Its count is that of before.
            3 => queue.ended(4, 1),
            _ => queue.ended(4, 2),
        }
        let mut ring = world.ring();
        let left = world.all(&mut ring);
        assert_eq!(left, if steps < 2 { vec![4, 2] } else { vec![2] }, "{steps}");
        for head in left {
            ring.put(head, 1).unwrap();
        }
        assert_eq!(world.used(), [6, 4, 2], "{steps}");
        assert!(world.all(&mut world.ring()).is_empty(), "{steps}");
    }
}

#[test]
fn a_region_that_is_none_is_refused() {
    let (told, file) = Inflight::make(2, SIZE).unwrap();
    let refused = |told: VhostUserInflight, file: &File| {
        let kept = Inflight::kept(&told, file.try_clone().unwrap());
        kept.map(drop).unwrap_err().to_string()
    };
    let VhostUserInflight { mmap_size, .. } = told;
    let with = |size, queues| VhostUserInflight::new(size, 0, queues, SIZE);
    assert!(refused(with(mmap_size - 1, 2), &file).contains("too short"));
    assert!(refused(with(mmap_size, 3), &file).contains("too short"));
    assert!(refused(with(mmap_size * 2, 2), &file).contains("more than the file has"));
    let dir = TempDir::new();
    let plain = File::create_new(dir.join("f")).unwrap();
    plain.set_len(1 << 20).unwrap();
    assert!(refused(with(mmap_size, 2), &plain).contains("F_SEAL_SHRINK"));
    let it = Inflight::kept(&told, file.try_clone().unwrap()).unwrap();
    assert!(it.queue(2, SIZE).is_err() && it.queue(0, SIZE + 1).is_err());
    // Of another version.
    std::os::unix::fs::FileExt::write_all_at(&file, &[2, 0], 8).unwrap();
    assert!(it.queue(0, SIZE).map(drop).unwrap_err().to_string().contains("version 2"));
    assert!(it.queue(1, SIZE).is_ok());
}

#[test]
fn memory_of_strangers_cannot_shrink() {
    let sealed = host::Memfds::new().file(1 << 20).unwrap();
    assert!(map(sealed.try_clone().unwrap(), 0, 1 << 20, false).is_ok());
    let beyond = map(sealed.try_clone().unwrap(), 4096, 1 << 20, true).unwrap_err();
    assert!(beyond.to_string().contains("more than the file has"), "{beyond}");
    assert!(map(sealed, u64::MAX, 2, true).is_err());
    let dir = TempDir::new();
    let path = dir.join("f");
    let plain = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    plain.set_len(1 << 20).unwrap();
    assert!(map(plain.try_clone().unwrap(), 0, 1 << 20, true).is_ok());
    let refused = map(plain, 0, 1 << 20, false).unwrap_err();
    assert!(refused.to_string().contains("F_SEAL_SHRINK"), "{refused}");
}

#[test]
fn a_stranger_has_no_more_memory_than_the_machine() {
    const PART: u64 = 1 << 30;
    let shared = |most| {
        let region = |at| VhostUserMemoryRegion::new(at * PART, PART, at * PART, 0);
        let file = |_| host::Memfds::new().file(PART).unwrap();
        Memory::new(&[0, 1].map(region), (0..2).map(file).collect(), most).map(drop)
    };
    assert!(shared(Some(2 * PART)).is_ok() && shared(None).is_ok());
    let refused = shared(Some(2 * PART - 1)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("more memory than this machine has"), "{refused}");
}

/// A page of it is not there if others have taken it from the pool, or the file was punched.
#[test]
fn memory_of_strangers_is_there_when_it_is_touched() {
    let flags = MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let made = memfd_create("huge", flags);
    let need = Need::other(made.is_ok(), "memfd_create(MFD_HUGETLB)");
    if !met("memory_of_strangers_is_there_when_it_is_touched", &[need]) {
        return;
    }
    let file = File::from(made.unwrap());
    file.set_len(64 << 20).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let refused = map(file.try_clone().unwrap(), 0, 64 << 20, false).unwrap_err();
    assert!(refused.to_string().contains("huge pages"), "{refused}");
    assert!(map(file, 0, 64 << 20, true).is_ok());
}

#[test]
fn memory_of_a_machine_comes_when_it_is_touched() {
    if !met("memory_of_a_machine_comes_when_it_is_touched", &[Need::Root]) {
        return;
    }
    host::lock_memory().unwrap();
    let file = host::Memfds::new().file(64 << 20).unwrap();
    let mapped = map(file.try_clone().unwrap(), 0, 64 << 20, false);
    host::unlock_memory();
    let taken = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
    assert!(mapped.is_ok() && taken < 1 << 20, "{taken}");
}

/// A machine that writes anything to its memory: descriptors that may well be right.
fn image(rng: &mut Rng) -> Vec<u8> {
    let mut image = vec![0; 0x4000];
    rng.fill(&mut image[0x1000..]);
    for n in 0..16 {
        let at = TABLE + 16 * n;
        let (wide, long) = (rng.range(10..18), rng.range(1..14));
        let place = rng.below(1 << wide);
        image[at..at + 8].copy_from_slice(&place.to_le_bytes());
        let length = rng.below(1 << long) as u32;
        image[at + 8..at + 12].copy_from_slice(&length.to_le_bytes());
        image[at + 12] = rng.below(8) as u8;
        image[at + 14] = rng.below(18) as u8;
        let kind = *rng.pick(&[0u32, 1, 4, 8, 11, 13]);
        let header = rng.below(0x3ff0) as usize;
        image[header.max(0x1000)..][..4].copy_from_slice(&kind.to_le_bytes());
    }
    let available = TABLE + 256;
    for n in 0..16 {
        image[available + 4 + 2 * n] = rng.below(17) as u8;
    }
    image[available + 2] = rng.below(17) as u8;
    image
}

#[test]
fn no_memory_of_a_machine_is_a_panic() {
    let mut rng = Rng::new(testkit::seed("no_memory_of_a_machine_is_a_panic"));
    let device = Arc::new(Checked::new(Plain::new(1 << 20)));
    let mut answered = 0;
    for _ in 0..testkit::cases(3000) {
        let after = drive(&image(&mut rng), device.clone());
        answered += u32::from(after[USED + 2]);
    }
    assert!(answered > 1000, "{answered}");
}
