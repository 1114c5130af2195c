//! What is written back and freed, in order.

use anyhow::{Result, bail};
use segments::stored;

use crate::args::LogArgs;
use crate::density::{Ages, Load, order};
use crate::interrupt;

/// What happens to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It is written back.
    Write(u32),
    /// What the device has of it is freed.
    Free(u32),
    /// A second is over.
    Second,
}

/// All that happens.
pub struct Trace {
    pub events: Vec<Event>,
    /// The compressed length of each page.
    pub lengths: Vec<u16>,
    /// The most bytes that were live on a log, with headers.
    pub most_live: u64,
    /// Bytes of the compressed pages that were written in the second half.
    pub object_bytes: u64,
    /// Pages that were written in the second half.
    pub written: u64,
    /// The number of the event with which the second half begins.
    pub half: usize,
}

const NEVER: u32 = u32::MAX;

impl Trace {
    /// The trace of a load, for pages with these lengths, repeated.
    ///
    /// # Errors
    /// Nothing is written in the second half, or the user has interrupted.
    pub fn new(ages: Ages, lengths: &[u16], args: &LogArgs) -> Result<Trace> {
        let pages = args.pages as usize;
        let mut random = fastrand::Rng::with_seed(args.seed);
        let order = order(pages, &mut random);
        let lengths: Vec<u16> = lengths.iter().copied().cycle().take(pages).collect();
        let mut trace = Trace {
            events: Vec::new(),
            lengths,
            most_live: 0,
            object_bytes: 0,
            written: 0,
            half: 0,
        };
        // All pages were stored in the beginning, and are memory's.
        let mut last_used = vec![0; pages];
        let mut backed = vec![false; pages];
        // The pages that may become idle in a second: those whose last use was then.
        let mut due: Vec<Vec<u32>> = vec![Vec::new(); args.idle as usize];
        due[0] = order.iter().map(|page| *page as u32).collect();
        let (mut live, mut used) = (0, Vec::new());
        for second in 1..=args.seconds {
            interrupt::check()?;
            if second == args.seconds / 2 {
                trace.half = trace.events.len();
                trace.object_bytes = 0;
                trace.written = 0;
            }
            let slot = (second % args.idle) as usize;
            let idle = std::mem::take(&mut due[slot]);
            for page in idle.iter().copied() {
                let number = page as usize;
                let since = last_used[number];
                if backed[number] || since == NEVER || second - since < args.idle {
                    continue;
                }
                backed[number] = true;
                last_used[number] = NEVER;
                trace.events.push(Event::Write(page));
                trace.object_bytes += u64::from(trace.lengths[number]);
                trace.written += 1;
                live += u64::from(stored(trace.lengths[number]));
            }
            trace.most_live = trace.most_live.max(live);
            used.clear();
            Load::Ages(ages).used(second, &order, &mut random, &mut used);
            for &number in &used {
                if std::mem::take(&mut backed[number]) {
                    trace.events.push(Event::Free(number as u32));
                    live -= u64::from(stored(trace.lengths[number]));
                }
                if last_used[number] != second {
                    last_used[number] = second;
                    due[slot].push(number as u32);
                }
            }
            trace.events.push(Event::Second);
        }
        if trace.written == 0 {
            bail!("no page is written back in the second half of {} seconds", args.seconds);
        }
        Ok(trace)
    }
}
