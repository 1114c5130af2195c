//! Tests of what a checker does: what is wrong must end the process.

use std::env;
use std::process::Command;

/// Names the test whose action a child process is to do.
const CHILD: &str = "RAMPACK_CHILD";

/// Does `action` in a process of its own, which must die and say `words`. `test` is the test that
/// calls this, with its modules: the process is this test program again, running that test alone.
///
/// # Panics
///
/// When it does not die, or dies of something else; with what it said.
pub fn dies(test: &str, words: &str, action: impl FnOnce()) {
    if env::var(CHILD).is_ok_and(|child| child == test) {
        return action();
    }
    let program = env::current_exe().unwrap_or_else(|error| panic!("this program: {error}"));
    let mut child = Command::new(program);
    child.args([test, "--exact", "--nocapture"]).env(CHILD, test);
    let output = child.output().unwrap_or_else(|error| panic!("{child:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{test}: it lives on, and says: {said}");
    assert!(said.contains(words), "{test}: it died of something else than {words}: {said}");
}
