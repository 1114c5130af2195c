//! Turns requests of the kernel into operations of a device.
//!
//! The file behaves as a disk does: its size is the device's size, a write that passes the end is
//! cut off there, a write that begins at the end gets ENOSPC, and O_TRUNC changes nothing.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use block::{Context, Extent, ExtentKind, IoError, Operation, Wait};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use host::flags;
use sync::Reader;
use sync::atomic::{AtomicBool, Ordering};
use units::{Cpu, PAGE_SIZE};

use crate::later::Later;
use crate::ranges;
use crate::table::{Served, Table};
use crate::worker::{Buffers, LARGEST, LARGEST_BY_RING, with_buffer};

/// The kernel caches no names and no sizes: devices come, go and change their size. The data path
/// asks for neither.
const KEEP: Duration = Duration::ZERO;
/// The device of the file was removed while it was open.
const GONE: Errno = Errno::ESTALE;
/// The most requests under way from clients that do not wait (loop devices, asynchronous I/O).
const BACKGROUND: u16 = 256;

pub(crate) mod by_ring;

#[derive(Clone)]
pub(crate) struct Frontend {
    pub(crate) table: Arc<Table>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) later: Arc<Later>,
    pub(crate) cpu: fn() -> Cpu,
    pub(crate) since: SystemTime,
    pub(crate) owner: (u32, u32),
    /// Are rings wanted, and does the kernel have them?
    pub(crate) ring: Option<Arc<AtomicBool>>,
}

fn errno(error: IoError) -> Errno {
    Errno::from_i32(error.errno())
}

/// Calls a device. A panic of the device is a failure of its request: it must not end the worker,
/// which serves every device. The panic hook has reported it.
#[inline]
fn called(call: impl FnOnce() -> Result<(), IoError>) -> Result<(), IoError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(IoError::Failed))
}

impl Frontend {
    /// Begins a request.
    #[inline]
    fn enter(&self) -> (Cpu, Reader<'_>) {
        let cpu = (self.cpu)();
        (cpu, self.table.enter(cpu))
    }

    /// A worker waits for the device only if there are no waiters.
    #[inline]
    fn context(&self, cpu: Cpu) -> Context {
        Context { cpu, wait: if self.later.is_there() { Wait::No } else { Wait::Yes } }
    }

    fn attributes(&self, file: Option<&Served>) -> FileAttr {
        let (size, kind, perm, number) = match file {
            None => (0, FileType::Directory, 0o700, INodeNo::ROOT.0),
            Some(file) => {
                let perm = if file.device.abilities().read_only { 0o400 } else { 0o600 };
                (file.bytes(), FileType::RegularFile, perm, file.number)
            }
        };
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink: if file.is_none() { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: PAGE_SIZE as u32,
            flags: 0,
        }
    }

    /// Carries out and answers an operation without data.
    fn change(
        &self,
        file: &Arc<Served>,
        cpu: Cpu,
        mut operation: Operation<'static>,
        reply: ReplyEmpty,
    ) {
        let context = self.context(cpu);
        match called(|| ranges::perform(&*file.device, context, operation.reborrow())) {
            Err(IoError::WouldBlock) if context.wait == Wait::No => {
                let (file, cpu) = (file.clone(), self.cpu);
                self.later.run(file.number, move || {
                    let done = called(|| file.device.submit(cpu(), operation));
                    empty(reply, done.map_err(errno));
                });
            }
            done => empty(reply, done.map_err(errno)),
        }
    }

    fn seek(&self, number: INodeNo, offset: i64, whence: i32) -> Result<i64, Errno> {
        let want_hole = match whence {
            flags::SEEK_HOLE => true,
            flags::SEEK_DATA => false,
            _ => return Err(Errno::EINVAL),
        };
        let (cpu, reader) = self.enter();
        let file = self.table.numbered(&reader, number.0).ok_or(GONE)?;
        let bytes = file.bytes();
        let start = u64::try_from(offset).ok().filter(|start| *start < bytes);
        let start = start.ok_or(Errno::ENXIO)?;
        let (mut at, mut found) = (start, None);
        let mut visit = |extent: Extent| {
            if want_hole == (extent.kind != ExtentKind::Data) {
                found = Some(at);
                return ControlFlow::Break(());
            }
            at += extent.length;
            ControlFlow::Continue(())
        };
        let seen = called(|| file.device.extents(cpu, start, bytes - start, &mut visit));
        seen.map_err(errno)?;
        match found {
            Some(at) => Ok(at as i64),
            // Every file has a hole at its end.
            None if want_hole => Ok(bytes as i64),
            None => Err(Errno::ENXIO),
        }
    }
}

/// Calls `perform` for `length` bytes from `offset` on. If `file` has become smaller, it calls
/// `perform` again with the bytes that are left. Returns the number of bytes.
#[inline]
fn on_what_is_there(
    file: &Served,
    context: Context,
    (offset, length): (u64, usize),
    mut perform: impl FnMut(usize) -> Result<(), IoError>,
) -> Result<usize, IoError> {
    match perform(length) {
        Ok(()) => Ok(length),
        Err(IoError::OutOfRange | IoError::NotReady) => {
            match file.part_now(offset, length as u64) as usize {
                0 => Ok(0),
                length => perform(length).map(|()| length),
            }
        }
        // The device was allowed to wait.
        Err(IoError::WouldBlock) if context.wait == Wait::Yes => Err(IoError::Failed),
        Err(error) => Err(error),
    }
}

/// Answers a read; returns the reply if the device would have to wait.
#[inline]
fn read(
    buffers: &Arc<Buffers>,
    file: &Served,
    context: Context,
    (offset, length): (u64, usize),
    reply: ReplyData,
) -> Option<ReplyData> {
    with_buffer(buffers, length, |into| {
        let Some(into) = into else {
            reply.error(Errno::ENOMEM);
            return None;
        };
        let done = on_what_is_there(file, context, (offset, length), |length| {
            let into = &mut into[..length];
            called(|| file.device.perform(context, Operation::Read { offset, into }))
        });
        match done {
            Ok(length) => reply.data(&into[..length]),
            Err(IoError::WouldBlock) => return Some(reply),
            Err(error) => reply.error(errno(error)),
        }
        None
    })
}

/// Answers a write; returns the reply if the device would have to wait.
#[inline]
fn write(
    file: &Served,
    context: Context,
    (offset, from): (u64, &[u8]),
    reply: ReplyWrite,
) -> Option<ReplyWrite> {
    let done = on_what_is_there(file, context, (offset, from.len()), |length| {
        let from = &from[..length];
        called(|| file.device.perform(context, Operation::Write { offset, from }))
    });
    match done {
        Ok(0) => reply.error(Errno::ENOSPC),
        Ok(length) => reply.written(length as u32),
        Err(IoError::WouldBlock) => return Some(reply),
        Err(error) => reply.error(errno(error)),
    }
    None
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Frontend {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that does not know a capability refuses it and works without it.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_write(LARGEST as u32);
        if let Some(has_ring) = &self.ring {
            let agreed = config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok();
            has_ring.store(agreed, Ordering::Relaxed);
            // Each entry has room for the largest request.
            let _ = config.set_max_write(LARGEST_BY_RING as u32);
            let _ = config.set_max_readahead(LARGEST_BY_RING as u32);
        }
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.table.named(Path::new(name)).filter(|_| parent == INodeNo::ROOT) {
            Some(file) => reply.entry(&KEEP, &self.attributes(Some(&file)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if number == INodeNo::ROOT {
            return reply.attr(&KEEP, &self.attributes(None));
        }
        let (_, reader) = self.enter();
        match self.table.numbered(&reader, number.0) {
            Some(file) => reply.attr(&KEEP, &self.attributes(Some(file))),
            None => reply.error(GONE),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() || number == INodeNo::ROOT {
            return reply.error(Errno::EPERM);
        }
        let (_, reader) = self.enter();
        let Some(file) = self.table.numbered(&reader, number.0) else {
            return reply.error(GONE);
        };
        let bytes = file.bytes();
        // O_TRUNC arrives as a change of size to 0 without a file handle; a disk ignores it.
        if size.is_some_and(|size| size != bytes && !(size == 0 && handle.is_none())) {
            return reply.error(Errno::EINVAL);
        }
        reply.attr(&KEEP, &self.attributes(Some(file)));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (_, reader) = self.enter();
        let Some(file) = self.table.numbered(&reader, number.0) else {
            return reply.error(GONE);
        };
        if flags.acc_mode() != OpenAccMode::O_RDONLY && file.device.abilities().read_only {
            return reply.error(Errno::EROFS);
        }
        file.opened();
        // A close has nothing to flush. A dying process with an open file of its own mount would
        // wait for itself to answer a flush.
        let how = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(file.number), how);
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let (_, reader) = self.enter();
        if let Some(file) = self.table.numbered(&reader, number.0) {
            file.closed();
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (cpu, reader) = self.enter();
        let Some(file) = self.table.numbered(&reader, handle.0) else {
            return reply.error(GONE);
        };
        let length = file.part(offset, size.into()) as usize;
        if length == 0 {
            return reply.data(&[]);
        }
        let context = self.context(cpu);
        if let Some(reply) = read(&self.buffers, file, context, (offset, length), reply) {
            let (file, cpu, buffers) = (file.clone(), self.cpu, self.buffers.clone());
            self.later.run(file.number, move || {
                drop(read(&buffers, &file, Context::waiting(cpu()), (offset, length), reply));
            });
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (cpu, reader) = self.enter();
        let Some(file) = self.table.numbered(&reader, handle.0) else {
            return reply.error(GONE);
        };
        if data.is_empty() {
            return reply.written(0);
        }
        let from = &data[..file.part(offset, data.len() as u64) as usize];
        if from.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let Some(reply) = write(file, self.context(cpu), (offset, from), reply) else { return };
        // Others come and go meanwhile.
        let (file, cpu) = (file.clone(), self.cpu);
        drop(reader);
        let Some(kept) = self.later.copy(from) else {
            // Too much waits, or there is no memory: this thread waits.
            return drop(write(&file, Context::waiting(cpu()), (offset, from), reply));
        };
        self.later.run(file.number, move || {
            drop(write(&file, Context::waiting(cpu()), (offset, &kept.data), reply));
        });
    }

    /// Only a kernel without `FOPEN_NOFLUSH` sends this, at each close.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let (cpu, reader) = self.enter();
        match self.table.numbered(&reader, handle.0) {
            Some(file) if file.device.abilities().flush => {
                self.change(file, cpu, Operation::Flush, reply);
            }
            Some(_) => reply.ok(),
            None => reply.error(GONE),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (cpu, reader) = self.enter();
        let Some(file) = self.table.numbered(&reader, handle.0) else {
            return reply.error(GONE);
        };
        let (kept, discard) = (file.part(offset, length), file.device.abilities().discard);
        match ranges::operation(mode, (offset, length), kept, discard) {
            Ok(Some(operation)) => self.change(file, cpu, operation, reply),
            Ok(None) => reply.ok(),
            Err(error) => reply.error(Errno::from_i32(error)),
        }
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.seek(number, offset, whence) {
            Ok(at) => reply.offset(at),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        // The number of a file is its offset in the listing, so a listing stays right while files
        // come and go.
        let own = [(1, "."), (2, "..")].into_iter().map(|(n, name)| (n, name.to_owned()));
        let files = self.table.all();
        let files = files.iter().map(|file| (file.number, file.name.clone()));
        for (place, name) in own.chain(files).filter(|(place, _)| *place > offset) {
            let (number, kind) = match place {
                1 | 2 => (INodeNo::ROOT, FileType::Directory),
                n => (INodeNo(n), FileType::RegularFile),
            };
            if reply.add(number, place, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let files = self.table.all();
        let pages = files.iter().map(|file| units::pages_for(file.bytes()));
        let page = PAGE_SIZE as u32;
        reply.statfs(pages.sum(), 0, 0, files.len() as u64, 0, page, 255, page);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }
}
