//! The messages of a front end (the vhost-user document).

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use block::BlockDevice;
use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};
use vhost_protocol::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVirtioFeatures,
    VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost_protocol::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

use crate::config::{self, BYTES, EVENT_IDX};
use crate::inflight::Inflight;
use crate::memory::{Memory, invalid};
use crate::ring::MOST;
use crate::vring::{Common, Vring};

/// A connection of a front end.
pub(crate) struct Session {
    device: Arc<dyn BlockDevice>,
    /// The most bytes of memory that it may share, none of which can shrink under us. None for our
    /// own user and root, who may share any.
    most: Option<u64>,
    common: Common,
    vrings: Vec<Vring>,
}

fn failed(error: io::Error) -> Error {
    Error::ReqHandlerError(error)
}

fn refused<T>(text: &str) -> Result<T> {
    Err(failed(invalid(text)))
}

/// The bits of a mode that tell the type.
const TYPE: u16 = 0o170_000;

/// Has signals to an eventfd of the front end never wait, nor reads of it. Another file is refused:
/// its file system may be the front end's own, and never answer.
fn at_once(file: Option<File>) -> Result<Option<File>> {
    let prepared = file.as_ref().map_or(Ok(()), |file| {
        // So no file system is asked. What belongs to none has no type.
        let unasked = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        if statx(file, c"", unasked, StatxFlags::TYPE)?.stx_mode & TYPE != 0 {
            return Err(invalid("a signal of a ring is an eventfd"));
        }
        Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?)
    });
    prepared.map_err(failed)?;
    Ok(file)
}

impl Session {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        common: Common,
        queues: u16,
        most: Option<u64>,
    ) -> Session {
        let vrings = (0..queues).map(|_| Vring::default()).collect();
        Session { device, most, common, vrings }
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        let most = self.vrings.len();
        let found = usize::try_from(index).ok().and_then(|index| self.vrings.get_mut(index));
        found.ok_or_else(|| failed(invalid(format!("there is no queue {index}, only {most}"))))
    }

    /// Changes a ring, which is not served meanwhile.
    fn change(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut Vring) -> io::Result<()>,
    ) -> Result<()> {
        let vring = self.vring(index)?;
        vring.stop();
        change(vring).map_err(failed)?;
        let number = index as usize;
        self.vrings[number].start(number, &self.common).map_err(failed)
    }

    fn start_all(&mut self) -> Result<()> {
        let mut all = self.vrings.iter_mut().enumerate();
        all.try_for_each(|(number, vring)| vring.start(number, &self.common)).map_err(failed)
    }

    /// Ends all rings, after what is under way.
    fn stop_all(&mut self) {
        self.vrings.iter_mut().for_each(Vring::stop);
    }
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop_all();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(config::features(&*self.device))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !config::features(&*self.device) != 0 {
            return refused("the front end sets features that it was not offered");
        }
        self.stop_all();
        self.common.event_idx = features & EVENT_IDX != 0;
        self.common.enables = features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0;
        self.start_all()
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<vhost_protocol::VhostUserMemoryRegionBase>>> {
        let memory = Memory::new(regions, files, self.most).map_err(failed)?;
        self.stop_all();
        self.common.memory = Some(Arc::new(memory));
        self.start_all().map(|()| None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        self.change(index, |vring| vring.set_size(num))
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        self.change(index, |vring| {
            vring.places = Some([descriptor, available, used]);
            Ok(())
        })
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.change(index, |vring| {
            let wrong = |_| invalid(format!("the base {base} of a ring is above 65535"));
            vring.taken = u16::try_from(base).map_err(wrong)?;
            Ok(())
        })
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let vring = self.vring(index)?;
        vring.stop();
        vring.kick = None;
        vring.set_call(None);
        Ok(VhostUserVringState::new(index, u32::from(vring.taken)))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let Some(mut file) = at_once(file)? else {
            return refused("a ring without a signal of its driver would have to be polled");
        };
        // A set of other files (epoll) would ask them. A signal that is read here is not lost: the
        // ring begins with what is available.
        match file.read(&mut [0; 8]) {
            Ok(8) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return refused("a signal of a ring can be read"),
        }
        self.change(index.into(), |vring| {
            vring.kick = Some(file);
            Ok(())
        })
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let file = at_once(file)?;
        self.vring(index.into())?.set_call(file);
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let file = at_once(file)?;
        self.vring(index.into())?.set_error(file);
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    }

    fn set_protocol_features(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.vrings.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.change(index, |vring| {
            vring.enabled = enable;
            Ok(())
        })
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let config = config::config(&*self.device, self.vrings.len() as u16);
        let (offset, size) = (offset as usize, size as usize);
        let part = offset.checked_add(size).and_then(|end| config.get(offset..end));
        let wrong = || failed(invalid(format!("the configuration has {BYTES} bytes")));
        part.map(<[u8]>::to_vec).ok_or_else(wrong)
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        refused("nothing of the configuration can be set")
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, size) = (asked.num_queues, asked.queue_size);
        if !(1..=self.vrings.len()).contains(&usize::from(queues)) || !(1..=MOST).contains(&size) {
            return refused("an in-flight region for more queues, or longer ones, than there are");
        }
        Inflight::make(queues, size).map_err(failed)
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let inflight = Inflight::kept(inflight, file).map_err(failed)?;
        self.stop_all();
        self.common.inflight = Some(inflight);
        self.start_all()
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        refused("memory comes as one table")
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<vhost_protocol::VhostUserMemoryRegionBase>> {
        refused("memory comes as one table")
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        refused("memory comes as one table")
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        refused("a disk has no display")
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        refused("a disk shares no objects")
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        refused("a disk does not move to another host")
    }

    fn check_device_state(&mut self) -> Result<()> {
        refused("a disk does not move to another host")
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        refused("a disk shares no memory")
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        refused("a disk does not move to another host")
    }
}
