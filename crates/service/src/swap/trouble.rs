//! Tells of backing devices that fail or do not answer. Requests fail on the path of a swapped
//! page, where nothing can be logged; a thread beside it looks at the counts.

use std::time::Duration;

use zswap::DeviceAnswers;

/// The shortest time between two messages of one kind. The first one comes at once.
const QUIET: Duration = Duration::from_secs(60);
/// A device that has not answered for so long is silent.
const SILENT: Duration = Duration::from_secs(10);

/// What was seen and told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Trouble {
    told: DeviceAnswers,
    told_at: Option<Duration>,
    answered: u64,
    answered_at: Duration,
    silent: Duration,
    /// Was the present silence told?
    is_told: bool,
}

impl Trouble {
    /// Takes a look: `at` is its time, and `now` are the counts since the beginning. Returns the
    /// message about what is new, if there is one to tell.
    pub fn look(&mut self, at: Duration, now: DeviceAnswers) -> Option<String> {
        self.silence(at, now).or_else(|| self.failures(at, now))
    }

    /// How long no device has answered although pages wait for one, in seconds; 0 below ten.
    #[must_use]
    pub fn silent_seconds(&self) -> u64 {
        if self.silent < SILENT { 0 } else { self.silent.as_secs() }
    }

    fn silence(&mut self, at: Duration, now: DeviceAnswers) -> Option<String> {
        let waiting = now.asked.saturating_sub(now.answered);
        if waiting == 0 || now.answered != self.answered {
            (self.answered, self.answered_at) = (now.answered, at);
            let was_told = std::mem::replace(&mut self.is_told, false);
            let silent = std::mem::take(&mut self.silent).as_secs();
            return was_told.then(|| {
                format!("the backing devices answer again, after {silent} seconds of silence")
            });
        }
        self.silent = at.saturating_sub(self.answered_at);
        if self.is_told || self.silent < SILENT {
            return None;
        }
        self.is_told = true;
        Some(format!(
            "no backing device has answered for {} seconds, and {waiting} pages wait for one: \
             programs that need such a page, or memory, wait too; see to the device",
            self.silent.as_secs()
        ))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(reads: u64, changed: u64, writes: u64) -> DeviceAnswers {
        DeviceAnswers { reads, changed, writes, ..DeviceAnswers::default() }
    }

    const fn second(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_first_failure_is_told_at_once_and_later_ones_together() {
        let mut trouble = Trouble::default();
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
        let answers = |asked, answered| DeviceAnswers { asked, answered, ..failures(0, 0, 0) };
        let mut trouble = Trouble::default();
        // Slow is not silent.
        for seconds in 0..60 {
            assert_eq!(trouble.look(second(seconds), answers(100 + seconds, seconds)), None);
        }
        assert_eq!(trouble.look(second(68), answers(159, 59)), None);
        assert_eq!(trouble.silent_seconds(), 0);
        let text = trouble.look(second(69), answers(164, 59)).unwrap();
        assert!(text.contains("for 10 seconds, and 105 pages"), "{text}");
        assert_eq!(trouble.look(second(80), answers(164, 59)), None, "it was told");
        assert_eq!(trouble.silent_seconds(), 21);
        let text = trouble.look(second(81), answers(164, 60)).unwrap();
        assert!(text.contains("answer again, after 21 seconds"), "{text}");
        assert_eq!(trouble.silent_seconds(), 0);
        // Without a page that waits there is no silence.
        assert_eq!(trouble.look(second(500), answers(164, 164)), None);
        assert_eq!(trouble.look(second(501), answers(165, 164)), None);
        assert_eq!(trouble.look(second(505), answers(165, 164)), None);
    }
}
