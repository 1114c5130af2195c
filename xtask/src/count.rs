//! Reads the output of `cargo test`.

use crate::checkers::Kind;

/// The results of the test programs of one or more `cargo test` runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub passed: u64,
    pub failed: u64,
    pub ignored: u64,
    /// Names of the tests that failed.
    pub failures: Vec<String>,
}

impl Count {
    /// Adds the results of other runs.
    pub fn add(&mut self, mut other: Count) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.failures.append(&mut other.failures);
    }

    /// Reads one line of standard output.
    pub fn line(&mut self, line: &str) {
        // `test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; …`
        if let Some(result) = line.strip_prefix("test result: ") {
            let counts = result.split_once(". ").map_or(result, |(_, counts)| counts);
            for part in counts.split(';') {
                let mut words = part.split_whitespace();
                let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
                    continue;
                };
                match words.next() {
                    Some("passed") => self.passed += number,
                    Some("failed") => self.failed += number,
                    Some("ignored") => self.ignored += number,
                    _ => {}
                }
            }
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failures.push(name.to_string());
        }
    }
}

/// The time of each test program, from the output of `cargo test`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Suites {
    /// The library whose unit tests ran last. The tests of its package come after them.
    library: String,
    current: String,
    /// Names and seconds, in the order in which the programs ended.
    pub ended: Vec<(String, f64)>,
}

impl Suites {
    /// Reads one line of output.
    pub fn line(&mut self, line: &str) {
        // `     Running unittests src/lib.rs (target/debug/deps/zram-0123456789abcdef)`
        // `     Running tests/model.rs (target/debug/deps/model-0123456789abcdef)`
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Running", "unittests", source, file] => {
                let file = file.rsplit('/').next().unwrap_or(file);
                let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
                if source == "src/lib.rs" {
                    self.library = name.to_owned();
                    self.current = format!("{name}: unit tests");
                } else {
                    self.current = format!("{}: {source}", self.library);
                }
            }
            ["Running", source, file] if file.starts_with('(') => {
                // A checker builds in a directory of its name, and most run no library's tests.
                let checker = file.split('/').find_map(Kind::of).map(Kind::name);
                self.current = format!("{}: {source}", checker.unwrap_or(&self.library));
            }
            ["Doc-tests", name] => self.current = format!("{name}: documentation"),
            ["test", "result:", ..] => {
                let time = line.rsplit_once("finished in ").and_then(|(_, time)| {
                    time.strip_suffix('s').and_then(|seconds| seconds.parse().ok())
                });
                if let Some(seconds) = time {
                    self.ended.push((self.current.clone(), seconds));
                }
            }
            _ => {}
        }
    }

    /// The slowest programs, the slowest first.
    pub fn slowest(mut self, most: usize) -> Vec<(String, f64)> {
        self.ended.sort_by(|one, other| other.1.total_cmp(&one.1));
        self.ended.truncate(most);
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Suites};

    #[test]
    fn suites_have_names_and_times() {
        let mut suites = Suites::default();
        for line in [
            "   Compiling rampack-zram v0.1.0 (/x)",
            "     Running unittests src/lib.rs (target/debug/deps/zram-0123456789abcdef)",
            "test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; finished in 0.41s",
            "     Running tests/model.rs (/t/debug/deps/model-0123456789abcdef)",
            "Running late",
            "test result: FAILED. 9 passed; 1 failed; 0 ignored; 0 measured; finished in 12.00s",
            "     Running tests/killed.rs (target/killed/debug/deps/killed-0123456789abcdef)",
            "test result: ok. 2 passed; 0 failed; finished in 3.00s",
            "     Running unittests examples/embed.rs (target/debug/examples/embed-0123)",
            "test result: ok. 1 passed; 0 failed",
            "   Doc-tests zram",
            "test result: ok. 0 passed; 0 failed; finished in 2.50s",
        ] {
            suites.line(line);
        }
        let expected = [
            ("zram: tests/model.rs", 12.0),
            ("killed: tests/killed.rs", 3.0),
            ("zram: documentation", 2.5),
        ];
        assert_eq!(suites.slowest(3), expected.map(|(name, time)| (name.to_owned(), time)));
    }

    #[test]
    fn results_of_several_programs_add_up() {
        let mut count = Count::default();
        for line in [
            "running 3 tests",
            "test a::b ... ok",
            "test a::c ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; \
             finished in 0.41s",
            "test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "test result: unreadable",
        ] {
            count.line(line);
        }
        let failures = vec!["a::c".to_string()];
        assert_eq!(count, Count { passed: 41, failed: 1, ignored: 1, failures });
    }
}
