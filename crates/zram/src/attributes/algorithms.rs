//! Attributes of codecs and of recompression.

use alloc::{format, string::String, sync::Arc};
use core::fmt::Write;

use control::{Access, Attribute, ControlError, Errno, ValueKind};
use zcomp::Params;

use super::keys::{decimal, put, unknown, words};
use crate::{Disk, Pack, Recompress, Select, Share, Which};

/// The longest name of an algorithm that is looked up (`CRYPTO_MAX_ALG_NAME` in Linux).
const NAME_MAX: usize = 128;

fn list(chosen: &str, out: &mut dyn Write) -> Result<(), ControlError> {
    for &name in zcomp::ALGORITHMS {
        if name == chosen {
            put(out, format_args!("[{name}] "))?;
        } else {
            put(out, format_args!("{name} "))?;
        }
    }
    put(out, format_args!("\n"))
}

fn name(text: &str) -> Result<&str, ControlError> {
    if text.len() >= NAME_MAX {
        let message = format!("an algorithm's name has fewer than {NAME_MAX} characters");
        return Err(ControlError::new(Errno::E2BIG, message));
    }
    Ok(text.trim())
}

pub(super) const COMP_ALGORITHM: Attribute<Disk> = Attribute {
    name: "comp_algorithm",
    access: Access::ReadWrite,
    unit: "name",
    kind: ValueKind::Plain,
    help: "algorithms there are, the chosen one in brackets; chosen before the size is set",
    show: Some(|disk, out| list(disk.chosen_algorithms()[0].unwrap_or_default(), out)),
    store: Some(|disk, text| disk.set_algorithm(name(text)?)),
};

pub(super) const RECOMP_ALGORITHM: Attribute<Disk> = Attribute {
    name: "recomp_algorithm",
    access: Access::ReadWrite,
    unit: "text",
    kind: ValueKind::Plain,
    help: "algorithms that pages are compressed again with; before the size is set, algo=NAME \
           priority=1 to 3",
    show: Some(|disk, out| {
        for (priority, chosen) in disk.chosen_algorithms().iter().enumerate().skip(1) {
            if let Some(chosen) = chosen {
                put(out, format_args!("#{priority}: "))?;
                list(chosen, out)?;
            }
        }
        Ok(())
    }),
    store: Some(|disk, text| {
        const ALLOWED: &str = "algo=NAME and priority=1 to 3";
        let (mut algorithm, mut priority) = (None, 1);
        for word in words(text) {
            match word {
                ("algo", Some(value)) => algorithm = Some(name(value)?),
                ("priority", Some(value)) => priority = again_priority(value)?,
                (key, value) => return Err(unknown("recomp_algorithm", key, value, ALLOWED)),
            }
        }
        let Some(algorithm) = algorithm else {
            return Err(ControlError::invalid(format!("recomp_algorithm takes {ALLOWED}")));
        };
        disk.set_algorithm_at(priority, algorithm)
    }),
};

fn again_priority(value: &str) -> Result<u8, ControlError> {
    match decimal::<i64>("priority", value)? {
        priority @ 1..=3 => Ok(priority as u8),
        other => Err(ControlError::invalid(format!(
            "a priority of algorithms to compress again with is 1 to 3, not {other}"
        ))),
    }
}

/// A codec and its parameters, as `algo=NAME priority=N level=N dict=PATH deflate.winbits=N`.
pub(super) fn parameters(
    disk: &Disk,
    what: &str,
    text: &str,
) -> Result<(Which, Params), ControlError> {
    const ALLOWED: &str =
        "algo=NAME, priority=0 to 3, level=NUMBER, dict=PATH, deflate.winbits=NUMBER";
    let (mut which, mut params) = (Which::default(), Params::default());
    for word in words(text) {
        match word {
            ("algo", Some(value)) => which.algorithm = Some(String::from(name(value)?)),
            ("priority", Some(value)) => {
                which.priority = Some(any_priority(value)?);
            }
            ("level", Some(value)) => params.level = Some(decimal("level", value)?),
            ("deflate.winbits", Some(value)) => {
                params.window_bits = Some(decimal("deflate.winbits", value)?);
            }
            ("dict", Some(path)) => params.dictionary = Some(dictionary(disk, path)?),
            (key, value) => return Err(unknown(what, key, value, ALLOWED)),
        }
    }
    Ok((which, params))
}

fn dictionary(disk: &Disk, path: &str) -> Result<Arc<[u8]>, ControlError> {
    match disk.resources.files.read(path) {
        Ok(bytes) if bytes.is_empty() => {
            Err(ControlError::invalid(format!("the dictionary {path} is empty")))
        }
        Ok(bytes) => Ok(bytes.into()),
        // Linux returns the same error for every reason.
        Err(error) => Err(ControlError::invalid(error.message)),
    }
}

pub(super) const ALGORITHM_PARAMS: Attribute<Disk> = Attribute {
    name: "algorithm_params",
    access: Access::Write,
    unit: "text",
    kind: ValueKind::Plain,
    help: "parameters of a chosen algorithm before the size is set: algo=NAME or priority=0 to 3, \
           level=NUMBER dict=PATH deflate.winbits=NUMBER",
    show: None,
    store: Some(|disk, text| {
        let (which, params) = parameters(disk, "algorithm_params", text)?;
        disk.set_params_of(&which, params)
    }),
};

pub(super) const SWITCH_ALGORITHM: Attribute<Disk> = Attribute {
    name: "switch_algorithm",
    access: Access::ActOnWrite,
    unit: "text",
    kind: ValueKind::Plain,
    help: "changes an algorithm of a disk in use: algo=NAME and the words of algorithm_params; \
           what is stored stays as it is",
    show: None,
    store: Some(|disk, text| {
        let (which, params) = parameters(disk, "switch_algorithm", text)?;
        let priority = which.priority.unwrap_or(0);
        let chosen = disk.chosen_algorithms()[usize::from(priority)];
        match (which.algorithm.as_deref(), chosen) {
            (Some(algorithm), _) | (None, Some(algorithm)) => {
                disk.switch_algorithm(priority, algorithm, params)
            }
            (None, None) => Err(ControlError::invalid("switch_algorithm takes algo=NAME")),
        }
    }),
};

pub(super) const RECOMPRESS: Attribute<Disk> = Attribute {
    name: "recompress",
    access: Access::ActOnWrite,
    unit: "text",
    kind: ValueKind::Plain,
    help: "compresses pages again, the largest first: type=idle|huge|huge_idle threshold=BYTES \
           max_pages=NUMBER priority=1 to 3 algo=NAME",
    show: None,
    store: Some(|disk, text| {
        const ALLOWED: &str = "type=idle|huge|huge_idle, threshold=BYTES, max_pages=NUMBER, \
                               priority=1 to 3, algo=NAME";
        let mut what = Recompress::default();
        for word in words(text) {
            match word {
                ("type", Some("idle")) => what.select = Select::Idle,
                ("type", Some("huge")) => what.select = Select::Huge,
                ("type", Some("huge_idle")) => what.select = Select::HugeIdle,
                ("threshold", Some(value)) => {
                    what.threshold = decimal::<u32>("threshold", value)? as usize;
                }
                ("max_pages", Some(value)) => what.max_pages = Some(decimal("max_pages", value)?),
                ("priority", Some(value)) => what.which.priority = Some(again_priority(value)?),
                ("algo", Some(value)) => what.which.algorithm = Some(String::from(name(value)?)),
                (key, value) => return Err(unknown("recompress", key, value, ALLOWED)),
            }
        }
        disk.recompress(&what)
    }),
};

pub(super) const PACK: Attribute<Disk> = Attribute {
    name: "pack",
    access: Access::ActOnWrite,
    unit: "text",
    kind: ValueKind::Plain,
    help: "compresses neighbouring pages as one, up to four, where that object is smaller; \
           compact gives back what is left between them: type=idle|huge|huge_idle \
           max_pages=NUMBER priority=0 to 3 algo=NAME",
    show: None,
    store: Some(|disk, text| {
        const ALLOWED: &str =
            "type=idle|huge|huge_idle, max_pages=NUMBER, priority=0 to 3, algo=NAME";
        let mut what = Pack::default();
        for word in words(text) {
            match word {
                ("type", Some(value)) if kind(value).is_some() => {
                    what.select = kind(value).unwrap_or_default();
                }
                ("max_pages", Some(value)) => what.max_pages = Some(decimal("max_pages", value)?),
                ("priority", Some(value)) => what.which.priority = Some(any_priority(value)?),
                ("algo", Some(value)) => what.which.algorithm = Some(String::from(name(value)?)),
                (key, value) => return Err(unknown("pack", key, value, ALLOWED)),
            }
        }
        disk.pack(&what).map(drop)
    }),
};

pub(super) const SHARE: Attribute<Disk> = Attribute {
    name: "share",
    access: Access::ActOnWrite,
    unit: "text",
    kind: ValueKind::Plain,
    help: "lets equal pages share one object: type=idle|huge|huge_idle max_pages=NUMBER",
    show: None,
    store: Some(|disk, text| {
        const ALLOWED: &str = "type=idle|huge|huge_idle, max_pages=NUMBER";
        let mut what = Share::default();
        for word in words(text) {
            match word {
                ("type", Some(value)) if kind(value).is_some() => {
                    what.select = kind(value).unwrap_or_default();
                }
                ("max_pages", Some(value)) => what.max_pages = Some(decimal("max_pages", value)?),
                (key, value) => return Err(unknown("share", key, value, ALLOWED)),
            }
        }
        disk.share(&what).map(drop)
    }),
};

fn kind(value: &str) -> Option<Select> {
    match value {
        "idle" => Some(Select::Idle),
        "huge" => Some(Select::Huge),
        "huge_idle" => Some(Select::HugeIdle),
        _ => None,
    }
}

fn any_priority(value: &str) -> Result<u8, ControlError> {
    match decimal::<i64>("priority", value)? {
        priority @ 0..=3 => Ok(priority as u8),
        other => Err(ControlError::invalid(format!("a priority is 0 to 3, not {other}"))),
    }
}
