//! What may happen with every request is told once a minute.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_secs(60);

/// When something was told, and how often it happened since.
#[derive(Debug, Default)]
pub(crate) struct Rarely {
    told: Option<Instant>,
    untold: u64,
}

impl Rarely {
    /// It happened. If it is to be told, returns how often it happened since it was told last.
    pub(crate) fn tells(&mut self, now: Instant) -> Option<u64> {
        if self.told.is_some_and(|told| now < told + PAUSE) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_once_a_minute_how_often() {
        let (mut rarely, start) = (Rarely::default(), Instant::now());
        assert_eq!(rarely.tells(start), Some(0));
        for _ in 0..1000 {
            assert_eq!(rarely.tells(start + PAUSE / 2), None);
        }
        assert_eq!(rarely.tells(start + PAUSE), Some(1000));
        assert_eq!(rarely.tells(start + PAUSE), None);
        assert_eq!(rarely.tells(start + 2 * PAUSE), Some(1));
    }
}
