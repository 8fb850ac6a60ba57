//! Counting tests from what their binaries print.
//!
//! In: the lines of libtest's standard output, over all binaries, run with
//! `--show-output`. Out: the [`Counts`], and for each line whether a reader
//! wants to see it (the output of tests that passed is of use only here).
//!
//! libtest knows no test that finds at run time that it cannot run. Such a
//! test prints a line `SKIPPED: reason` and returns; libtest calls it passed,
//! and this module takes it from there to the skipped ones.

use std::fmt;

/// How tests ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Ran and passed.
    pub(crate) passed: u64,
    /// Ran and failed.
    pub(crate) failed: u64,
    /// Ignored, or skipped by themselves.
    pub(crate) skipped: u64,
}

impl Counts {
    /// Tests that ran.
    pub(crate) fn ran(self) -> u64 {
        self.passed + self.failed
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// A test that skipped itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// The test, as libtest names it.
    pub(crate) test: String,
    /// What it printed behind `SKIPPED: `.
    pub(crate) reason: String,
}

/// Which part of a binary's output a line belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// The running list of tests and results.
    #[default]
    Progress,
    /// Output, or names, of tests that passed.
    Successes,
    /// Output, or names, of tests that failed.
    Failures,
}

/// Reads libtest's output line by line.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Counts,
    skipped: Vec<Skipped>,
    part: Part,
    test: String,
    skipped_in_binary: u64,
}

impl Tally {
    /// Takes one line; whether it is to be shown.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        if let Some(result) = parse_result(line) {
            // Every one that skipped itself is among the passed; one that
            // claims more often than there are tests would be a lie.
            let own = self.skipped_in_binary.min(result.passed);
            self.counts.passed += result.passed - own;
            self.counts.failed += result.failed;
            self.counts.skipped += result.skipped + own;
            self.part = Part::Progress;
            self.skipped_in_binary = 0;
            self.test.clear();
            return true;
        }
        match line {
            "successes:" => self.part = Part::Successes,
            "failures:" => self.part = Part::Failures,
            _ => {}
        }
        if let Some(test) = line.strip_prefix("---- ").and_then(|l| l.strip_suffix(" stdout ----")) {
            test.clone_into(&mut self.test);
        } else if self.part == Part::Successes
            && let Some(reason) = line.trim_start().strip_prefix("SKIPPED: ")
        {
            self.skip(reason);
        }
        self.part != Part::Successes
    }

    /// Counts a test once, however many reasons it has.
    fn skip(&mut self, reason: &str) {
        if self.skipped_in_binary > 0 && self.skipped.last().is_some_and(|last| last.test == self.test) {
            return;
        }
        self.skipped_in_binary += 1;
        self.skipped.push(Skipped { test: self.test.clone(), reason: reason.trim().to_owned() });
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The tests that skipped themselves.
    pub(crate) fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
fn parse_result(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut counts = Counts::default();
    for item in numbers.split("; ") {
        let Some((number, name)) = item.split_once(' ') else { continue };
        let field = match name {
            "passed" => &mut counts.passed,
            "failed" => &mut counts.failed,
            "ignored" => &mut counts.skipped,
            _ => continue,
        };
        *field = number.parse().ok()?;
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What libtest of Rust 1.95 prints for two binaries, the second failing.
    const OUTPUT: &str = "
running 4 tests
test pass ... ok
test root_only ... ok
test slow ... ignored
test other ... ok

successes:

---- pass stdout ----
some words
---- root_only stdout ----
SKIPPED: needs root
SKIPPED: and a network

successes:
    other
    pass
    root_only

test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s


running 2 tests
test bad ... FAILED
test root_only ... ok

successes:

---- root_only stdout ----
SKIPPED: needs root

successes:
    root_only

failures:

---- bad stdout ----
SKIPPED: not so

failures:
    bad

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn all_binaries_are_added_up_and_skipped_tests_are_not_passed_ones() {
        let mut tally = Tally::default();
        let shown: Vec<&str> = OUTPUT.lines().filter(|line| tally.line(line)).collect();
        assert_eq!(tally.counts().to_string(), "2 passed, 1 failed, 3 skipped");
        let skipped: Vec<_> = tally.skipped().iter().map(|s| (s.test.as_str(), s.reason.as_str())).collect();
        assert_eq!(skipped, [("root_only", "needs root"), ("root_only", "needs root")]);
        assert!(!shown.contains(&"some words"));
        for wanted in ["test root_only ... ok", "---- bad stdout ----", "SKIPPED: not so", "    bad"] {
            assert!(shown.contains(&wanted), "{wanted} is not shown");
        }
    }

    #[test]
    fn a_test_that_prints_a_result_of_its_own_making_cannot_make_counts_negative() {
        let mut tally = Tally::default();
        for line in ["successes:", "---- a stdout ----", "SKIPPED: x", "test result: ok. 0 passed; 0 failed"]
        {
            tally.line(line);
        }
        assert_eq!(tally.counts(), Counts::default());
    }

    proptest! {
        #[test]
        fn results_are_read_whatever_the_numbers(p in 0..u64::MAX, f: u64, i: u64) {
            let line = format!("test result: FAILED. {p} passed; {f} failed; {i} ignored; 0 measured; 1 filtered out");
            prop_assert_eq!(parse_result(&line), Some(Counts { passed: p, failed: f, skipped: i }));
        }

        #[test]
        fn any_line_is_taken(line in ".*") {
            let mut tally = Tally::default();
            tally.line(&line);
            prop_assert!(tally.skipped().is_empty());
        }
    }
}
