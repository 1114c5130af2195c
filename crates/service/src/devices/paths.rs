//! What the daemon refuses of the paths in values of attributes.

use control::ControlError;
use zram::{Disk, with_absolute_paths};

/// Checks the paths in `value` before `disk` stores it as the attribute `name`.
///
/// # Errors
/// `EINVAL` for a relative path: the daemon has another working directory than the writer. `EACCES`
/// or `EPERM` for a backing file that other users may open, if pages are to be in it as they are
/// and `force` is not given.
pub(super) fn check(disk: &Disk, name: &str, value: &str, force: bool) -> Result<(), ControlError> {
    with_absolute_paths(name, value, &mut |path| {
        let message = format!(
            "{name}: {path:?} is a relative path, and the daemon does not know in which directory; \
             write an absolute one"
        );
        Err(ControlError::invalid(message))
    })?;
    if name != "backing_dev" {
        return Ok(());
    }
    let path = machine::path_of(value.strip_suffix('\n').unwrap_or(value));
    let sealed = disk.sealed_backing();
    match backing::exposure(&path, sealed) {
        Some(error) if !sealed && !force => {
            let message = format!(
                "{}, let what is written there be encrypted (sealed_backing 1), or add the device \
                 with --force",
                error.message
            );
            Err(ControlError::new(error.errno, message))
        }
        Some(error) => {
            tracing::warn!("{}", error.message);
            Ok(())
        }
        None => Ok(()),
    }
}
