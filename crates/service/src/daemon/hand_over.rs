//! Another program in place of the daemon: it takes over the devices, in the same process.

use std::env;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::errno;
use nbd::{Activated, Server};
use rustix::process::umask;

use super::{Daemon, end_nbd_by};
use crate::devices::StandStill;
use crate::failure::failed;
use crate::layouts::UPGRADED;
use crate::rehearsal;
use crate::server::ControlServer;
use crate::state::State;
use crate::successor::Successor;

/// How long the commands under way may take before an upgrade is refused because of them.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the requests under way to block devices may take, all together.
const ANSWERING: Duration = Duration::from_secs(5);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// The exit status of a program that leaves everything to the next one (`EX_TEMPFAIL` of
/// sysexits.h): whoever keeps it is to start it again, whoever asked for its end.
const LEFT: i32 = 75;

impl Daemon {
    /// Replaces this program by `program`, after a rehearsal if that can be. Clients of NBD get the
    /// answers to what they asked, and are disconnected. Returns only if it is refused or fails;
    /// everything is as before then, but for the connections of those clients. It is refused if
    /// `is_told_to_end` in the end: the next program would not know, and nobody says it again.
    pub fn hand_over(
        &self,
        program: &Successor,
        is_told_to_end: impl Fn() -> bool,
    ) -> ControlError {
        let Successor { path, layouts } = program;
        // Before anything stands still, and once more in the end.
        let told = || {
            let message = "a signal has told the daemon to end, which it does once it can";
            is_told_to_end().then(|| ControlError::new(Errno::EBUSY, message))
        };
        let refusal = self.devices.refuse_program(path).err();
        if let Some(error) = told().or(refusal) {
            return error;
        }
        if layouts.rehearses
            && let Err(error) = self.rehearse(path)
        {
            return error;
        }
        self.when_still(false, |fds| {
            // The layout rises with the first use of what needs a newer one.
            let parts = self.devices.state().map(|state| state.layouts(&self.machine));
            let is_read = parts.map_or(Ok(()), |parts| layouts.check(path, &parts));
            if let Some(error) = told().or(is_read.err()) {
                return error;
            }
            let process = OsString::from(std::process::id().to_string());
            let arguments = env::args_os().collect();
            // The next program begins with that of who started this one.
            let own = umask(self.file_systems.umask);
            let error = kept::replace(path, arguments, &[(UPGRADED, process)], &fds);
            umask(own);
            failed(format!("cannot execute {}", path.display()), &error)
        })
    }

    /// Has the program at `path` say whether it could take over what there is now.
    fn rehearse(&self, path: &Path) -> Result<(), ControlError> {
        let Some(state) = self.devices.state() else { return Ok(()) };
        state.save(&self.machine)?;
        let fds = self.descriptors(state);
        rehearsal::ask(path, &fds.map_err(|error| failed("cannot give away what is kept", &error))?)
    }

    /// Ends the process. The next daemon takes over the devices from the service manager. Returns
    /// only if it is refused, as [`Daemon::hand_over`] does; also if `is_told` more in the end,
    /// which the next one would not know.
    pub fn leave_to_the_next(&self, is_told: impl Fn() -> bool) -> ControlError {
        self.when_still(true, |_| match is_told() {
            true => ControlError::new(Errno::EBUSY, "the daemon was told to end meanwhile"),
            false => process::exit(LEFT),
        })
    }

    /// Saves everything, ends what is under way, and calls `last`, which ends this program or
    /// returns why it does not. With `cuts` a change that is under way ends with the program: the
    /// next one finds what is saved, as after a death.
    fn when_still(
        &self,
        cuts: bool,
        last: impl FnOnce(Vec<(String, OwnedFd)>) -> ControlError,
    ) -> ControlError {
        let Some(state) = self.devices.state() else {
            return ControlError::new(Errno::ENOTSUP, "there is no state to hand over");
        };
        // What changes from here on would not be what the next program is given.
        let ready = self.check_handed_over().and_then(|()| self.wait_for_commands(cuts));
        let _still = match ready {
            Ok(still) => still,
            Err(error) => return error,
        };
        let checked = self.check_handed_over().and_then(|()| state.save(&self.machine));
        if let Err(error) = checked.and_then(|()| state.settle()) {
            return error;
        }
        let fds = match self.descriptors(state) {
            Ok(fds) => fds,
            Err(error) => return failed("cannot hand over what is kept", &error),
        };
        let server = self.nbd.lock().take();
        // Clients wait in the queue of its socket, which is kept, for who serves next.
        let is_done = server.as_ref().is_none_or(|server| end_nbd_by(server, Server::leave));
        let result = match self.devices.end_vhost() && is_done {
            false => {
                let message = "requests of clients are not answered in time: the device does not \
                               answer; the daemon goes on";
                ControlError::new(Errno(errno::ETIMEDOUT), message)
            }
            true => {
                let why = self.quiesce().map_or_else(|error| error, |()| last(fds));
                match self.serve_on(ANSWERING) {
                    Ok(()) => why,
                    Err(ControlError { message, .. }) => {
                        let all = format!("{}; {message}: this is tried again", why.message);
                        ControlError::new(why.errno, all)
                    }
                }
            }
        };
        if server.is_some() {
            // The one may fail where the other serves.
            let (opened, again) = (self.open_nbd(), self.listen_again());
            if let Err(error) = opened.and(again) {
                tracing::error!("NBD is not served as before: {error}");
            }
        }
        if let Err(error) = self.open_vhost() {
            tracing::error!("there is no vhost-user server any more: {error}");
        }
        result
    }

    /// Has ublk keep the requests of swap devices and disks for the next program.
    fn quiesce(&self) -> Result<(), ControlError> {
        let end = Instant::now() + ANSWERING;
        // As in `serve_on`: while swap devices stand still, nothing waits for disks.
        let done = self.devices.quiesce(end).and_then(|()| self.swaps.quiesce(end));
        done.map_err(|ControlError { message, .. }| {
            let message = format!(
                "requests to a block device are not answered in time ({message}); the daemon goes \
                 on"
            );
            ControlError::new(Errno(errno::ETIMEDOUT), message)
        })
    }

    /// Serves swap devices and disks on that an upgrade has left and that have no next program.
    /// Does nothing for those that are served.
    ///
    /// # Errors
    /// That of the first that cannot be served now; this is to be called again.
    pub fn serve_on(&self, patience: Duration) -> Result<(), ControlError> {
        // Disks may wait for what is swapped out.
        let swaps = self.swaps.serve_on(patience);
        swaps.and(self.devices.serve_on(patience))
    }

    /// Serves on what an upgrade or a restart left and has no next program. What is read back, and
    /// written at an unmount, would wait for that, and nobody would try it again meanwhile. I/O of
    /// disks is given up by `force`.
    pub(super) fn check_served(&self, force: bool) -> Result<(), ControlError> {
        let served = match force {
            true => self.swaps.serve_on(Duration::ZERO),
            false => self.serve_on(Duration::ZERO),
        };
        served.map_err(|error| {
            let message = format!(
                "an upgrade or a restart was refused because a backing device does not answer, and \
                 the requests to a block device wait since then: {}",
                error.message
            );
            ControlError::new(error.errno, message)
        })
    }

    /// Checks that nothing is in use that would end with this program.
    fn check_handed_over(&self) -> Result<(), ControlError> {
        self.swaps.check_handed_over()?;
        let Some(state) = self.devices.state() else { return Ok(()) };
        let regions = state.memory().regions();
        let outlives = |name: &str| regions.iter().any(|region| region.name.starts_with(name));
        self.devices.check_keys(outlives)?;
        // The users of a mount that outlives this program wait for the next one.
        match state.has_mount() {
            true => Ok(()),
            false => self.devices.check_handed_over(),
        }
    }

    /// Waits until nobody but the one who asks for this is being answered on the control socket,
    /// and no change is under way. From then on changes stand still. Nobody asks for an end that
    /// `cuts`; it waits for no change, and not for a command that takes longer than [`PATIENCE`].
    fn wait_for_commands(&self, cuts: bool) -> Result<Option<StandStill<'_>>, ControlError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let working = self.control.as_ref().map_or(0, ControlServer::working);
            let is_busy = working > usize::from(!cuts);
            let is_late = Instant::now() > until;
            let still = if is_busy { None } else { self.devices.changes().stand_still() };
            if still.is_some() || cuts && (!is_busy || is_late) {
                return Ok(still);
            }
            if is_late {
                let message = format!(
                    "another command is still under way after {} seconds; the daemon goes on",
                    PATIENCE.as_secs()
                );
                return Err(ControlError::new(Errno::EBUSY, message));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Everything that the next program takes over.
    fn descriptors(&self, state: &State) -> std::io::Result<Vec<(String, OwnedFd)>> {
        let mut fds = state.descriptors()?;
        for (name, fd) in &self.sockets {
            fds.push((name.clone(), fd.try_clone()?));
        }
        Ok(fds)
    }

    /// Serves again the sockets that a service manager handed over.
    fn listen_again(&self) -> Result<(), ControlError> {
        let again = |(_, fd): &(String, OwnedFd)| fd.try_clone().and_then(Activated::of);
        let activated = self.sockets.iter().map(again).collect::<std::io::Result<_>>();
        self.serve_activated(activated.map_err(|e| failed("cannot serve a socket", &e))?)
    }
}
