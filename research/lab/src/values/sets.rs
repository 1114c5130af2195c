//! Values: dumps cut in pieces, and records as programs have them in redis.

use std::borrow::Cow;
use std::fmt::Write;

use anyhow::Result;

use crate::args::ValuesArgs;
use crate::page::{Corpus, SEED};

/// The key of a value.
pub type Key = Box<[u8]>;
/// Values with their keys.
pub type Values<'a> = Vec<(Key, Cow<'a, [u8]>)>;

/// Values by their keys.
pub struct Set<'a> {
    pub name: String,
    pub values: Values<'a>,
    /// The order in which they are put again, and read.
    pub order: Vec<usize>,
    /// Bytes of a unit of a store.
    pub unit: usize,
    /// Whether a store has some of them together.
    pub is_small: bool,
    /// Bytes of all values.
    pub data: usize,
}

impl<'a> Set<'a> {
    fn new(name: String, unit: usize, values: Values<'a>) -> Set<'a> {
        let mut order: Vec<usize> = (0..values.len()).collect();
        fastrand::Rng::with_seed(SEED).shuffle(&mut order);
        let data = values.iter().map(|(_, value)| value.len()).sum();
        let is_small = values.iter().any(|(_, value)| value.len() <= 1 << 10);
        Set { name, values, order, unit, is_small, data }
    }
}

/// The dumps that the command line names.
pub fn dumps(args: &ValuesArgs) -> Result<Vec<Corpus>> {
    let mut dumps = Vec::new();
    for path in &args.corpus {
        let mut dump = Corpus::read(path)?;
        dump.pages = dump.pages.min(args.pages as usize);
        dumps.push(dump);
    }
    Ok(dumps)
}

/// Each dump in values of each of these sizes.
pub fn cut<'a>(dumps: &'a [Corpus], kib: &[u32]) -> Vec<Set<'a>> {
    let set = |dump: &'a Corpus, kib: u32| {
        let size = (kib as usize) << 10;
        let key = |n: usize| format!("block:{n:08}").into_bytes().into();
        let values = dump.used().chunks_exact(size).enumerate();
        let values = values.map(|(n, value)| (key(n), value.into())).collect();
        Set::new(format!("{} {kib} KiB", dump.name), size, values)
    };
    let sets = dumps.iter().flat_map(|dump| kib.iter().map(move |kib| set(dump, *kib)));
    sets.filter(|set| !set.values.is_empty()).collect()
}

/// A set of `count` records, unless that is 0.
pub fn records(count: usize) -> Option<Set<'static>> {
    let key = |n: usize| format!("user:{n}:profile").into_bytes().into();
    let values = (0..count).map(|n| (key(n), record(n).into())).collect();
    (count > 0).then(|| Set::new("records".to_owned(), 16 << 10, values))
}

/// A record in JSON of 150 bytes to 2 KiB: half of them have less than 300.
fn record(number: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let names = ["Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Tony", "Leslie"];
    let items = ["keyboard", "lamp", "book", "desk", "notebook", "pencil", "chair", "cup"];
    let (id, name) = (random.u64(..), names[random.usize(..8)]);
    let mut text = format!(
        "{{\"id\":{number},\"name\":\"{name}\",\"email\":\"{name}.{}@example.org\",\"token\":\
         \"{id:016x}\",\"created\":\"{}\",\"orders\":[",
        id >> 50,
        date(&mut random)
    );
    for n in 0..[0, 0, 0, 1, 1, 2, 3, 5, 9, 20][random.usize(..10)] {
        let (comma, item) = (if n > 0 { "," } else { "" }, items[random.usize(..8)]);
        let (price, at) = (random.u32(100..100_000), date(&mut random));
        // Writing to a string never fails.
        let _ = write!(text, "{comma}{{\"item\":\"{item}\",\"price\":{price},\"at\":\"{at}\"}}");
    }
    (text + "]}").into_bytes()
}

fn date(random: &mut fastrand::Rng) -> String {
    let [month, day, hour, minute] = [12, 28, 24, 60].map(|below| random.u32(..below));
    format!("2025-{:02}-{:02}T{hour:02}:{minute:02}:00Z", month + 1, day + 1)
}
