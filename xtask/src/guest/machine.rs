//! A running guest: qemu, its console, and the SysRq requests to a guest that hangs.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fs_err as fs;

use super::image::Image;
use super::options::Options;
use super::served::Daemon;
use super::tools::command;
use super::watch::Watch;
use super::{DIED, HANG, TIME_OUT};

/// Arguments of every kernel. Under emulation the clearing of pages and the check of the clock cost
/// more than they gain.
const KERNEL: &str = "console=ttyS0,115200 loglevel=4 printk.time=1 panic=5 sysrq_always_enabled \
                      mitigations=off random.trust_cpu=on no5lvl init_on_alloc=0 tsc=reliable \
                      clocksource=tsc nokaslr audit=0";
/// The SysRq keys for a hanging kernel: blocked tasks, the task of each CPU, memory.
const QUESTIONS: &[u8] = b"wlm";
/// The escape byte of qemu's console, and `b` for a break. The kernel takes the next byte as a
/// SysRq key.
const ESCAPE: &[u8] = b"\x01b";
/// The longest time of an answer, and the silence that ends it.
const ANSWER: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_secs(3);
/// The time in which the machine must switch itself off.
const END: Duration = Duration::from_secs(20);

/// The ticks of the processor's clock in a millisecond, if `/proc/cpuinfo` has them. The guest has
/// the same clock. If a guest measures the clock while its CPUs wait for the host's CPUs, it takes
/// hours for minutes.
fn tsc_khz(cpuinfo: &str) -> Option<u64> {
    let value = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim())
    };
    // On real hardware `/proc/cpuinfo` has the momentary frequency.
    let virtual_machine = value("flags")?.split(' ').any(|flag| flag == "hypervisor");
    let megahertz: f64 = value("cpu MHz")?.parse().ok()?;
    (virtual_machine && megahertz > 0.0).then_some((megahertz * 1000.0) as u64)
}

/// A virtual machine. A drop of this value ends it.
pub struct Machine {
    qemu: Child,
    keyboard: ChildStdin,
    console: Receiver<Vec<u8>>,
    begun: Instant,
    watch: Watch,
    /// The incomplete last line.
    line: Vec<u8>,
}

impl Machine {
    /// Starts the machine with the archive `job`. qemu may put files into `directory`.
    pub fn start(
        image: &Image,
        options: &Options,
        job: &Path,
        (directory, served): (&Path, Option<&Daemon>),
    ) -> Result<Machine> {
        let drive = |file: &Path, more: &str| {
            // qemu needs a comma in a name twice.
            let file = file.display().to_string().replace(',', ",,");
            format!("file={file},if=virtio,format=raw,{more}")
        };
        let mut qemu = command("setpriv");
        // The machine ends with this process, even if the process is killed.
        qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        // What copies pages by `rep movsb` because the processor does so fast (the C library, the
        // kernel's copies from and to programs) would copy byte by byte here.
        let cpu = "max,la57=off,erms=off,fsrm=off";
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", cpu, "-nodefaults"]);
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
        qemu.args(served.map(|it| it.arguments(&options.memory)).unwrap_or_default());
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

    /// Shows the console until the machine ends or is killed. Returns the exit status.
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

    /// Waits up to `time` for output of the console and shows it at once. False if the machine has
    /// ended.
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

    /// Makes the kernel print its state.
    fn ask(&mut self, what: &str, output: &mut dyn Write) -> Result<()> {
        let now = self.begun.elapsed().as_secs();
        writeln!(output, "\n=== HOST {what}, at {now} s: asking the kernel")?;
        for question in QUESTIONS {
            let mut say = |bytes: &[u8]| {
                self.keyboard.write_all(bytes)?;
                self.keyboard.flush()
            };
            // No answer is a result, too.
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
