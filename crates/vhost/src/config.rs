//! What the device tells its driver: features, and the configuration (virtio 1.2, 5.2).

use block::BlockDevice;
use vhost_protocol::vhost_user::message::VhostUserVirtioFeatures;

/// Bytes of a sector: the unit of offsets and lengths, whatever the block size.
pub(crate) const SECTOR: u64 = 512;

/// The buffers of a request beside its header and its status.
const SEGMENTS: u32 = 126;
/// The most ranges of a discard or of a write of zeroes, and sectors of each.
pub(crate) const RANGES: u32 = 32;
pub(crate) const RANGE_SECTORS: u32 = (1 << 30) / SECTOR as u32;

/// Features of the device.
const SEG_MAX: u64 = 1 << 2;
const RO: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const MQ: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;
/// Features of rings.
const INDIRECT_DESC: u64 = 1 << 28;
pub(crate) const EVENT_IDX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;

/// The features that a server offers for `device`. A device without a flush has what was written
/// when it answers, and drivers call that "write through": there is no cache that one could switch
/// off, so `VIRTIO_BLK_F_CONFIG_WCE` is not offered. Our disks are such.
pub(crate) fn features(device: &dyn BlockDevice) -> u64 {
    let abilities = device.abilities();
    let when = |is: bool, feature| if is { feature } else { 0 };
    SEG_MAX
        | BLK_SIZE
        | TOPOLOGY
        | MQ
        | INDIRECT_DESC
        | EVENT_IDX
        | VERSION_1
        | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
        | when(abilities.read_only, RO)
        | when(abilities.flush, FLUSH)
        | when(abilities.discard && !abilities.read_only, DISCARD)
        | when(!abilities.read_only, WRITE_ZEROES)
}

/// Bytes of the configuration: as many as a front end may ask for. What is behind the last known
/// field is zero.
pub(crate) const BYTES: usize = 256;

/// The configuration for `device` with up to `queues` queues.
pub(crate) fn config(device: &dyn BlockDevice, queues: u16) -> [u8; BYTES] {
    let geometry = device.geometry();
    let block = u64::from(geometry.minimum_block).next_power_of_two().max(SECTOR);
    let best = u64::from(geometry.preferred_block).next_power_of_two().max(block);
    let sectors = (best / SECTOR) as u32;
    let mut config = [0; BYTES];
    let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(geometry.bytes / SECTOR).to_le_bytes());
    put(12, &SEGMENTS.to_le_bytes());
    put(20, &(block as u32).to_le_bytes());
    // Blocks of the best length are 2^n blocks, and the least and the best length of a request.
    put(24, &[(best / block).trailing_zeros() as u8, 0]);
    put(26, &u16::try_from(best / block).unwrap_or(1).to_le_bytes());
    put(28, &((best / block) as u32).to_le_bytes());
    put(34, &queues.to_le_bytes());
    put(36, &RANGE_SECTORS.to_le_bytes());
    put(40, &RANGES.to_le_bytes());
    put(44, &sectors.to_le_bytes());
    put(48, &RANGE_SECTORS.to_le_bytes());
    put(52, &RANGES.to_le_bytes());
    put(56, &[1]);
    config
}
