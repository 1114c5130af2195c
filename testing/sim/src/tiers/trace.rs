//! Traces of pages that are used.

use testkit::Rng;

/// A use of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// When.
    pub second: u32,
    /// Which page.
    pub page: u32,
    /// Whether it is written, or else read.
    pub writes: bool,
}

/// The kinds of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Few pages are used most of the time, many seldom, and most never again.
    Zipf,
    /// One part of the pages is in use for some minutes, then another.
    Phases,
    /// All pages are read one after the other, every ten minutes; few are in use otherwise.
    Sweeps,
    /// Each page is used again and again, after the same time: from 10 to 200 seconds.
    Periods,
    /// A part of each of them.
    Mixed,
}

fn draw(random: &mut Rng, bound: u32) -> u32 {
    random.below(u64::from(bound)) as u32
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] = [Kind::Zipf, Kind::Phases, Kind::Sweeps, Kind::Periods, Kind::Mixed];
}

/// A trace, in the order of time. The first use of a page is a write; before it there is no page.
#[derive(Clone, Debug)]
pub struct Trace {
    pages: u32,
    seconds: u32,
    uses: Vec<Use>,
}

impl Trace {
    /// The trace of a kind: always the same for a seed. Every page is written in the first second.
    #[must_use]
    pub fn new(kind: Kind, pages: u32, seconds: u32, seed: u64) -> Trace {
        let mut random = Rng::new(seed);
        let mut trace = Trace { pages, seconds, uses: Vec::new() };
        for page in 0..pages {
            trace.uses.push(Use { second: 0, page, writes: true });
        }
        match kind {
            Kind::Mixed => {
                let part = pages / 4;
                for (number, kind) in Kind::ALL[..4].iter().enumerate() {
                    trace.fill(*kind, part * number as u32, part, &mut random);
                }
            }
            kind => trace.fill(kind, 0, pages, &mut random),
        }
        trace.uses.sort_by_key(|used| used.second);
        trace
    }

    /// A trace of these uses, which are in the order of time.
    pub(super) fn of(pages: u32, seconds: u32, uses: Vec<Use>) -> Trace {
        Trace { pages, seconds, uses }
    }

    /// The trace twice, one after the other.
    #[must_use]
    pub fn twice(&self) -> Trace {
        let again =
            self.uses.iter().map(|used| Use { second: used.second + self.seconds, ..*used });
        let uses = self.uses.iter().copied().chain(again).collect();
        Trace { seconds: 2 * self.seconds, uses, ..*self }
    }

    fn fill(&mut self, kind: Kind, first: u32, pages: u32, random: &mut Rng) {
        let mut add = |second, page: u32, writes| {
            self.uses.push(Use { second, page: first + page % pages, writes });
        };
        match kind {
            Kind::Zipf => {
                for second in 1..self.seconds {
                    for _ in 0..pages / 64 {
                        let page = (f64::from(pages)
                            .powf(random.below(1 << 20) as f64 / f64::from(1 << 20))
                            - 1.0) as u32;
                        add(second, page, random.one_in(4));
                    }
                }
            }
            Kind::Phases => {
                let set = (pages / 8).max(1);
                for second in 1..self.seconds {
                    let begin = second / 300 * set;
                    for _ in 0..set / 8 {
                        add(second, begin + draw(random, set), random.one_in(4));
                    }
                }
            }
            Kind::Sweeps => {
                for second in 1..self.seconds {
                    if second % 600 < 100 {
                        let (from, to) = (second % 600, second % 600 + 1);
                        for page in from * pages / 100..to * pages / 100 {
                            add(second, page, false);
                        }
                    }
                    for _ in 0..pages / 64 {
                        add(second, draw(random, pages / 16), random.one_in(2));
                    }
                }
            }
            Kind::Periods | Kind::Mixed => {
                for page in 0..pages {
                    let period = 10 + page * 190 / pages;
                    let mut second = 1 + draw(random, period);
                    while second < self.seconds {
                        add(second, page, page % 2 == 0);
                        second += period;
                    }
                }
            }
        }
    }

    /// The number of pages.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The second in which it ends.
    #[must_use]
    pub fn seconds(&self) -> u32 {
        self.seconds
    }

    /// All uses, in the order of time.
    #[must_use]
    pub fn uses(&self) -> &[Use] {
        &self.uses
    }

    /// The uses of each page.
    pub(super) fn by_page(&self) -> impl Iterator<Item = Vec<Use>> {
        let mut pages = vec![Vec::new(); self.pages as usize];
        for used in &self.uses {
            pages[used.page as usize].push(*used);
        }
        pages.into_iter()
    }
}
