//! The file of a trace: a few lines of text that say how it was made, an empty line, and a row for
//! the reads and one for the writes of each second.
//!
//! A row is the second, `r` or `w`, and words: `S` skips S pages and uses the next one, `SxN` skips
//! S pages and uses the next N. So runs of pages are short, and nothing is compressed. The model
//! that reads it is `sim::tiers`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::recorder::{Recorded, Use};
use crate::figures;

/// The most bytes of a file: what the model accepts.
const MOST_BYTES: usize = 1 << 20;

/// How a trace was made.
pub struct Header {
    /// The name of the program.
    pub program: String,
    /// Its command line.
    pub command: String,
    /// The memory that it might use, in bytes.
    pub limit: u64,
    /// The most memory that it had, with swap.
    pub grown: u64,
}

/// Some of the pages of a recording, with new numbers in the old order.
#[derive(PartialEq, Eq, Debug)]
pub struct Sample {
    /// Their number.
    pub pages: usize,
    /// The number of pages that were used.
    pub of: usize,
    /// The seconds from the first use to the end.
    pub seconds: u32,
    /// Their uses: by second, reads first, by page.
    pub uses: Vec<Use>,
}

/// Takes at most `most` pages, drawn by a seed.
///
/// # Errors
/// Nothing was recorded.
pub fn sample(recorded: Recorded, most: usize, seed: u64) -> Result<Sample> {
    let Recorded { uses, seconds } = recorded;
    let mut pages: Vec<u32> = uses.iter().map(|used| used.page).collect();
    pages.sort_unstable();
    pages.dedup();
    let of = pages.len();
    fastrand::Rng::with_seed(seed).shuffle(&mut pages);
    pages.truncate(most);
    pages.sort_unstable();
    let numbers: BTreeMap<u32, u32> = pages.iter().copied().zip(0..).collect();
    let number = |used: &Use| Some(Use { page: *numbers.get(&used.page)?, ..*used });
    let mut uses: Vec<Use> = uses.iter().filter_map(number).collect();
    uses.sort_unstable();
    let Some(first) = uses.first().map(|used| used.second) else { bail!("nothing was recorded") };
    uses.iter_mut().for_each(|used| used.second -= first);
    Ok(Sample { pages: pages.len(), of, seconds: seconds - first, uses })
}

/// The text of a file.
///
/// # Errors
/// It would be too large.
pub fn text(header: &Header, sample: &Sample) -> Result<String> {
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text = format!(
        "rampack-trace 1\nprogram {}\ncommand {}\nlimit {}\ngrown {}\ncommit {}\ndate {}\n\
         pages {}\nof {}\nseconds {}\nuses {}\n\n",
        line(&header.program),
        line(&header.command),
        header.limit,
        header.grown,
        figures::from_git().unwrap_or_else(|| "-".to_owned()),
        crate::corpus::now(),
        sample.pages,
        sample.of,
        sample.seconds,
        sample.uses.len()
    );
    for row in sample.uses.chunk_by(|a, b| (a.second, a.writes) == (b.second, b.writes)) {
        text += &format!("{} {}", row[0].second, if row[0].writes { 'w' } else { 'r' });
        let mut next = 0;
        for run in row.chunk_by(|a, b| a.page + 1 == b.page) {
            text += &match run.len() {
                1 => format!(" {}", run[0].page - next),
                many => format!(" {}x{many}", run[0].page - next),
            };
            next = run[run.len() - 1].page + 1;
        }
        text.push('\n');
    }
    if text.len() > MOST_BYTES {
        bail!("the trace has {} bytes, {MOST_BYTES} at most; take fewer --pages", text.len());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_runs() {
        let used = |second, writes, page| Use { second, writes, page };
        let uses = vec![
            used(3, true, 70),
            used(3, true, 10),
            used(3, true, 11),
            used(9, true, 12),
            used(9, false, 70),
            used(9, false, 10),
        ];
        let recorded = Recorded { uses, seconds: 20 };
        let all = sample(recorded.clone(), 100, 1).expect("a sample");
        assert_eq!((all.pages, all.of, all.seconds), (4, 4, 17));
        let header =
            Header { program: "-".to_owned(), command: "a b\nc".to_owned(), limit: 1, grown: 2 };
        let text = text(&header, &all).expect("a text");
        let (head, rows) = text.split_once("\n\n").expect("an empty line");
        assert!(head.contains("\ncommand a b c\n") && head.ends_with("\nuses 6"), "{head}");
        assert_eq!(rows, "0 w 0x2 1\n6 r 0 2\n6 w 2\n");
        let one = sample(recorded, 1, 1).expect("a sample");
        assert_eq!((one.pages, one.of), (1, 4));
        assert!(one.uses.iter().all(|used| used.page == 0));
    }
}
