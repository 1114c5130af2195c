//! Reads what `cargo test` printed.

/// What the test programs of one or more `cargo test` runs said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub passed: u64,
    pub failed: u64,
    pub ignored: u64,
    /// Names of the tests that failed.
    pub failures: Vec<String>,
}

impl Count {
    /// Adds what other runs said.
    pub fn add(&mut self, mut other: Count) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.failures.append(&mut other.failures);
    }

    /// Takes in one line of standard output.
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

#[cfg(test)]
mod tests {
    use super::Count;

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
