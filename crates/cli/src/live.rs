//! One line of live statistics on a terminal.

use std::fmt::Write;
use std::io;
use std::mem;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use sync::Mutex;
use units::{PAGE_SIZE, human};

use service::engine::Machine;
use service::outlet::STDOUT;

/// A line that is redrawn again and again. Nothing is drawn when standard output is no terminal.
pub struct Live {
    bar: Option<ProgressBar>,
    last: Option<(Instant, Totals)>,
}

/// Statistics of all devices together.
#[derive(Clone, Copy, Default)]
struct Totals {
    devices: usize,
    size: u64,
    data: u64,
    /// Bytes of `data` that are on backing devices, and take no memory.
    backed: u64,
    memory: u64,
    limit_hits: u64,
    read: u64,
    written: u64,
}

impl Totals {
    fn of(machine: &Machine) -> Totals {
        let mut totals = Totals::default();
        for stats in machine.disks().iter().map(|disk| disk.stats()) {
            totals.devices += 1;
            totals.size += stats.disksize;
            totals.data += stats.orig_bytes;
            totals.backed += stats.backed_pages * PAGE_SIZE as u64;
            totals.memory += stats.pool_bytes;
            totals.limit_hits += stats.failed_writes;
            totals.read += stats.num_reads * PAGE_SIZE as u64;
            totals.written += stats.num_writes * PAGE_SIZE as u64;
        }
        totals
    }

    fn line(&self, before: &Totals, seconds: f64) -> String {
        let rate = |now: u64, then: u64| match seconds > 0.0 {
            true => human((now.saturating_sub(then) as f64 / seconds) as u64).to_string(),
            false => "-".to_string(),
        };
        // As of `rampack status`.
        let ratio = match (self.data.saturating_sub(self.backed), self.memory) {
            (0, _) | (_, 0) => String::new(),
            (data, memory) => format!("  ratio {:.2}", data as f64 / memory as f64),
        };
        let failed = match self.limit_hits {
            0 => String::new(),
            failed => format!("  FAILED WRITES {failed}"),
        };
        format!(
            "data {} of {}  memory {}{ratio}  read {}/s  write {}/s{failed}",
            human(self.data),
            human(self.size),
            human(self.memory),
            rate(self.read, before.read),
            rate(self.written, before.written)
        )
    }
}

impl Live {
    /// A line on standard output if that is a terminal.
    #[must_use]
    pub fn new() -> Live {
        let bar = STDOUT.is_terminal().then(|| {
            let target = ProgressDrawTarget::term_like_with_hz(
                Box::new(Screen(Mutex::new(String::new()))),
                20,
            );
            let bar = ProgressBar::with_draw_target(Some(1), target);
            if let Ok(style) = ProgressStyle::with_template("[{bar:10}] {wide_msg}") {
                bar.set_style(style.progress_chars("#>."));
            }
            bar
        });
        Live { bar, last: None }
    }

    /// Draws the current state.
    pub fn update(&mut self, machine: &Machine) {
        let Some(bar) = &self.bar else { return };
        let (now, totals) = (Instant::now(), Totals::of(machine));
        let (then, before) = self.last.unwrap_or((now, totals));
        bar.set_message(match totals.devices {
            0 => "no devices".to_string(),
            _ => totals.line(&before, now.duration_since(then).as_secs_f64()),
        });
        bar.update(|state| {
            state.set_len(totals.size.max(1));
            state.set_pos(totals.data.min(totals.size));
        });
        self.last = Some((now, totals));
    }

    /// Hides the line while `print` runs.
    pub fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Ends the drawing and erases the line.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The terminal on standard output. A drawing that it does not take at once is left out: the thread
/// that draws also takes the requests to stop.
struct Screen(Mutex<String>);

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Screen")
    }
}

impl Screen {
    fn put(&self, text: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.0.lock().write_fmt(text).map_err(io::Error::other)
    }

    /// The sequence of ECMA-48 that moves the cursor; 0 would move it by one.
    fn go(&self, by: usize, way: char) -> io::Result<()> {
        if by > 0 { self.put(format_args!("\x1b[{by}{way}")) } else { Ok(()) }
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        STDOUT.size().0
    }

    fn height(&self) -> u16 {
        STDOUT.size().1
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.go(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.go(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.go(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.go(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.put(format_args!("{s}\n"))
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.put(format_args!("{s}"))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.put(format_args!("\r\x1b[2K"))
    }

    fn flush(&self) -> io::Result<()> {
        STDOUT.write_at_once(mem::take(&mut *self.0.lock()).as_bytes());
        Ok(())
    }
}

impl Default for Live {
    fn default() -> Live {
        Live::new()
    }
}

#[cfg(test)]
mod tests;
