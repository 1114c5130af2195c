//! Where the kernel cannot hand requests over by io_uring, all is served without it.

mod common;

use std::process::Command;

use common::{example, program, start_command};
use testkit::{Need, TempDir};

const PARAMETERS: &str = "/sys/module/fuse/parameters";

/// Needs an argument for a program of which the rest follows. It finds no parameters but what
/// `made` makes in their place.
fn without_parameters(made: &str) -> Command {
    let mut command = Command::new("unshare");
    let hide = format!("mount -t tmpfs none {PARAMETERS} && {made} && exec \"$0\" \"$@\"");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &hide]);
    command
}

#[test]
fn a_kernel_without_it_is_served_as_before() {
    let unshare = Need::program("unshare", "util-linux");
    let is_there = std::path::Path::new(PARAMETERS).exists();
    let parameters = Need::Other { what: "parameters of the module fuse", is_there };
    let name = "a_kernel_without_it_is_served_as_before";
    if !testkit::met(name, &[Need::Root, Need::Fuse, unshare, parameters]) {
        return;
    }
    // `start_command` asks whether it is served by io_uring, and expects no.
    let root = TempDir::new();
    std::fs::create_dir_all(root.join("swap")).unwrap();
    let mut command = without_parameters("true");
    command.arg(example("serve_swap")).arg(root.join("swap/swap0"));
    command.args(["1048576", "2", "plain", "ring"]);
    let mut served = start_command(root, command);
    assert_eq!(served.ask("threads").unwrap().split(' ').count(), 2);
    served.ask("unmount").unwrap();
    let root = TempDir::new();
    let mut command = without_parameters("true");
    command.arg(program()).arg(root.join("files")).arg("--ring");
    let mut served = start_command(root, command);
    served.add("zram0", 1 << 20);
    served.ask("unmount").unwrap();
}

/// Any user can lock what any user can open.
#[test]
fn a_lock_that_another_process_keeps_holds_up_no_start() {
    let unshare = Need::program("unshare", "util-linux");
    let flock = Need::program("flock", "util-linux");
    let is_there = std::path::Path::new(PARAMETERS).exists();
    let parameters = Need::Other { what: "parameters of the module fuse", is_there };
    let name = "a_lock_that_another_process_keeps_holds_up_no_start";
    if !testkit::met(name, &[Need::Root, Need::Fuse, unshare, flock, parameters]) {
        return;
    }
    let parameter = format!("{PARAMETERS}/enable_uring");
    let root = TempDir::new();
    // The descriptor with the lock stays open.
    let keep = format!("echo N >{parameter} && exec 9<{parameter} && flock 9");
    let mut command = without_parameters(&keep);
    command.arg(program()).arg(root.join("files")).arg("--ring");
    let mut served = start_command(root, command);
    served.add("zram0", 1 << 20);
    served.ask("unmount").unwrap();
}
