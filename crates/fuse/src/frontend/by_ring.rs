//! Requests that the kernel hands over by rings: those for data are carried out here, and all
//! others by the library, which gets them as messages on a pair of sockets.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{Context, IoError, Operation, Wait};
use fuser::SessionACL;
use host::{Role, errno};
use sync::Mutex;

use super::{Frontend, called, on_what_is_there};
use crate::ranges;
use crate::ring::enabled::Enabled;
use crate::ring::plan::{OF_MOUNT, parts};
use crate::ring::serving::{Carried, CarryOut, Kind, Rings, Start};
use crate::ring::{Entry, Shape};
use crate::serving::{self, Threads};
use crate::swapfile::reply::Reply;
use crate::swapfile::wire::{self, ANSWER, Call, ENTRY, Request};
use crate::table::Served;
use crate::worker::LARGEST_BY_RING;

/// The longest wait for the library.
const PATIENCE: Duration = Duration::from_secs(10);
const DESTROY: u32 = 38;

/// The most bytes of data in one request.
pub(crate) fn largest() -> usize {
    LARGEST_BY_RING.max(host::page_bytes() as usize)
}

/// The rings for a mount, which the kernel must be asked for while the permission is given.
pub(crate) fn rings(frontend: &Frontend, waiters: usize) -> io::Result<(Rings, Start, Enabled)> {
    let cpus = (host::possible_cpus(), host::cpus());
    let parts = parts(&OF_MOUNT, cpus, &host::allowed_cpus())?;
    let page = host::page_bytes() as usize;
    let shape = Shape { largest: largest(), page, present: false };
    let (role, begin) = (Role::FuseDisk, || {});
    let kind = Kind { name: "fuse-disk", role, begin, shape, waiters, names: true };
    let work = ByRing { frontend: frontend.clone(), library: Library::new(frontend)? };
    let (rings, start) = Rings::new(parts, kind, &Arc::new(work))?;
    Ok((rings, start, Enabled::now()?))
}

struct ByRing {
    frontend: Frontend,
    library: Library,
}

impl CarryOut for ByRing {
    fn carry_out(&self, entry: &mut Entry, wait: Wait) -> Carried {
        let (header, data) = entry.parts();
        let (unique, file) = (wire::entry_id(header), wire::handle(header));
        let reply = match wire::parse_entry(header) {
            Err(_) => Reply::error(unique, errno::EIO),
            Ok(Request { call: Call::Read { offset, length }, .. }) => {
                let range = (offset, length as usize);
                match self.frontend.read_data(file, range, data, wait) {
                    Ok(length) => {
                        Reply::data(unique, length).put_in_entry(header, data, length);
                        return Carried::Out;
                    }
                    Err(errno::EAGAIN) if wait == Wait::No => {
                        return Carried::WouldWait(Some(file));
                    }
                    Err(errno) => Reply::error(unique, errno),
                }
            }
            Ok(request) if moves_data(&request.call) => {
                match self.frontend.change_data(file, &request.call, data, wait) {
                    Ok(Some(written)) => Reply::written(unique, written),
                    Ok(None) => Reply::done(unique),
                    Err(errno::EAGAIN) if wait == Wait::No => {
                        return Carried::WouldWait(Some(file));
                    }
                    Err(errno) => Reply::error(unique, errno),
                }
            }
            // One at a time, whoever asks.
            Ok(_) if wait == Wait::No => return Carried::Names,
            Ok(_) => match self.library.ask(header, data) {
                Ok(()) => return Carried::Out,
                Err(_) => Reply::error(unique, errno::EIO),
            },
        };
        reply.put_in_entry(header, data, 0);
        Carried::Out
    }
}

fn moves_data(call: &Call) -> bool {
    matches!(call, Call::Write { .. } | Call::Allocate { .. } | Call::Sync)
}

impl Frontend {
    /// Runs `work` with an open file. A request that may wait holds the file itself, so that
    /// readers of the table come and go. The error is a Linux error number, as everywhere here:
    /// EAGAIN if it would have to wait.
    fn on_file<T>(
        &self,
        handle: u64,
        wait: Wait,
        work: impl FnOnce(&Served, Context) -> Result<T, i32>,
    ) -> Result<T, i32> {
        let cpu = (self.cpu)();
        let context = Context { cpu, wait };
        let reader = self.table.enter(cpu);
        let file = self.table.numbered(&reader, handle).ok_or(errno::ESTALE)?;
        match wait {
            Wait::No => work(file, context),
            Wait::Yes => {
                let file = file.clone();
                drop(reader);
                work(&file, context)
            }
        }
    }

    /// Reads what there is of `length` bytes.
    fn read_data(
        &self,
        handle: u64,
        (offset, length): (u64, usize),
        data: &mut [u8],
        wait: Wait,
    ) -> Result<usize, i32> {
        let data = data.get_mut(..length).ok_or(errno::EIO)?;
        self.on_file(handle, wait, |file, context| {
            let length = file.part(offset, length as u64) as usize;
            if length == 0 {
                return Ok(0);
            }
            let read = on_what_is_there(file, context, (offset, length), |length| {
                let into = &mut data[..length];
                called(|| file.device.perform(context, Operation::Read { offset, into }))
            });
            read.map_err(IoError::errno)
        })
    }

    /// Carries out a write, and returns the bytes that it wrote; or another change.
    fn change_data(
        &self,
        handle: u64,
        call: &Call,
        data: &[u8],
        wait: Wait,
    ) -> Result<Option<usize>, i32> {
        match *call {
            Call::Write { length: 0, .. } => Ok(Some(0)),
            Call::Write { offset, length } => {
                let data = data.get(..length).ok_or(errno::EIO)?;
                let write = |file: &Served, context| {
                    let length = file.part(offset, length as u64) as usize;
                    if length == 0 {
                        return Err(errno::ENOSPC);
                    }
                    let written = on_what_is_there(file, context, (offset, length), |length| {
                        let from = &data[..length];
                        called(|| file.device.perform(context, Operation::Write { offset, from }))
                    });
                    match written.map_err(IoError::errno)? {
                        0 => Err(errno::ENOSPC),
                        length => Ok(Some(length)),
                    }
                };
                self.on_file(handle, wait, write)
            }
            Call::Allocate { offset, length, mode } => {
                self.on_file(handle, wait, |file, context| {
                    let (kept, discard) =
                        (file.part(offset, length), file.device.abilities().discard);
                    match ranges::operation(mode, (offset, length), kept, discard)? {
                        Some(operation) => perform(file, context, operation),
                        None => Ok(None),
                    }
                })
            }
            Call::Sync => {
                self.on_file(handle, wait, |file, context| match file.device.abilities().flush {
                    true => perform(file, context, Operation::Flush),
                    false => Ok(None),
                })
            }
            _ => Err(errno::ENOSYS),
        }
    }
}

fn perform(
    file: &Served,
    context: Context,
    operation: Operation<'_>,
) -> Result<Option<usize>, i32> {
    let done = called(|| ranges::perform(&*file.device, context, operation));
    done.map(|()| None).map_err(IoError::errno)
}

/// The library, which answers messages on a pair of sockets as requests of the kernel.
struct Library {
    /// Our end, with room for a message. It is a file, so that the calls are those of any worker.
    asked: Mutex<(File, Vec<u8>)>,
    threads: Option<Threads>,
}

impl Library {
    fn new(frontend: &Frontend) -> io::Result<Library> {
        let (ours, theirs) = UnixDatagram::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let channel = File::from(OwnedFd::from(theirs));
        let acl = SessionACL::Owner;
        let kind = serving::Kind { name: "fuse-names", role: Role::FuseDisk, acl };
        let threads = Some(Threads::start(frontend, vec![channel], kind)?);
        let ours = File::from(OwnedFd::from(ours));
        Ok(Library { asked: Mutex::new((ours, Vec::new())), threads })
    }

    /// Has the request of an entry answered there.
    fn ask(&self, header: &mut [u8; ENTRY], data: &mut [u8]) -> io::Result<()> {
        let mut asked = self.asked.lock();
        let (socket, message) = &mut *asked;
        let unfit = || io::Error::from(ErrorKind::InvalidData);
        wire::classic(header, data, message).ok_or_else(unfit)?;
        socket.write_all(message)?;
        message.resize(ANSWER + data.len(), 0);
        loop {
            let length = match socket.read(message) {
                // The process was stopped or frozen meanwhile: a read with a limit on its time is
                // not taken up again (signal(7)).
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                length => length?,
            };
            let (begin, rest) = message[..length].split_at_checked(ANSWER).ok_or_else(unfit)?;
            // The answer to an earlier request, which nobody waited for, is left out.
            if begin[8..] == header[8..ANSWER] {
                data[..rest.len()].copy_from_slice(rest);
                wire::answer_entry(header, begin, rest.len());
                return Ok(());
            }
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let mut last = [0; wire::HEADER];
        for (at, number) in [(0, wire::HEADER as u32), (4, DESTROY), (8, u32::MAX)] {
            last[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
        let sent = self.asked.lock().0.write_all(&last).is_ok();
        if let Some(threads) = self.threads.take().filter(|_| sent) {
            threads.join(Instant::now() + PATIENCE);
        }
    }
}
