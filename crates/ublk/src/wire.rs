//! The structures and commands of linux/ublk_cmd.h. Commands have the numbers of Linux 6.4. Numbers
//! are in the byte order of the machine.

use std::mem;

use block::{Abilities, Geometry};
use units::{PAGE_SHIFT, PAGE_SIZE};

/// The driver counts in sectors of 512 bytes.
pub(crate) const SECTOR_SHIFT: u32 = 9;
/// The most requests of one queue.
pub(crate) const MOST_DEPTH: u16 = 4096;
/// The most bytes of one discard or write of zeroes: a request blocks its queue.
const MOST_CLEARED: u64 = 256 << 20;

/// `struct ublksrv_ctrl_cmd`: part of an entry of a ring with large entries.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Command {
    pub(crate) device: u32,
    queue: u16,
    pub(crate) length: u16,
    pub(crate) address: u64,
    pub(crate) data: u64,
    path_length: u16,
    padding: u16,
    reserved: u32,
}

/// `struct ublksrv_io_cmd`: part of an entry of an ordinary ring.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoCommand {
    pub(crate) queue: u16,
    pub(crate) tag: u16,
    pub(crate) result: i32,
    pub(crate) address: u64,
}

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Info {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) state: u16,
    padding: u16,
    pub(crate) largest: u32,
    pub(crate) number: u32,
    pub(crate) server: i32,
    padding2: u32,
    pub(crate) flags: u64,
    /// Free for the server to use: see [`mark`].
    pub(crate) mark: u64,
    owner: [u32; 2],
    reserved: [u64; 2],
}

/// `struct ublk_params` with its length in Linux 6.0; a later driver accepts the shorter form.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Parameters {
    pub(crate) length: u32,
    pub(crate) types: u32,
    pub(crate) attributes: u32,
    pub(crate) logical_block: u8,
    pub(crate) physical_block: u8,
    pub(crate) optimal: u8,
    pub(crate) minimal: u8,
    pub(crate) most_sectors: u32,
    chunk_sectors: u32,
    pub(crate) sectors: u64,
    virtual_boundary: u64,
    discard_alignment: u32,
    pub(crate) discard_granularity: u32,
    pub(crate) most_discarded: u32,
    pub(crate) most_zeroed: u32,
    pub(crate) discard_segments: u16,
    reserved: u16,
    padding: u32,
}

/// `struct ublksrv_io_desc`: a request, as the driver describes it.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Descriptor {
    pub(crate) what: u32,
    pub(crate) sectors: u32,
    pub(crate) start: u64,
    pub(crate) address: u64,
}

const _: () = assert!(mem::size_of::<Command>() == 32 && mem::size_of::<IoCommand>() == 16);
const _: () = assert!(mem::size_of::<Info>() == 64 && mem::size_of::<Descriptor>() == 24);
const _: () = assert!(mem::size_of::<Parameters>() == 64);

const READS: u32 = 2;
const WRITES: u32 = 1;

/// A command's number: `_IOC` of the kernel's headers for the letter `u`.
const fn number(direction: u32, bytes: usize, command: u32) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | command
}

const fn control(direction: u32, command: u32) -> u32 {
    number(direction, mem::size_of::<Command>(), command)
}

pub(crate) const GET_INFO: u32 = control(READS, 0x02);
pub(crate) const ADD: u32 = control(READS | WRITES, 0x04);
pub(crate) const DELETE: u32 = control(READS | WRITES, 0x05);
pub(crate) const START: u32 = control(READS | WRITES, 0x06);
pub(crate) const STOP: u32 = control(READS | WRITES, 0x07);
pub(crate) const SET_PARAMETERS: u32 = control(READS | WRITES, 0x08);
/// Makes a device that lost its server ready for another one.
pub(crate) const BEGIN_RECOVERY: u32 = control(READS | WRITES, 0x10);
/// Lets the requests of such a device go on.
pub(crate) const END_RECOVERY: u32 = control(READS | WRITES, 0x11);
/// Tells which flags of a device the driver knows (Linux 6.5).
pub(crate) const GET_FEATURES: u32 = control(READS, 0x13);
/// Deletes without waiting for the last close (Linux 6.7).
pub(crate) const DELETE_LATER: u32 = control(READS, 0x14);
/// Changes the size, in sectors (Linux 6.16).
pub(crate) const UPDATE_SIZE: u32 = control(READS | WRITES, 0x15);
/// Keeps new requests for the next server, and ends the commands that wait for one; within some
/// milliseconds (Linux 6.16).
pub(crate) const QUIESCE: u32 = control(READS | WRITES, 0x16);

pub(crate) const FETCH: u32 = number(READS | WRITES, mem::size_of::<IoCommand>(), 0x20);
pub(crate) const COMMIT_AND_FETCH: u32 = number(READS | WRITES, mem::size_of::<IoCommand>(), 0x21);

/// [`Info::state`] of a device that is served (`UBLK_S_DEV_LIVE`). It is 0 before the start and
/// after the stop (`UBLK_S_DEV_DEAD`), so a device that is not live may be about to start.
pub(crate) const LIVE: u16 = 1;
/// [`Info::state`] of a device that lost its server and waits for another one
/// (`UBLK_S_DEV_QUIESCED`).
pub(crate) const QUIESCED: u16 = 2;

/// [`Info::flags`] of a device that stays when its server dies (`UBLK_F_USER_RECOVERY`).
const RECOVERY: u64 = 1 << 3;
/// The next server gets the requests again that the dead one had (`UBLK_F_USER_RECOVERY_REISSUE`).
const REISSUE: u64 = 1 << 4;
/// The flags of a device that another process can recover.
pub(crate) const RECOVERABLE: u64 = RECOVERY | REISSUE;

/// The device may change its size (`UBLK_F_UPDATE_SIZE`).
pub(crate) const RESIZABLE: u64 = 1 << 10;
/// Each request may have a task of its own (`UBLK_F_PER_IO_DAEMON`, Linux 6.16). A driver that
/// knows it recovers devices with several queues.
pub(crate) const PER_IO_DAEMON: u64 = 1 << 13;
/// A server can end without a request under way (`UBLK_F_QUIESCE`, Linux 6.16). The driver wants
/// [`RECOVERABLE`] beside it.
pub(crate) const QUIESCES: u64 = 1 << 12;
/// Nobody looks for partitions at the start (`UBLK_F_NO_AUTO_PART_SCAN`, Linux 7.0).
pub(crate) const NO_PARTITIONS: u64 = 1 << 18;

/// Any number: in [`Command`] and [`Info`] when a device is added.
pub(crate) const NEW: u32 = u32::MAX;
/// The command is for no queue.
const NO_QUEUE: u16 = u16::MAX;

const BASIC: u32 = 1;
const DISCARD: u32 = 1 << 1;
pub(crate) const READ_ONLY: u32 = 1;
pub(crate) const VOLATILE_CACHE: u32 = 1 << 2;

pub(crate) const READ: u32 = 0;
pub(crate) const WRITE: u32 = 1;
pub(crate) const FLUSH: u32 = 2;
pub(crate) const DISCARDED: u32 = 3;
pub(crate) const ZEROED: u32 = 5;
/// Flag of a write of zeroes: the blocks must stay allocated.
pub(crate) const NO_UNMAP: u32 = 1 << 15;

impl Command {
    pub(crate) fn new(device: u32, data: u64) -> Command {
        Command { device, queue: NO_QUEUE, data, ..Command::default() }
    }

    /// Encodes it for a ring's entry.
    pub(crate) fn bytes(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[..4].copy_from_slice(&self.device.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.length.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.data.to_ne_bytes());
        bytes[24..26].copy_from_slice(&self.path_length.to_ne_bytes());
        bytes
    }
}

impl IoCommand {
    /// Encodes it for a ring's entry.
    pub(crate) fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.result.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.address.to_ne_bytes());
        bytes
    }
}

impl Info {
    /// The values for a new device. `largest` is in bytes.
    pub(crate) fn new(queues: u16, depth: u16, largest: u32, mark: u64) -> Info {
        Info { queues, depth, largest, number: NEW, server: -1, mark, ..Info::default() }
    }

    /// Does the device stay when its server dies, and are no requests lost with it?
    pub(crate) fn is_recoverable(&self) -> bool {
        self.flags & RECOVERABLE == RECOVERABLE
    }
}

impl Parameters {
    /// The parameters of a device for the block layer. A request has `largest` bytes at most.
    pub(crate) fn new(geometry: Geometry, abilities: Abilities, largest: u32) -> Parameters {
        let cleared = (MOST_CLEARED >> SECTOR_SHIFT) as u32;
        let attribute = |has: bool, bit: u32| if has { bit } else { 0 };
        let page = PAGE_SHIFT as u8;
        Parameters {
            length: mem::size_of::<Parameters>() as u32,
            types: BASIC | DISCARD,
            attributes: attribute(abilities.read_only, READ_ONLY)
                | attribute(abilities.flush, VOLATILE_CACHE),
            logical_block: page,
            physical_block: page,
            optimal: page,
            minimal: page,
            most_sectors: largest >> SECTOR_SHIFT,
            sectors: geometry.bytes >> SECTOR_SHIFT,
            discard_granularity: PAGE_SIZE as u32,
            most_discarded: if abilities.discard { cleared } else { 0 },
            most_zeroed: if abilities.fast_zero { cleared } else { 0 },
            discard_segments: 1,
            ..Parameters::default()
        }
    }
}

/// The half of [`Info::mark`] that identifies a device of ours.
const OURS: u64 = 0x726d_706b;

/// The mark of a device of `maker` ([`crate::Id::maker`]).
pub(crate) fn mark(maker: u32) -> u64 {
    OURS << 32 | u64::from(maker)
}

/// The maker that set `mark`; None if the device is not ours.
pub(crate) fn marked_by(mark: u64) -> Option<u32> {
    (mark >> 32 == OURS).then_some(mark as u32)
}
