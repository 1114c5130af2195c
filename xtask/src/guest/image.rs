//! The image of a guest: a root file system with the programs, an initial RAM disk that mounts it,
//! and an empty disk. It is made again only if an input has changed.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};
use fs_err as fs;
use fs_err::os::unix::fs::symlink;

use super::kernel::Kernel;
use super::tools::{command, find, output, run};

/// The programs of this project.
const OURS: &[&str] =
    &["rampack", "hog", "mon", "halt", "hush", "nbdlink", "first", "examples/serve_ublk"];
/// Programs of this machine that the guest's scripts need.
const REQUIRED: &[&str] = &["bash", "dmsetup", "mke2fs"];
/// Programs that the guest gets if this machine has them. Busybox has a smaller version of most.
const WELCOME: &[&str] = &[
    "chrt",
    "fallocate",
    "fio",
    "losetup",
    "mkswap",
    "prlimit",
    "script",
    "setpriv",
    "strace",
    "stress-ng",
    "swapoff",
    "swapon",
    "unshare",
    "zramctl",
];
/// Directories of the root file system.
const DIRECTORIES: &[&str] = &[
    "bin", "data", "dev", "etc", "lib", "lib64", "mnt", "proc", "root", "run", "sbin", "sys",
    "tmp", "usr/bin", "var/tmp",
];
/// The size of the spare disk. qemu stores only its written blocks.
const SPARE_BYTES: u64 = 2 << 30;
/// The size of the empty disk.
const DATA_BYTES: u64 = 4 << 30;

/// The files for qemu.
#[derive(Debug)]
pub struct Image {
    pub kernel: PathBuf,
    pub initrd: PathBuf,
    pub root: PathBuf,
    pub data: PathBuf,
    /// An empty disk.
    pub spare: PathBuf,
}

/// The image with this kernel. Makes it if the present one is of other inputs.
pub fn ready(checkout: &Path, cache: &Path, programs: &Path, kernel: Kernel) -> Result<Image> {
    let scripts = checkout.join("guest");
    let ours = OURS.iter().map(|name| programs.join(name));
    let theirs = REQUIRED.iter().map(|name| find(name).with_context(|| format!("no {name}")));
    let mut all: Vec<PathBuf> = ours.chain(theirs.collect::<Result<Vec<_>>>()?).collect();
    all.extend(WELCOME.iter().filter_map(|name| find(name)));
    let busybox = find("busybox").context("no busybox")?;

    let mut inputs = format!("{}\n", kernel.release);
    // By this name it is found even if a build has replaced it.
    let own = PathBuf::from("/proc/self/exe");
    let files = [own, busybox.clone(), scripts.join("init"), scripts.join("initrd")];
    for file in files.iter().chain(&all).chain(&kernel.first) {
        inputs.push_str(&stamp(file)?);
    }
    let directory = cache.join(format!("image-{}", kernel.release));
    let image = Image {
        initrd: directory.join("initrd"),
        root: directory.join("root.img"),
        data: cache.join("data.img"),
        spare: cache.join("spare.img"),
        kernel: kernel.image.clone(),
    };
    if !image.spare.exists() {
        fs::File::create(&image.spare)?.set_len(SPARE_BYTES)?;
    }
    if !image.data.exists() {
        file_system(&image.data, DATA_BYTES, &["-E", "lazy_itable_init=0,lazy_journal_init=0"])?;
    }
    let written = directory.join("inputs");
    if fs::read_to_string(&written).ok().as_deref() == Some(inputs.as_str()) {
        return Ok(image);
    }
    // The new image is beside the old one, because a guest may run from the old one.
    let new = cache.join(format!("new-{}", process::id()));
    fs::create_dir_all(&new)?;
    let tree = new.join("root");
    root_tree(&tree, &scripts, &all, &busybox, &kernel)?;
    let bytes = size(&tree)? / 4 * 5 + (64 << 20);
    let from = tree.display().to_string();
    file_system(&new.join("root.img"), bytes, &["-O", "^has_journal", "-d", &from])?;
    let first = new.join("first");
    initrd_tree(&first, &scripts, &busybox, &kernel)?;
    let mut archive = command("sh");
    archive.args(["-c", "find . | cpio --create --format=newc --quiet > ../initrd"]);
    run(archive.current_dir(&first))?;
    fs::remove_dir_all(&tree)?;
    fs::remove_dir_all(&first)?;
    fs::write(new.join("inputs"), inputs)?;
    let _ = fs::remove_dir_all(&directory);
    fs::rename(&new, &directory)?;
    Ok(image)
}

/// A text that changes when the file changes.
fn stamp(file: &Path) -> Result<String> {
    let data = fs::metadata(file)?;
    let (seconds, nanos) = (data.mtime(), data.mtime_nsec());
    Ok(format!("{} {} {seconds}.{nanos}\n", file.display(), data.len()))
}

fn root_tree(
    tree: &Path,
    scripts: &Path,
    programs: &[PathBuf],
    busybox: &Path,
    kernel: &Kernel,
) -> Result<()> {
    for directory in DIRECTORIES {
        fs::create_dir_all(tree.join(directory))?;
    }
    install(tree, busybox, "bin/busybox")?;
    for applet in output(command("busybox").arg("--list"))?.lines() {
        if applet != "busybox" {
            symlink("busybox", tree.join("bin").join(applet))?;
        }
    }
    for program in programs {
        let name = program.file_name().context("a program without a name")?;
        install(tree, program, Path::new("usr/bin").join(name))?;
    }
    symlink("mke2fs", tree.join("usr/bin/mkfs.ext4"))?;
    let _ = fs::copy("/etc/mke2fs.conf", tree.join("etc/mke2fs.conf"));
    fs::write(tree.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(tree.join("etc/group"), "root:x:0:\n")?;
    fs::write(tree.join("etc/mtab"), "")?;
    script(&scripts.join("init"), &tree.join("sbin/init"))?;
    copy_tree(&kernel.modules.join("lib/modules"), &tree.join("lib/modules"))
}

fn initrd_tree(tree: &Path, scripts: &Path, busybox: &Path, kernel: &Kernel) -> Result<()> {
    for directory in ["bin", "dev", "modules", "new", "proc", "sys"] {
        fs::create_dir_all(tree.join(directory))?;
    }
    install(tree, busybox, "bin/busybox")?;
    symlink("busybox", tree.join("bin/sh"))?;
    let mut list = String::new();
    for module in &kernel.first {
        let name = module.file_name().context("a module without a name")?;
        fs::copy(module, tree.join("modules").join(name))?;
        writeln!(list, "{}", name.display())?;
    }
    fs::write(tree.join("modules/list"), list)?;
    script(&scripts.join("initrd"), &tree.join("init"))
}

/// Copies a program and its shared libraries.
fn install(tree: &Path, program: &Path, place: impl AsRef<Path>) -> Result<()> {
    copy(program, &tree.join(place))?;
    // ldd fails for a program without shared libraries.
    let libraries = output(command("ldd").arg(program)).unwrap_or_default();
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = tree.join(library.trim_start_matches('/'));
        if !to.exists() {
            copy(Path::new(library), &to)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file without a directory")?)?;
    fs::copy(from, to)?;
    Ok(())
}

fn script(from: &Path, to: &Path) -> Result<()> {
    copy(from, to)?;
    Ok(fs::set_permissions(to, Permissions::from_mode(0o755))?)
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &place)?;
        } else {
            fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}

/// The bytes of all files below a directory.
fn size(tree: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(tree)? {
        let entry = entry?;
        let data = entry.metadata()?;
        bytes += if data.is_dir() { size(&entry.path())? } else { data.len() };
    }
    Ok(bytes)
}

/// Makes a sparse file with an ext4 file system in it.
fn file_system(file: &Path, bytes: u64, options: &[&str]) -> Result<()> {
    let new = file.with_extension(format!("new-{}", process::id()));
    fs::File::create(&new)?.set_len(bytes)?;
    run(command("mke2fs").args(["-q", "-F", "-t", "ext4"]).args(options).arg(&new))?;
    Ok(fs::rename(&new, file)?)
}

#[cfg(test)]
mod tests {
    use fs_err as fs;

    use super::{size, stamp};

    #[test]
    fn a_changed_file_has_another_stamp() {
        let directory = testkit::TempDir::new();
        let file = directory.join("a");
        fs::write(&file, "one").unwrap();
        let before = stamp(&file).unwrap();
        assert_eq!(stamp(&file).unwrap(), before);
        fs::write(&file, "three").unwrap();
        assert_ne!(stamp(&file).unwrap(), before);
        assert!(stamp(&directory.join("b")).is_err());
        assert_eq!(size(directory.path()).unwrap(), 5);
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = testkit::TempDir::new().join("none");
        let said = format!("{:#}", size(&missing).unwrap_err());
        assert!(said.contains(&missing.display().to_string()), "{said}");
    }
}
