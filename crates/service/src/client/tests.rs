use std::thread;

use serde_json::json;

use super::*;
use crate::protocol::reply_line;

/// A client that looks often whether it may wait asks for a status, and `answer` has the other end.
fn ask(
    limit: Option<Duration>,
    answer: impl FnOnce(UnixStream) + Send,
) -> Result<String, ControlError> {
    let dir = testkit::TempDir::new();
    let root = Root::choose(Some(dir.path())).unwrap();
    let (stream, theirs) = UnixStream::pair().unwrap();
    let daemon = Connected { root: &root, stream, pid: None };
    let mut answers = daemon.send(&Request::Status(Status {}), limit).unwrap();
    daemon.stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| answer(theirs));
        daemon.reply(&mut answers)
    })
}

#[test]
fn a_client_waits_for_as_long_as_the_server_is_there() {
    let line = reply_line(&Ok(json!("done")));
    let (first, rest) = line.split_at(7);
    let in_pieces = |mut theirs: UnixStream| {
        let mut asked = String::new();
        BufReader::new(&theirs).read_line(&mut asked).unwrap();
        assert_eq!(asked, request_line(&Request::Status(Status {})));
        for piece in [first, rest] {
            thread::sleep(Duration::from_millis(50));
            theirs.write_all(piece.as_bytes()).unwrap();
        }
    };
    assert_eq!(ask(None, in_pieces).unwrap(), "done");
    for said in ["", first] {
        let ends = |mut theirs: UnixStream| theirs.write_all(said.as_bytes()).unwrap();
        let error = ask(None, ends).unwrap_err();
        assert_eq!(error.errno, Errno(errno::ECONNRESET), "{error}");
        assert!(error.message.starts_with("no answer from /"), "{error}");
    }
}

#[test]
fn a_client_with_a_limit_waits_no_longer() {
    let (mut kept, limit) = (None, Some(Duration::from_millis(20)));
    let error = ask(limit, |theirs| kept = Some(theirs)).unwrap_err();
    assert_eq!(error.errno, Errno(errno::ETIMEDOUT), "{error}");
    assert!(error.message.ends_with("control.sock within 0 seconds"), "{error}");
}

#[test]
fn an_answer_that_is_too_long_is_called_that() {
    let long = |mut theirs: UnixStream| {
        let part = vec![b'x'; ROOM];
        (0..ANSWER_MAX / ROOM as u64).for_each(|_| theirs.write_all(&part).unwrap());
    };
    let error = ask(None, long).unwrap_err();
    assert_eq!(error.errno, Errno::E2BIG, "{error}");
}
