//! Random requests against a plain array of bytes, and devices that lie, which it must find out.

mod common;

use std::sync::{Arc, Mutex};

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Operation, Plain, Visit,
};
use common::*;
use nbd::{One, Options};
use testkit::Rng;
use units::Cpu;

const BYTES: u64 = 50 * 4096 + 77;
/// Of a device whose requests may be longer than the first buffers.
const MORE_BYTES: u64 = 400 * 4096 + 77;

/// Sends `rounds` random requests to `device` and compares every answer with an array. What was
/// wrong first is the error.
fn compare(
    device: Arc<dyn BlockDevice>,
    style: Style,
    rounds: u32,
    random: &mut Rng,
) -> Result<(), String> {
    compare_all(&mut Client::connected(device, style), BYTES, style, rounds, random)
}

fn compare_all(
    client: &mut Client,
    bytes: u64,
    style: Style,
    rounds: u32,
    random: &mut Rng,
) -> Result<(), String> {
    let mut model = vec![0u8; bytes as usize];
    for round in 0..rounds {
        let offset = random.below(bytes);
        let most = if random.below(8) == 0 { bytes - offset } else { (bytes - offset).min(9000) };
        let (mut offset, mut length) = (offset, random.below(most + 1));
        if random.below(2) == 0 {
            (offset, length) = (offset & !4095, length & !4095);
        }
        let range = offset as usize..(offset + length) as usize;
        let wrong = |what: &str| format!("round {round}: {what} at {offset}+{length}");
        match random.below(8) {
            0 | 1 => {
                let fill = random.next_u64() as u8 & 3;
                let data: Vec<u8> = match random.below(2) {
                    0 => vec![fill; length as usize],
                    _ => (0..length).map(|_| random.next_u64() as u8).collect(),
                };
                let flags = if random.below(4) == 0 { FUA } else { 0 };
                if client.write(flags, offset, &data) != 0 {
                    return Err(wrong("write"));
                }
                model[range].copy_from_slice(&data);
            }
            2 => {
                let flags = [0, NO_HOLE, FAST_ZERO, NO_HOLE | FAST_ZERO][random.below(4) as usize];
                if client.command(flags, WRITE_ZEROES, offset, length as u32) != 0 {
                    return Err(wrong("zero"));
                }
                model[range].fill(0);
            }
            3 => {
                if client.command(0, TRIM, offset, length as u32) != 0 {
                    return Err(wrong("trim"));
                }
                // This device promises zeroes for whole pages and keeps the rest.
                let (first, end) = (offset.div_ceil(PAGE), (offset + length) / PAGE);
                if first < end {
                    model[(first * PAGE) as usize..(end * PAGE) as usize].fill(0);
                }
            }
            4 if style == Style::Allocation && length > 0 => {
                let extents =
                    client.status(0, offset, length as u32).map_err(|_| wrong("status"))?;
                let mut at = range.start;
                for (length, flags) in extents {
                    let end = at + length as usize;
                    if flags & 2 != 0 && model[at..end].iter().any(|byte| *byte != 0) {
                        return Err(wrong("status"));
                    }
                    at = end;
                }
                if at != range.end {
                    return Err(wrong("length of the status"));
                }
            }
            _ => {
                let read = match style {
                    Style::Simple => client.read(offset, length as u32),
                    _ => {
                        // Without memory a long reply cannot be one chunk.
                        let short = length <= 256 << 10;
                        let flags = if short && random.below(3) == 0 { DF } else { 0 };
                        client.read_chunks(flags, offset, length as u32)
                    }
                };
                if read.as_deref() != Ok(&model[range]) {
                    return Err(wrong("read"));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_device_is_what_was_written() {
    let mut random = Rng::new(testkit::seed("a_device_is_what_was_written"));
    for style in [Style::Simple, Style::Structured, Style::Allocation] {
        compare(plain(BYTES as usize), style, 2000, &mut random).unwrap();
    }
}

/// Without memory for long requests.
#[test]
fn a_device_is_what_was_written_in_pieces() {
    let mut random = Rng::new(testkit::seed("a_device_is_what_was_written_in_pieces"));
    for style in [Style::Simple, Style::Structured, Style::Allocation] {
        let exports = Arc::new(One::new("disk", "", plain(MORE_BYTES as usize)));
        let options = Options { memory: 0, ..Options::default() };
        let server = Arc::new(common::new_server(exports, options).unwrap());
        let mut client = Client::of(server.clone());
        client.greet(3);
        client.begin(style);
        compare_all(&mut client, MORE_BYTES, style, 1000, &mut random).unwrap();
        drop(client);
        server.shutdown();
        assert!(server.join());
    }
}

/// How a device lies.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// Returns what a page held before it was last written.
    Stale,
    /// Forgets every hundredth write.
    Forgetful,
    /// Says that data is a hole.
    Hole,
    /// Writes one byte beyond the range.
    Beyond,
    /// Takes a trim for more than it says.
    Trim,
}

struct Liar {
    inner: Plain,
    old: Plain,
    lie: Lie,
    count: Mutex<u32>,
}

impl Liar {
    fn new(lie: Lie) -> Arc<Liar> {
        let (inner, old) = (Plain::new(BYTES as usize), Plain::new(BYTES as usize));
        Arc::new(Liar { inner, old, lie, count: Mutex::new(0) })
    }

    fn now_and_then(&self) -> bool {
        let mut count = self.count.lock().unwrap();
        *count += 1;
        if *count == 100 {
            *count = 0;
        }
        *count == 0
    }
}

impl BlockDevice for Liar {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match (self.lie, operation) {
            (Lie::Stale, Operation::Write { offset, from }) => {
                let mut before = vec![0; from.len()];
                self.inner.perform(context, Operation::Read { offset, into: &mut before })?;
                self.old.perform(context, Operation::Write { offset, from: &before })?;
                self.inner.perform(context, Operation::Write { offset, from })
            }
            (Lie::Stale, Operation::Read { offset, into }) if self.now_and_then() => {
                self.old.perform(context, Operation::Read { offset, into })
            }
            (Lie::Forgetful, Operation::Write { .. }) if self.now_and_then() => Ok(()),
            (Lie::Beyond, Operation::Write { offset, from })
                if offset + (from.len() as u64) < BYTES =>
            {
                let beyond = offset + from.len() as u64;
                self.inner.perform(context, Operation::Write { offset, from })?;
                self.inner.perform(context, Operation::Write { offset: beyond, from: &[0x55] })
            }
            (Lie::Trim, Operation::Discard { offset, length }) => {
                let mode = block::ZeroMode::MayPunch;
                self.inner.perform(context, Operation::WriteZeroes { offset, length, mode })
            }
            (_, operation) => self.inner.perform(context, operation),
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        if matches!(self.lie, Lie::Hole) && self.now_and_then() {
            let _ = visit(Extent { length, kind: ExtentKind::Hole });
            return Ok(());
        }
        self.inner.extents(cpu, offset, length, visit)
    }
}

#[test]
fn liars_are_found_out() {
    let mut random = Rng::new(testkit::seed("liars_are_found_out"));
    for lie in [Lie::Stale, Lie::Forgetful, Lie::Hole, Lie::Beyond, Lie::Trim] {
        let found = compare(Liar::new(lie), Style::Allocation, 5000, &mut random);
        assert!(found.is_err(), "{lie:?} was believed");
    }
}

#[test]
fn connections_share_the_device() {
    let first = Client::connected(plain(BYTES as usize), Style::Simple);
    let server = first.server.clone();
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let server = server.clone();
            scope.spawn(move || {
                let mut client = Client::of(server);
                client.greet(3);
                client.begin(Style::Structured);
                for round in 0..200u64 {
                    let at = (worker + 4 * (round % 10)) * PAGE;
                    let data = [(worker * 50 + round) as u8 | 1; 4096];
                    assert_eq!(client.write(0, at, &data), 0);
                    assert_eq!(client.read_chunks(0, at, 4096).unwrap(), data);
                }
            });
        }
    });
}
