//! What a take-over has taken so far.

use std::mem;

/// Takes over what a daemon before left: `take` fills `parts`, whose drop takes them away from
/// their users. If it fails and they are `inherited`, they are left as they are. The process must
/// end then: what the service manager keeps is for the next one.
///
/// # Errors
/// That of `take`.
pub(crate) fn take_over<P, E>(
    mut parts: P,
    inherited: bool,
    take: impl FnOnce(&mut P) -> Result<(), E>,
) -> Result<P, E> {
    match take(&mut parts) {
        Ok(()) => Ok(parts),
        Err(error) => {
            if inherited {
                leave(parts);
            }
            Err(error)
        }
    }
}

/// Leaves `parts` to the next process, which takes them over.
pub(crate) fn leave<P>(parts: P) {
    mem::forget(parts);
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn what_is_inherited_stays_if_the_take_over_fails() {
        for (inherited, fails, left) in [(true, true, 2), (false, true, 1), (true, false, 1)] {
            let part = Rc::new(());
            let taken = take_over(None, inherited, |parts| {
                *parts = Some(part.clone());
                if fails { Err("no") } else { Ok(()) }
            });
            assert_eq!(taken.is_err(), fails);
            drop(taken);
            assert_eq!(Rc::strong_count(&part), left, "{inherited} {fails}");
        }
    }
}
