//! The sizes of the same pages under the kernel's codecs of the same names. The kernel does not
//! show the compressed bytes; `mm_stat` gives their number.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::pages::{Device, Target, kernel};

/// The size of the pages in the kernel's device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Size {
    /// The algorithm.
    pub name: String,
    /// `compr_data_size`, which counts a huge page as a page.
    pub bytes: u64,
    /// Pages that the kernel found huge and keeps uncompressed.
    pub huge_pages: u64,
}

/// Stores the pages of `bytes` in `device` with each codec of ours that it has.
pub fn sizes(device: &Path, bytes: &[u8]) -> Result<Vec<Size>> {
    let pages = || crate::page::pages(bytes);
    let known = kernel::algorithms(device);
    let shown = device.display();
    if known.is_empty() {
        bail!("--kernel {shown}: this is no zram device of the kernel");
    }
    let mut sizes = Vec::new();
    let ours = zcomp::ALGORITHMS.iter();
    for &name in ours.filter(|&&name| known.iter().any(|known| known == name)) {
        interrupt::check()?;
        let target = Device::of_kernel(device, name, pages().len())?;
        for (index, page) in pages().enumerate() {
            target.store(index as u64, page)?;
        }
        let bytes = target.figures().compressed;
        let bytes = bytes.with_context(|| format!("cannot read what {shown} tells of itself"))?;
        let huge_pages = kernel::huge_pages(device).unwrap_or_default();
        sizes.push(Size { name: name.to_owned(), bytes, huge_pages });
    }
    Ok(sizes)
}
