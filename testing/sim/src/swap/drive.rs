//! Runs of random events on a cache and its model.

use super::{Cache, Event, Events, Mix, Model, Outcome};
use crate::shrink::fewest;

/// A run of random events on a cache and its model.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// Where the events come from.
    pub seed: u64,
    /// How many.
    pub events: usize,
    /// Of which kinds.
    pub mix: Mix,
    /// CPUs that they come from; with one, the order in which pages leave is judged.
    pub cpus: u32,
}

/// Makes a cache that was never used.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Cache>;

impl Drive {
    /// Runs on a fresh cache.
    ///
    /// # Panics
    /// When it differs from its model, with the seed and as few events as it takes.
    pub fn run(&self, make: Make<'_>) -> Outcome {
        match self.play(&*make(), Events::new(self.seed, self.mix).take(self.events)) {
            Ok(outcome) => outcome,
            Err((number, wrong)) => self.report(make, number, &wrong),
        }
    }

    /// Lets the events happen. On failure: the number of the event, and what is wrong.
    ///
    /// # Errors
    /// The number of the first event after which something was wrong, and what.
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
        // Longer ones take too long to make small.
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
