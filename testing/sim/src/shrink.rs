//! Reduces a failure to fewer events that still make a device differ from its model.

use std::sync::Arc;

use block::BlockDevice;

use crate::events::Event;
use crate::model::Model;

/// Runs the events on a fresh device. Returns the number of the first event after which the device
/// differs from its model, and the difference.
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

/// Returns the remaining events and the difference that they cause.
#[must_use]
pub fn shrink(
    make: &dyn Fn() -> Arc<dyn BlockDevice>,
    events: &[Event],
    may_fill_up: bool,
) -> Option<(Vec<Event>, String)> {
    fewest(events, &mut |events| first_difference(&*make(), events, may_fill_up))
}

/// Runs a sequence. If it fails, returns the number of the event and the fault.
pub type Fails<'a, E> = &'a mut dyn FnMut(&[E]) -> Option<(usize, String)>;

/// Removes events that a failure does not need, until no removal helps (Zeller and Hildebrandt,
/// "Simplifying and Isolating Failure-Inducing Input", 2002, without its complements). Returns the
/// remaining events and their fault, or `None` if the whole sequence does not fail.
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
