//! The settings of a new device.

use std::sync::Arc;

use control::{ControlError, Object};
use zram::Disk;

use super::paths::check;
use crate::protocol::{Add, Attribute};

/// Stores the attributes in `options`, the size last.
///
/// # Errors
/// The error of an attribute. The attributes before it have their new values then.
pub fn configure(disk: &Arc<Disk>, options: &Add) -> Result<(), ControlError> {
    let rows = zram::attributes(disk.clone());
    if let Some(algorithm) = &options.algorithm {
        rows.store("comp_algorithm", algorithm)?;
    }
    if let Some(level) = options.level {
        rows.store("algorithm_params", &format!("level={level}"))?;
    }
    if let Some(limit) = &options.mem_limit {
        rows.store("mem_limit", limit)?;
    }
    for Attribute { name, value } in &options.attributes {
        check(disk, name, value, options.force)?;
        rows.store(name, value)?;
    }
    if let Some(size) = &options.size {
        rows.store("disksize", size)?;
    }
    Ok(())
}
