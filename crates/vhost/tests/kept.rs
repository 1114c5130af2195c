//! A server that is killed again and again, under load: its machine sees a pause and no error.

mod common;

use std::time::{Duration, Instant};

use common::*;
use sim::kept::Kept;
use testkit::Rng;

const SIZE: u64 = 16 << 20;
const KILLS: usize = 40;
const SLOTS: u16 = 8;
const BLOCK: usize = 64 << 10;

/// What is under way in a slot: a block that is written with a byte, or read, which finds it.
#[derive(Clone, Copy)]
enum Request {
    Write(usize, u8),
    Read(usize, u8),
}

/// A driver of two queues that never has two requests for a block under way.
struct Driver {
    machine: Machine,
    under_way: [[Option<Request>; SLOTS as usize]; 2],
    model: Vec<u8>,
    rng: Rng,
    answered: usize,
}

impl Driver {
    fn begin(&mut self) {
        let queue = self.rng.below(2) as usize;
        let free = (0..SLOTS).find(|slot| self.under_way[queue][usize::from(*slot)].is_none());
        let Some(slot) = free else { return };
        let block = self.rng.below(self.model.len() as u64) as usize;
        let blocks = self.under_way.iter().flatten().flatten();
        let has = |it: &Request| match it {
            Request::Write(at, _) | Request::Read(at, _) => *at == block,
        };
        if blocks.clone().any(has) {
            return;
        }
        let (sector, place) = ((block * BLOCK) as u64 / SECTOR, (queue, slot));
        let request = match self.rng.one_in(2) {
            true => {
                let byte = self.rng.below(255) as u8 + 1;
                self.machine.begin(place, (OUT, sector), &vec![byte; BLOCK], 0);
                Request::Write(block, byte)
            }
            false => {
                self.machine.begin(place, (IN, sector), &[], BLOCK as u32);
                Request::Read(block, self.model[block])
            }
        };
        self.under_way[queue][usize::from(slot)] = Some(request);
    }

    /// Takes the answers that are there; waits for the next one of `queue` if it is told to.
    fn answers(&mut self, queue: usize, patience: Duration) {
        while let Some((head, _)) = self.machine.used(queue, patience) {
            let slot = head as u16 / 4;
            let at = self.machine.buffers(queue, slot);
            assert_eq!(self.machine.read(at + 0x4_4000, 1), [0], "an error");
            let request = self.under_way[queue][usize::from(slot)].take();
            match request.expect("nothing is answered twice") {
                Request::Write(block, byte) => self.model[block] = byte,
                Request::Read(block, byte) => {
                    assert!(self.machine.read(at + 0x1000, BLOCK).iter().all(|it| *it == byte));
                    assert_eq!(self.model[block], byte);
                }
            }
            self.answered += 1;
            if patience > Duration::ZERO {
                break;
            }
        }
    }

    fn is_idle(&self, queue: usize) -> bool {
        self.under_way[queue].iter().all(Option::is_none)
    }
}

#[test]
fn a_machine_sees_no_error_when_its_server_is_killed() {
    let mut kept = Kept::start("serve_kept_vhost", SIZE);
    let mut driver = Driver {
        machine: Machine::new(2).connected(&kept.socket()),
        under_way: [[None; SLOTS as usize]; 2],
        model: vec![0; SIZE as usize / BLOCK],
        rng: Rng::new(testkit::seed("a_machine_sees_no_error")),
        answered: 0,
    };
    let mut left_over = 0;
    for _ in 0..testkit::cases(KILLS) {
        for _ in 0..driver.rng.below(60) {
            driver.begin();
            driver.answers(0, Duration::ZERO);
            driver.answers(1, Duration::ZERO);
        }
        // The machine goes on while nobody serves.
        kept.kill();
        driver.begin();
        left_over += driver.under_way.iter().flatten().flatten().count();
        let socket = kept.socket();
        driver.machine.connect(&socket);
    }
    let end = Instant::now() + Duration::from_secs(60);
    while let Some(queue) = [0, 1].into_iter().find(|queue| !driver.is_idle(*queue)) {
        assert!(Instant::now() < end, "requests are never answered");
        driver.answers(queue, Duration::from_millis(100));
    }
    assert!(left_over > KILLS / 4, "{left_over} were under way at a kill");
    for block in 0..driver.model.len() {
        let sector = (block * BLOCK) as u64 / SECTOR;
        let (status, data) = driver.machine.ask(IN, sector, &[], BLOCK as u32);
        assert!(status == 0 && data.iter().all(|byte| *byte == driver.model[block]), "{block}");
    }
    kept.stop();
}
