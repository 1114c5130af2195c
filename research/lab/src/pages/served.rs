//! A device of the program rampack, by one of the ways in.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;
use units::PAGE_SIZE;

use super::device::Device;
use crate::programs::{Running, beside_us};

/// The file that rampack serves through FUSE, the loop device on it, and the device of ublk.
pub const WAYS: &[&str] = &["file", "loop", "ublk"];
/// Time that the daemon may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a daemon with one device, which ends with the result, and opens the device by this way.
pub fn device(way: &str, pages: usize, algorithm: &str) -> Result<Device> {
    let mut command = Command::new(beside_us().context("there is no")?);
    let directory =
        TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
    let root = directory.path().join("root");
    let transport = if way == "ublk" { way } else { "fuse" };
    command.arg("--root").arg(&root).args(["serve", "--transport", transport]);
    command.args(["--algorithm", algorithm, "--size", &(pages * PAGE_SIZE).to_string()]);
    let mut running = Running::start_gently(command.stdout(Stdio::null()), PATIENCE)?;
    let path = root.join(if way == "file" { "files/zram0" } else { "dev/zram0" });
    let ready = running.wait_until(PATIENCE, || Ok(path.exists().then_some(())));
    ready.with_context(|| format!("the way {way}"))?;
    let mut device = Device::open(&path, pages)?;
    device.owner = Some(Box::new((running, directory)));
    Ok(device)
}
