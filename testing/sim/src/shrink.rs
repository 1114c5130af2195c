//! Makes a failure small: fewer events that still make a device differ from its model.

use std::sync::Arc;

use block::BlockDevice;

use crate::events::Event;
use crate::model::Model;

/// What the events make of a fresh device: the number of the first event after which it differs
/// from its model, and how.
#[must_use]
pub fn first_difference(
    device: &dyn BlockDevice,
    events: &[Event],
    may_fill_up: bool,
) -> Option<(usize, String)> {
    let mut model = Model::new(device, may_fill_up);
    for (number, event) in events.iter().enumerate() {
        if let Err(wrong) = model.step(device, event) {
            return Some((number, wrong));
        }
    }
    model.compare_all(device).err().map(|wrong| (events.len(), wrong))
}

/// Returns the events that are left and what they make differ.
#[must_use]
pub fn shrink(
    make: &dyn Fn() -> Arc<dyn BlockDevice>,
    events: &[Event],
    may_fill_up: bool,
) -> Option<(Vec<Event>, String)> {
    fewest(events, &mut |events| first_difference(&*make(), events, may_fill_up))
}

/// Tells the number of the event that a sequence fails at, and how, if it fails.
pub type Fails<'a, E> = &'a mut dyn FnMut(&[E]) -> Option<(usize, String)>;

/// Leaves out what is not needed for a failure, as long as that gets anywhere (Zeller and
/// Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002, without its complements).
/// Returns the events that are left and how they fail; nothing if all of them do not fail.
#[must_use]
pub fn fewest<E: Clone>(events: &[E], fails: Fails<'_, E>) -> Option<(Vec<E>, String)> {
    let (number, mut wrong) = fails(events)?;
    let mut left = events[..events.len().min(number + 1)].to_vec();
    let mut step = left.len() / 2;
    while step > 0 {
        let mut at = 0;
        while at < left.len() {
            let end = (at + step).min(left.len());
            let fewer: Vec<E> = [&left[..at], &left[end..]].concat();
            match fails(&fewer) {
                Some((_, difference)) => {
                    wrong = difference;
                    left = fewer;
                }
                None => at = end,
            }
        }
        step /= 2;
    }
    Some((left, wrong))
}
