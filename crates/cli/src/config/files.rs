//! The files of a configuration, in the order in which they are read.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use control::ControlError;
use service::failure::failed;

/// The directories of rampack, the highest first, as systemd has them.
pub const OWN: [&str; 4] =
    ["etc/rampack", "run/rampack", "usr/local/lib/rampack", "usr/lib/rampack"];
/// The main file in each of them.
pub const MAIN: &str = "rampack.toml";

/// The directories of zram-generator and its main file: there `/run` is above `/etc`.
pub const GENERATOR: [&str; 4] =
    ["run/systemd", "etc/systemd", "usr/local/lib/systemd", "usr/lib/systemd"];
/// The main file of zram-generator.
pub const GENERATOR_MAIN: &str = "zram-generator.conf";

/// Where the files are looked for: `/`, or the directory in `RAMPACK_CONFIG_ROOT`.
#[must_use]
pub fn top() -> PathBuf {
    let asked = std::env::var_os("RAMPACK_CONFIG_ROOT").filter(|path| !path.is_empty());
    asked.map_or_else(|| "/".into(), PathBuf::from)
}

/// The files that were found.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Found {
    /// Those that are read, in this order.
    pub read: Vec<PathBuf>,
    /// Links to `/dev/null`, each in the place of files of its name.
    pub hiding: Vec<PathBuf>,
}

/// Finds the main file below `top`, which comes first, and the drop-ins in the directory of its
/// name and `.d`, sorted by their names across `directories`. Of several files of one name the one
/// in the first directory counts.
///
/// # Errors
/// The error of a directory that cannot be read.
pub fn find(top: &Path, directories: &[&str], main: &str) -> Result<Found, ControlError> {
    let extension = Path::new(main).extension();
    let mut drop_ins: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    let mut first = None;
    for directory in directories.iter().map(|it| top.join(it)) {
        let path = directory.join(main);
        if first.is_none() && is_there(&path) {
            first = Some(path);
        }
        for name in names(&directory.join(format!("{main}.d")), extension)? {
            let path = directory.join(format!("{main}.d")).join(&name);
            drop_ins.entry(name).or_insert(path);
        }
    }
    let all = first.into_iter().chain(drop_ins.into_values());
    let (hiding, read) = all.partition(|path| is_link_to_null(path));
    Ok(Found { read, hiding })
}

/// Is something at `path`? A link that leads nowhere is: the error of reading it is told.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn is_link_to_null(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink())
        && fs::canonicalize(path).is_ok_and(|it| it == Path::new("/dev/null"))
}

/// The names of the drop-ins in a directory that may not exist. Hidden files are none.
fn names(directory: &Path, extension: Option<&OsStr>) -> Result<Vec<OsString>, ControlError> {
    let what = |error| failed(format!("cannot look into {}", directory.display()), &error);
    let entries = match fs::read_dir(directory) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(what)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(what)?.file_name();
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        if !is_hidden && Path::new(&name).extension() == extension {
            found.push(name);
        }
    }
    Ok(found)
}

/// Does the kernel's command line (`/proc/cmdline` below `top`) turn everything off, by
/// `rampack=0`? The last such word counts.
#[must_use]
pub fn is_off(top: &Path) -> bool {
    let line = fs::read_to_string(top.join("proc/cmdline")).unwrap_or_default();
    let last = line.split_whitespace().filter_map(|word| word.strip_prefix("rampack=")).next_back();
    last.is_some_and(|value| ["0", "no", "n", "off", "false", "f"].contains(&value))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use testkit::TempDir;

    use super::*;

    fn tree(files: &[&str]) -> TempDir {
        let top = TempDir::new();
        for file in files {
            let (file, is_link) = (file.trim_end_matches('@'), file.ends_with('@'));
            let path = top.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match is_link {
                true => symlink("/dev/null", path).unwrap(),
                false => fs::write(path, "").unwrap(),
            }
        }
        top
    }

    fn found(top: &TempDir) -> (Vec<String>, Vec<String>) {
        let Found { read, hiding } = find(top.path(), &OWN, MAIN).unwrap();
        let of = |paths: Vec<PathBuf>| {
            let short =
                |path: PathBuf| path.strip_prefix(top.path()).unwrap().display().to_string();
            paths.into_iter().map(short).collect()
        };
        (of(read), of(hiding))
    }

    #[test]
    fn files_are_sorted_by_name_across_directories() {
        let top = tree(&[
            "usr/lib/rampack/rampack.toml",
            "etc/rampack/rampack.toml",
            "etc/rampack/rampack.toml.d/20-b.toml",
            "usr/lib/rampack/rampack.toml.d/10-a.toml",
            "usr/lib/rampack/rampack.toml.d/20-b.toml",
            "run/rampack/rampack.toml.d/20-b.toml",
            "run/rampack/rampack.toml.d/30-c.toml",
            "run/rampack/rampack.toml.d/.40-d.toml",
            "run/rampack/rampack.toml.d/40-d.toml~",
            "usr/local/lib/rampack/rampack.toml.d/05-z.toml",
        ]);
        let expected = [
            "etc/rampack/rampack.toml",
            "usr/local/lib/rampack/rampack.toml.d/05-z.toml",
            "usr/lib/rampack/rampack.toml.d/10-a.toml",
            "etc/rampack/rampack.toml.d/20-b.toml",
            "run/rampack/rampack.toml.d/30-c.toml",
        ];
        assert_eq!(found(&top), (expected.map(String::from).to_vec(), vec![]));
    }

    #[test]
    fn a_link_to_null_hides_a_file_of_its_name() {
        let top = tree(&[
            "usr/lib/rampack/rampack.toml",
            "run/rampack/rampack.toml@",
            "usr/lib/rampack/rampack.toml.d/10-a.toml",
            "etc/rampack/rampack.toml.d/10-a.toml@",
            // It is below the one that it would hide.
            "usr/lib/rampack/rampack.toml.d/20-b.toml@",
            "etc/rampack/rampack.toml.d/20-b.toml",
        ]);
        let read = vec!["etc/rampack/rampack.toml.d/20-b.toml".to_string()];
        let hiding =
            ["run/rampack/rampack.toml", "etc/rampack/rampack.toml.d/10-a.toml"].map(String::from);
        assert_eq!(found(&top), (read, hiding.to_vec()));
        assert_eq!(found(&tree(&[])), (vec![], vec![]));
    }

    #[test]
    fn the_kernels_command_line_turns_it_off() {
        let top = tree(&["proc/cmdline"]);
        let is = |line: &str| {
            fs::write(top.join("proc/cmdline"), line).unwrap();
            is_off(top.path())
        };
        assert!(is("quiet rampack=0\n") && is("rampack=off") && is("rampack=1 rampack=0"));
        assert!(
            !is("quiet") && !is("rampack=1") && !is("xrampack=0") && !is("rampack=0 rampack=1")
        );
        assert!(!is_off(tree(&[]).path()));
    }
}
