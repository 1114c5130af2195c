//! Recoveries against a model of the driver, with servers that are killed after each step.

use std::io;

use crate::device::recovery::{Driver, begin, check};
use crate::wire::{self, Info};
use crate::{Error, Id};

const QUEUES: usize = 1;
const TAGS: usize = 4;

/// What the driver of Linux 6.12 knows of a device.
#[derive(Clone, Debug)]
struct Model {
    state: u16,
    /// A process has the character device open.
    is_open: bool,
    /// The process that mapped descriptors.
    mapped_by: Option<u32>,
    /// The process that gave a tag, by queue and tag.
    given: [[Option<u32>; TAGS]; QUEUES],
    /// How often the state is asked for before the kernel has cleaned up after a death.
    cleaning: u32,
    /// The driver would have followed a null pointer.
    is_broken: bool,
}

type Step = fn(&mut Model, u32) -> io::Result<()>;

fn errno<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

impl Model {
    /// A device whose server, process 1, has just been killed.
    fn orphan() -> Model {
        let mut model = Model {
            state: wire::LIVE,
            is_open: true,
            mapped_by: Some(1),
            given: [[Some(1); TAGS]; QUEUES],
            cleaning: 0,
            is_broken: false,
        };
        model.kill();
        model
    }

    fn kill(&mut self) {
        if self.is_open {
            self.cleaning = 3;
        }
    }

    /// Passes some time, in which the kernel cleans up after a dead server.
    fn pass(&mut self) {
        if self.cleaning > 0 {
            self.cleaning -= 1;
            if self.cleaning == 0 {
                (self.is_open, self.state) = (false, wire::QUIESCED);
            }
        }
    }

    fn ready(&self) -> usize {
        self.given.iter().filter(|tags| tags.iter().all(Option::is_some)).count()
    }

    fn open(&mut self, _: u32) -> io::Result<()> {
        if self.is_open {
            return errno(libc::EBUSY);
        }
        self.is_open = true;
        Ok(())
    }

    fn map(&mut self, server: u32) -> io::Result<()> {
        if *self.mapped_by.get_or_insert(server) != server {
            return errno(libc::EINVAL);
        }
        Ok(())
    }

    fn fetch(&mut self, server: u32) -> io::Result<()> {
        for tag in self.given.iter_mut().flatten() {
            if tag.is_some() {
                return errno(libc::EBUSY);
            }
            *tag = Some(server);
        }
        Ok(())
    }

    fn end(&mut self, _: u32) -> io::Result<()> {
        if self.ready() < QUEUES {
            return errno(libc::EINTR);
        }
        if self.state != wire::QUIESCED {
            return errno(libc::EBUSY);
        }
        self.state = wire::LIVE;
        Ok(())
    }

    fn begin(&mut self, _: u32) -> io::Result<()> {
        let mut left = 10;
        begin(self, 0, || {
            left -= 1;
            left > 0
        })
    }
}

impl Driver for Model {
    fn begin_recovery(&mut self, _: u32) -> io::Result<()> {
        self.pass();
        if self.ready() == 0 {
            return errno(libc::EINVAL);
        }
        if self.is_open || self.state != wire::QUIESCED {
            return errno(libc::EBUSY);
        }
        self.is_broken |= self.ready() < QUEUES;
        self.given = [[None; TAGS]; QUEUES];
        self.mapped_by = None;
        Ok(())
    }

    fn state(&mut self, _: u32) -> io::Result<u16> {
        Ok(self.state)
    }
}

/// Opens as a server does: until the dead one's file is closed.
fn open(model: &mut Model, server: u32) -> io::Result<()> {
    while model.is_open {
        model.pass();
        if model.cleaning == 0 && model.is_open {
            break;
        }
    }
    model.open(server)
}

/// The steps of a recovery, in the order of the product.
const STEPS: [Step; 5] = [Model::begin, open, Model::fetch, Model::map, Model::end];

/// Runs servers that are killed after this many of `steps` each; the last one must serve.
fn recover(steps: [Step; 5], kills: &[usize]) -> Result<(), String> {
    let mut model = Model::orphan();
    for (server, steps_done) in (2..).zip(kills.iter().copied().chain([steps.len()])) {
        for (number, step) in steps[..steps_done].iter().enumerate() {
            let done = step(&mut model, server);
            done.map_err(|error| format!("step {number} of server {server}: {error}"))?;
        }
        if steps_done < steps.len() {
            model.kill();
        }
    }
    assert_eq!(model.state, wire::LIVE);
    if model.is_broken { Err("the driver is broken".into()) } else { Ok(()) }
}

/// All sequences of three kills, each after any step.
fn all_kills() -> impl Iterator<Item = [usize; 3]> {
    let each = 0..=STEPS.len() - 1;
    let pairs = each.clone().flat_map({
        let each = each.clone();
        move |first| each.clone().map(move |second| (first, second))
    });
    pairs.flat_map(move |(first, second)| each.clone().map(move |third| [first, second, third]))
}

#[test]
fn a_recovery_goes_on_after_a_kill_at_any_step() {
    assert_eq!(all_kills().count(), 125);
    for kills in all_kills() {
        recover(STEPS, &kills).unwrap_or_else(|error| panic!("{kills:?}: {error}"));
    }
}

#[test]
fn a_server_that_maps_before_it_fetches_loses_the_device() {
    let steps = [Model::begin as Step, open, Model::map, Model::fetch, Model::end];
    assert_eq!(recover(steps, &[]), Ok(()));
    let lost: Vec<_> = all_kills().filter(|kills| recover(steps, kills).is_err()).collect();
    assert!(lost.contains(&[3, 0, 0]), "{lost:?}");
}

#[test]
fn a_server_that_gives_up_at_einval_loses_the_device() {
    let begin: Step = |model, server| {
        while model.cleaning > 0 {
            model.pass();
        }
        let _ = server;
        model.begin_recovery(0)
    };
    let steps = [begin, open, Model::fetch, Model::map, Model::end];
    assert_eq!(recover(steps, &[]), Ok(()));
    assert!(recover(steps, &[1]).is_err());
}

#[test]
fn a_device_that_is_served_is_busy() {
    let mut model = Model::orphan();
    (model.cleaning, model.is_open) = (0, true);
    let mut asked = 0;
    let begun = begin(&mut model, 0, || {
        asked += 1;
        asked < 5
    });
    assert_eq!(begun.unwrap_err().raw_os_error(), Some(libc::EBUSY));
    assert_eq!(asked, 5);
}

#[test]
fn only_the_device_that_was_meant_is_recovered() {
    let id = Id { number: 3, maker: 77 };
    let mut info = Info::new(1, 64, 4096, wire::mark(77));
    (info.flags, info.state) = (wire::RECOVERABLE, wire::QUIESCED);
    let said = |info: &Info| match check(info, id) {
        Ok(()) => String::new(),
        Err(error @ Error::Unfit(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(said(&info), "");
    info.state = wire::LIVE;
    assert_eq!(said(&info), "", "the kernel may not have noticed yet");
    info.state = 0;
    assert!(said(&info).contains("not kept"));
    info.state = wire::QUIESCED;
    for flags in [0, wire::RECOVERABLE & !(1 << 4), wire::RECOVERABLE & !(1 << 3)] {
        info.flags = flags;
        assert!(said(&info).contains("not kept"), "{flags}");
    }
    info.flags = wire::RECOVERABLE;
    for mark in [wire::mark(78), 77] {
        info.mark = mark;
        assert!(said(&info).contains("another"), "{mark}");
    }
}
