//! Requests of the kernel, turned into operations of a device.
//!
//! The file behaves as a disk does: its size is the device's, a write that passes the end is cut
//! off there, one that begins there gets ENOSPC, and O_TRUNC changes nothing.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use block::{ExtentKind, IoError, Operation};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use units::{Cpu, PAGE_SHIFT, PAGE_SIZE};

use crate::patient::Patient;
use crate::ranges;
use crate::table::{Served, Table};
use crate::worker::{LARGEST, Workers, with_buffer};

/// Names and sizes are asked for anew each time: devices come, go and change their size, and
/// neither is asked for on the data path.
const KEEP: Duration = Duration::ZERO;
/// Requests that clients which do not wait (loop devices, asynchronous I/O) may have under way.
const BACKGROUND: u16 = 256;

pub(crate) struct Frontend {
    pub(crate) table: Arc<Table>,
    pub(crate) workers: Workers,
    pub(crate) patient: Arc<Patient>,
    pub(crate) cpu: fn() -> Cpu,
    pub(crate) since: SystemTime,
    pub(crate) owner: (u32, u32),
}

fn errno(error: IoError) -> Errno {
    Errno::from_i32(error.errno())
}

impl Frontend {
    /// The file, or the answer for one whose device was removed while it was open.
    fn file(&self, number: INodeNo) -> Result<Arc<Served>, Errno> {
        self.workers.enter();
        self.table.numbered(number.0).ok_or(Errno::ESTALE)
    }

    fn attributes(&self, file: Option<&Served>) -> FileAttr {
        let (size, kind, perm, number) = match file {
            None => (0, FileType::Directory, 0o700, INodeNo::ROOT.0),
            Some(file) => {
                let perm = if file.device.abilities().read_only { 0o400 } else { 0o600 };
                (file.device.geometry().bytes, FileType::RegularFile, perm, file.number)
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

    fn flush_device(&self, number: INodeNo) -> Result<(), Errno> {
        let file = self.file(number)?;
        if !file.device.abilities().flush {
            return Ok(());
        }
        file.device.submit((self.cpu)(), Operation::Flush).map_err(errno)
    }

    /// Whole pages are given up without a look at them; parts of pages may have to be fetched.
    fn edges_may_wait(&self, file: &Served, offset: u64, length: u64) -> bool {
        let bytes = file.device.geometry().bytes;
        let part = |at: u64| at.trailing_zeros() < PAGE_SHIFT && at < bytes;
        let end = offset.saturating_add(length);
        let (first, last) = (part(offset), end > offset && part(end));
        self.patient.is_there()
            && (first && file.device.may_wait(offset, 1)
                || last && file.device.may_wait(end - 1, 1))
    }

    /// Those that may have to wait are carried out beside the workers, on any thread.
    #[inline]
    fn may_wait(&self, file: &Served, offset: u64, length: usize) -> bool {
        self.patient.is_there() && length > 0 && file.device.may_wait(offset, length as u64)
    }

    fn seek(&self, number: INodeNo, offset: i64, whence: i32) -> Result<i64, Errno> {
        let want_hole = match whence {
            libc::SEEK_HOLE => true,
            libc::SEEK_DATA => false,
            _ => return Err(Errno::EINVAL),
        };
        let file = self.file(number)?;
        let bytes = file.device.geometry().bytes;
        let start = u64::try_from(offset).ok().filter(|start| *start < bytes);
        let start = start.ok_or(Errno::ENXIO)?;
        let (mut at, mut found) = (start, None);
        let seen = file.device.extents(start, bytes - start, &mut |extent| {
            if want_hole == (extent.kind != ExtentKind::Data) {
                found = Some(at);
                return ControlFlow::Break(());
            }
            at += extent.length;
            ControlFlow::Continue(())
        });
        seen.map_err(errno)?;
        match found {
            Some(at) => Ok(at as i64),
            // There is a hole at the end of every file.
            None if want_hole => Ok(bytes as i64),
            None => Err(Errno::ENXIO),
        }
    }
}

fn read(file: &Served, cpu: Cpu, offset: u64, length: usize, reply: ReplyData) {
    with_buffer(length, |into| {
        let operation = Operation::Read { offset, into: &mut *into };
        match file.device.submit(cpu, operation) {
            Ok(()) => reply.data(into),
            Err(error) => reply.error(errno(error)),
        }
    });
}

fn write(file: &Served, cpu: Cpu, offset: u64, from: &[u8], reply: ReplyWrite) {
    match file.device.submit(cpu, Operation::Write { offset, from }) {
        Ok(()) => reply.written(from.len() as u32),
        Err(error) => reply.error(errno(error)),
    }
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Frontend {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each is refused by kernels that do not know it, which work without.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_write(LARGEST as u32);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.workers.enter();
        match self.table.named(Path::new(name)).filter(|_| parent == INodeNo::ROOT) {
            Some(file) => reply.entry(&KEEP, &self.attributes(Some(&file)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if number == INodeNo::ROOT {
            return reply.attr(&KEEP, &self.attributes(None));
        }
        match self.file(number) {
            Ok(file) => reply.attr(&KEEP, &self.attributes(Some(&file))),
            Err(error) => reply.error(error),
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
        let file = match self.file(number) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let bytes = file.device.geometry().bytes;
        // O_TRUNC arrives as a change of size to 0 without a file handle; a disk ignores it.
        if size.is_some_and(|size| size != bytes && !(size == 0 && handle.is_none())) {
            return reply.error(Errno::EINVAL);
        }
        reply.attr(&KEEP, &self.attributes(Some(&file)));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let file = match self.file(number) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        if flags.acc_mode() != OpenAccMode::O_RDONLY && file.device.abilities().read_only {
            return reply.error(Errno::EROFS);
        }
        file.opened();
        // A close has nothing to flush, and a dying process that still had a file of its own
        // mount open would wait for itself to answer one.
        let how = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), how);
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
        if let Ok(file) = self.file(number) {
            file.closed();
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.file(number) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let left = file.device.geometry().bytes.saturating_sub(offset);
        let length = (size as usize).min(usize::try_from(left).unwrap_or(usize::MAX));
        if length == 0 {
            return reply.data(&[]);
        }
        if self.may_wait(&file, offset, length) {
            let cpu = self.cpu;
            return self.patient.run(move || read(&file, cpu(), offset, length, reply));
        }
        read(&file, (self.cpu)(), offset, length, reply);
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = match self.file(number) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let room = file.device.geometry().bytes.saturating_sub(offset);
        if room == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let from = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let cpu = self.cpu;
        if self.may_wait(&file, offset, from.len())
            && let Some(payload) = self.patient.copy(from)
        {
            let write = move || write(&file, cpu(), offset, &payload.data, reply);
            return self.patient.run(write);
        }
        write(&file, cpu(), offset, from, reply);
    }

    /// Only kernels that do not know `FOPEN_NOFLUSH` send this, at each close.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.flush_device(number));
    }

    fn fallocate(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let file = match self.file(number) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let cpu = self.cpu;
        let change = move |file: &Served| {
            let changed = ranges::change(&*file.device, cpu(), (offset, length), mode);
            changed.map_err(Errno::from_i32)
        };
        if self.edges_may_wait(&file, offset, length) {
            return self.patient.run(move || empty(reply, change(&file)));
        }
        empty(reply, change(&file));
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
        // A file's number is also its place: the listing stays right while files come and go.
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
        let pages = files.iter().map(|file| units::pages_for(file.device.geometry().bytes));
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
