//! A swap device of one's own: a program that serves compressed swap space until Ctrl-C.
//!
//! `sudo swap_device DIR SIZE` keeps its socket and its device in the directory DIR, as `rampack
//! --root DIR status` shows them.

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use control::ControlError;
use service::daemon::{Daemon, DaemonOptions};
use service::events::Events;
use service::failure::{failed, sentence};
use service::protocol::SwapOn;
use service::root::Root;
use service::swap::protections;
use service::transport::{SwapTransport, Transport};

/// The allocator. A process that serves swap space has its memory locked.
#[global_allocator]
static HEAP: host::Heap = host::Heap;

fn main() -> ExitCode {
    // A daemon starts its own program again to swap off, and to change loop devices.
    if let Some(ended) = service::helper() {
        return ended;
    }
    let words: Vec<String> = env::args().skip(1).collect();
    let [root, size] = &words[..] else {
        eprintln!("usage: swap_device DIR SIZE");
        return ExitCode::from(2);
    };
    match serve(Path::new(root), size) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swap_device: {}", sentence(&error));
            ExitCode::FAILURE
        }
    }
}

fn serve(root: &Path, size: &str) -> Result<(), ControlError> {
    protections::begin();
    let events = Events::listen().map_err(|error| failed("cannot listen for signals", &error))?;
    let options = DaemonOptions::new(Root::choose(Some(root))?, Transport::Fuse);
    let daemon = Daemon::start(options, events.sender())?;
    // `Ublk` where the kernel has it: a loop device is for programs with memory limits of their own.
    let transport = Some(SwapTransport::Loop);
    let size = Some(size.to_owned());
    let request = SwapOn { size, transport, force: true, ..SwapOn::default() };
    let report = daemon.swaps().on(&request, &|| events.is_to_end())?;
    println!("{} is swapped to: {}", report.name, report.block_device);
    while events.wait(Duration::from_secs(3600)).is_none() {}
    daemon.stop(false)
}
