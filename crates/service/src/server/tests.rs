use std::io::Read;
use std::sync::mpsc;

use super::*;
use crate::protocol::{Status, parse_reply, request_line};

fn echo(request: Request) -> Result<Value, ControlError> {
    Ok(Value::String(format!("{request:?}")))
}

struct Fixture {
    dir: testkit::TempDir,
    _server: ControlServer,
}

fn serve(
    handler: impl Fn(Request) -> Result<Value, ControlError> + Send + Sync + 'static,
) -> Fixture {
    serve_by(Arc::new(move |request, _: &mut Talk<'_>| handler(request)))
}

fn serve_by(handler: Arc<Handler>) -> Fixture {
    let dir = testkit::TempDir::new();
    let listener = UnixListener::bind(dir.path().join("s")).unwrap();
    let server = ControlServer::start(listener, handler).unwrap();
    Fixture { dir, _server: server }
}

impl Fixture {
    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.dir.path().join("s")).unwrap()
    }
}

/// Sends a request and returns the line of the answer.
fn exchange(stream: &UnixStream, request: &str) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE * 4))?;
    (&*stream).write_all(request.as_bytes())?;
    let mut line = Vec::new();
    match BufReader::new(stream).read_until(b'\n', &mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line),
    }
}

fn ask(stream: &UnixStream) -> Result<String, ControlError> {
    let line = exchange(stream, &request_line(&Request::Status(Status {}))).unwrap();
    parse_reply(&line)
}

#[test]
fn requests_are_answered_in_turn_on_one_connection() {
    let fixture = serve(echo);
    let stream = fixture.connect();
    for _ in 0..3 {
        assert_eq!(ask(&stream).unwrap(), "Status(Status)");
    }
}

#[test]
fn a_bad_line_is_answered_and_the_next_one_understood() {
    let fixture = serve(echo);
    let stream = fixture.connect();
    let line = exchange(&stream, "hello\n").unwrap();
    assert_eq!(parse_reply::<Value>(&line).unwrap_err().errno, Errno::EINVAL);
    ask(&stream).unwrap();
}

#[test]
fn a_line_that_does_not_end_is_refused() {
    let fixture = serve(echo);
    let stream = fixture.connect();
    let mut copy = stream.try_clone().unwrap();
    // The server hangs up in the middle of it, so the end may not be taken.
    let writer = thread::spawn(move || {
        let _ = copy.write_all(&vec![b'x'; LINE_MAX + 8192]);
    });
    let mut line = Vec::new();
    let _ = BufReader::new(&stream).read_until(b'\n', &mut line);
    writer.join().unwrap();
    assert_eq!(parse_reply::<Value>(&line).unwrap_err().errno, Errno::E2BIG);
}

#[test]
fn silent_clients_make_room() {
    let fixture = serve(echo);
    let silent: Vec<UnixStream> = (0..CLIENTS_MAX * 2).map(|_| fixture.connect()).collect();
    ask(&fixture.connect()).unwrap();
    // The first to come was the first to go: it reads the end of its stream.
    assert_eq!((&silent[0]).read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn a_client_stopped_in_the_middle_of_a_line_holds_up_nobody() {
    let fixture = serve(echo);
    let half = fixture.connect();
    (&half).write_all(b"{\"version\":1,").unwrap();
    ask(&fixture.connect()).unwrap();
}

#[test]
fn a_slow_request_holds_up_nobody() {
    let (finish, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let fixture = serve(move |request| {
        if matches!(request, Request::Add(_)) {
            let _ = wait.lock().recv();
        }
        Ok(Value::Null)
    });
    let slow = fixture.connect();
    let add = request_line(&Request::Add(crate::protocol::Add::default()));
    (&slow).write_all(add.as_bytes()).unwrap();
    let line = exchange(&fixture.connect(), &request_line(&Request::Status(Status {}))).unwrap();
    parse_reply::<()>(&line).unwrap();
    finish.send(()).unwrap();
    let mut line = Vec::new();
    BufReader::new(&slow).read_until(b'\n', &mut line).unwrap();
    parse_reply::<()>(&line).unwrap();
}

/// Commands may wait for a device that never answers.
#[test]
fn commands_under_way_keep_nobody_from_status_and_stop() {
    let (begun, all_begun) = mpsc::channel();
    let (finish, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let fixture = serve(move |request| {
        if matches!(request, Request::Add(_)) {
            begun.send(()).unwrap();
            let _ = wait.lock().recv();
        }
        echo(request)
    });
    let add = request_line(&Request::Add(crate::protocol::Add::default()));
    let stuck: Vec<UnixStream> = (0..COMMANDS_MAX).map(|_| fixture.connect()).collect();
    for mut stream in &stuck {
        stream.write_all(add.as_bytes()).unwrap();
        all_begun.recv_timeout(PATIENCE * 4).unwrap();
    }
    let stop = request_line(&Request::Stop(crate::protocol::Stop { force: true }));
    let metrics = request_line(&Request::Metrics(crate::protocol::Metrics {}));
    for (line, seen) in [(stop, "Stop"), (metrics, "Metrics")] {
        let answer = exchange(&fixture.connect(), &line).unwrap();
        assert!(parse_reply::<String>(&answer).unwrap().starts_with(seen));
    }
    ask(&fixture.connect()).unwrap();
    // Those that only stay connected make room, and no other command begins.
    let silent: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| fixture.connect()).collect();
    let answer = exchange(&fixture.connect(), &add).unwrap();
    let error = parse_reply::<Value>(&answer).unwrap_err();
    assert_eq!(error.errno, Errno::EAGAIN);
    assert!(error.message.contains("32 commands are under way"), "{error}");
    drop((finish, silent));
    for stream in &stuck {
        let mut line = Vec::new();
        BufReader::new(stream).read_until(b'\n', &mut line).unwrap();
        parse_reply::<Value>(&line).unwrap();
    }
}

/// What a client goes on sending is not for the one who reads requests.
#[test]
fn what_is_left_of_bytes_that_were_refused_is_no_request() {
    let (seen, all_seen) = mpsc::channel();
    let fixture = serve_by(Arc::new(move |request, talk: &mut Talk<'_>| {
        seen.send(format!("{request:?}")).unwrap();
        talk.begin()?;
        talk.take(&mut [0; 16])?;
        talk.stop_taking();
        Err(ControlError::invalid("this is no snapshot"))
    }));
    let stream = fixture.connect();
    let restore = Request::Restore(crate::protocol::Restore { device: None });
    parse_reply::<()>(&exchange(&stream, &request_line(&restore)).unwrap()).unwrap();
    let rest = format!("{}\n{}", "x".repeat(16), request_line(&Request::Status(Status {})));
    pieces::put(&mut &stream, rest.as_bytes()).unwrap();
    let mut answers = BufReader::new(&stream);
    let mut line = Vec::new();
    answers.read_until(b'\n', &mut line).unwrap();
    assert_eq!(parse_reply::<Value>(&line).unwrap_err().message, "this is no snapshot");
    assert_eq!(answers.read(&mut [0]).unwrap_or(0), 0, "the end");
    drop(fixture);
    assert_eq!(all_seen.iter().count(), 1);
}

#[test]
fn the_end_of_the_server_ends_its_clients() {
    let fixture = serve(echo);
    let stream = fixture.connect();
    ask(&stream).unwrap();
    drop(fixture);
    assert_eq!((&stream).read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn a_panic_of_a_handler_keeps_no_place() {
    let fixture = serve(|request| {
        assert!(!matches!(request, Request::Add(_)), "it panics");
        Ok(Value::Null)
    });
    let add = request_line(&Request::Add(crate::protocol::Add::default()));
    let all: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| fixture.connect()).collect();
    for stream in &all {
        let error = exchange(stream, &add).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    }
    let line = exchange(&fixture.connect(), &request_line(&Request::Status(Status {}))).unwrap();
    parse_reply::<()>(&line).unwrap();
}

#[test]
fn an_error_of_accept_does_not_end_the_server() {
    let dir = testkit::TempDir::new();
    let listener = UnixListener::bind(dir.path().join("s")).unwrap();
    // The next accept fails with EAGAIN.
    listener.set_nonblocking(true).unwrap();
    let server =
        ControlServer::start(listener, Arc::new(|request, _: &mut Talk<'_>| echo(request)))
            .unwrap();
    let fixture = Fixture { dir, _server: server };
    thread::sleep(PAUSE);
    let stream = fixture.connect();
    ask(&stream).unwrap();
    drop(fixture);
}

#[test]
fn a_client_that_took_nothing_for_long_gets_no_more() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut theirs = BufReader::new(theirs);
    let mut talk = Talk::with(&mut theirs);
    talk.begin().unwrap();
    let limits = talk.client.get_ref();
    assert_eq!(limits.read_timeout().unwrap(), Some(STALLED));
    assert_eq!(limits.write_timeout().unwrap(), Some(STALLED));
    limits.set_write_timeout(Some(Duration::from_millis(10))).unwrap();
    let error = talk.put(&vec![7; 8 << 20]).unwrap_err();
    assert_eq!(error.errno, Errno(errno::ETIMEDOUT));
    assert!(error.message.contains("stalled"), "{error}");
    // As after every command.
    let _ = talk.end();
    let _ = theirs.get_mut().write_all(reply_line(&Err(error)).as_bytes());
    ours.set_read_timeout(Some(PATIENCE * 4)).unwrap();
    let mut ours = BufReader::new(&ours);
    let mut begun = String::new();
    ours.read_line(&mut begun).unwrap();
    let (mut pieces, mut room) = (Pieces::default(), vec![0; 1 << 20]);
    let ended = loop {
        match pieces.take(&mut ours, &mut room) {
            Ok(count) => assert!(count > 0 && room[..count].iter().all(|byte| *byte == 7)),
            Err(error) => break error,
        }
    };
    assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof, "{ended}");
}

#[test]
fn a_client_that_sends_nothing_for_long_is_given_up() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut theirs = BufReader::new(theirs);
    let mut talk = Talk::with(&mut theirs);
    let error = talk.take(&mut [0; 16]).unwrap_err();
    assert_eq!(error.errno, Errno(errno::ETIMEDOUT));
    talk.stop_taking();
    assert_eq!((&ours).write(b"late").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}
