//! The layers between the cache of a swap device and its backing device: encryption, and a log.

use std::sync::Arc;

use rampack::LeftLog;
use rampack::block::BlockDevice;
use rampack::control::{ControlError, Errno};
use rampack::pagelog::LogDevice;
use rampack::units::PAGE_SIZE;

use super::backing::OpenedBacking;
use super::first_page::FirstPage;
use super::name;
use crate::protocol::BackingLayout;
use crate::state::State;
use crate::state::swaps::{SavedArea, SavedBacking};

/// What a cache writes back to.
pub struct Layers {
    /// The uppermost layer.
    pub device: Arc<dyn BlockDevice>,
    /// The log, if pages are in one.
    pub log: Option<Arc<LogDevice>>,
}

impl Layers {
    /// The layers of a new swap device of so many pages. They outlive the daemon if `state` is
    /// given; `None` if this kernel has no memory for a key that does.
    ///
    /// # Errors
    /// Those of [`rampack::logged`] and of [`rampack::sealed`].
    pub fn make(
        backing: &OpenedBacking,
        (number, pages): (usize, u64),
        (layout, seal): (BackingLayout, bool),
        state: Option<&State>,
    ) -> Result<Option<Layers>, ControlError> {
        let (device, path) = (backing.device().clone(), backing.path().display().to_string());
        let Some(state) = state else {
            return Layers::of_this_run(device, pages, layout, seal, &path);
        };
        let (memory, name) = (state.memory(), name(number));
        match (layout, seal) {
            (BackingLayout::Log, _) => {
                let kept = rampack::logged_kept(device, memory, &name, pages, (&path, seal))?;
                Ok(kept.map(Layers::of_log))
            }
            (BackingLayout::Pages, true) => {
                let bytes = pages * PAGE_SIZE as u64;
                let sealed = rampack::sealed_kept(device.clone(), memory, &name, bytes, &path)?;
                Ok(sealed.map(|sealed| Layers::of_pages(Arc::new(FirstPage::new(sealed, device)))))
            }
            (BackingLayout::Pages, false) => Ok(Some(Layers::of_pages(device))),
        }
    }

    fn of_this_run(
        device: Arc<dyn BlockDevice>,
        pages: u64,
        layout: BackingLayout,
        seal: bool,
        path: &str,
    ) -> Result<Option<Layers>, ControlError> {
        let memory = &rampack::host::MmapAhead;
        let sealed = |device, bytes| match seal {
            // Only this run reads what it has written, so its own key is enough.
            true => rampack::sealed(device, memory, bytes, path),
            false => Ok(device),
        };
        Ok(Some(match layout {
            BackingLayout::Log => {
                Layers::of_log(rampack::logged(device, memory, pages, path, sealed)?)
            }
            BackingLayout::Pages if seal => {
                let sealed = sealed(device.clone(), pages * PAGE_SIZE as u64)?;
                Layers::of_pages(Arc::new(FirstPage::new(sealed, device)))
            }
            BackingLayout::Pages => Layers::of_pages(device),
        }))
    }

    /// The layers of a swap device of the daemon before, above its `backing`, which was opened
    /// again. Also says what cannot be of its log.
    ///
    /// # Errors
    /// `ENOTSUP` if a key was not kept; `EINVAL` if a log was not; those of [`Layers::make`].
    pub fn again(
        state: &State,
        area: &SavedArea,
        (saved, backing): (&SavedBacking, &OpenedBacking),
    ) -> Result<(Layers, Vec<String>), ControlError> {
        let (name, path) = (name(area.number), backing.path().display().to_string());
        let (device, memory) = (backing.device().clone(), state.memory());
        let no_key = || {
            let message = format!("the key of {path}, which is below {name}, was not kept");
            ControlError::new(Errno::ENOTSUP, message)
        };
        if let Some(bytes) = saved.log_bytes {
            let (size, of) = ((area.pages, bytes), (&*path, saved.is_sealed));
            let left = rampack::logged_left(device, memory, &name, size, of)?;
            let LeftLog { device, mut findings, all_findings } = left.ok_or_else(no_key)?;
            let more = all_findings - findings.len() as u64;
            if more > 0 {
                findings.push(format!("{path}: there are {more} more findings"));
            }
            return Ok((Layers::of_log(device), findings));
        }
        if !saved.is_sealed {
            return Ok((Layers::of_pages(device), Vec::new()));
        }
        let bytes = area.pages * PAGE_SIZE as u64;
        let sealed = rampack::sealed_kept(device.clone(), memory, &name, bytes, &path)?;
        let first = FirstPage::new(sealed.ok_or_else(no_key)?, device);
        Ok((Layers::of_pages(Arc::new(first)), Vec::new()))
    }

    fn of_pages(device: Arc<dyn BlockDevice>) -> Layers {
        Layers { device, log: None }
    }

    fn of_log(log: Arc<LogDevice>) -> Layers {
        Layers { device: log.clone(), log: Some(log) }
    }
}
