//! A running guest: qemu, its console, and what the kernel is asked when the guest hangs.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::image::Image;
use super::options::Options;
use super::tools::command;
use super::watch::Watch;
use super::{DIED, HANG, TIME_OUT};

/// Arguments of every kernel. Emulated, clearing each page that is given out and checking the clock
/// cost more than they show.
const KERNEL: &str = "console=ttyS0,115200 loglevel=4 printk.time=1 panic=5 sysrq_always_enabled \
                      mitigations=off random.trust_cpu=on no5lvl init_on_alloc=0 tsc=reliable \
                      clocksource=tsc nokaslr audit=0";
/// What a hanging kernel is asked for: tasks that are blocked, what runs on each CPU, memory.
const QUESTIONS: &[u8] = b"wlm";
/// On the console, qemu takes what follows this byte as meant for itself; `b` is a break, which
/// makes the next byte a question to the kernel.
const ESCAPE: &[u8] = b"\x01b";
/// How long an answer may go on, and how long silence says that it is over.
const ANSWER: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_secs(3);
/// How long the machine may take to switch itself off.
const END: Duration = Duration::from_secs(20);

/// The ticks of the processor's clock in a millisecond, where `/proc/cpuinfo` tells them: the guest
/// has the same clock. A guest that measures it while its CPUs wait for the host's takes hours for
/// minutes.
fn tsc_khz(cpuinfo: &str) -> Option<u64> {
    let value = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim())
    };
    // Elsewhere it is the frequency of the moment that is told.
    let virtual_machine = value("flags")?.split(' ').any(|flag| flag == "hypervisor");
    let megahertz: f64 = value("cpu MHz")?.parse().ok()?;
    (virtual_machine && megahertz > 0.0).then_some((megahertz * 1000.0) as u64)
}

/// A virtual machine. It ends with this value.
pub struct Machine {
    qemu: Child,
    keyboard: ChildStdin,
    console: Receiver<Vec<u8>>,
    begun: Instant,
    watch: Watch,
    /// The line that is still coming.
    line: Vec<u8>,
}

impl Machine {
    /// Starts it with the archive `job`; qemu may put files into `directory`.
    pub fn start(
        image: &Image,
        options: &Options,
        job: &Path,
        directory: &Path,
    ) -> Result<Machine> {
        let drive = |file: &Path, more: &str| {
            // A comma in a name is written twice.
            let file = file.display().to_string().replace(',', ",,");
            format!("file={file},if=virtio,format=raw,{more}")
        };
        let mut qemu = command("setpriv");
        // The machine ends with this process, however that ends.
        qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-nodefaults"]);
        qemu.args(["-display", "none", "-no-reboot", "-device", "virtio-rng-pci"]);
        qemu.args(["-smp", &options.cpus.to_string(), "-m", &options.memory]);
        qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initrd);
        let clock = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| tsc_khz(&text));
        let clock = clock.map_or(String::new(), |khz| format!("tsc_early_khz={khz}"));
        qemu.args(["-append", &format!("{KERNEL} {clock} {}", options.append)]);
        qemu.args(["-drive", &drive(&image.root, "snapshot=on,cache=unsafe")]);
        qemu.args(["-drive", &drive(&image.data, "snapshot=on,cache=unsafe")]);
        qemu.args(["-drive", &drive(job, "readonly=on")]);
        qemu.args(["-drive", &drive(&image.spare, "snapshot=on,cache=unsafe")]);
        qemu.args(["-chardev", "stdio,id=console,mux=on,signal=off"]);
        qemu.args(["-serial", "chardev:console", "-monitor", "none"]);
        qemu.env("TMPDIR", directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut qemu = qemu.spawn().context("qemu-system-x86_64")?;
        let keyboard = qemu.stdin.take().context("no standard input")?;
        let mut output = qemu.stdout.take().context("no standard output")?;
        let (sender, console) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        let watch = Watch::new(options.hang);
        Ok(Machine { qemu, keyboard, console, begun: Instant::now(), watch, line: Vec::new() })
    }

    /// Shows the console until the machine ends or is ended. The status to exit with.
    pub fn watch(mut self, options: &Options, output: &mut dyn Write) -> Result<u8> {
        let mut ended = None;
        let status = loop {
            let running = self.listen(Duration::from_millis(500), output)?;
            let now = self.begun.elapsed();
            if let Some(status) = self.watch.status() {
                let since = ended.get_or_insert(now);
                if !running || now.saturating_sub(*since) > END {
                    break status;
                }
            } else if !running {
                break DIED;
            } else if self.watch.hangs(now) {
                let silent = options.hang.as_secs();
                let what = format!("HANG: no page swapped and no progress for {silent} s");
                self.ask(&what, output)?;
                break HANG;
            } else if now > options.time {
                self.ask("TIME-OUT", output)?;
                break TIME_OUT;
            }
        };
        let seconds = self.begun.elapsed().as_secs_f64();
        writeln!(output, "=== HOST status={status} seconds={seconds:.1}")?;
        Ok(status)
    }

    /// Shows what the console says within `time`, at once when it says something. False if the
    /// machine has ended.
    fn listen(&mut self, time: Duration, output: &mut dyn Write) -> Result<bool> {
        let bytes = match self.console.recv_timeout(time) {
            Ok(bytes) => bytes,
            Err(RecvTimeoutError::Timeout) => return Ok(true),
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        };
        let now = self.begun.elapsed();
        for byte in bytes.iter().filter(|byte| **byte != b'\r') {
            output.write_all(&[*byte])?;
            if *byte == b'\n' {
                self.watch.line(&String::from_utf8_lossy(&self.line), now);
                self.line.clear();
            } else {
                self.line.push(*byte);
            }
        }
        output.flush()?;
        Ok(true)
    }

    /// Has the kernel say what it is doing.
    fn ask(&mut self, what: &str, output: &mut dyn Write) -> Result<()> {
        let now = self.begun.elapsed().as_secs();
        writeln!(output, "\n=== HOST {what}, at {now} s: asking the kernel")?;
        for question in QUESTIONS {
            let mut say = |bytes: &[u8]| {
                self.keyboard.write_all(bytes)?;
                self.keyboard.flush()
            };
            // Without an answer, that is the answer.
            let _ = say(ESCAPE);
            thread::sleep(Duration::from_millis(200));
            let _ = say(&[*question]);
            let asked = Instant::now();
            let mut heard = asked;
            while asked.elapsed() < ANSWER && heard.elapsed() < SILENCE {
                let before = Instant::now();
                if !self.listen(SILENCE, output)? {
                    return Ok(());
                }
                if before.elapsed() < SILENCE {
                    heard = Instant::now();
                }
            }
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::tsc_khz;

    #[test]
    fn a_virtual_machine_tells_its_clock() {
        let text = "model name\t: X\ncpu MHz\t\t: 2596.096\nflags\t\t: fpu tsc hypervisor lm\n";
        assert_eq!(tsc_khz(text), Some(2_596_096));
        assert_eq!(tsc_khz(&text.replace(" hypervisor", "")), None);
        assert_eq!(tsc_khz("processor\t: 0\n"), None);
    }
}
