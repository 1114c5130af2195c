//! The memory of a virtual machine with a ring of requests.

use std::sync::Arc;

use block::{BlockDevice, Checked, Operation, Plain};
use units::Cpu;
use vhost::{TABLE, USED, drive};

const BYTES: usize = 1 << 20;
/// The entries of the ring, and where its available ring is.
const SIZE: usize = 16;
const AVAILABLE: usize = TABLE + 16 * SIZE;

/// The memory of a machine, from its table of descriptors on. A ring with more requests than it has
/// entries is left alone, and the device goes on.
pub fn vhost_chains(input: &[u8]) {
    let device = Arc::new(Checked::new(Plain::new(BYTES)));
    let mut before = input.to_vec();
    before.resize(input.len().max(USED + 4), 0);
    let after = drive(&before, device.clone());
    let number = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    if usize::from(number(&before, AVAILABLE + 2)) > SIZE {
        assert_eq!(number(&after, USED + 2), number(&before, USED + 2), "the ring is broken");
    }
    let mut byte = [0];
    let read = device.submit(Cpu(0), Operation::Read { offset: 0, into: &mut byte });
    assert_eq!(read, Ok(()));
}

/// Rings with a request of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |kind: u32, data: u32, flags: u8| {
        let mut image = vec![0; 0x1400];
        let mut describe = |n: usize, at: u64, length: u32, flags: u8| {
            let descriptor = &mut image[TABLE + 16 * n..][..16];
            descriptor[..8].copy_from_slice(&at.to_le_bytes());
            descriptor[8..12].copy_from_slice(&length.to_le_bytes());
            descriptor[12] = flags;
            descriptor[14] = n as u8 + 1;
        };
        describe(0, 0x1000, 16, 1);
        describe(1, 0x1010, data, 1 | flags);
        describe(2, 0x1300, 1, 2);
        image[AVAILABLE + 2] = 1;
        image[0x1000..0x1004].copy_from_slice(&kind.to_le_bytes());
        image[0x1018] = 8;
        image
    };
    vec![
        seed(0, 512, 2),
        seed(1, 512, 0),
        seed(4, 0, 0),
        seed(8, 20, 2),
        seed(11, 16, 0),
        seed(13, 32, 0),
    ]
}
