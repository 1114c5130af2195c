//! The threads of a scenario that use pages.

use block::{BlockDevice, IoError, Operation, ZeroMode};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE, Page};

use super::{P, Run};
use crate::history::Version;

/// A thread that uses pages, and the contents it expects.
pub(super) struct User {
    number: usize,
    rng: Rng,
    stored: u32,
    /// The contents of the thread's own page, but for its end.
    own: Box<Page>,
    /// The contents of the thread's part of the shared page.
    part: Vec<u8>,
}

/// Bytes of a part.
const PART: usize = 700;
/// Bytes at the end of an own page that another thread changes, so that the changes meet.
const END: usize = 64;

impl User {
    pub(super) fn new(number: usize, rng: Rng) -> User {
        User { number, rng, stored: 0, own: Box::new([0; PAGE_SIZE]), part: vec![0; PART] }
    }

    fn cpu(&self) -> Cpu {
        Cpu(self.number as u32)
    }

    pub(super) fn act(&mut self, run: &Run) {
        let page = self.rng.below(run.scenario.hot);
        match self.rng.below(if run.scenario.own { 16 } else { 8 }) {
            0..=2 => self.store_hot(run, page),
            3..=6 => self.load_hot(run, page),
            7 => self.empty_hot(run, page),
            8 => self.store_own(run),
            9 => self.empty_own(run),
            10 | 11 => self.change_own(run),
            12 => self.change_part(run),
            13 => self.change_anothers(run),
            _ => self.look_at_own(run),
        }
    }

    fn next_version(&mut self, page: u64) -> Version {
        self.stored += 1;
        Version::new(self.rng.one_in(2), page, self.number, self.stored)
    }

    /// One of few versions, whatever the page.
    fn common_version(&mut self) -> Version {
        Version::new(self.rng.one_in(2), 0, 0, 1 + self.rng.below(3) as u32)
    }

    pub(super) fn store_hot(&mut self, run: &Run, page: u64) {
        let alike = run.scenario.alike;
        let version = if alike { self.common_version() } else { self.next_version(page) };
        let mut contents = [0; PAGE_SIZE];
        version.render(&mut contents);
        let begun = run.history.now();
        if run.made_it(run.disk().store_page(self.cpu(), page, &contents)) {
            run.history.stored(page, version, begun);
        }
    }

    pub(super) fn load_hot(&mut self, run: &Run, page: u64) {
        let (disk, cpu, mut contents) = (run.disk(), self.cpu(), [0xa5; PAGE_SIZE]);
        let begun = run.history.now();
        let read = if self.rng.one_in(2) {
            disk.load_page(cpu, page, &mut contents)
        } else {
            disk.submit(cpu, Operation::Read { offset: page * P, into: &mut contents })
        };
        if run.made_it(read) {
            run.history.saw(page, Version::of(&contents), begun);
        }
    }

    fn empty_hot(&mut self, run: &Run, page: u64) {
        let begun = run.history.now();
        if run.made_it(self.empty(run, page)) {
            run.history.stored(page, Version::ZEROES, begun);
        }
    }

    fn empty(&mut self, run: &Run, page: u64) -> Result<(), IoError> {
        let (offset, length) = (page * P, P);
        let operation = match self.rng.below(3) {
            0 => Operation::Discard { offset, length },
            1 => Operation::WriteZeroes { offset, length, mode: ZeroMode::KeepAllocated },
            _ => Operation::WriteZeroes { offset, length, mode: ZeroMode::MayPunch },
        };
        run.disk().submit(self.cpu(), operation)
    }

    fn own_page(&self, run: &Run) -> u64 {
        own_page_of(self.number, run)
    }

    pub(super) fn store_own(&mut self, run: &Run) {
        let (page, mut contents) = (self.own_page(run), [0; PAGE_SIZE]);
        self.next_version(page).render(&mut contents);
        if run.made_it(run.disk().store_page(self.cpu(), page, &contents)) {
            *self.own = contents;
        }
    }

    fn empty_own(&mut self, run: &Run) {
        let page = self.own_page(run);
        if run.made_it(self.empty(run, page)) {
            self.own.fill(0);
        }
    }

    fn change_own(&mut self, run: &Run) {
        let from = self.rng.below(P - 1) as usize;
        let length = 1 + self.rng.below(P - from as u64 - 1) as usize;
        let mut bytes = vec![0; length];
        self.rng.fill(&mut bytes);
        let offset = self.own_page(run) * P + from as u64;
        let write = Operation::Write { offset, from: &bytes };
        if run.made_it(run.disk().submit(self.cpu(), write)) {
            self.own[from..from + length].copy_from_slice(&bytes);
        }
    }

    /// Changes the end of another thread's page. That thread must not lose what it stores.
    fn change_anothers(&mut self, run: &Run) {
        let mut bytes = [0; END];
        self.rng.fill(&mut bytes);
        let page = own_page_of((self.number + 1) % run.scenario.users, run);
        let write = Operation::Write { offset: (page + 1) * P - END as u64, from: &bytes };
        run.made_it(run.disk().submit(self.cpu(), write));
    }

    /// The offset of the thread's part of the shared page.
    fn place(&self, run: &Run) -> u64 {
        run.scenario.hot * P + (self.number * PART) as u64
    }

    fn change_part(&mut self, run: &Run) {
        let mut bytes = vec![0; PART];
        self.rng.fill(&mut bytes[..PART / 2]);
        let write = Operation::Write { offset: self.place(run), from: &bytes };
        if run.made_it(run.disk().submit(self.cpu(), write)) {
            self.part = bytes;
        }
    }

    pub(super) fn look_at_own(&mut self, run: &Run) {
        if !run.scenario.own {
            return;
        }
        let (disk, cpu) = (run.disk(), self.cpu());
        let (page, mut contents) = (self.own_page(run), [0xa5; PAGE_SIZE]);
        assert_eq!(disk.load_page(cpu, page, &mut contents), Ok(()));
        let mut both = contents.iter().zip(&*self.own).take(PAGE_SIZE - END);
        let wrong = both.position(|(is, was)| is != was);
        assert_eq!(wrong, None, "the own page of user {} is another", self.number);
        let mut part = vec![0xa5; PART];
        let read = Operation::Read { offset: self.place(run), into: &mut part };
        assert_eq!(disk.submit(cpu, read), Ok(()));
        assert!(part == self.part, "the part of user {} is not what it wrote", self.number);
    }
}

fn own_page_of(number: usize, run: &Run) -> u64 {
    run.scenario.hot + 1 + number as u64
}
