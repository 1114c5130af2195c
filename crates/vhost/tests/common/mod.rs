//! A front end with its machine: memory, rings, and a driver that knows just enough.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use block::BlockDevice;
use host::{For, wait_until};
use testkit::TempDir;
use vhost::{Options, Server};
use vhost_protocol::vhost_user::message::{VhostUserConfigFlags, VhostUserInflight};
use vhost_protocol::vhost_user::{
    Error as Refused, Frontend, VhostUserFrontend, VhostUserProtocolFeatures,
};
use vhost_protocol::{Error, VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub const SECTOR: u64 = 512;
/// The entries of a ring, and where things are in the memory of a queue.
pub const ENTRIES: u16 = 64;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const BUFFERS: u64 = 0x1_0000;
/// Bytes for the buffers of a request, and of a queue in all.
const SLOT: u64 = 0x4_8000;
const QUEUE: u64 = BUFFERS + SLOT * (ENTRIES / 4) as u64;
/// Where the memory begins: for drivers, and in the front end.
pub const GUEST: u64 = 0x4000_0000;
const USER: u64 = 0x7f00_0000_0000;

/// Types of requests.
pub const IN: u32 = 0;
pub const OUT: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;
pub const DISCARD: u32 = 11;
pub const WRITE_ZEROES: u32 = 13;

/// Flags of descriptors.
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// A server of a device in a directory of its own.
pub struct Served {
    pub server: Server,
    pub root: TempDir,
}

pub fn serve(device: Arc<dyn BlockDevice>, options: Options) -> Served {
    let root = TempDir::new();
    let listener = UnixListener::bind(root.join("s")).unwrap();
    let server = Server::new(listener, Arc::new(move || Ok(device.clone())), options).unwrap();
    Served { server, root }
}

impl Served {
    pub fn socket(&self) -> PathBuf {
        self.root.join("s")
    }

    pub fn connect(&self) -> Machine {
        Machine::new(2).connected(&self.socket())
    }
}

/// The memory of a machine.
pub fn memory(bytes: u64) -> (File, GuestMemoryMmap<()>) {
    let file = host::Memfds::new().file(bytes).unwrap();
    let place = FileOffset::new(file.try_clone().unwrap(), 0);
    let ranges = [(GuestAddress(GUEST), bytes as usize, Some(place))];
    (file, GuestMemoryMmap::from_ranges_with_files(ranges).unwrap())
}

/// What a descriptor says.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    pub at: u64,
    pub length: u32,
    pub flags: u16,
    pub next: u16,
}

impl Descriptor {
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }
}

/// The driver's side of a ring. Request `slot` has the descriptors from `4 * slot` on.
struct Ring {
    start: u64,
    available: u16,
    used: u16,
    kick: EventFd,
    call: EventFd,
}

/// A machine and its front end. The machine stays when the connection ends.
pub struct Machine {
    pub front: Option<Frontend>,
    pub file: File,
    pub memory: GuestMemoryMmap<()>,
    rings: Vec<Ring>,
    inflight: Option<(VhostUserInflight, File)>,
    pub features: u64,
}

impl Machine {
    pub fn new(queues: u16) -> Machine {
        let (file, memory) = memory((QUEUE * u64::from(queues)).next_multiple_of(1 << 20));
        let event = || EventFd::new(EFD_NONBLOCK).unwrap();
        let ring = |number: u16| Ring {
            start: QUEUE * u64::from(number),
            available: 0,
            used: 0,
            kick: event(),
            call: event(),
        };
        let rings = (0..queues).map(ring).collect();
        Machine { front: None, file, memory, rings, inflight: None, features: 0 }
    }

    pub fn connected(mut self, socket: &Path) -> Machine {
        self.connect(socket);
        self
    }

    /// Connects, or connects again, as qemu does.
    pub fn connect(&mut self, socket: &Path) {
        let end = Instant::now() + Duration::from_secs(60);
        while let Err(error) = self.try_connect(socket) {
            assert!(Instant::now() < end, "no server: {error}");
            self.front = None;
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn try_connect(&mut self, socket: &Path) -> Result<(), Error> {
        let stream = std::os::unix::net::UnixStream::connect(socket)
            .map_err(|error| Error::VhostUserProtocol(Refused::SocketConnect(error)))?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut front = Frontend::from_stream(stream, 64);
        front.set_owner()?;
        let features = front.get_features()?;
        let protocol = front.get_protocol_features()?;
        front.set_protocol_features(protocol & !VhostUserProtocolFeatures::REPLY_ACK)?;
        assert!(front.get_queue_num()? >= self.rings.len() as u64);
        let queues = self.rings.len() as u16;
        if self.inflight.is_none() {
            let asked = VhostUserInflight::new(0, 0, queues, ENTRIES);
            self.inflight = Some(front.get_inflight_fd(&asked)?);
        }
        if let Some((told, file)) = &self.inflight {
            front.set_inflight_fd(told, file.as_raw_fd())?;
        }
        front.set_features(features)?;
        self.features = features;
        self.share(&front)?;
        for (index, ring) in self.rings.iter().enumerate() {
            front.set_vring_num(index, ENTRIES)?;
            // After a crash nobody knows more than what is in the used ring.
            let used: u16 =
                self.memory.read_obj(GuestAddress(GUEST + ring.start + USED + 2)).unwrap();
            front.set_vring_base(index, used)?;
            front.set_vring_addr(index, &ring.places())?;
            front.set_vring_kick(index, &ring.kick)?;
            front.set_vring_call(index, &ring.call)?;
            front.set_vring_enable(index, true)?;
        }
        // The answer says that all that is done.
        front.get_features()?;
        self.front = Some(front);
        Ok(())
    }

    pub fn share(&self, front: &Frontend) -> Result<(), Error> {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST,
            memory_size: self.file.metadata().unwrap().len(),
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        };
        front.set_mem_table(&[region]).map(drop)
    }

    pub fn front(&mut self) -> &mut Frontend {
        self.front.as_mut().unwrap()
    }

    pub fn config(&mut self) -> Vec<u8> {
        let flags = VhostUserConfigFlags::empty();
        self.front().get_config(0, 60, flags, &[0; 60]).unwrap().1
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(GUEST + at)).unwrap();
    }

    pub fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read_slice(&mut bytes, GuestAddress(GUEST + at)).unwrap();
        bytes
    }

    /// Where request `slot` of a queue has its buffers, in the memory.
    pub fn buffers(&self, queue: usize, slot: u16) -> u64 {
        self.rings[queue].start + BUFFERS + SLOT * u64::from(slot)
    }

    /// Puts descriptors at the beginning of the table of a queue, from `first` on.
    pub fn describe(&self, queue: usize, first: u16, descriptors: &[Descriptor]) {
        for (number, descriptor) in descriptors.iter().enumerate() {
            let at = self.rings[queue].start + 16 * (u64::from(first) + number as u64);
            self.write(at, &descriptor.bytes());
        }
    }

    /// Makes the chain at `head` available.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let ring = &mut self.rings[queue];
        let place = AVAILABLE + 4 + 2 * u64::from(ring.available % ENTRIES);
        ring.available = ring.available.wrapping_add(1);
        let (start, available) = (ring.start, ring.available);
        self.write(start + place, &head.to_le_bytes());
        self.set_available(queue, available);
    }

    /// Sets the index of the available ring, and signals.
    pub fn set_available(&mut self, queue: usize, index: u16) {
        let ring = &self.rings[queue];
        // Signals are wanted always: for what is used next.
        let event = ring.start + AVAILABLE + 4 + 2 * u64::from(ENTRIES);
        self.write(event, &ring.used.to_le_bytes());
        let at = GuestAddress(GUEST + ring.start + AVAILABLE + 2);
        self.memory.store(index, at, std::sync::atomic::Ordering::SeqCst).unwrap();
        self.kick(queue);
    }

    pub fn kick(&self, queue: usize) {
        self.rings[queue].kick.write(1).unwrap();
    }

    /// Begins a request in `slot`: `out` is behind its header, `room` bytes come back.
    pub fn begin(
        &mut self,
        (queue, slot): (usize, u16),
        (kind, sector): (u32, u64),
        out: &[u8],
        room: u32,
    ) {
        let at = self.buffers(queue, slot);
        let mut header = kind.to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(sector.to_le_bytes());
        self.write(at, &header);
        self.write(at + 0x1000, out);
        self.write(at + 0x4_4000, &[0xff]);
        let (head, at) = (4 * slot, GUEST + at);
        let mut chain = vec![Descriptor { at, length: 16, flags: NEXT, next: head + 1 }];
        let mut push = |at, length, flags| {
            let next = head + chain.len() as u16 + 1;
            chain.push(Descriptor { at, length, flags, next });
        };
        if !out.is_empty() {
            push(at + 0x1000, out.len() as u32, NEXT);
        }
        if room > 0 {
            push(at + 0x1000, room, NEXT | WRITE);
        }
        push(at + 0x4_4000, 1, WRITE);
        self.describe(queue, head, &chain);
        self.offer(queue, head);
    }

    /// The next used descriptor and how much was written; None if there is none within a while.
    pub fn used(&mut self, queue: usize, patience: Duration) -> Option<(u32, u32)> {
        let end = Instant::now() + patience;
        loop {
            let ring = &mut self.rings[queue];
            let at = ring.start + USED;
            let index = self
                .memory
                .load::<u16>(GuestAddress(GUEST + at + 2), std::sync::atomic::Ordering::SeqCst)
                .unwrap();
            if index != ring.used {
                let place = at + 4 + 8 * u64::from(ring.used % ENTRIES);
                ring.used = ring.used.wrapping_add(1);
                let event = ring.start + AVAILABLE + 4 + 2 * u64::from(ENTRIES);
                let next = ring.used.to_le_bytes();
                self.write(event, &next);
                // The server adds an answer and then reads the event; here it is the other way.
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                let [head, written] = [place, place + 4]
                    .map(|at| u32::from_le_bytes(self.read(at, 4).try_into().unwrap()));
                return Some((head, written));
            }
            // SAFETY: the event lives as long as the machine.
            let call = unsafe { BorrowedFd::borrow_raw(ring.call.as_raw_fd()) };
            if !wait_until(call, For::Reading, end).unwrap() {
                return None;
            }
            let _ = ring.call.read();
        }
    }

    /// Ends the next request: its slot and its status.
    pub fn end(&mut self, queue: usize) -> (u16, u8) {
        let used = self.used(queue, Duration::from_secs(60));
        let (head, _) = used.expect("a request is answered");
        let slot = head as u16 / 4;
        let status = self.buffers(queue, slot) + 0x4_4000;
        (slot, self.read(status, 1)[0])
    }

    /// Carries out one request: its status and what came back.
    pub fn ask(&mut self, kind: u32, sector: u64, out: &[u8], room: u32) -> (u8, Vec<u8>) {
        self.begin((0, 0), (kind, sector), out, room);
        let (slot, status) = self.end(0);
        (status, self.read(self.buffers(0, slot) + 0x1000, room as usize))
    }

    /// A discard or a write of zeroes of one range.
    pub fn free(&mut self, kind: u32, sector: u64, sectors: u32, flags: u32) -> u8 {
        self.ask(kind, 0, &range(sector, sectors, flags), 0).0
    }
}

pub fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

impl Ring {
    fn places(&self) -> VringConfigData {
        VringConfigData {
            queue_max_size: ENTRIES,
            queue_size: ENTRIES,
            flags: 0,
            desc_table_addr: USER + self.start,
            used_ring_addr: USER + self.start + USED,
            avail_ring_addr: USER + self.start + AVAILABLE,
            log_addr: None,
        }
    }
}
