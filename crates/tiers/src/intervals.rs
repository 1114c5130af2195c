//! How long pages lie unused, and the age at which a move pays best.

/// Ages are known as powers of two: generation `g` begins at `1 << g` seconds, generation 0 at 0.
pub const GENERATIONS: usize = 20;

/// No page moves before this generation: 4 seconds.
const YOUNGEST: usize = 2;
/// What was seen counts half after this many seconds, and a quarter after twice as many.
const HALF_LIFE: u32 = 1024;

/// The generation of an age in seconds.
#[must_use]
pub fn generation(age: u32) -> usize {
    (age.max(1).ilog2() as usize).min(GENERATIONS - 1)
}

/// Intervals between two uses of a page, by the generation of their length.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Intervals {
    count: [u64; GENERATIONS],
    seconds: [u64; GENERATIONS],
}

impl Intervals {
    /// Adds an interval.
    pub fn add(&mut self, seconds: u32) {
        let generation = generation(seconds);
        self.count[generation] += 1;
        self.seconds[generation] += u64::from(seconds);
    }

    fn add_all(&mut self, others: &Intervals) {
        for generation in 0..GENERATIONS {
            self.count[generation] += others.count[generation];
            self.seconds[generation] += others.seconds[generation];
        }
    }

    /// What moves at the age of `1 << first` seconds gain in seconds, if each costs `cost` seconds.
    fn gain(&self, first: usize, cost: u64) -> i128 {
        let all = first..GENERATIONS;
        let (count, seconds) = all.fold((0, 0), |(count, seconds), generation| {
            (count + self.count[generation], seconds + self.seconds[generation])
        });
        i128::from(seconds) - i128::from(count) * i128::from((1 << first) + cost)
    }
}

/// The intervals of some time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    ended: Intervals,
    seconds: u32,
}

impl Past {
    /// Adds what a pass of this many seconds saw.
    pub(crate) fn add(&mut self, ended: &Intervals, seconds: u32) {
        self.ended.add_all(ended);
        self.seconds = self.seconds.saturating_add(seconds);
        if self.seconds >= HALF_LIFE {
            self.seconds = 0;
            let Intervals { count, seconds } = &mut self.ended;
            count.iter_mut().chain(seconds).for_each(|it| *it /= 2);
        }
    }

    /// The age in seconds at which a move pays best that is worth its price after `worth` seconds.
    /// `lasting` are the intervals that have not ended, as long as they will
    /// probably be.
    ///
    /// Among equals it is the first at `worth` or after. That is also the answer as long as nothing
    /// is known: who pays when as much was lost by waiting pays at most twice what one pays who
    /// knows the future (Karlin and others, "Competitive snoopy caching", 1988).
    pub(crate) fn best_age(&self, lasting: &Intervals, worth: u32) -> u32 {
        let usual = generation(worth.next_power_of_two());
        let gain = |first| {
            self.ended.gain(first, u64::from(worth)) + lasting.gain(first, u64::from(worth))
        };
        let mut best = (gain(usual), usual);
        for first in YOUNGEST..GENERATIONS {
            if gain(first) > best.0 {
                best = (gain(first), first);
            }
        }
        1 << best.1
    }
}
