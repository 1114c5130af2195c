//! The roles of threads, and what each may call.

use super::calls::{
    ACCEPT, Call, GUEST, Group, KEPT, LOOK, NARROW, REQUESTS, SESSION, SOCKET, STORAGE, THREAD,
    THREADS,
};

/// What a thread is for. docs/operating/safety.md lists the threads of each role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Takes NBD connections, and starts their threads.
    NbdAccept,
    /// Serves an NBD connection, carries out its requests that wait, or sends its replies.
    NbdClient,
    /// Serves the files of disks by FUSE, or carries out their requests that wait.
    FuseDisk,
    /// Reads the requests for the files of the control tree. Other threads carry them out.
    FuseTree,
    /// Takes the front end of a device by vhost-user, and does what it asks.
    VhostFront,
    /// Serves a queue of a virtual machine, or carries out its requests that wait.
    VhostQueue,
    /// Serves a swap device by a FUSE file.
    SwapFile,
    /// Serves a swap device by ublk.
    SwapUblk,
    /// Provides memory for swapped pages.
    SwapMemory,
    /// Writes swapped pages back beside the requests.
    SwapWorker,
    /// Watches whether memory is short.
    SwapPressure,
    /// Logs what the watch over memory finds.
    SwapLog,
    /// Calls the OOM killer when it is told to.
    OomKiller,
    /// Counts the seconds, and maintains memory.
    Clock,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 14] = [
        Role::NbdAccept,
        Role::NbdClient,
        Role::FuseDisk,
        Role::FuseTree,
        Role::VhostFront,
        Role::VhostQueue,
        Role::SwapFile,
        Role::SwapUblk,
        Role::SwapMemory,
        Role::SwapWorker,
        Role::SwapPressure,
        Role::SwapLog,
        Role::OomKiller,
        Role::Clock,
    ];

    /// Its name in docs/operating/safety.md.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::NbdAccept => "nbd-accept",
            Role::NbdClient => "nbd-client",
            Role::FuseDisk => "fuse-disk",
            Role::FuseTree => "fuse-tree",
            Role::VhostFront => "vhost-front",
            Role::VhostQueue => "vhost-queue",
            Role::SwapFile => "swap-file",
            Role::SwapUblk => "swap-ublk",
            Role::SwapMemory => "swap-memory",
            Role::SwapWorker => "swap-worker",
            Role::SwapPressure => "swap-pressure",
            Role::SwapLog => "swap-log",
            Role::OomKiller => "oom-killer",
            Role::Clock => "clock",
        }
    }

    /// The groups of calls that it has beside [`THREAD`].
    pub(super) fn groups(self) -> &'static [&'static Group] {
        match self {
            // The threads of its clients inherit its list, so it has all of theirs.
            Role::NbdAccept => &[&ACCEPT, &NARROW, &SOCKET, &STORAGE, &THREADS],
            Role::NbdClient => &[&SOCKET, &STORAGE, &THREADS],
            Role::FuseDisk => &[&REQUESTS, &SESSION, &STORAGE, &THREADS],
            Role::FuseTree => &[&REQUESTS, &SESSION, &THREADS],
            // The threads of its queues inherit its list.
            Role::VhostFront => &[&ACCEPT, &GUEST, &NARROW, &SOCKET, &STORAGE, &THREADS],
            Role::VhostQueue => &[&REQUESTS, &STORAGE, &THREADS],
            Role::SwapFile | Role::SwapUblk => &[&REQUESTS, &STORAGE],
            // It takes over chores of the zone, also to give memory back.
            Role::SwapMemory => &[&KEPT, &LOOK],
            Role::SwapWorker => &[&STORAGE],
            Role::SwapPressure => &[&LOOK, &STORAGE],
            Role::SwapLog => &[],
            Role::OomKiller => &[&REQUESTS],
            // It may be the last one to let go of the devices, at the end.
            Role::Clock => &[&STORAGE],
        }
    }

    /// All its calls. A call may come twice.
    pub(super) fn calls(self) -> impl Iterator<Item = &'static Call> {
        let groups = [&THREAD].into_iter().chain(self.groups().iter().copied());
        groups.flat_map(|group| group.calls.iter().copied().flatten())
    }
}
