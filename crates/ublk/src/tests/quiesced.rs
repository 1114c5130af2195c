//! The end of a server on purpose, against a model of the driver.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use crate::device::quiesced::{Keeps, end_commands};

const MOST: Duration = Duration::from_secs(5);

/// Where a tag is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tag {
    /// Its command waits in the driver.
    Waits,
    /// Its request is under way for so many looks.
    UnderWay(u32),
    /// Its command has ended.
    Ended,
}

/// A driver, with the thread of its server.
#[derive(Debug)]
struct Model {
    tags: Vec<Tag>,
    calls: u32,
    /// It has only this long to end.
    looks: u32,
    /// How often it ends commands; later calls do nothing.
    works: u32,
    /// What its first call fails with.
    fails: Option<i32>,
}

impl Model {
    fn new(tags: &[Tag]) -> Model {
        Model { tags: tags.to_vec(), calls: 0, looks: 20, works: u32::MAX, fails: None }
    }

    /// The server does what it can.
    fn pass(&mut self) {
        for tag in &mut self.tags {
            match tag {
                Tag::UnderWay(0) => *tag = Tag::Waits,
                Tag::UnderWay(left) => *left -= 1,
                Tag::Waits | Tag::Ended => {}
            }
        }
    }
}

struct Driver<'a>(&'a RefCell<Model>);

impl Keeps for Driver<'_> {
    fn quiesce(&mut self, number: u32, most: Duration) -> io::Result<()> {
        assert!((number, most <= MOST) == (7, true));
        let mut model = self.0.borrow_mut();
        model.calls += 1;
        if let Some(errno) = model.fails.take() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if model.calls > model.works {
            return Ok(());
        }
        let busy = |tag: &Tag| matches!(tag, Tag::UnderWay(_));
        if model.tags.iter().all(busy) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        model.tags.iter_mut().filter(|tag| **tag == Tag::Waits).for_each(|tag| *tag = Tag::Ended);
        Ok(())
    }
}

fn ends(model: Model) -> (io::Result<bool>, Model) {
    let model = RefCell::new(model);
    let pause = || {
        let mut model = model.borrow_mut();
        model.pass();
        model.looks -= 1;
        (model.looks > 0).then_some(MOST / 2)
    };
    let is_over = || model.borrow().tags.iter().all(|tag| *tag == Tag::Ended);
    let done = end_commands(&mut Driver(&model), 7, MOST, pause, is_over);
    (done, model.into_inner())
}

#[test]
fn every_request_is_answered_before_the_server_ends() {
    for first in 0..5 {
        for second in 0..5 {
            let tags = [Tag::Waits, Tag::UnderWay(first), Tag::UnderWay(second), Tag::Waits];
            let (done, model) = ends(Model::new(&tags));
            assert!(done.unwrap(), "{tags:?}");
            assert_eq!(model.tags, [Tag::Ended; 4]);
            // A call ends what waits; another one what was answered since.
            assert_eq!(model.calls, first.max(second) + 2);
        }
    }
}

#[test]
fn a_request_that_takes_too_long_is_left_to_the_next_server() {
    let (done, model) = ends(Model::new(&[Tag::Waits, Tag::UnderWay(99)]));
    assert!(!done.unwrap());
    assert_eq!(model.tags[0], Tag::Ended);
    let (busy, _) = ends(Model::new(&[Tag::UnderWay(99)]));
    assert!(!busy.unwrap());
    // A driver that fails is not asked again.
    let (gone, model) = ends(Model { fails: Some(libc::ENODEV), ..Model::new(&[Tag::Waits]) });
    assert_eq!((gone.unwrap_err().raw_os_error(), model.calls), (Some(libc::ENODEV), 1));
}

#[test]
fn a_signal_ends_no_quiesce() {
    let (done, model) = ends(Model { fails: Some(libc::EINTR), ..Model::new(&[Tag::Waits]) });
    assert_eq!((done.unwrap(), model.calls), (true, 2));
}

#[test]
fn one_call_does_not_end_what_is_under_way() {
    let (done, model) = ends(Model { works: 1, ..Model::new(&[Tag::Waits, Tag::UnderWay(1)]) });
    assert!(!done.unwrap());
    assert_eq!(model.tags, [Tag::Ended, Tag::Waits]);
}
