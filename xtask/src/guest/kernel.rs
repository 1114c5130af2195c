//! The guest's kernel: the distribution's package, chosen and fetched by apt, and unpacked.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use fs_err::os::unix::fs::symlink;

use super::tools::{command, output, run};

/// Modules that the guest may load, with their dependencies.
const MODULES: &[&str] = &[
    "virtio_blk",
    "virtio_pci",
    "virtio_rng",
    "ext4",
    "fuse",
    "loop",
    "zram",
    "zsmalloc",
    "nbd",
    "ublk_drv",
    "lz4",
    "lz4hc",
    "zstd",
    "lzo",
    "lzo_rle",
    "deflate",
    "brd",
    "null_blk",
    "dm_mod",
    "dm_thin_pool",
    "dm_delay",
    "dm_flakey",
    "overlay",
];
/// The modules that the guest needs to find the root file system.
const FIRST_MODULES: &[&str] = &["virtio_blk", "virtio_pci", "ext4"];

/// The flavour of the distribution's kernel, or another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// For virtual machines: small.
    Cloud,
    /// For everything.
    Generic,
    /// Packages of a kernel that were unpacked to this directory by `dpkg-deb -x`.
    Unpacked(PathBuf),
}

impl Flavour {
    /// Parses the flavour on the command line.
    pub fn parse(text: &str) -> Result<Flavour> {
        match text {
            "cloud" => Ok(Flavour::Cloud),
            "generic" => Ok(Flavour::Generic),
            path if path.contains('/') => Ok(Flavour::Unpacked(path.into())),
            _ => bail!("--kernel {text}: there are cloud, generic, and paths of unpacked packages"),
        }
    }

    fn suffix(&self) -> &'static str {
        match self {
            Flavour::Cloud => "-cloud-amd64",
            _ => "-amd64",
        }
    }
}

/// The kernel series: the one whose zram and zswap rampack is compared with.
const SERIES: &str = "linux-image-6.12.";

/// An unpacked kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Its release, such as `6.12.117+deb12-cloud-amd64`.
    pub release: String,
    pub image: PathBuf,
    /// A directory with `lib/modules/RELEASE`, of the modules named above.
    pub modules: PathBuf,
    /// The module files that are loaded first, in order, as paths below `modules`.
    pub first: Vec<PathBuf>,
}

/// The newest kernel of the series in apt's output, which has a package a line.
pub fn newest(packages: &str, flavour: &Flavour) -> Option<String> {
    let release = |line: &str| -> Option<(u64, String)> {
        let name = line.split_whitespace().next()?;
        // `117+deb12`: a version with more parts is of another flavour.
        let rest = name.strip_prefix(SERIES)?.strip_suffix(flavour.suffix())?;
        let (number, distribution) = rest.split_once('+').unwrap_or((rest, ""));
        let plain = distribution.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
        let number = number.parse().ok().filter(|_| plain)?;
        Some((number, name.to_string()))
    };
    packages.lines().filter_map(release).max().map(|(_, name)| name)
}

/// The kernel in the directory `cache`. Fetches it if it is missing.
pub fn ready(cache: &Path, flavour: &Flavour) -> Result<Kernel> {
    if let Flavour::Unpacked(directory) = flavour {
        return unpacked(directory);
    }
    let top = cache.join("kernel");
    fs::create_dir_all(&top)?;
    let names = fs::read_dir(&top)?.filter_map(|entry| Some(entry.ok()?.file_name()));
    let there: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    let package = match newest(&there.join("\n"), flavour) {
        Some(package) if top.join(&package).join("complete").exists() => package,
        _ => fetch(&top, flavour)?,
    };
    let release = package.trim_start_matches("linux-image-").to_string();
    let package = top.join(&package);
    let (modules, first) = choose(&package, &release)?;
    let image = package.join("boot").join(format!("vmlinuz-{release}"));
    Ok(Kernel { release, image, modules, first })
}

/// The only kernel below a directory. Newer packages have the image beside the modules.
fn unpacked(directory: &Path) -> Result<Kernel> {
    let directory = &fs::canonicalize(directory)?;
    if !directory.join("lib").exists() {
        symlink("usr/lib", directory.join("lib"))?;
    }
    let all = directory.join("lib/modules");
    let mut names =
        fs::read_dir(&all)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let (Some(release), None) = (names.next(), names.next()) else {
        bail!("{}: there must be the modules of one kernel", all.display());
    };
    let own = all.join(&release);
    let images = [
        directory.join("boot").join(format!("vmlinuz-{release}")),
        own.join("vmlinuz"),
        own.join("vmlinuz.unsigned"),
    ];
    let image = images.into_iter().find(|image| image.is_file());
    let image =
        image.with_context(|| format!("{}: no vmlinuz of {release}", directory.display()))?;
    run(command("depmod").arg("-b").arg(directory).arg(&release))?;
    let (modules, first) = choose(directory, &release)?;
    Ok(Kernel { release, image, modules, first })
}

/// Downloads the newest package with apt and unpacks it.
fn fetch(top: &Path, flavour: &Flavour) -> Result<String> {
    let search = || {
        let pattern = format!("^{}", SERIES.replace('.', "\\."));
        output(command("apt-cache").args(["search", "--names-only", &pattern]))
    };
    let mut package = newest(&search()?, flavour);
    let download = |package: &str| {
        run(command("apt-get").args(["download", "--quiet", package]).current_dir(top))
    };
    let mut downloaded = package.as_deref().map(download);
    if !matches!(downloaded, Some(Ok(()))) {
        // Apt's lists may be missing, or too old.
        run(command("apt-get").args(["update", "--quiet"]))?;
        package = newest(&search()?, flavour);
        downloaded = package.as_deref().map(download);
    }
    let (Some(package), Some(downloaded)) = (package, downloaded) else {
        bail!("apt knows no package {SERIES}*{}", flavour.suffix());
    };
    downloaded?;
    let prefix = format!("{package}_");
    let archive = fs::read_dir(top)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().is_some_and(|it| it.to_string_lossy().starts_with(&prefix)));
    let archive = archive.with_context(|| format!("apt-get download {package} brought no file"))?;
    let directory = top.join(&package);
    let _ = fs::remove_dir_all(&directory);
    run(command("dpkg-deb").arg("-x").arg(&archive).arg(&directory))?;
    fs::remove_file(&archive)?;
    if !directory.join("lib").exists() {
        symlink("usr/lib", directory.join("lib"))?;
    }
    let release = package.trim_start_matches("linux-image-");
    run(command("depmod").arg("-b").arg(&directory).arg(release))?;
    fs::write(directory.join("complete"), "")?;
    Ok(package)
}

/// Copies the modules of the guest, uncompressed. The second value is the files that are loaded
/// first.
fn choose(package: &Path, release: &str) -> Result<(PathBuf, Vec<PathBuf>)> {
    let chosen = package.join("chosen");
    let list = chosen.join("list");
    let all = package.join("lib/modules").join(release);
    let own = chosen.join("lib/modules").join(release);
    let wanted = MODULES.join("\n");
    if fs::read_to_string(&list).ok().as_deref() != Some(wanted.as_str()) {
        let _ = fs::remove_dir_all(&chosen);
        for file in needed(package, release, MODULES)? {
            let place = file.strip_prefix(&all).context("a module elsewhere")?;
            let to = own.join(place);
            fs::create_dir_all(to.parent().context("a module at the top")?)?;
            fs::copy(&file, &to)?;
            if to.extension().is_some_and(|it| it == "xz") {
                run(command("xz").args(["--decompress", "--force"]).arg(&to))?;
            }
        }
        for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
            fs::copy(all.join(name), own.join(name))?;
        }
        run(command("depmod").arg("-b").arg(&chosen).arg(release))?;
        fs::write(&list, wanted)?;
    }
    let first = needed(&chosen, release, FIRST_MODULES)?;
    Ok((chosen, first))
}

/// The files of `modules` and of their dependencies, in load order. A built-in or missing module
/// has no file.
fn needed(top: &Path, release: &str, modules: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for module in modules {
        let mut command = command("modprobe");
        command.args(["--show-depends", "--ignore-install", "--set-version", release, "--dirname"]);
        let found = command.arg(top).arg(module).output().context("modprobe")?;
        for line in String::from_utf8_lossy(&found.stdout).lines() {
            let Some(path) = file_of(line, top) else { continue };
            if !files.contains(&path) {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// The file of a module below `top` in a line of modprobe: `insmod FILE OPTIONS...`.
fn file_of(line: &str, top: &Path) -> Option<PathBuf> {
    let text = line.strip_prefix("insmod ")?;
    let top = top.to_string_lossy();
    // There may be blanks in the path of the checkout, and there are none below it.
    let above = if text.starts_with(&*top) { top.len() } else { 0 };
    let end = text[above..].find(char::is_whitespace).map_or(text.len(), |end| above + end);
    Some(PathBuf::from(&text[..end]))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Flavour, file_of, newest};

    #[test]
    fn the_options_of_a_module_are_no_part_of_its_file() {
        let file = PathBuf::from("/a b/lib/modules/6.12.1/kernel/drivers/block/nbd.ko.xz");
        let top = Path::new("/a b");
        for (line, found) in [
            (format!("insmod {} max_part=15 nbds_max=4", file.display()), Some(&file)),
            (format!("insmod {} ", file.display()), Some(&file)),
            (format!("insmod {}", file.display()), Some(&file)),
            ("builtin ext4".into(), None),
        ] {
            assert_eq!(file_of(&line, top).as_ref(), found, "{line}");
        }
    }

    const OFFERED: &str = "\
linux-image-6.12-cloud-amd64 - Linux for x86-64 cloud (meta-package)
linux-image-6.12.99+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)
linux-image-6.12.117+deb12-cloud-amd64-dbg - Debug symbols
linux-image-6.12.118+deb12-cloud-amd64-unsigned - Linux 6.12 for x86-64 cloud
linux-image-6.12.117+deb12-cloud-amd64 - Linux 6.12 for x86-64 cloud (signed)
linux-image-6.12.119+deb12-rt-amd64 - Linux 6.12 for x86-64 (signed)
linux-image-6.12.116+deb12-amd64 - Linux 6.12 for modern 64-bit PCs (signed)
linux-image-6.1.0-56-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
";

    #[test]
    fn the_newest_of_a_flavour_is_taken() {
        let cloud = newest(OFFERED, &Flavour::Cloud);
        assert_eq!(cloud.as_deref(), Some("linux-image-6.12.117+deb12-cloud-amd64"));
        let generic = newest(OFFERED, &Flavour::Generic);
        assert_eq!(generic.as_deref(), Some("linux-image-6.12.116+deb12-amd64"));
    }

    #[test]
    fn nothing_else_will_do() {
        assert_eq!(newest("", &Flavour::Cloud), None);
        let older: String = OFFERED.lines().filter(|line| line.contains("6.1.0")).collect();
        assert_eq!(newest(&older, &Flavour::Cloud), None);
    }

    #[test]
    fn flavours_have_names() {
        assert_eq!(Flavour::parse("cloud").unwrap(), Flavour::Cloud);
        let path = Flavour::Unpacked(PathBuf::from("./7.2"));
        assert_eq!(Flavour::parse("./7.2").unwrap(), path);
        assert!(Flavour::parse("rt").is_err());
    }
}
