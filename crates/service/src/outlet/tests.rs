use std::io::{BufRead, BufReader, Read, pipe};
use std::os::unix::net::UnixStream;

use super::*;

/// As many lines as no pipe or socket takes.
const MANY: usize = 100_000;

fn fill(outlet: &Outlet) {
    for number in 0..MANY {
        outlet.write_at_once(format!("line {number:>10} of a text that nobody reads\n").as_bytes());
    }
}

/// Reads all lines and checks that they tell how many are missing.
fn check(mut stream: impl Read) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.last(), Some(&"the end"));
    let note = lines[lines.len() - 2];
    let lost = note.strip_prefix("rampack: ").and_then(|rest| rest.split(' ').next());
    let lost: usize = lost.unwrap_or_else(|| panic!("{note}")).parse().unwrap();
    let whole = lines.iter().filter(|line| line.ends_with(" reads")).count();
    assert!(lost > 0 && lost < MANY, "{note}");
    assert_eq!(whole + lost, MANY, "{note}");
}

#[test]
fn a_full_pipe_holds_up_nobody_and_the_loss_is_told() {
    let (reader, writer) = pipe().unwrap();
    let outlet = Outlet::new(writer);
    fill(&outlet);
    let reading = thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let mut all = line.into_bytes();
        reader.read_to_end(&mut all).unwrap();
        all
    });
    // The reader may need a moment; each of these is tried without a wait.
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let mut state = outlet.state.lock();
        state.is_full = false;
        drop(state);
        outlet.write(b"the end\n");
        if !outlet.state.lock().is_full {
            break;
        }
        assert!(Instant::now() < end, "the pipe stayed full");
        outlet.state.lock().dropped -= 1;
    }
    drop(outlet);
    check(&*reading.join().unwrap());
}

#[test]
fn a_full_socket_holds_up_nobody() {
    let (reader, writer) = UnixStream::pair().unwrap();
    let outlet = Outlet::new(writer);
    fill(&outlet);
    assert!(outlet.state.lock().dropped > 0);
    drop(outlet);
    let mut text = Vec::new();
    (&reader).read_to_end(&mut text).unwrap();
    assert!(text.starts_with(b"line "));
}

#[test]
fn a_stream_without_a_reader_is_no_error() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let outlet = Outlet::new(writer);
    outlet.write(b"nobody\n");
    assert_eq!(outlet.state.lock().dropped, 0);
}

#[test]
fn a_file_gets_everything_at_its_end() {
    let dir = testkit::TempDir::new();
    let path = dir.path().join("log");
    fs::write(&path, "before\n").unwrap();
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    let outlet = Outlet::new(file);
    outlet.write(b"one\n");
    outlet.write(&[b'x'; 3 * PIECE]);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("before\none\n{}", "x".repeat(3 * PIECE)));
}
