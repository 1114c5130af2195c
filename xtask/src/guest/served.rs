//! A daemon of this machine whose disks a guest has (`--served SECONDS`): zram0 by vhost-user, and
//! zram1 by NBD. It is kept, and killed again and again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context, Result, bail};
use fs_err as fs;

/// How long its start may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The daemon. A drop of this value ends it.
pub struct Daemon {
    keeper: Child,
    root: PathBuf,
    kills: Arc<Mutex<u32>>,
}

impl Daemon {
    /// Starts the daemon of `program` in `directory`, and kills it every `seconds`, if that is not
    /// zero.
    pub fn start(program: &Path, directory: &Path, seconds: u64) -> Result<Daemon> {
        let root = directory.join("served");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]).arg(program).arg("--root").arg(&root);
        command.args(["keep", "serve", "--transport", "nbd", "--vhost-user"]);
        command.args(["--num-devices", "2", "--size", "2G"]);
        let keeper = command.stdout(Stdio::null()).spawn().context("the daemon of the guest")?;
        let daemon = Daemon { keeper, root, kills: Arc::default() };
        let end = Instant::now() + PATIENCE;
        while !daemon.socket().exists() {
            if Instant::now() > end {
                bail!("the daemon of the guest does not serve");
            }
            thread::sleep(Duration::from_millis(20));
        }
        if seconds > 0 {
            let (keeper, kills) = (daemon.keeper.id(), daemon.kills.clone());
            thread::spawn(move || {
                loop {
                    thread::sleep(Duration::from_secs(seconds));
                    match kill_daemon_of(keeper) {
                        Ok(true) => *kills.lock().unwrap_or_else(PoisonError::into_inner) += 1,
                        // The next one is not there yet.
                        Ok(false) => {}
                        Err(_) => break,
                    }
                }
            });
        }
        Ok(daemon)
    }

    fn socket(&self) -> PathBuf {
        self.root.join("zram1.vhost")
    }

    /// How often it was killed.
    pub fn kills(&self) -> u32 {
        *self.kills.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What qemu is told of the disks, for a machine with this memory: it is shared. They come
    /// after all others.
    pub fn arguments(&self, memory: &str) -> Vec<String> {
        let unit = if memory.ends_with(['M', 'G']) { "" } else { "M" };
        let path = |name: &str| self.root.join(name).display().to_string().replace(',', ",,");
        let nbd = format!(
            "driver=nbd,node-name=nbd,server.type=unix,server.path={},export=zram1,\
             reconnect-delay=60,discard=unmap",
            path("nbd.sock")
        );
        [
            "-object",
            &format!("memory-backend-memfd,id=ram,size={memory}{unit},share=on"),
            "-machine",
            "memory-backend=ram",
            "-chardev",
            &format!("socket,id=vhost,path={},reconnect=1", path("zram0.vhost")),
            "-device",
            "vhost-user-blk-pci,chardev=vhost,num-queues=2,addr=0x10",
            "-blockdev",
            &nbd,
            "-device",
            "virtio-blk-pci,drive=nbd,num-queues=2,addr=0x11",
        ]
        .map(String::from)
        .to_vec()
    }
}

/// Kills the daemon that the process `keeper` runs. False if there is none; an error when the
/// keeper is gone.
fn kill_daemon_of(keeper: u32) -> io::Result<bool> {
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"))?;
    let Some(daemon) = children.split_whitespace().next() else { return Ok(false) };
    Ok(Command::new("kill").args(["-KILL", daemon]).status()?.success())
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let keeper = self.keeper.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &keeper]).status();
        let _ = self.keeper.wait();
    }
}
