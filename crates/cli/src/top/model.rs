//! What `rampack top` knows: two reports of the daemon, and what the user has chosen.

use std::time::Instant;

use units::PAGE_SIZE;

use super::pressure::Pressure;
use crate::columns::{backed_pages, memory, number, ratio};
use service::protocol::{DaemonReport, DeviceReport};
use service::swap::report::PoolReport;

/// The place of the switch for the times of requests.
const LATENCIES: &str = "kernel/debug/rampack";

/// What disks are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Sort {
    #[default]
    Name,
    Data,
    Memory,
    Ratio,
    Rate,
}

impl Sort {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Data => "data",
            Sort::Memory => "memory",
            Sort::Ratio => "ratio",
            Sort::Rate => "rate",
        }
    }

    const fn next(self) -> Sort {
        match self {
            Sort::Name => Sort::Data,
            Sort::Data => Sort::Memory,
            Sort::Memory => Sort::Ratio,
            Sort::Ratio => Sort::Rate,
            Sort::Rate => Sort::Name,
        }
    }
}

/// What the daemon can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    WriteBack,
    Recompress,
    Time,
    TimeNoMore,
}

impl What {
    /// Attributes to be stored, with their values.
    pub(super) const fn stores(self) -> &'static [(&'static str, &'static str)] {
        match self {
            What::WriteBack => &[("idle", "all"), ("writeback", "type=idle")],
            What::Recompress => &[("recompress", "")],
            What::Time => &[("latencies", "1")],
            What::TimeNoMore => &[("latencies", "0")],
        }
    }

    const fn done(self) -> &'static str {
        match self {
            What::WriteBack => "written back",
            What::Recompress => "compressed again",
            What::Time => "timed",
            What::TimeNoMore => "timed no more",
        }
    }
}

/// Something that the daemon is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Doing {
    pub(super) what: What,
    /// The disk, or the path of the attributes.
    pub(super) device: String,
}

impl Doing {
    fn of(&self) -> &str {
        match self.what {
            What::WriteBack | What::Recompress => &self.device,
            What::Time | What::TimeNoMore => "requests",
        }
    }
}

/// A disk, in numbers.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Disk<'a> {
    pub(super) report: &'a DeviceReport,
    pub(super) size: u64,
    pub(super) data: u64,
    pub(super) memory: u64,
    pub(super) on_disk: u64,
    pub(super) ratio: Option<f64>,
    /// Bytes per second; `None` before there is a second report.
    pub(super) reads: Option<f64>,
    pub(super) writes: Option<f64>,
}

/// Bytes per second of the swap cache.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(super) struct PoolRates {
    pub(super) stores: f64,
    pub(super) loads: f64,
    pub(super) written_back: f64,
    pub(super) read_back: f64,
    pub(super) refused: f64,
}

/// A tier of a disk whose pages move by themselves.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tier<'a> {
    pub(super) name: &'a str,
    /// The age in seconds at which pages move there; a dash if they do not now.
    pub(super) age: &'a str,
    pub(super) pages: u64,
    pub(super) saved: u64,
    /// Bytes per second that come, and that uses bring up.
    pub(super) moved: Option<f64>,
    pub(super) raised: Option<f64>,
}

struct Sample {
    at: Instant,
    report: DaemonReport,
}

/// See the description of this file.
#[derive(Default)]
pub(super) struct Model {
    now: Option<Sample>,
    before: Option<Sample>,
    pub(super) pressure: Option<Pressure>,
    pub(super) sort: Sort,
    /// The name of the chosen disk.
    chosen: Option<String>,
    pub(super) is_paused: bool,
    /// Has the user asked for the end?
    pub(super) is_over: bool,
    /// Why the last report did not come.
    pub(super) error: Option<String>,
    /// What was last said of a key.
    pub(super) said: String,
    /// The disk whose pages are written back if `y` comes next.
    asked: Option<String>,
    is_busy: bool,
}

impl Model {
    /// Takes a report. True if it is shown.
    pub(super) fn take(
        &mut self,
        at: Instant,
        report: Result<DaemonReport, String>,
        pressure: Option<Pressure>,
    ) -> bool {
        if self.is_paused {
            return false;
        }
        match report {
            Ok(report) => {
                // Another daemon counts from 0.
                let before = self.now.take().filter(|it| it.report.pid == report.pid);
                (self.before, self.now) = (before, Some(Sample { at, report }));
                self.error = None;
            }
            Err(why) => self.error = Some(why),
        }
        self.pressure = pressure;
        true
    }

    /// Notes how something ended.
    pub(super) fn done(&mut self, doing: &Doing, result: Result<(), String>) {
        self.is_busy = false;
        let (of, done) = (doing.of(), doing.what.done());
        self.said = match result {
            Ok(()) => format!("{of}: {done}"),
            Err(why) => format!("{of}: not {done}: {why}"),
        };
    }

    /// Does what a letter means. Returns what the daemon is to be asked for.
    pub(super) fn key(&mut self, letter: char) -> Option<Doing> {
        let asked = self.asked.take();
        self.said.clear();
        match letter {
            'q' => self.is_over = true,
            's' => self.sort = self.sort.next(),
            'p' => self.is_paused = !self.is_paused,
            'k' => self.choose(-1),
            'j' => self.choose(1),
            'w' => {
                self.asked = self.chosen(0);
                self.said = match &self.asked {
                    Some(name) => format!("write back every page of {name}? y: yes"),
                    None => "no disk".into(),
                };
            }
            'y' => return self.start(What::WriteBack, asked?),
            'c' => match self.chosen(0) {
                Some(name) => return self.start(What::Recompress, name),
                None => self.said = "no disk".into(),
            },
            'l' => {
                let is_timed = self.report().is_some_and(|report| report.is_timed);
                let what = if is_timed { What::TimeNoMore } else { What::Time };
                return self.start(what, LATENCIES.into());
            }
            _ => {}
        }
        None
    }

    fn start(&mut self, what: What, device: String) -> Option<Doing> {
        if self.is_busy {
            self.said = "one at a time: the last one is still under way".into();
            return None;
        }
        self.is_busy = true;
        let doing = Doing { what, device };
        self.said = format!("{}: being {} …", doing.of(), what.done());
        Some(doing)
    }

    /// Chooses the disk so many lines below.
    pub(super) fn choose(&mut self, lines: isize) {
        self.chosen = self.chosen(lines);
    }

    /// The name of the disk so many lines below the chosen one.
    fn chosen(&self, lines: isize) -> Option<String> {
        let disks = self.disks();
        let last = disks.len().checked_sub(1)?;
        let next = self.place(&disks)?.saturating_add_signed(lines).min(last);
        Some(disks[next].report.name.clone())
    }

    /// The place of the chosen disk among `disks`; the first one if it is not there.
    pub(super) fn place(&self, disks: &[Disk<'_>]) -> Option<usize> {
        let found = disks.iter().position(|it| Some(&it.report.name) == self.chosen.as_ref());
        found.or((!disks.is_empty()).then_some(0))
    }

    /// The last report.
    pub(super) fn report(&self) -> Option<&DaemonReport> {
        self.now.as_ref().map(|sample| &sample.report)
    }

    /// By how much a number rises per second between the last two reports.
    fn rate(&self, of: impl Fn(&DaemonReport) -> Option<u64>) -> Option<f64> {
        let (now, before) = (self.now.as_ref()?, self.before.as_ref()?);
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let risen = of(&now.report)?.saturating_sub(of(&before.report)?);
        (seconds > 0.0).then(|| risen as f64 / seconds)
    }

    fn pages_per_second(&self, name: &str, of: impl Fn(&DeviceReport) -> u64) -> Option<f64> {
        let named =
            |report: &DaemonReport| report.devices.iter().find(|it| it.name == name).map(&of);
        self.rate(named).map(|pages| pages * PAGE_SIZE as f64)
    }

    fn disk<'a>(&self, report: &'a DeviceReport) -> Disk<'a> {
        let name = &report.name;
        Disk {
            report,
            size: number(report, "disksize"),
            data: memory(report, 0),
            memory: memory(report, 2),
            on_disk: backed_pages(report) * PAGE_SIZE as u64,
            ratio: ratio(report),
            reads: self.pages_per_second(name, |it| number(it, "num_reads")),
            writes: self.pages_per_second(name, |it| number(it, "num_writes")),
        }
    }

    /// The disks, in the order that is asked for.
    pub(super) fn disks(&self) -> Vec<Disk<'_>> {
        let Some(report) = self.report() else { return Vec::new() };
        let mut disks: Vec<Disk<'_>> = report.devices.iter().map(|it| self.disk(it)).collect();
        let rate = |disk: &Disk<'_>| disk.reads.unwrap_or(0.0) + disk.writes.unwrap_or(0.0);
        let most =
            |key: &dyn Fn(&Disk<'_>) -> f64, a: &Disk<'_>, b: &Disk<'_>| key(b).total_cmp(&key(a));
        // The daemon has them by number. Equal ones stay so.
        disks.sort_by(|a, b| match self.sort {
            Sort::Name => std::cmp::Ordering::Equal,
            Sort::Data => b.data.cmp(&a.data),
            Sort::Memory => b.memory.cmp(&a.memory),
            Sort::Ratio => most(&|it| it.ratio.unwrap_or(0.0), a, b),
            Sort::Rate => most(&rate, a, b),
        });
        disks
    }

    /// What the swap cache does.
    pub(super) fn pool_rates(&self) -> Option<PoolRates> {
        let rate = |of: fn(&PoolReport) -> u64| {
            let rate = self.rate(|report| report.swap_cache.as_ref().map(of));
            rate.map(|pages| pages * PAGE_SIZE as f64)
        };
        Some(PoolRates {
            stores: rate(|it| it.stores)?,
            loads: rate(|it| it.loads)?,
            written_back: rate(|it| it.written_back_pages)?,
            read_back: rate(|it| it.read_back_pages)?,
            refused: rate(|it| it.rejected_pages)?,
        })
    }

    /// The tiers of a disk; none where pages do not move by themselves.
    pub(super) fn tiers<'a>(&self, disk: &'a DeviceReport) -> Vec<Tier<'a>> {
        let rate = |tier: &str, column: usize| {
            self.pages_per_second(&disk.name, |it| {
                let row = tier_rows(it).find(|row| row[0] == tier);
                row.and_then(|row| row[column].parse().ok()).unwrap_or(0)
            })
        };
        let tier = |row: [&'a str; 8]| Tier {
            name: row[0],
            age: row[1],
            pages: row[2].parse().unwrap_or(0),
            saved: row[4].parse().unwrap_or(0),
            moved: rate(row[0], 3),
            raised: rate(row[0], 5),
        };
        match disk.attributes.get("auto").is_some_and(|auto| auto.trim() == "1") {
            true => tier_rows(disk).map(tier).collect(),
            false => Vec::new(),
        }
    }

    /// Bytes of pages in memory, and of memory that they take, in all disks and the swap cache.
    pub(super) fn saved(&self) -> (u64, u64) {
        let Some(report) = self.report() else { return (0, 0) };
        let mut sum = (0, 0);
        for disk in self.disks() {
            sum.0 += disk.data.saturating_sub(disk.on_disk);
            sum.1 += disk.memory;
        }
        if let Some(pool) = &report.swap_cache {
            sum.0 += pool.stored_pages * PAGE_SIZE as u64;
            sum.1 += pool.pool_bytes;
        }
        sum
    }
}

/// The lines of `auto_stat` about tiers.
fn tier_rows(disk: &DeviceReport) -> impl Iterator<Item = [&str; 8]> {
    let text = disk.attributes.get("auto_stat").map_or("", |text| text);
    text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        words.try_into().ok()
    })
}
