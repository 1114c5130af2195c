//! A ring in memory, without threads or sockets.

use std::fs::File;
use std::sync::Arc;

use block::BlockDevice;
use units::Cpu;
use vm_memory::{Bytes, GuestAddress};

use crate::memory::Memory;
use crate::queue::Queue;
use crate::request::{ID, PIECE, Request, Served};
use crate::ring::{Parts, Ring, Signal};

/// The entries of the ring of [`drive`].
const SIZE: u16 = 16;
/// Where its descriptors are: 16 bytes each. The available ring follows them.
pub const TABLE: usize = 0;
const AVAILABLE: usize = TABLE + 16 * SIZE as usize;
/// Where its used ring is.
pub const USED: usize = 0x200;
/// Bytes of the memory of the machine.
const MEMORY: usize = 64 << 10;

/// Carries out the requests in the ring of a machine whose memory begins with `image`: 16
/// descriptors at [`TABLE`], the available ring behind them, the used ring at [`USED`]. Returns the
/// memory afterwards.
///
/// For fuzzing and tests. It returns for any `image`.
#[must_use]
pub fn drive(image: &[u8], device: Arc<dyn BlockDevice>) -> Vec<u8> {
    let memory = Memory::own(MEMORY).map(Arc::new);
    let Some(memory) = memory else { return Vec::new() };
    let image = &image[..image.len().min(MEMORY)];
    let _ = memory.guest.write_slice(image, GuestAddress(0));
    let ring = Ring::new(Parts {
        memory: memory.clone(),
        places: [TABLE, AVAILABLE, USED].map(|at| at as u64),
        size: SIZE,
        event_idx: true,
        taken: 0,
        under_way: None,
        call: Signal::default(),
    });
    let served = Arc::new(Served { device, cpu: || Cpu(0), id: [b'i'; ID] });
    if let (Ok(ring), Ok(kick)) = (ring, File::open("/dev/null"))
        && let Ok(queue) = Queue::new(ring, (kick, Signal::default()), served, None)
    {
        let _ = Arc::new(queue).carry_out_all(&mut Request::default(), &mut vec![0; PIECE]);
    }
    let mut after = vec![0; MEMORY];
    let _ = memory.guest.read_slice(&mut after, GuestAddress(0));
    after
}
