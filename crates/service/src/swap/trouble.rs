//! Tells of backing devices that fail or do not answer. Requests fail on the path of a swapped
//! page, where nothing can be logged; a thread beside it looks at the counts.

use std::time::Duration;

use zswap::{Answers, DeviceAnswers, MAX_TYPES};

use super::name;

/// The shortest time between two messages of one kind. The first one comes at once.
const QUIET: Duration = Duration::from_secs(60);
/// A device that has not answered for so long is silent.
const SILENT: Duration = Duration::from_secs(10);

/// What was seen and told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Trouble {
    told: DeviceAnswers,
    told_at: Option<Duration>,
    devices: [Silence; MAX_TYPES],
}

/// What was seen of the device of an area.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Silence {
    answered: u64,
    answered_at: Duration,
    silent: Duration,
    /// Was the present silence told?
    is_told: bool,
}

impl Trouble {
    /// Takes a look: `at` is its time, and `now` are the counts since the beginning, with those of
    /// each device by the number of its area. Returns messages about what is new.
    pub fn look(
        &mut self,
        at: Duration,
        now: DeviceAnswers,
        devices: &[Answers; MAX_TYPES],
    ) -> Vec<String> {
        let seen = self.devices.iter_mut().zip(devices).enumerate();
        let silence = seen.filter_map(|(number, (device, now))| device.look(number, at, *now));
        let mut said: Vec<String> = silence.collect();
        said.extend(self.failures(at, now));
        said
    }

    /// How long a device has not answered although pages wait for it, in seconds; 0 below ten.
    #[must_use]
    pub fn silent_seconds(&self) -> u64 {
        let silent = self.devices.iter().map(|device| device.silent).max().unwrap_or_default();
        if silent < SILENT { 0 } else { silent.as_secs() }
    }

    fn failures(&mut self, at: Duration, now: DeviceAnswers) -> Option<String> {
        let count = |it: DeviceAnswers| [it.reads, it.changed, it.writes];
        let is_early = self.told_at.is_some_and(|told| at.saturating_sub(told) < QUIET);
        if count(now) == count(self.told) || is_early {
            return None;
        }
        let before = count(std::mem::replace(&mut self.told, now));
        self.told_at = Some(at);
        let new: [u64; 3] = std::array::from_fn(|n| count(now)[n].saturating_sub(before[n]));
        let [reads, changed, writes] = new;
        Some(format!(
            "a backing device fails: {reads} pages could not be read ({changed} were changed \
             there), and programs that need them are ended; {writes} could not be written, and \
             stayed in memory; repair the device, or swap off"
        ))
    }
}

impl Silence {
    /// As [`Trouble::look`], of the device of area `number`.
    fn look(&mut self, number: usize, at: Duration, now: Answers) -> Option<String> {
        let waiting = now.asked.saturating_sub(now.answered);
        if waiting == 0 || now.answered != self.answered {
            (self.answered, self.answered_at) = (now.answered, at);
            let was_told = std::mem::replace(&mut self.is_told, false);
            let silent = std::mem::take(&mut self.silent).as_secs();
            return was_told.then(|| {
                let name = name(number);
                format!("the backing device of {name} answers again, after {silent} seconds")
            });
        }
        self.silent = at.saturating_sub(self.answered_at);
        if self.is_told || self.silent < SILENT {
            return None;
        }
        self.is_told = true;
        let (name, silent) = (name(number), self.silent.as_secs());
        Some(format!(
            "the backing device of {name} has not answered for {silent} seconds, and {waiting} \
             pages wait for it: programs that need such a page, or memory, wait too; see to the \
             device"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(reads: u64, changed: u64, writes: u64) -> DeviceAnswers {
        DeviceAnswers { reads, changed, writes, ..DeviceAnswers::default() }
    }

    const fn second(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// With what it says, one message at a look.
    #[derive(Default)]
    struct Told(Trouble);

    impl Told {
        fn look(&mut self, at: Duration, now: DeviceAnswers) -> Option<String> {
            self.devices(at, now, &[])
        }

        fn devices(
            &mut self,
            at: Duration,
            now: DeviceAnswers,
            waiting: &[(u64, u64)],
        ) -> Option<String> {
            let mut devices = [Answers::default(); MAX_TYPES];
            for (device, (asked, answered)) in devices.iter_mut().zip(waiting.iter().copied()) {
                *device = Answers { asked, answered };
            }
            let mut said = self.0.look(at, now, &devices);
            assert!(said.len() < 2, "{said:?}");
            said.pop()
        }
    }

    #[test]
    fn the_first_failure_is_told_at_once_and_later_ones_together() {
        let mut trouble = Told::default();
        assert_eq!(trouble.look(second(1), failures(0, 0, 0)), None);
        let text = trouble.look(second(2), failures(3, 1, 0)).unwrap();
        assert!(text.contains("3 pages could not be read (1 were changed"), "{text}");
        assert_eq!(trouble.look(second(3), failures(9, 1, 64)), None, "it was told just now");
        let text = trouble.look(second(62), failures(9, 1, 64)).unwrap();
        assert!(text.contains("6 pages") && text.contains("; 64 could not be written"), "{text}");
        assert_eq!(trouble.look(second(500), failures(9, 1, 64)), None, "nothing is new");
        assert!(trouble.look(second(501), failures(9, 1, 65)).is_some());
    }

    #[test]
    fn a_device_that_does_not_answer_is_told_once_and_its_return_too() {
        let mut trouble = Told::default();
        // Another one answers all the time.
        let mut other = 0;
        let mut look = |seconds, asked, answered| {
            other += 7;
            let waiting = [(other + 1, other), (0, 0), (asked, answered)];
            let said = trouble.devices(second(seconds), failures(0, 0, 0), &waiting);
            (said, trouble.0.silent_seconds())
        };
        // Slow is not silent.
        for seconds in 0..60 {
            assert_eq!(look(seconds, 100 + seconds, seconds), (None, 0));
        }
        assert_eq!(look(68, 159, 59), (None, 0));
        let (text, silent) = look(69, 164, 59);
        let text = text.unwrap();
        assert!(text.contains("of swap2 has not answered for 10 seconds, and 105 pages"), "{text}");
        assert_eq!(silent, 10);
        assert_eq!(look(80, 164, 59), (None, 21), "it was told");
        let (text, silent) = look(81, 164, 60);
        let text = text.unwrap();
        assert!(text.contains("of swap2 answers again, after 21 seconds"), "{text}");
        assert_eq!(silent, 0);
        // Without a page that waits there is no silence.
        for (seconds, asked) in [(500, 164), (501, 165), (505, 165)] {
            assert_eq!(look(seconds, asked, 164), (None, 0));
        }
    }
}
