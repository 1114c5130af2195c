//! A daemon ends at each named place of the take-over of its swap devices, and by a panic in a
//! thread that serves them: programs whose pages are there verify them, and none sees a SIGBUS.
//!
//! ```sh
//! RUSTFLAGS="--cfg killed" CARGO_TARGET_DIR=target/killed cargo test -p rampack-cli --test killed
//! ```
#![cfg(killed)]

#[path = "it/common.rs"]
#[allow(dead_code)]
mod common;
#[path = "it/hungry.rs"]
#[allow(dead_code)]
mod hungry;
#[path = "it/keeper.rs"]
#[allow(dead_code)]
mod keeper;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cli::swap::selftest::group::Group;
use host::{Memfds, swaps};
use service::swap::limits::Controller;
use sync::atomic::killed::POINT;
use testkit::{Ends, Need, Rng, met};

use common::{Place, program, wait_until};
use hungry::hungry;
use keeper::{Keeper, has_resend};

const MIB: u64 = 1 << 20;

/// The places, in the order in which a daemon comes by them, and panics.
const POINTS: [&str; 10] = [
    "begun",
    "recovered",
    "provided",
    "unserved",
    "thread",
    "served",
    "protected",
    "adopted",
    "thread panics",
    "served panics",
];

#[test]
fn programs_survive_an_end_of_the_daemon_at_each_place_of_a_take_over() {
    let name = "programs_survive_an_end_of_the_daemon_at_each_place_of_a_take_over";
    let noswap = Need::other(Memfds::unswappable().is_ok(), "tmpfs with noswap (Linux 6.4)");
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Swap, Need::MemoryGroup];
    if !met(name, &[&needs[..], &[has_resend(), noswap]].concat()) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let place = Place::new();
    let at = place.path().join("point");
    let mut command = program();
    command.env(POINT, &at);
    let line = "swap on --size 96M --transport fuse --force --priority 32767";
    let mut keeper = Keeper::start_swap_by(command, &place, line);
    let device = keeper.block_device("swap0");
    let used = || swaps::find(&device).map_or(0, |active| active.used);
    let (stop, rounds, seed) = (AtomicBool::new(false), AtomicU64::new(0), rng.next_u64());
    thread::scope(|scope| {
        let working = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let group = Group::make(&Controller::find().unwrap(), 6 * MIB).unwrap();
                let round = rounds.load(Ordering::Relaxed);
                let (outcome, _) = hungry(&group, seed.wrapping_add(round), used);
                assert_eq!(outcome.wrong, 0, "round {round}");
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let end = Ends(&stop);
        for point in POINTS {
            wait_until("pages are swapped out", || used() > 4 * MIB || working.is_finished());
            assert!(!working.is_finished(), "before {point}");
            fs::write(&at, point).unwrap();
            keeper.kill(libc::SIGKILL);
            wait_until(&format!("a daemon comes to {point:?}"), || !at.exists());
            wait_until("a daemon serves", || keeper.ask("status").code == 0);
        }
        drop(end);
        working.join().unwrap();
    });
    println!("{} rounds of work", rounds.load(Ordering::Relaxed));
    assert_eq!(keeper.does("get kernel/debug/zswap lost_pages").trim(), "0");
    assert_eq!(keeper.block_device("swap0"), device);
    keeper.does("swap off");
    assert_eq!(keeper.ended(), 0);
    place.is_clean();
}
