//! What fixed ages gain, and one who knows the future.

use super::trace::Trace;

/// What a move down costs, or one up.
pub const MOVE: i64 = 16;
/// What a read of a page in the lower tier costs.
pub const READ: i64 = 64;

/// The gain if each page moves down at the age of `age` seconds, and comes up when it is written.
#[must_use]
pub fn fixed(trace: &Trace, age: u32) -> i64 {
    let end = trace.seconds();
    trace
        .by_page()
        .map(|uses| {
            let (mut gain, mut is_down) = (0, false);
            for (number, used) in uses.iter().enumerate() {
                is_down &= !used.writes;
                if is_down && number > 0 {
                    gain -= READ;
                }
                let next = uses.get(number + 1).map_or(end, |next| next.second);
                let idle = next - used.second;
                if is_down {
                    gain += i64::from(idle);
                } else if idle > age {
                    gain += i64::from(idle - age) - MOVE;
                    is_down = true;
                }
            }
            gain
        })
        .sum()
}

/// The most that can be gained by one who knows all of the trace: for each page the best way
/// through its uses. No decision depends on another page, so this is exact (Belady's with prices).
#[must_use]
pub fn clairvoyant(trace: &Trace) -> i64 {
    const NEVER: i64 = i64::MIN / 2;
    let end = trace.seconds();
    trace
        .by_page()
        .map(|uses| {
            let (mut up, mut down) = (0, NEVER);
            for (number, used) in uses.iter().enumerate() {
                // What comes before the first use is the same for all.
                if used.writes {
                    (up, down) = (up.max(down), NEVER);
                } else if number > 0 {
                    down -= READ;
                }
                let next = uses.get(number + 1).map_or(end, |next| next.second);
                let idle = i64::from(next - used.second);
                (up, down) = (up.max(down - MOVE), down.max(up - MOVE) + idle);
            }
            up.max(down)
        })
        .sum()
}
