//! What the kernel's codecs of the same names make of the same pages. The kernel shows nobody the
//! bytes; how many there are it says in `mm_stat`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use units::Page;

use crate::interrupt;
use crate::pages::{Device, Target, kernel};

/// What pages took in the kernel's device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Size {
    /// The algorithm.
    pub name: String,
    /// `compr_data_size`, in which a huge page counts as a page.
    pub bytes: u64,
    /// Pages that it found huge, and keeps as they are.
    pub huge_pages: u64,
}

/// Stores `pages` in `device` with each of `names` that it has.
///
/// # Errors
/// It is no such device, is in use, or fails.
pub fn sizes(device: &Path, pages: &[&Page], names: &[&str]) -> Result<Vec<Size>> {
    let known = kernel::algorithms(device);
    let shown = device.display();
    if known.is_empty() {
        bail!("--kernel {shown}: this is no zram device of the kernel");
    }
    let mut sizes = Vec::new();
    for &name in names.iter().filter(|&&name| known.iter().any(|known| known == name)) {
        interrupt::check()?;
        // Dropped after the device is closed: that resets it.
        let _setup = kernel::Setup::new(device, name, pages.len())?;
        let target = Device::open(device, pages.len())?;
        for (index, page) in pages.iter().enumerate() {
            target.store(index as u64, page)?;
        }
        let bytes = target.figures().compressed;
        let bytes = bytes.with_context(|| format!("cannot read what {shown} tells of itself"))?;
        let huge_pages = kernel::huge_pages(device).unwrap_or_default();
        sizes.push(Size { name: name.to_owned(), bytes, huge_pages });
    }
    Ok(sizes)
}
