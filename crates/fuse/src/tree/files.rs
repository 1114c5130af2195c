//! Turns requests of the kernel into calls to a control tree.
//!
//! A file behaves as a sysfs attribute does (Linux, fs/kernfs/file.c and fs/sysfs/file.c, seen from
//! outside). Its size is 4096 bytes. A read at offset 0 takes the value, and later reads continue
//! in this copy. A write at any offset is one new value; it is cut off after a page or at a NUL. A
//! user, also root, can open it only in the directions that it has.

use std::ffi::OsStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use control::tree::Node;
use control::{Access, ControlError};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use host::{encoded_device, errno};
use sync::Mutex;

use super::inodes::{Handles, Inodes, Open, TOP};
use super::privileged::Privileged;
use super::writer::Writer;

/// The kernel caches no names and no values.
const KEEP: Duration = Duration::ZERO;
/// The size of every file, and the longest value of a write.
const LENGTH: usize = 4096;
/// The longest write in one request; its value is cut off at [`LENGTH`].
const WRITE: u32 = 128 << 10;
/// A bit that marks the numbers, in listings, of nodes without an inode number.
const UNNUMBERED: u64 = 1 << 48;

/// The tree, as files.
pub(crate) struct Tree {
    pub(crate) inodes: Inodes,
    pub(crate) handles: Handles,
    pub(crate) since: SystemTime,
    pub(crate) owner: (u32, u32),
}

/// Takes requests to the tree. The threads that do this have no privileges, so they hand over
/// whatever looks at the tree ([`super::privileged`]).
#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) tree: Arc<Tree>,
    pub(super) privileged: Privileged,
}

fn errno(error: &ControlError) -> Errno {
    Errno::from_i32(error.errno.0)
}

/// Calls an attribute. A panic there is an error of its request, and must not end the worker. The
/// panic hook has reported it.
fn called<R>(call: impl FnOnce() -> Result<R, ControlError>) -> Result<R, Errno> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(|error| errno(&error)),
        Err(_) => Err(Errno::EIO),
    }
}

/// The error for a user with too many open files.
fn too_many() -> Errno {
    Errno::from_i32(errno::ENFILE)
}

fn kind(node: &Node) -> FileType {
    match node {
        Node::Directory(_) => FileType::Directory,
        Node::Attribute(_) | Node::Place => FileType::RegularFile,
        Node::Link(_) => FileType::Symlink,
        Node::Device(device) if device.block => FileType::BlockDevice,
        Node::Device(_) => FileType::CharDevice,
    }
}

/// The written value: up to a NUL, at most a page.
fn written(data: &[u8]) -> (usize, String) {
    let taken = &data[..data.len().min(LENGTH)];
    let text = taken.split(|byte| *byte == 0).next().unwrap_or_default();
    (taken.len(), control::text_of(text))
}

impl Tree {
    fn attributes(&self, number: u64, node: &Node) -> FileAttr {
        let (perm, size, owner, rdev) = match node {
            Node::Directory(it) if it.is_private() => (0o700, 0, self.owner, 0),
            Node::Directory(_) => (0o755, 0, self.owner, 0),
            Node::Attribute(attribute) => (attribute.info.access.mode(), LENGTH, self.owner, 0),
            Node::Link(target) => (0o777, target.len(), self.owner, 0),
            Node::Place => (0o444, 0, self.owner, 0),
            Node::Device(it) => (it.mode, 0, it.owner, encoded_device(it.major, it.minor)),
        };
        FileAttr {
            ino: INodeNo(number),
            size: size as u64,
            blocks: 0,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind: kind(node),
            perm: perm as u16,
            nlink: 1,
            uid: owner.0,
            gid: owner.1,
            rdev,
            blksize: LENGTH as u32,
            flags: 0,
        }
    }

    fn node(&self, number: INodeNo) -> Result<Node, Errno> {
        self.inodes.node(number.0).ok_or(Errno::ESTALE)
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> Result<(u64, Node), Errno> {
        let Node::Directory(directory) = self.node(parent)? else { return Err(Errno::ENOTDIR) };
        let name = name.to_str().ok_or(Errno::ENOENT)?;
        let node = directory.get(name).ok_or(Errno::ENOENT)?;
        Ok((self.inodes.remember(parent.0, name, &node), node))
    }

    fn open_row(&self, user: u32, number: INodeNo, flags: OpenFlags) -> Result<u64, Errno> {
        let open = match self.node(number)? {
            Node::Attribute(attribute) => {
                let access = attribute.info.access;
                // Includes attributes that act on a read: `access.readable` means reads without an
                // effect.
                let reads = access.readable() || access == Access::ActOnRead;
                let may = match flags.acc_mode() {
                    OpenAccMode::O_RDONLY => reads,
                    OpenAccMode::O_WRONLY => access.writable(),
                    OpenAccMode::O_RDWR => reads && access.writable(),
                };
                if !may {
                    return Err(Errno::EACCES);
                }
                Open::Attribute(attribute, Mutex::new(None))
            }
            Node::Place => Open::Nothing,
            Node::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        };
        self.handles.add(user, open).ok_or_else(too_many)
    }

    fn listing(&self, user: u32, number: INodeNo) -> Result<u64, Errno> {
        let Node::Directory(directory) = self.node(number)? else { return Err(Errno::ENOTDIR) };
        let names = directory.names();
        self.handles.add(user, Open::Directory(directory, names)).ok_or_else(too_many)
    }

    fn opened(&self, handle: FileHandle) -> Result<Arc<Open>, Errno> {
        self.handles.get(handle.0).ok_or(Errno::EBADF)
    }

    fn value(&self, handle: FileHandle, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let open = self.opened(handle)?;
        let Open::Attribute(attribute, value) = &*open else { return Ok(Vec::new()) };
        let mut value = value.lock();
        if offset == 0 || value.is_none() {
            let text = called(|| attribute.show())?;
            *value = Some(control::bytes_of(&text));
        }
        let all = value.as_deref().unwrap_or_default();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
        let to = from.saturating_add(size as usize).min(all.len());
        Ok(all[from..to].to_vec())
    }

    fn store(&self, by: Writer, handle: FileHandle, data: &[u8]) -> Result<u32, Errno> {
        let open = self.opened(handle)?;
        let Open::Attribute(attribute, _) = &*open else { return Err(Errno::EACCES) };
        let (taken, text) = written(data);
        if taken > 0 {
            called(|| attribute.store_by(&text, &mut |path| by.absolute(path)))?;
        }
        Ok(taken as u32)
    }

    /// Answers a request for the names of a directory.
    fn list(&self, number: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let open = match self.opened(handle) {
            Ok(open) => open,
            Err(error) => return reply.error(error),
        };
        let Open::Directory(directory, names) = &*open else {
            return reply.error(Errno::ENOTDIR);
        };
        let all = [".", ".."].into_iter().chain(names.iter().map(|name| &**name));
        for (place, name) in (1..).zip(all).skip(offset as usize) {
            let kind = match place {
                1 | 2 => FileType::Directory,
                _ => match directory.get(name) {
                    Some(node) => kind(&node),
                    // It is gone since the open.
                    None => continue,
                },
            };
            let number = if place == 1 { number.0 } else { UNNUMBERED | (number.0 << 16) | place };
            if reply.add(INodeNo(number.max(TOP)), place, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

impl Files {
    /// Has a thread with privileges carry out `work`, which answers a request for a node.
    fn hand_over(&self, number: INodeNo, work: impl FnOnce(&Tree) + Send + 'static) {
        let tree = self.tree.clone();
        self.privileged.run(number.0, move || work(&tree));
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that does not know it refuses it and works without it.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_write(WRITE);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_os_string();
        self.hand_over(parent, move |tree| match tree.child(parent, &name) {
            Ok((number, node)) => {
                reply.entry(&KEEP, &tree.attributes(number, &node), Generation(0));
            }
            Err(error) => reply.error(error),
        });
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        // It may drop the last reference to an object.
        self.hand_over(number, move |tree| tree.inodes.forget(number.0, lookups));
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.hand_over(number, move |tree| match tree.node(number) {
            Ok(node) => reply.attr(&KEEP, &tree.attributes(number.0, &node)),
            Err(error) => reply.error(error),
        });
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // A change of size comes from O_TRUNC, which changes nothing here.
        let is_refused = mode.is_some() || uid.is_some() || gid.is_some();
        self.hand_over(number, move |tree| match tree.node(number) {
            Ok(_) if is_refused => reply.error(Errno::EPERM),
            Ok(node) => reply.attr(&KEEP, &tree.attributes(number.0, &node)),
            Err(error) => reply.error(error),
        });
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        self.hand_over(number, move |tree| match tree.node(number) {
            Ok(Node::Link(target)) => reply.data(target.as_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        });
    }

    fn open(&self, by: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let how = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        let user = by.uid();
        self.hand_over(number, move |tree| match tree.open_row(user, number, flags) {
            Ok(handle) => reply.opened(FileHandle(handle), how),
            Err(error) => reply.error(error),
        });
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.hand_over(number, move |tree| match tree.value(handle, offset, size) {
            Ok(value) => reply.data(&value),
            Err(error) => reply.error(error),
        });
    }

    fn write(
        &self,
        by: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The rest of a longer value is not looked at.
        let data = data[..data.len().min(LENGTH)].to_vec();
        let by = Writer { thread: by.pid(), user: by.uid() };
        self.hand_over(number, move |tree| match tree.store(by, handle, &data) {
            Ok(taken) => reply.written(taken),
            Err(error) => reply.error(error),
        });
    }

    /// Only a kernel without `FOPEN_NOFLUSH` sends this, at each close.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.hand_over(number, move |tree| {
            tree.handles.remove(handle.0);
            reply.ok();
        });
    }

    fn opendir(&self, by: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let user = by.uid();
        self.hand_over(number, move |tree| match tree.listing(user, number) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(error),
        });
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.hand_over(number, move |tree| tree.list(number, handle, offset, reply));
    }

    fn releasedir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.hand_over(number, move |tree| {
            tree.handles.remove(handle.0);
            reply.ok();
        });
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
        reply.error(Errno::EACCES);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }
}

#[cfg(test)]
mod tests {
    use control::tree::{AttributeFile, Fixed};
    use control::{AttributeInfo, Object, ValueKind};

    use super::*;

    struct Panics;

    impl Object for Panics {
        fn attributes(&self) -> Vec<AttributeInfo> {
            vec![INFO]
        }
        fn show(&self, _: &str) -> Result<String, ControlError> {
            panic!("this is part of the test")
        }
        fn store(&self, _: &str, _: &str) -> Result<(), ControlError> {
            panic!("this is part of the test")
        }
    }

    const INFO: AttributeInfo = AttributeInfo {
        name: "it",
        access: Access::ReadWrite,
        unit: "text",
        kind: ValueKind::Plain,
        help: "",
    };

    #[test]
    fn an_attribute_that_panics_has_failed() {
        let files = Tree {
            inodes: Inodes::new(Arc::new(Fixed::new())),
            handles: Handles::new(0),
            since: SystemTime::now(),
            owner: (0, 0),
        };
        let attribute = AttributeFile { object: Arc::new(Panics), info: INFO };
        let handle = files.handles.add(0, Open::Attribute(attribute, Mutex::new(None))).unwrap();
        let by = Writer { thread: 0, user: 0 };
        for _ in 0..2 {
            assert_eq!(files.value(FileHandle(handle), 0, 1).unwrap_err(), Errno::EIO);
            assert_eq!(files.store(by, FileHandle(handle), b"1").unwrap_err(), Errno::EIO);
        }
    }

    #[test]
    fn a_page_up_to_a_nul_is_taken() {
        assert_eq!(written(b"4G\n"), (3, "4G\n".into()));
        assert_eq!(written(b"lzo\0rubbish"), (11, "lzo".into()));
        assert_eq!(written(b""), (0, String::new()));
        assert_eq!(written(&[b'a'; 5000]), (4096, "a".repeat(4096)));
        assert_eq!(written(b"\xffx").1, "\u{10ffff}x", "bytes that are no text are kept");
    }

    #[test]
    fn device_numbers_are_packed_as_the_kernel_does() {
        assert_eq!(encoded_device(7, 3), 0x703);
        assert_eq!(encoded_device(253, 0x123), 0x0010_fd23);
    }
}
