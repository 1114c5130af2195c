//! What any block device of pages must do: random operations on it and on a naive model, compared
//! after each. The backing device below fails now and then.
// Each test binary uses a part of it.
#![allow(dead_code)]

use block::{BlockDevice, IoError, Job, Operation, Packed, PackedPages};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{ALGORITHMS, Params};

const P: u64 = PAGE_SIZE as u64;
const CPU: Cpu = Cpu(0);
/// Pages of one operation, at most.
const MOST: u64 = 80;

/// The contents of version `n` of a page: text, noise, patterns, and what shrinks a little.
pub fn contents(n: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    let mut rng = Rng::new(n);
    match n % 5 {
        0 => {}
        1 => page.as_chunks_mut::<8>().0.fill([n as u8; 8]),
        2 => page.as_chunks_mut::<8>().0.fill(n.to_le_bytes()),
        3 => rng.fill(&mut page),
        _ => {
            let noise = rng.range(1..PAGE_SIZE as u64) as usize;
            rng.fill(&mut page[..noise]);
        }
    }
    page
}

/// Does `operations` random operations on `device`, whose pages are all zeroes.
///
/// # Errors
/// What was wrong.
pub fn check(device: &dyn BlockDevice, rng: &mut Rng, operations: u64) -> Result<(), String> {
    let pages = device.geometry().bytes / P;
    Model { versions: vec![0; pages as usize], version: 0 }.check(device, rng, operations)
}

/// What a device should have.
pub struct Model {
    /// The version of each page; zero is version 0.
    pub versions: Vec<u64>,
    /// The newest version.
    pub version: u64,
}

impl Model {
    /// Does `operations` random operations on `device`. A failed write may have changed any of its
    /// pages, each as a whole.
    ///
    /// # Errors
    /// What was wrong.
    pub fn check(
        &mut self,
        device: &dyn BlockDevice,
        rng: &mut Rng,
        operations: u64,
    ) -> Result<(), String> {
        let Model { versions, version } = self;
        let pages = versions.len() as u64;
        for _ in 0..operations {
            let first = rng.below(pages);
            let count = rng.range(1..MOST.min(pages - first) + 1);
            let range = first as usize..(first + count) as usize;
            match rng.below(8) {
                0..4 => {
                    let new: Vec<u64> =
                        range.clone().map(|_| (*version += 1, *version).1).collect();
                    let from: Vec<Page> = new.iter().map(|version| contents(*version)).collect();
                    let results = write(device, first, &from, rng);
                    let of = |n: usize| results.iter().find(|(pages, _)| pages.contains(&n));
                    for (n, index) in range.enumerate() {
                        let written = of(n).map_or(Ok(()), |(_, result)| *result);
                        if written.is_ok() {
                            versions[index] = new[n];
                            continue;
                        }
                        // The old page or the new one.
                        let page = read(device, index as u64)?;
                        if page == contents(new[n]) {
                            versions[index] = new[n];
                        }
                    }
                }
                4 => {
                    let discard = Operation::Discard { offset: first * P, length: count * P };
                    device.submit(CPU, discard).map_err(|error| format!("discard: {error}"))?;
                    versions[range].fill(0);
                }
                _ => {
                    let mut into = vec![0; (count * P) as usize];
                    let read = Operation::Read { offset: first * P, into: &mut into };
                    match device.submit(CPU, read) {
                        Ok(()) => {
                            let pages = into.as_chunks::<PAGE_SIZE>().0.iter().zip(first..);
                            for (page, index) in pages {
                                compare(page, index, versions[index as usize])?;
                            }
                        }
                        Err(IoError::Failed) => {}
                        Err(error) => return Err(format!("a read of page {first}: {error}")),
                    }
                }
            }
        }
        (0..pages)
            .try_for_each(|index| compare(&read(device, index)?, index, versions[index as usize]))
    }
}

/// Writes pages by one or more jobs. Returns the pages of each and its result.
fn write(
    device: &dyn BlockDevice,
    first: u64,
    from: &[Page],
    rng: &mut Rng,
) -> Vec<(std::ops::Range<usize>, Result<(), IoError>)> {
    if let Some(device) = device.packed().filter(|_| rng.one_in(2)) {
        let codec = ALGORITHMS[rng.below(ALGORITHMS.len() as u64) as usize];
        let objects: Vec<_> = from.iter().map(|page| packed(codec, page)).collect();
        return write_packed(device, first, from, (codec, &objects));
    }
    let mut jobs = Vec::new();
    let mut at = 0;
    while at < from.len() {
        let end = (at + rng.range(1..24) as usize).min(from.len());
        let offset = (first + at as u64) * P;
        let write = Operation::Write { offset, from: from[at..end].as_flattened() };
        jobs.push((at..end, Job::new(write)));
        at = end;
    }
    let (pages, mut jobs): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
    device.submit_all(CPU, &mut jobs);
    pages.into_iter().zip(jobs).map(|(pages, job)| (pages, job.result)).collect()
}

/// The page as an object of this codec, if it shrinks.
pub fn packed(codec: &str, page: &Page) -> Option<Vec<u8>> {
    let codec = zcomp::open(codec, &Params::default()).expect("a codec");
    let mut into = vec![0; 2 * PAGE_SIZE];
    let length = codec.context().expect("memory").compress(page, &mut into)?;
    into.truncate(length);
    Some(into).filter(|_| length < PAGE_SIZE)
}

/// Writes objects of a codec, and pages that have none. Returns the number of each and its result.
fn write_packed(
    device: &dyn PackedPages,
    first: u64,
    from: &[Page],
    (codec, objects): (&'static str, &[Option<Vec<u8>>]),
) -> Vec<(std::ops::Range<usize>, Result<(), IoError>)> {
    let taken = device.takes(codec);
    let pages = from.iter().zip(objects).zip(first..).map(|((page, object), index)| {
        let whole = Packed::whole(index, page);
        match object.as_ref().filter(|_| taken) {
            Some(object) => Packed { codec: Some(codec), bytes: object, ..whole },
            None => whole,
        }
    });
    let mut pages: Vec<_> = pages.collect();
    device.write_packed(CPU, &mut pages);
    pages.iter().enumerate().map(|(n, page)| (n..n + 1, page.result)).collect()
}

fn read(device: &dyn BlockDevice, index: u64) -> Result<Page, String> {
    let mut page = [0; PAGE_SIZE];
    for _ in 0..100 {
        match device.submit(CPU, Operation::Read { offset: index * P, into: &mut page }) {
            Ok(()) => return Ok(page),
            Err(IoError::Failed) => {}
            Err(error) => return Err(format!("page {index}: {error}")),
        }
    }
    Err(format!("page {index}: a hundred reads failed"))
}

fn compare(page: &Page, index: u64, version: u64) -> Result<(), String> {
    match *page == contents(version) {
        true => Ok(()),
        false => Err(format!("page {index} is not version {version}")),
    }
}
