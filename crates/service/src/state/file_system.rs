//! File systems that a daemon makes on its devices, in the table of a state: the next daemon goes
//! on where the one before was.
//!
//! | step | what a kill may have left | the next daemon |
//! |---|---|---|
//! | begun | a device, with a part of a file system or all of it | removes it and begins anew |
//! | made | a file system, mounted or not | mounts it, unless it is mounted |
//! | mounted | a mount, unless somebody has unmounted it | keeps what is there |

use std::collections::BTreeMap;
use std::path::PathBuf;

use control::ControlError;
use kept::Device;

/// The device of the table for the file system.
const NAME: &str = "filesystem";
const ON: &str = "on";
const KIND: &str = "kind";
const TARGET: &str = "target";
const STEP: &str = "step";

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MadeUpTo {
    /// Its device is there, and it may not be.
    Begun,
    /// It is there, and is to be mounted if it has a mount point.
    Made,
    /// It was mounted.
    Mounted,
}

/// A file system that was made for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// The name of the disk that it is on.
    pub disk: String,
    /// The name of its kind.
    pub kind: String,
    /// Where it is mounted; None if the user does that.
    pub target: Option<PathBuf>,
    /// How far it is.
    pub step: MadeUpTo,
}

impl MadeUpTo {
    const ALL: [MadeUpTo; 3] = [MadeUpTo::Begun, MadeUpTo::Made, MadeUpTo::Mounted];

    fn name(self) -> &'static str {
        match self {
            MadeUpTo::Begun => "begun",
            MadeUpTo::Made => "made",
            MadeUpTo::Mounted => "mounted",
        }
    }
}

/// Is this device of a table a file system?
pub(super) fn is_one(device: &Device) -> bool {
    device.name == NAME
}

/// The device of the table for all file systems; `None` without any. Settings of the second and
/// later ones have a number behind their names: older programs read the first.
pub(super) fn device<'a>(all: impl Iterator<Item = &'a FileSystem>) -> Option<Device> {
    let mut settings: BTreeMap<String, String> = BTreeMap::new();
    for (number, FileSystem { disk, kind, target, step }) in all.enumerate() {
        let mut set = |name: &str, value: String| _ = settings.insert(nth(name, number), value);
        set(ON, disk.clone());
        set(KIND, kind.clone());
        set(STEP, step.name().to_owned());
        if let Some(target) = target {
            set(TARGET, machine::text_of(target));
        }
    }
    let is_any = !settings.is_empty();
    is_any.then(|| Device { name: NAME.to_owned(), bytes: 0, generation: 0, settings })
}

fn nth(name: &str, number: usize) -> String {
    if number == 0 { name.to_owned() } else { format!("{name}.{number}") }
}

/// The file systems of a table.
///
/// # Errors
/// `EINVAL` for what cannot be.
pub(super) fn left(devices: &[Device]) -> Result<Vec<FileSystem>, ControlError> {
    let Some(device) = devices.iter().find(|device| is_one(device)) else { return Ok(Vec::new()) };
    let count = (0..).take_while(|it| device.settings.contains_key(&nth(ON, *it))).count().max(1);
    let read = |number| {
        let set = |name: &str| device.settings.get(&nth(name, number));
        let step =
            MadeUpTo::ALL.into_iter().find(|step| Some(step.name()) == set(STEP).map(|s| &**s));
        Some(FileSystem {
            disk: set(ON)?.clone(),
            kind: set(KIND)?.clone(),
            target: set(TARGET).map(|path| machine::path_of(path)),
            step: step?,
        })
    };
    (0..count).map(read).collect::<Option<_>>().ok_or_else(|| {
        let message = format!("{NAME:?} in the state of the devices says what cannot be");
        ControlError::invalid(message)
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_file_system_is_read_as_it_was_written() {
        for step in MadeUpTo::ALL {
            let bytes = OsStr::from_bytes(b"/mnt/\xff");
            for target in [None, Some(PathBuf::from("/mnt/a b")), Some(PathBuf::from(bytes))] {
                let it = FileSystem { disk: "zram3".into(), kind: "xfs".into(), target, step };
                for count in 1..4 {
                    let all = vec![it.clone(); count];
                    let device = device(all.iter()).unwrap();
                    assert!(is_one(&device));
                    assert_eq!(left(&[device]).unwrap(), all);
                }
            }
        }
        assert_eq!(device([].iter()), None);
        assert_eq!(left(&[]).unwrap(), []);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (disk, kind) = ("zram0".to_owned(), "ext4".to_owned());
        let it = FileSystem { disk, kind, target: None, step: MadeUpTo::Made };
        for (name, value) in [(STEP, Some("done")), (STEP, None), (ON, None), (KIND, None)] {
            let mut device = device([&it].into_iter()).unwrap();
            device.settings.remove(name);
            device.settings.extend(value.map(|value| (name.to_owned(), value.to_owned())));
            let error = left(&[device]).unwrap_err();
            assert!(error.message.contains(NAME), "{}", error.message);
        }
    }
}
