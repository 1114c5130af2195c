//! Tells a hang from slowness by the output of the guest.
//!
//! `mon` prints the kernel's counts of pages swapped out and in every few seconds. Before the first
//! swap each of its lines is a sign of life. Later only a line with new counts is one. Each line of
//! a script or a program is a sign of life, too. The kernel's own messages are not, because the
//! kernel complains as long as a hang lasts.

use std::time::Duration;

/// The text that the guest's PID 1 prints before the status of the script.
const STATUS: &str = "=== GUEST-RC ";

/// Reads the console line by line. Times are from the start of the machine.
#[derive(Debug)]
pub struct Watch {
    hang: Duration,
    /// Pages swapped out and in, from the last line of `mon`.
    traffic: (u64, u64),
    /// The last sign of life since the first line of `mon`.
    alive: Option<Duration>,
    status: Option<u8>,
}

impl Watch {
    /// Makes a watch. `hang` without a sign of life is a hang; zero means no limit.
    pub fn new(hang: Duration) -> Watch {
        Watch { hang, traffic: (0, 0), alive: None, status: None }
    }

    /// Reads a line that came at `now`.
    pub fn line(&mut self, line: &str, now: Duration) {
        let line = line.trim();
        if let Some(status) = line.strip_prefix(STATUS) {
            let status = status.split_whitespace().next().and_then(|word| word.parse().ok());
            // An unreadable status is a failure.
            self.status = Some(status.unwrap_or(1));
        } else if line.starts_with("[mon ") {
            let Some(traffic) = traffic(line) else { return };
            if traffic != self.traffic || traffic == (0, 0) {
                self.alive = Some(now);
            }
            self.traffic = traffic;
        } else if !line.is_empty() && !of_the_kernel(line) {
            self.alive = self.alive.map(|_| now);
        }
    }

    /// The script's exit status, if it has ended.
    pub fn status(&self) -> Option<u8> {
        self.status
    }

    /// Whether the guest hangs.
    pub fn hangs(&self, now: Duration) -> bool {
        let silent = self.alive.map(|alive| now.saturating_sub(alive));
        !self.hang.is_zero() && self.status.is_none() && silent.is_some_and(|it| it > self.hang)
    }
}

/// Reads ` out=12 in=34` out of a line.
fn traffic(line: &str) -> Option<(u64, u64)> {
    let value = |name: &str| {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(name));
        word.and_then(|number| number.parse().ok())
    };
    Some((value("out=")?, value("in=")?))
}

/// Whether the line begins with a time in brackets, as those of the kernel do: `[   12.345678] `.
fn of_the_kernel(line: &str) -> bool {
    let time = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    time.is_some_and(|(time, _)| time.trim().parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Watch;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn mon(out: u64, r#in: u64) -> String {
        format!("[mon 7] free=9M swap=4/1024M out={out} in={in} stall=3 oomkill=0", in = r#in)
    }

    #[test]
    fn silence_is_a_hang_once_somebody_watches() {
        let mut watch = Watch::new(at(30));
        watch.line("--- [0.1s] hog: 1 x 700 MiB", at(1));
        assert!(!watch.hangs(at(100)), "nobody watches yet");
        watch.line(&mon(0, 0), at(100));
        assert!(!watch.hangs(at(130)));
        assert!(watch.hangs(at(131)), "even the one who watches is silent");
    }

    #[test]
    fn counts_that_stand_still_are_a_hang_once_there_was_swapping() {
        let mut watch = Watch::new(at(30));
        for seconds in [10, 30, 50, 70, 90] {
            watch.line(&mon(0, 0), at(seconds));
            assert!(!watch.hangs(at(seconds + 30)), "nothing was swapped yet");
        }
        for seconds in [100, 110, 120, 130] {
            watch.line(&mon(5, 0), at(seconds));
            assert!(!watch.hangs(at(seconds)));
        }
        assert!(watch.hangs(at(131)));
    }

    #[test]
    fn traffic_and_progress_are_signs_of_life() {
        let mut watch = Watch::new(at(30));
        watch.line(&mon(5, 0), at(10));
        watch.line(&mon(5, 1), at(40));
        assert!(!watch.hangs(at(70)));
        watch.line("hog1: t=60.1 filling 0: 100 of 200 ok=0 wrong=0 lost=0", at(70));
        assert!(!watch.hangs(at(100)));
        watch.line(&mon(6, 1), at(100));
        assert!(!watch.hangs(at(130)));
        assert!(watch.hangs(at(131)));
    }

    #[test]
    fn complaints_of_the_kernel_and_counts_that_stand_still_are_none() {
        let mut watch = Watch::new(at(30));
        watch.line(&mon(5, 2), at(10));
        watch.line(&mon(5, 2), at(20));
        watch.line("[   41.250000] INFO: task hog:93 blocked for more than 30 seconds.", at(39));
        watch.line("", at(39));
        watch.line("[mon 40 LATE] free=1M swap=4/1024M ou", at(40));
        assert!(watch.hangs(at(41)));
    }

    #[test]
    fn hangs_are_not_looked_for_when_told_so_or_after_the_end() {
        let mut never = Watch::new(Duration::ZERO);
        never.line(&mon(5, 2), at(10));
        assert!(!never.hangs(at(1000)));
        let mut ended = Watch::new(at(30));
        ended.line(&mon(5, 2), at(10));
        ended.line("=== GUEST-RC 3 up=12.5", at(11));
        assert_eq!((ended.hangs(at(1000)), ended.status()), (false, Some(3)));
    }

    #[test]
    fn only_a_status_is_a_status() {
        let mut watch = Watch::new(at(30));
        watch.line("GUEST-RC 0", at(1));
        watch.line("=== GUEST 6.12", at(1));
        assert_eq!(watch.status(), None);
        watch.line("=== GUEST-RC ?", at(1));
        assert_eq!(watch.status(), Some(1));
    }
}
