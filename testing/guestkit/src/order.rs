//! The order in which a program visits pages.

/// Visits each of `count` items once in a pass: in order, or with large steps.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    count: usize,
    step: usize,
}

impl Order {
    /// Makes the order of `count` items. With `scattered` each step is about 0.618 of `count`.
    #[must_use]
    pub fn new(count: usize, scattered: bool) -> Order {
        let mut step = 1;
        if scattered && count > 2 {
            step = (count / 1000 * 618 + count % 1000 * 618 / 1000) | 1;
            while common_divisor(count, step) != 1 {
                step += 2;
            }
        }
        Order { count, step }
    }

    /// The items of one pass.
    pub fn pass(self) -> impl Iterator<Item = usize> {
        let Order { count, step } = self;
        let mut next = 0;
        (0..count).map(move |_| {
            let this = next;
            next = (next + step) % count;
            this
        })
    }
}

fn common_divisor(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn a_pass_visits_everything_once() {
        for count in [0, 1, 2, 3, 4, 9, 618, 1000, 4096, 179_200] {
            for scattered in [false, true] {
                let mut seen = vec![false; count];
                for at in Order::new(count, scattered).pass() {
                    assert!(!std::mem::replace(&mut seen[at], true), "{at} of {count} twice");
                }
                assert!(seen.iter().all(|seen| *seen), "{count} {scattered}");
            }
        }
    }

    #[test]
    fn neighbours_are_far_apart_when_scattered() {
        let order: Vec<usize> = Order::new(179_200, true).pass().take(1000).collect();
        assert!(order.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1000));
    }
}
