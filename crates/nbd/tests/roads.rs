//! The suite of roads by NBD: each way to ask for data, and without memory for long requests.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Operation, Visit,
    ZeroMode,
};
use common::*;
use nbd::{One, Options, Server};
use sim::controls::{Broken, Flaw};
use sim::roads::{self, Client as Road};
use sim::suite;
use testkit::Rng;
use units::Cpu;

/// The most bytes of a request.
const MOST: u64 = 32 << 20;

/// Clients of one server. Each request takes one that is idle, or makes another one.
struct Nbd {
    server: Arc<Server>,
    style: Style,
    /// What the device says of itself.
    geometry: Geometry,
    abilities: Abilities,
    idle: Mutex<Vec<Client>>,
}

impl Nbd {
    fn open(device: Arc<dyn BlockDevice>, style: Style, options: Options) -> Arc<Nbd> {
        let (geometry, abilities) = (device.geometry(), device.abilities());
        let exports = Arc::new(One::new("disk", "", device));
        let server = Arc::new(new_server(exports, options).unwrap());
        Arc::new(Nbd { server, style, geometry, abilities, idle: Mutex::default() })
    }

    fn ask<T>(&self, ask: impl FnOnce(&mut Client) -> T) -> Result<T, IoError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // A client panics when its connection ends.
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let mut client = idle.unwrap_or_else(|| {
                let mut client = Client::of(self.server.clone());
                client.greet(3);
                client.begin(self.style);
                client
            });
            let answer = ask(&mut client);
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
            answer
        }));
        asked.map_err(|_| IoError::Failed)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let length = into.len() as u32;
        // Some of the replies in one piece, where there is memory for that.
        let flags = if offset.is_multiple_of(3) && length < 256 << 10 { DF } else { 0 };
        let data = self.ask(|client| match self.style {
            Style::Simple => client.read(offset, length),
            _ => client.read_chunks(flags, offset, length),
        })?;
        into.copy_from_slice(&data.map_err(error)?);
        Ok(())
    }

    fn command(
        &self,
        flags: u16,
        command: u16,
        (offset, length): (u64, u64),
    ) -> Result<(), IoError> {
        done(self.ask(|client| client.command(flags, command, offset, length as u32))?)
    }
}

fn error(number: u32) -> IoError {
    match number {
        EINVAL => IoError::OutOfRange,
        ENOSPC => IoError::NoSpace,
        _ => IoError::Failed,
    }
}

fn done(number: u32) -> Result<(), IoError> {
    if number == 0 { Ok(()) } else { Err(error(number)) }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        self.server.shutdown();
        self.server.join();
    }
}

/// A client of [`Nbd`].
struct Connected(Arc<Nbd>);

impl BlockDevice for Connected {
    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    fn abilities(&self) -> Abilities {
        self.0.abilities
    }

    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let range = operation.range();
        assert!(range.1 <= MOST, "no device here is so long");
        let forced = if range.0.is_multiple_of(5) { FUA } else { 0 };
        match operation {
            Operation::Read { offset, into } => self.0.read(offset, into),
            Operation::Write { offset, from } => {
                done(self.0.ask(|client| client.write(forced, offset, from))?)
            }
            Operation::Discard { .. } => self.0.command(forced, TRIM, range),
            Operation::WriteZeroes { mode, .. } => {
                let keeps = if mode == ZeroMode::KeepAllocated { NO_HOLE } else { 0 };
                self.0.command(forced | keeps, WRITE_ZEROES, range)
            }
            Operation::Flush => self.0.command(0, FLUSH, range),
        }
    }

    fn extents(&self, _: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        if self.0.style != Style::Allocation {
            return Err(IoError::Unsupported);
        }
        let mut at = offset;
        while at < offset + length {
            let left = (offset + length - at) as u32;
            for (length, flags) in self.0.ask(|it| it.status(0, at, left))?.map_err(error)? {
                let kind = match flags {
                    0 => ExtentKind::Data,
                    2 => ExtentKind::Zero,
                    3 => ExtentKind::Hole,
                    flags => panic!("flags {flags}"),
                };
                at += u64::from(length);
                if visit(Extent { length: length.into(), kind }).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Road for Connected {
    fn another(&self) -> Arc<dyn Road> {
        Arc::new(Connected(self.0.clone()))
    }

    fn lose_server(&self) {
        self.0.server.shutdown();
        self.0.server.join();
    }

    /// Half of them know how to begin.
    fn stranger(&self, rng: &mut Rng) {
        let mut client = Client::of(self.0.server.clone());
        let mut bytes = if rng.one_in(2) { hello(Style::Simple) } else { Vec::new() };
        let known = bytes.len();
        bytes.resize(known + rng.below(300) as usize, 0);
        rng.fill(&mut bytes[known..]);
        client.send(&bytes);
    }
}

#[test]
fn nbd_is_a_road() {
    for style in [Style::Simple, Style::Structured, Style::Allocation] {
        roads::pass(&format!("NBD, {style:?}"), &[], |subject| {
            Arc::new(Connected(Nbd::open(subject.device(), style, Options::default())))
        });
    }
}

#[test]
fn nbd_is_a_road_in_pieces() {
    roads::pass("NBD, in pieces", &[], |subject| {
        let options = Options { memory: 0, ..Options::default() };
        Arc::new(Connected(Nbd::open(subject.device(), Style::Allocation, options)))
    });
}

/// What is wrong with a device is found from the other end of the road.
#[test]
fn liars_are_found_out() {
    let seed = testkit::seed("liars_are_found_out");
    // Those that are found whatever the threads of the server do.
    for flaw in [
        Flaw::StaleAfterDiscard,
        Flaw::DiscardsTooMuch,
        Flaw::DropsLastBlock,
        Flaw::HidesLastBlock,
        Flaw::AlwaysPunches,
        Flaw::NeverPunches,
        Flaw::TrustsFirstHalf,
        Flaw::CallsDataZero,
        Flaw::ReadsOldPages,
    ] {
        let make = |bytes| -> Arc<dyn BlockDevice> {
            let device = Arc::new(Broken::new(bytes, flaw));
            Arc::new(Connected(Nbd::open(device, Style::Allocation, Options::default())))
        };
        let found = catch_unwind(AssertUnwindSafe(|| suite::block_device(seed, make)));
        assert!(found.is_err(), "{flaw:?} was believed");
    }
}
