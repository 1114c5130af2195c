//! Settings of the kernel (sysctl(8)) that swap devices do better with. Nothing here sets them.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Settings of the kernel by their names. Those that it lacks are not there.
pub type Settings = BTreeMap<&'static str, u64>;

/// Settings that keep ordinary users from user namespaces: with which value, and which one lets
/// them.
pub const NAMESPACES: [(&str, u64, u64); 3] = [
    ("user.max_user_namespaces", 0, 15_000),
    ("kernel.unprivileged_userns_clone", 0, 1),
    ("kernel.apparmor_restrict_unprivileged_userns", 1, 0),
];

/// A setting of the kernel.
pub struct Setting {
    /// Its name, as sysctl(8) has it.
    pub name: &'static str,
    /// The value to have, from the value now and the bytes of memory of the machine.
    wanted: fn(u64, u64) -> u64,
    /// Why, for the user.
    pub why: &'static str,
    /// Does something fail with another value? Else it is advice.
    pub fails: bool,
}

/// Every setting that is looked at. docs/operating/memory-out.md has the sources.
pub const ALL: [Setting; 8] = [
    Setting {
        name: "vm.page-cluster",
        wanted: |_, _| 0,
        why: "N reads 2^N pages of swap space for one: each needs memory, and an error of one is \
              an error of all; a seek costs nothing here (a kernel build took as long with 0 as \
              with 3)",
        fails: false,
    },
    Setting {
        name: "vm.swappiness",
        wanted: |now, _| now.clamp(60, 100),
        why: "60 to 100: with more, fewer files are left in memory for those who may start no \
              I/O; a kernel build took 204 to 209 s at 60, 205 s at 100, more than 215 s at 150",
        fails: false,
    },
    Setting {
        name: "vm.watermark_scale_factor",
        wanted: |now, _| now.clamp(100, 200),
        why: "100 to 200: the kernel frees memory earlier, and the daemon finds some for pages \
              that come",
        fails: false,
    },
    Setting {
        name: "vm.watermark_boost_factor",
        wanted: |_, _| 0,
        why: "otherwise the kernel at times frees pages of files alone, which the daemon's \
              allocations live on",
        fails: false,
    },
    Setting {
        name: "vm.min_free_kbytes",
        wanted: |now, memory| now.max(memory / 1024 / 100),
        why: "1% of memory at least: the threads that serve swap space have a reserve then that \
              other programs have not",
        fails: false,
    },
    Setting {
        name: "kernel.io_uring_disabled",
        wanted: |now, _| now.min(1),
        why: "with 2 there is no ublk, and a backing device does one operation at a time",
        fails: false,
    },
    Setting {
        name: "fs.fuse.max_request_timeout",
        wanted: |_, _| 0,
        why: "a request that waits for longer would end the mount below block devices",
        fails: true,
    },
    Setting {
        name: "fs.fuse.default_request_timeout",
        wanted: |_, _| 0,
        why: "a request that waits for longer would end the mount below block devices",
        fails: true,
    },
];

impl Setting {
    /// The value now and the one to have; `None` if the kernel has no such setting.
    pub fn values(&self, settings: &Settings, memory: u64) -> Option<(u64, u64)> {
        let now = *settings.get(self.name)?;
        Some((now, (self.wanted)(now, memory)))
    }
}

/// The names of all settings that are looked at.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|setting| setting.name).chain(NAMESPACES.map(|(name, ..)| name))
}

/// A file for /etc/sysctl.d with the value to have of every setting that the kernel knows, on a
/// machine with so many bytes of memory.
#[must_use]
pub fn sysctl_file(settings: &Settings, memory: u64) -> String {
    let mut text = "# Settings of the kernel for compressed swap, by `rampack doctor --sysctl`.\n\
                    # Put this into /etc/sysctl.d/90-rampack.conf; `sysctl --system` sets it.\n"
        .to_owned();
    for setting in &ALL {
        let Some((now, wanted)) = setting.values(settings, memory) else { continue };
        let is_now = if now == wanted { String::new() } else { format!(" (now {now})") };
        let _ = writeln!(text, "\n# {}{is_now}\n{} = {wanted}", setting.why, setting.name);
    }
    text
}
