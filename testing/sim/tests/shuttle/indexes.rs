//! Whole indexes of swap areas: a few pages, threads that insert and remove entries, and nodes of
//! four slots that are reused at once. Some order of the calls must explain all results.

use std::sync::Arc;

use shuttle::rand::RngCore;
use shuttle::thread;
use sim::indexes::{Call, History, word};
use testkit::Rng;
use units::Cpu;
use zswap::Index;

use crate::explore::Play;

/// Three levels of four slots; the parts of a split index have sixteen.
pub const PAGES: u64 = 64;
/// Two in one node, one in the next, one in the next part.
const OFFSETS: [u64; 4] = [0, 1, 4, 16];
const THREADS: u32 = 3;
const CALLS: u32 = 3;
/// The number of all inserted entries.
pub const ENTRIES: u32 = THREADS * CALLS + OFFSETS.len() as u32;
const CPUS: usize = 2;

/// Plays a schedule with the index that `make` makes.
pub fn on(make: impl Fn() -> Box<dyn Index> + Send + Sync + 'static) -> Play {
    Arc::new(move || play(Arc::from(make())))
}

/// An index of this kind.
pub fn make<I: Index>() -> Box<dyn Index> {
    Box::new(I::make(&host::Mmap, PAGES, ENTRIES, CPUS).expect("there are addresses"))
}

fn play(index: Arc<dyn Index>) {
    let mut rng = Rng::new(shuttle::rand::thread_rng().next_u64());
    let history = Arc::new(History::default());
    for (n, offset) in (1..).zip(OFFSETS) {
        if rng.one_in(2) {
            let call = Call::Insert(word(THREADS * CALLS + n, 1));
            history.call(&*index, Cpu(0), offset, call);
        }
    }
    let threads: Vec<_> = (0..THREADS)
        .map(|n| {
            let (index, history, mut rng) = (index.clone(), history.clone(), rng.fork());
            thread::spawn(move || act(&*index, &history, n, &mut rng))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("shuttle ends with a panic"));
    index.validate();
    for offset in OFFSETS {
        history.call(&*index, Cpu(0), offset, Call::Get);
        history.call(&*index, Cpu(0), offset, Call::Remove);
    }
    history.explain();
    index.validate();
    assert_eq!((index.count(), index.bytes()), (0, 0), "entries or nodes are lost");
}

/// Runs thread `n`. The last thread mostly looks entries up.
fn act(index: &dyn Index, history: &History, n: u32, rng: &mut Rng) {
    for number in n * CALLS + 1..=(n + 1) * CALLS {
        let offset = *rng.pick(&OFFSETS);
        let kind = if n + 1 == THREADS { rng.below(3) } else { rng.below(12) };
        let call = match kind {
            0 | 1 => Call::Get,
            2..6 => Call::Insert(word(number, 1)),
            6..9 => Call::Remove,
            9 => {
                history.drain(index, Cpu(n), 0..offset + 1, &OFFSETS);
                continue;
            }
            // An entry that may be there, and sometimes of another life.
            _ => {
                let number = 1 + rng.below(u64::from(ENTRIES)) as u32;
                Call::RemoveIf(word(number, 1 + u32::from(rng.one_in(4))))
            }
        };
        history.call(index, Cpu(n), offset, call);
    }
}
