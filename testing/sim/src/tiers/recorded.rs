//! Traces that were recorded of programs, and the parser of their files.
//!
//! A file is text: `rampack-trace 1`, lines of a name and a value, an empty line, and rows. A row
//! is a second, `r` or `w`, and the pages that were read or written then, in words: `S` skips S
//! pages and uses the next one, `SxN` skips S pages and uses the next N.

use super::trace::{Trace, Use};

/// The traces of `testing/sim/traces`, by name.
pub const RECORDED: [(&str, &str); 4] = [
    ("python", include_str!("../../traces/python.trace")),
    ("java", include_str!("../../traces/java.trace")),
    ("node", include_str!("../../traces/node.trace")),
    ("redis", include_str!("../../traces/redis.trace")),
];

/// The limits of a file, so that a bad one takes no more memory and time than a good one.
const MOST_BYTES: usize = 1 << 20;
const MOST_PAGES: u32 = 1 << 16;
const MOST_SECONDS: u32 = 86_400;
const MOST_USES: u32 = 1 << 22;

/// Parses the text of a file.
///
/// # Errors
/// What is wrong with it, and where.
pub fn parse(text: &str) -> Result<Trace, String> {
    if text.len() > MOST_BYTES {
        return Err(format!("{} bytes, {MOST_BYTES} at most", text.len()));
    }
    let mut lines = (1..).zip(text.lines());
    let title = lines.next().map(|(_, line)| line);
    if title != Some("rampack-trace 1") {
        return Err("line 1: not `rampack-trace 1`".to_owned());
    }
    let [mut pages, mut seconds, mut uses] = [None; 3];
    for (number, line) in lines.by_ref() {
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(' ') else {
            return Err(format!("line {number}: no name and value: {line:?}"));
        };
        let (figure, most) = match name {
            "pages" => (&mut pages, MOST_PAGES),
            "seconds" => (&mut seconds, MOST_SECONDS),
            "uses" => (&mut uses, MOST_USES),
            "program" | "command" | "limit" | "grown" | "commit" | "date" | "of" => continue,
            _ => return Err(format!("line {number}: {name:?} is not known")),
        };
        let value = value.parse().ok().filter(|value| (1..=most).contains(value));
        *figure = Some(value.ok_or_else(|| format!("line {number}: {name} is not 1 to {most}"))?);
    }
    let there = |figure: Option<u32>, name| figure.ok_or_else(|| format!("{name} is missing"));
    let mut reader = Reader {
        pages: there(pages, "pages")?,
        seconds: there(seconds, "seconds")?,
        most: there(uses, "uses")?,
        uses: Vec::new(),
        exists: Vec::new(),
    };
    reader.exists.resize(reader.pages as usize, false);
    let mut last = None;
    for (number, line) in lines {
        let row = reader.row(line, last).map_err(|why| format!("line {number}: {why}"))?;
        last = Some(row);
    }
    let Reader { pages, seconds, most, uses, .. } = reader;
    if uses.len() != most as usize {
        return Err(format!("{} uses instead of {most}: is the end missing?", uses.len()));
    }
    Ok(Trace::of(pages, seconds, uses))
}

/// What was read so far.
struct Reader {
    pages: u32,
    seconds: u32,
    most: u32,
    uses: Vec<Use>,
    exists: Vec<bool>,
}

impl Reader {
    /// Reads a row. Returns its second and whether it writes, which must be after those of the row
    /// before.
    fn row(&mut self, line: &str, last: Option<(u32, bool)>) -> Result<(u32, bool), String> {
        let mut words = line.split(' ');
        let second = words.next().and_then(|word| word.parse().ok());
        let second = second.filter(|second| *second < self.seconds);
        let second = second.ok_or_else(|| format!("no second before {}", self.seconds))?;
        let writes = match words.next() {
            Some("r") => false,
            Some("w") => true,
            _ => return Err("neither r nor w".to_owned()),
        };
        if last.is_some_and(|last| last >= (second, writes)) {
            return Err("the row before is not earlier".to_owned());
        }
        let mut page = 0u32;
        for word in words {
            let (skip, run) = word.split_once('x').unwrap_or((word, "1"));
            let (skip, run) = (skip.parse().ok(), run.parse().ok().filter(|run| *run > 0));
            let begin = skip.and_then(|skip: u32| page.checked_add(skip));
            let range = begin.and_then(|begin| Some(begin..begin.checked_add(run?)?));
            let range = range.ok_or_else(|| format!("no pages: {word:?}"))?;
            if range.end > self.pages {
                return Err(format!("page {} of {}", range.end - 1, self.pages));
            }
            if self.uses.len() + range.len() > self.most as usize {
                return Err(format!("more than {} uses", self.most));
            }
            page = range.end;
            for page in range {
                let exists = &mut self.exists[page as usize];
                if !*exists && !writes {
                    return Err(format!("page {page} is read before it is written"));
                }
                *exists = true;
                self.uses.push(Use { second, page, writes });
            }
        }
        Ok((second, writes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "rampack-trace 1\nprogram a b\npages 9\nseconds 5\n";

    #[test]
    fn a_file() {
        let trace = parse(&format!("{HEAD}uses 6\n\n0 w 1 2x2\n0 r\n")).expect_err("an order");
        assert!(trace.contains("line 8: the row before"), "{trace}");
        let trace = parse(&format!("{HEAD}uses 6\n\n0 w 1 2x2\n2 r 1 3\n2 w 8\n")).expect("good");
        assert_eq!((trace.pages(), trace.seconds()), (9, 5));
        let uses: Vec<_> = trace.uses().iter().map(|it| (it.second, it.page, it.writes)).collect();
        let all =
            [(0, 1, true), (0, 4, true), (0, 5, true), (2, 1, false), (2, 5, false), (2, 8, true)];
        assert_eq!(uses, all);
    }

    #[test]
    fn bad_files_are_refused() {
        for (rows, word) in [
            ("uses 1\n\n0 r 0\n", "before it is written"),
            ("uses 1\n\n5 w 0\n", "no second before 5"),
            ("uses 1\n\n-1 w 0\n", "no second"),
            ("uses 1\n\n0 x 0\n", "neither r nor w"),
            ("uses 1\n\n0\n", "neither r nor w"),
            ("uses 1\n\n0 w 9\n", "page 9 of 9"),
            ("uses 9\n\n0 w 8x2\n", "page 9 of 9"),
            ("uses 9\n\n0 w 0x0\n", "no pages"),
            ("uses 9\n\n0 w 1 \n", "no pages"),
            ("uses 9\n\n0 w 1x4294967295\n", "no pages"),
            ("uses 9\n\n0 w 4294967295 4294967295\n", "no pages"),
            ("uses 9\n\n0 w 0x9\n1 w 0\n", "more than 9 uses"),
            ("uses 2\n\n0 w 0\n", "is the end missing"),
            ("uses 1\n", "is the end missing"),
            ("uses 0\n\n", "uses is not 1"),
            ("uses 4294967296\n\n", "uses is not 1"),
            ("pages 65537\nuses 1\n\n", "pages is not 1 to 65536"),
            ("seconds 1000000\nuses 1\n\n", "seconds is not"),
            ("", "uses is missing"),
            ("what 1\n", "not known"),
            ("what\n", "no name and value"),
        ] {
            let said = parse(&format!("{HEAD}{rows}")).expect_err(rows);
            assert!(said.contains(word), "{rows:?}: {word:?} is missing in {said}");
        }
        assert!(parse("").is_err() && parse("rampack-trace 2\n\n").is_err());
        assert!(parse(&" ".repeat(MOST_BYTES + 1)).is_err_and(|why| why.contains("at most")));
    }

    /// Damage is an error or another trace, never a panic.
    #[test]
    fn damaged_files() {
        let good = RECORDED[0].1;
        let mut random = testkit::Rng::new(testkit::seed("damaged_files"));
        for _ in 0..200 {
            let mut bytes = good.as_bytes()[..random.below(good.len() as u64) as usize].to_vec();
            for _ in 0..=random.below(4) {
                if !bytes.is_empty() {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = *random.pick(b"0123456789xrw \n");
                }
            }
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
