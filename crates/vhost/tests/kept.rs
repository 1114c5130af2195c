//! A server that is killed again and again, under load: its machine sees a pause and no error.

mod common;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::*;
use kept::{Backoff, Ended, Keeper};
use testkit::{Rng, TempDir};

const SIZE: u64 = 16 << 20;
const KILLS: usize = 40;
const SLOTS: u16 = 8;
const BLOCK: usize = 64 << 10;

/// A keeper in this process, with servers that die.
struct Kept {
    root: TempDir,
    keeper: Option<JoinHandle<Ended>>,
}

impl Kept {
    fn start() -> Kept {
        let root = TempDir::new();
        let mut program = std::env::current_exe().expect("the path of this test");
        program.pop();
        program.pop();
        program.push("examples/serve_kept_vhost");
        assert!(program.exists(), "{}: build it with 'cargo build --examples'", program.display());
        let socket = root.join("s").into_os_string();
        let arguments = vec!["serve_kept_vhost".into(), socket, OsString::from(SIZE.to_string())];
        let pause = Duration::from_millis(1);
        let keeper = thread::spawn(move || {
            let backoff = Backoff { first: pause, longest: pause, tries: 3 };
            Keeper::new(&program, arguments, backoff, None).unwrap().run().unwrap()
        });
        let kept = Kept { root, keeper: Some(keeper) };
        kept.wait_for_life(0);
        kept
    }

    fn socket(&self) -> PathBuf {
        self.root.join("s")
    }

    fn lives(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.root.join("s.lives")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn wait_for_life(&self, number: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.lives().len() <= number {
            let has_ended = self.keeper.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!has_ended && Instant::now() < end, "no other process serves");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill(&self) {
        let lives = self.lives();
        // SAFETY: two numbers; the process is a child of this one, whose keeper has not seen its
        // end, because it serves until it is killed here.
        assert_eq!(unsafe { libc::kill(*lives.last().unwrap(), libc::SIGKILL) }, 0);
        self.wait_for_life(lives.len());
    }

    fn stop(mut self) {
        fs::write(self.root.join("s.stop"), "").unwrap();
        assert_eq!(self.keeper.take().unwrap().join().unwrap(), Ended::Exited(0));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::write(self.root.join("s.stop"), "");
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

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
    let kept = Kept::start();
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
