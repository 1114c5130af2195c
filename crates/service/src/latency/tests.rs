use super::*;

/// A device whose operations end as `result` says.
struct Ends(Result<(), IoError>);

impl BlockDevice for Ends {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: 1 << 20, minimum_block: 1, preferred_block: 4096 }
    }

    fn abilities(&self) -> Abilities {
        Abilities { discard: true, ..Abilities::default() }
    }

    fn perform(&self, _: Context, _: Operation<'_>) -> Result<(), IoError> {
        self.0
    }

    fn extents(&self, _: Cpu, _: u64, _: u64, _: Visit<'_>) -> Result<(), IoError> {
        self.0
    }
}

fn timed(name: &str) -> Vec<Latency> {
    of(&[name])
}

#[test]
fn times_have_classes_and_percentiles() {
    let times = Times::new(2);
    for (nanoseconds, count) in [(1, 90), (1_000, 1), (1_001, 8), (u64::MAX >> 8, 1)] {
        for n in 0..count {
            times.add(Cpu(n % 3), 1, nanoseconds);
        }
    }
    let latency = times.report("it", 1);
    assert_eq!((latency.classes[0], latency.classes[1]), (91, 8));
    assert_eq!(latency.classes[CLASSES - 1], 1);
    assert_eq!(latency.classes.iter().sum::<u64>(), 100);
    assert_eq!(latency.sum, 90 + 1_000 + 8 * 1_001 + (u64::MAX >> 8));
    let percentiles = [50, 91, 92, 99, 100].map(|percent| latency.percentile(percent));
    assert_eq!(percentiles, [Some(1_000), Some(1_000), Some(2_000), Some(2_000), None]);
    assert_eq!(Latency::default().percentile(50), None);
    assert_eq!(times.report("it", 0).classes, vec![0; CLASSES]);
}

/// One test, for there is one switch.
#[test]
fn one_request_of_several_is_timed_while_that_is_on() {
    let context = Context::waiting(Cpu(0));
    let read = |device: &dyn BlockDevice, times: u64| {
        for _ in 0..times {
            let operation = Operation::Read { offset: 0, into: &mut [0; 512] };
            let _ = device.perform(context, operation);
        }
    };
    let device = Timed::new("latency-it", Ends(Ok(())));
    assert!(!is_on());
    read(&device, 100);
    assert!(timed("latency-it").is_empty());
    set(true);
    read(&device, 8 * EVERY);
    let also = Timed::new("latency-it", Ends(Ok(())));
    read(&also, 8 * EVERY);
    let write = Operation::Write { offset: 0, from: &[0; 512] };
    assert_eq!(also.perform(context, write), Ok(()));
    let discard = Operation::Discard { offset: 0, length: 512 };
    assert_eq!(also.perform(context, discard), Ok(()));
    let found = timed("latency-it");
    assert_eq!(found[0].operation, "read");
    assert_eq!(found[0].classes.iter().sum::<u64>(), 16, "{found:?}");
    assert!(found[0].sum > 0);
    let both = Timed::new("latency-both", Ends(Ok(())));
    for _ in 0..2 * EVERY {
        read(&both, 1);
        let write = Operation::Write { offset: 0, from: &[0; 512] };
        let _ = both.perform(context, write);
    }
    let of_each: Vec<u64> =
        timed("latency-both").iter().map(|it| it.classes.iter().sum()).collect();
    assert_eq!(of_each, [2, 2], "reads and writes that take turns are both timed");
    let waits = Timed::new("latency-waits", Ends(Err(IoError::WouldBlock)));
    read(&waits, 8 * EVERY);
    assert!(timed("latency-waits").is_empty(), "it comes again");
    let fails = Timed::new("latency-fails", Ends(Err(IoError::Failed)));
    read(&fails, EVERY);
    assert_eq!(timed("latency-fails").len(), 1);
    set(false);
    read(&fails, 100 * EVERY);
    assert_eq!(timed("latency-fails")[0].classes.iter().sum::<u64>(), 1);
    assert_eq!(of(&["latency-waits", "latency-fails"]).len(), 1);
}

#[test]
fn a_layer_is_the_device_below() {
    let below = Arc::new(Ends(Ok(())));
    let layer = Timed::new("latency-below", below.clone());
    assert_eq!(layer.geometry(), below.geometry());
    assert_eq!(layer.abilities(), below.abilities());
    assert!(layer.packed().is_none());
}
