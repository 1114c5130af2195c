//! The example of a swap device of one's own: it is swapped to, and nothing is left of it.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use host::swaps;
use testkit::{Need, TempDir, met};

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_example_serves_swap_space() {
    let name = "the_example_serves_swap_space";
    if !met(name, &[Need::Root, Need::Fuse, Need::Loop, Need::Swap]) {
        return;
    }
    let own = env::current_exe().unwrap();
    let built = own.parent().and_then(Path::parent).unwrap().join("examples/swap_device");
    let root = TempDir::new();
    let mut command = Command::new(built);
    command.arg(root.join("root")).arg("8M").env_remove("NOTIFY_SOCKET");
    let mut example = Ends(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(example.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let device = line.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(swaps::find(Path::new(&device)).is_some(), "{line}");
    // SAFETY: two numbers; the process is ours and not yet waited for.
    unsafe { libc::kill(example.0.id() as i32, libc::SIGINT) };
    assert!(example.0.wait().unwrap().success());
    assert!(swaps::find(Path::new(&device)).is_none());
}
