//! The suite of roads, by the driver.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use sim::roads::{self, FileClient, Lack, Subject};

/// Nobody but who opens the device comes to it, and the kernel cuts off what passes its end.
const LACKS: [Lack; 2] = [Lack::EndsOfFrees, Lack::Strangers];

pub fn pass() -> Result<(), Box<dyn Error>> {
    roads::pass("ublk", &LACKS, |subject| {
        let (server, node) = Server::start(subject);
        let server = Mutex::new(server);
        let lose = move || server.lock().unwrap_or_else(PoisonError::into_inner).kill();
        Arc::new(FileClient::new(Path::new(&node), Arc::new(lose)))
    });
    println!("ok");
    Ok(())
}

/// A process that serves one device: a test that waits for it can always be ended.
struct Server(Child);

impl Server {
    fn start(subject: Subject) -> (Server, String) {
        let own = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(own);
        command.args([subject.bytes.to_string(), "2".into(), "1".into()]);
        command.arg(format!("{:?}", subject.kind));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the server");
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("its output"))
            .read_line(&mut said)
            .expect("its first line");
        let node = said.trim().strip_prefix("ok ").unwrap_or_else(|| panic!("{subject:?}: {said}"));
        (Server(child), node.to_owned())
    }

    fn kill(&mut self) {
        self.0.kill().expect("the server is killed");
        self.0.wait().expect("its end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends with its input, and takes the device down, if it was not killed.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
        if let Err(error) = crate::clear() {
            eprintln!("a device is left: {error}");
        }
    }
}
