//! Runs of random events on a cache and its model.

use super::{Cache, Event, Events, Mix, Model, Outcome};
use crate::shrink::fewest;

/// A run of random events on a cache and its model.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// The seed of the events.
    pub seed: u64,
    /// The number of events.
    pub events: usize,
    /// The kinds of events.
    pub mix: Mix,
    /// The CPUs that the events come from. With one CPU, the model checks the order of writeback.
    pub cpus: u32,
}

/// Makes a fresh cache.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Cache>;

impl Drive {
    /// Runs on a fresh cache.
    ///
    /// # Panics
    /// When the cache differs from its model. The message has the seed and a minimal list of
    /// events.
    pub fn run(&self, make: Make<'_>) -> Outcome {
        match self.play(&*make(), Events::new(self.seed, self.mix).take(self.events)) {
            Ok(outcome) => outcome,
            Err((number, wrong)) => self.report(make, number, &wrong),
        }
    }

    /// Runs the events on the cache and its model.
    ///
    /// # Errors
    /// The number of the first event after which cache and model differ, and the difference.
    pub fn play(
        &self,
        cache: &dyn Cache,
        events: impl Iterator<Item = Event>,
    ) -> Result<Outcome, (usize, String)> {
        let mut model = Model::new(self.seed, self.cpus);
        model.begin(cache).map_err(|wrong| (0, wrong))?;
        let mut count = 0;
        for (number, event) in events.enumerate() {
            model.step(cache, &event).map_err(|wrong| (number, wrong))?;
            count = number + 1;
        }
        model.end(cache).map_err(|wrong| (count, wrong))?;
        Ok(model.outcome())
    }

    fn report(&self, make: Make<'_>, number: usize, wrong: &str) -> ! {
        let events: Vec<Event> =
            Events::new(self.seed, self.mix).take(self.events.min(number + 1)).collect();
        let mut fails = |events: &[Event]| self.play(&*make(), events.iter().copied()).err();
        // A longer sequence takes too long to reduce.
        let few = if number < 50_000 { fewest(&events, &mut fails) } else { None };
        match few {
            Some((events, wrong)) => panic!(
                "{wrong}\nafter these events on a new cache:\n{}the first {} events of \
                 what is drawn from {:#x}, shrunk",
                events.iter().map(|event| format!("  {event:?}\n")).collect::<String>(),
                number + 1,
                self.seed
            ),
            None => panic!("{wrong}\nat event {number} of seed {:#x}", self.seed),
        }
    }
}
