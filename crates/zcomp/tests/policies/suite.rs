//! What holds of every policy of streams.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use testkit::Rng;
use units::Cpu;
use zcomp::{Compressor, Lz4, Params, Streams, Zstd};

use crate::watched::{Page, Watched, number};

type Make<S> = Box<dyn Fn(&Arc<Watched>, usize) -> S + Send + Sync>;

/// A policy, and what it promises.
pub struct Subject<S> {
    /// Makes streams of a codec under a limit.
    pub make: Make<S>,
    /// How many streams may be taken at once under a limit, once all of before are back.
    pub most: fn(usize) -> usize,
    /// It makes streams when they are wanted.
    pub grows: bool,
}

impl<S> Subject<S> {
    /// One that hands out as many as the limit says, and has made them all beforehand.
    pub fn new(make: impl Fn(&Arc<Watched>, usize) -> S + Send + Sync + 'static) -> Subject<S> {
        Subject { make: Box::new(make), most: |limit| limit, grows: false }
    }
}

type Verdict = Result<(), String>;
type Step<S> = fn(&Subject<S>, u64) -> Verdict;

/// Judges a policy; every step may take as long as `backoff`.
pub fn judge<S: Streams + 'static>(subject: Subject<S>, seed: u64, backoff: Duration) -> Verdict {
    let steps: &[(&str, Step<S>)] = &[
        ("a thread by itself", alone),
        ("a crowd", crowds),
        ("taking all there are", all_at_once),
        ("lowering the limit", lowered),
        ("raising the limit", raised),
        ("changing the limit beside a crowd", changed),
        ("being without memory", without_memory),
        ("being without memory under a lowered limit", lowered_without_memory),
    ];
    let subject = Arc::new(subject);
    for (name, step) in steps {
        let (told, tells) = mpsc::channel();
        let (subject, step) = (subject.clone(), *step);
        // A thread that is stuck is left behind.
        thread::spawn(move || told.send(step(&subject, seed)));
        match tells.recv_timeout(backoff) {
            Ok(verdict) => verdict.map_err(|complaint| format!("{name}: {complaint}"))?,
            Err(mpsc::RecvTimeoutError::Timeout) => return Err(format!("{name}: it is stuck")),
            Err(_) => return Err(format!("{name}: somebody panicked")),
        }
    }
    Ok(())
}

/// Streams that are taken at the moment.
struct Ledger {
    taken: Mutex<BTreeSet<u64>>,
    most: usize,
}

impl Ledger {
    fn new(most: usize) -> Ledger {
        Ledger { taken: Mutex::default(), most }
    }

    /// Runs `work` with a stream, which nobody else may have.
    fn with<S: Streams>(
        &self,
        streams: &S,
        cpu: u32,
        work: impl FnOnce(&mut zcomp::Stream) -> Verdict,
    ) -> Verdict {
        let mut stream = streams.get(Cpu(cpu));
        let number = number(&mut stream);
        {
            let mut taken = self.taken.lock().unwrap();
            if !taken.insert(number) {
                return Err(format!("stream {number} is taken twice"));
            }
            let count = taken.len();
            if count > self.most {
                // It comes back now, and others may have it.
                taken.remove(&number);
                return Err(format!("{count} streams are taken at once, not {}", self.most));
            }
        }
        let done = work(&mut stream);
        self.taken.lock().unwrap().remove(&number);
        done
    }
}

/// Compresses a page of its own and reads it back.
fn use_it(stream: &mut zcomp::Stream, rng: &mut Rng) -> Verdict {
    let mut page: Page = [rng.below(251) as u8; 4096];
    rng.fill(&mut page[..200]);
    let length = stream.compress(&page).ok_or("a page did not shrink")?.len();
    if rng.below(8) == 0 {
        // Others may come in now who must not.
        thread::yield_now();
    }
    let mut back = [0; 4096];
    let read = stream.context.decompress(&stream.output[..length], &mut back);
    match read {
        Ok(()) if back == page => Ok(()),
        _ => Err("what was compressed is not what was read back".into()),
    }
}

const THREADS: u64 = 8;
const ROUNDS: u32 = 150;

/// Many threads use streams, of which at most `most` may be taken at once.
fn crowd<S: Streams>(streams: &S, most: usize, rounds: u32, seed: u64) -> Verdict {
    let (ledger, failed) = (Ledger::new(most), AtomicBool::new(false));
    thread::scope(|scope| {
        let (ledger, failed) = (&ledger, &failed);
        let work = move |thread: u64| {
            let mut rng = Rng::new(seed ^ thread);
            for _ in 0..rounds {
                let cpu = rng.below(5) as u32;
                let done = ledger.with(streams, cpu, |stream| use_it(stream, &mut rng));
                if done.is_err() || failed.load(Ordering::Relaxed) {
                    failed.store(true, Ordering::Relaxed);
                    return done;
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || work(n))).collect();
        let verdicts: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let panicked = |_| Err("somebody panicked".into());
        verdicts.into_iter().try_for_each(|verdict| verdict.unwrap_or_else(panicked))
    })
}

fn expect(holds: bool, complaint: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(complaint()) }
}

fn alone<S: Streams>(subject: &Subject<S>, seed: u64) -> Verdict {
    let mut rng = Rng::new(seed);
    for limit in [0, 1, 2, 5] {
        let streams = (subject.make)(&Arc::new(Watched::zstd()), limit);
        let (most, ledger) = ((subject.most)(limit.max(1)), Ledger::new(1));
        for cpu in (0..20).chain([u32::MAX]) {
            ledger.with(&streams, cpu, |stream| use_it(stream, &mut rng))?;
        }
        let (count, first) = (streams.count(), if subject.grows { 1 } else { most });
        expect(count == first, || format!("{count} streams were made at first, not {first}"))?;
    }
    Ok(())
}

fn crowds<S: Streams>(subject: &Subject<S>, seed: u64) -> Verdict {
    let lz4 = || -> Box<dyn Compressor> { Box::new(Lz4::new(&Params::default()).unwrap()) };
    let zstd = || -> Box<dyn Compressor> { Box::new(Zstd::new(&Params::default()).unwrap()) };
    for limit in 1..=4 {
        for codec in [lz4(), zstd()] {
            let streams = (subject.make)(&Arc::new(Watched::of(codec)), limit);
            let most = (subject.most)(limit);
            crowd(&streams, most, ROUNDS, seed ^ limit as u64)?;
            let count = streams.count();
            expect((1..=most).contains(&count), || format!("{count} streams, not 1 to {most}"))?;
        }
    }
    Ok(())
}

/// So many threads each hold a stream until all of them do; `then` runs while they do.
fn hold<S: Streams>(streams: &S, count: usize, then: impl FnOnce()) -> Verdict {
    let (ledger, all, done) =
        (Ledger::new(count), Barrier::new(count + 1), Barrier::new(count + 1));
    thread::scope(|scope| {
        let holders: Vec<_> = (0..count as u32)
            .map(|cpu| {
                let (ledger, all, done) = (&ledger, &all, &done);
                scope.spawn(move || {
                    ledger.with(streams, cpu, |_| {
                        all.wait();
                        done.wait();
                        Ok(())
                    })
                })
            })
            .collect();
        all.wait();
        then();
        done.wait();
        holders.into_iter().try_for_each(|holder| holder.join().unwrap())
    })
}

fn all_at_once<S: Streams>(subject: &Subject<S>, seed: u64) -> Verdict {
    for limit in [1, 3, 2] {
        let streams = (subject.make)(&Arc::new(Watched::zstd()), limit);
        let most = (subject.most)(limit);
        for _ in 0..3 {
            let mut count = 0;
            hold(&streams, most, || count = streams.count())?;
            expect(count == most, || format!("{most} are taken, and {count} there"))?;
        }
        crowd(&streams, most, 10, seed)?;
    }
    Ok(())
}

fn lowered<S: Streams>(subject: &Subject<S>, seed: u64) -> Verdict {
    let streams = (subject.make)(&Arc::new(Watched::zstd()), 3);
    let complain = |verdict: Verdict| {
        verdict.map_err(|complaint| format!("after the limit was lowered, {complaint}"))
    };
    if streams.limit(2).is_err() {
        return expect(streams.limit(1).is_ok() && streams.count() == 1, || {
            "who has one stream must take a limit of 1".into()
        });
    }
    let (most, before) = ((subject.most)(1), (subject.most)(2));
    for taken in [false, true] {
        streams.limit(2).unwrap();
        let lower = || streams.limit(1).unwrap();
        if taken {
            hold(&streams, before, lower)?;
        } else {
            hold(&streams, before, || {})?;
            lower();
        }
        let count = streams.count();
        complain(expect(count == most, || format!("{count} streams are there, not {most}")))?;
        complain(crowd(&streams, most, 50, seed))?;
    }
    Ok(())
}

fn raised<S: Streams>(subject: &Subject<S>, seed: u64) -> Verdict {
    let streams = (subject.make)(&Arc::new(Watched::zstd()), 1);
    if streams.limit(3).is_err() {
        return Ok(());
    }
    hold(&streams, (subject.most)(3), || {})?;
    crowd(&streams, (subject.most)(3), 20, seed)?;
    if !subject.grows {
        return Ok(());
    }
    (0..10).try_for_each(|_| raised_under_waiters(subject))
}

/// Somebody has the only stream for as long as others wait.
fn raised_under_waiters<S: Streams>(subject: &Subject<S>) -> Verdict {
    let streams = (subject.make)(&Arc::new(Watched::zstd()), 1);
    let (ledger, all, asking) = (Ledger::new(3), Barrier::new(3), AtomicUsize::new(0));
    thread::scope(|scope| {
        let (streams, ledger, all, asking) = (&streams, &ledger, &all, &asking);
        let ask = move |cpu| {
            asking.fetch_add(1, Ordering::Relaxed);
            ledger.with(streams, cpu, |_| {
                all.wait();
                Ok(())
            })
        };
        let mut others = Vec::new();
        ledger.with(streams, 0, |_| {
            others.extend((1..3).map(|cpu| scope.spawn(move || ask(cpu))));
            while asking.load(Ordering::Relaxed) < 2 {
                thread::yield_now();
            }
            // They most likely wait then; if not, this passes without having shown anything.
            thread::sleep(Duration::from_millis(10));
            streams.limit(3).unwrap();
            all.wait();
            Ok(())
        })?;
        others.into_iter().try_for_each(|other| other.join().unwrap())
    })
}

fn changed<S: Streams>(subject: &Subject<S>, seed: u64) -> Verdict {
    let streams = (subject.make)(&Arc::new(Watched::zstd()), 4);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(seed);
            while !over.load(Ordering::Relaxed) {
                let _ = streams.limit(1 + rng.below(4) as usize);
                thread::yield_now();
            }
        });
        let verdict = crowd(&streams, (subject.most)(4), 4 * ROUNDS, seed);
        over.store(true, Ordering::Relaxed);
        verdict
    })?;
    let _ = streams.limit(2);
    crowd(&streams, (subject.most)(2), 20, seed)
}

/// Only the first stream ever comes to be, or every other one of those wanted.
fn without_memory<S: Streams>(subject: &Subject<S>, seed: u64) -> Verdict {
    for one_in in [0, 2, 5] {
        let codec = Arc::new(Watched::zstd());
        let streams = (subject.make)(&codec, 4);
        codec.one_in.store(one_in, Ordering::Relaxed);
        let most = if subject.grows && one_in == 0 { 1 } else { (subject.most)(4) };
        crowd(&streams, most, ROUNDS, seed ^ one_in)?;
        // What is given up must come back by other means than memory.
        let _ = streams.limit(1);
        let _ = streams.limit(3);
        crowd(&streams, most, 20, seed)?;
    }
    Ok(())
}

/// Somebody makes a second stream. Meanwhile the limit is lowered and the first one comes back, and
/// then there is no memory for the second.
fn lowered_without_memory<S: Streams>(subject: &Subject<S>, seed: u64) -> Verdict {
    if !subject.grows {
        return Ok(());
    }
    let codec = Arc::new(Watched::zstd());
    let streams = (subject.make)(&codec, 2);
    let ledger = Ledger::new(2);
    let (begun, begins) = mpsc::channel();
    let (ended, ends) = mpsc::channel::<()>();
    let action = move || {
        begun.send(()).unwrap();
        ends.recv().unwrap();
    };
    thread::scope(|scope| {
        let first = streams.get(Cpu(0));
        *codec.meanwhile.lock().unwrap() = Some(Box::new(action));
        let other = scope.spawn(|| {
            let mut rng = Rng::new(seed);
            ledger.with(&streams, 1, |stream| use_it(stream, &mut rng))
        });
        begins.recv().unwrap();
        streams.limit(1).unwrap();
        drop(first);
        ended.send(()).unwrap();
        other.join().unwrap()
    })?;
    crowd(&streams, 1, 20, seed)
}
