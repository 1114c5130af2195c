//! Tests of checks: a fault must end the process.

use std::env;
use std::process::Command;

/// The variable that names the test whose action a child process runs.
const CHILD: &str = "RAMPACK_CHILD";

/// Runs `action` in a child process, which must die and print `words`. `test` is the name of the
/// calling test, with its modules. The child process is this test program again; it runs only that
/// test.
///
/// # Panics
///
/// When the child does not die, or does not print `words`. The message has the child's output.
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
