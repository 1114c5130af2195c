//! As much of HTTP as a scrape needs: one request on a connection, one answer.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use control::ControlError;
use prometheus::TEXT_FORMAT;
use service::failure::sentence;

/// Requests that are answered at a time. A client that sends nothing has one of them for
/// [`PATIENCE`].
const WORKERS: usize = 4;
/// How long a client may take to send its request, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request in bytes, and the most of its headers.
const REQUEST_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// How long a worker waits after an error before it accepts again.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes the text for a scrape.
pub(super) type Scrape<'a> = dyn Fn() -> Result<String, ControlError> + Sync + 'a;

/// Answers the clients of `listener`, without end.
///
/// # Errors
/// When no thread can be started.
pub(super) fn serve(listener: &TcpListener, scrape: &Scrape<'_>) -> io::Result<()> {
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            let builder = thread::Builder::new().name("scrape".into());
            builder.spawn_scoped(scope, || {
                loop {
                    match listener.accept() {
                        Ok((client, _)) => {
                            if let Err(error) = converse(&client, scrape) {
                                tracing::debug!("a client: {error}");
                            }
                        }
                        Err(error) => {
                            tracing::debug!("no client: {error}");
                            thread::sleep(PAUSE);
                        }
                    }
                }
            })?;
        }
        Ok(())
    })
}

/// What a client asked for.
#[derive(PartialEq, Eq, Debug)]
enum Asked {
    /// The method, and the path without what follows a `?`.
    For(String, String),
    /// A part of a request.
    More,
    /// No request.
    Wrong,
}

fn asked(bytes: &[u8]) -> Asked {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match (request.parse(bytes), request.method, request.path) {
        (Ok(httparse::Status::Complete(_)), Some(method), Some(path)) => {
            let path = path.split('?').next().unwrap_or_default();
            Asked::For(method.into(), path.into())
        }
        (Ok(httparse::Status::Partial), ..) if bytes.len() < REQUEST_MAX => Asked::More,
        _ => Asked::Wrong,
    }
}

fn converse(mut client: &TcpStream, scrape: &Scrape<'_>) -> io::Result<()> {
    let (end, mut request, mut part) = (Instant::now() + PATIENCE, Vec::new(), [0; 2048]);
    let asked = loop {
        match asked(&request) {
            Asked::More => {}
            asked => break asked,
        }
        client.set_read_timeout(Some(left(end)?))?;
        match client.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => request.extend_from_slice(&part[..bytes]),
        }
    };
    send(client, answer(&asked, scrape).as_bytes())
}

/// Sends `bytes` within [`PATIENCE`], also to a client that takes them one by one.
fn send(mut client: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        client.set_write_timeout(Some(left(end)?))?;
        match client.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            sent => bytes = &bytes[sent..],
        }
    }
    Ok(())
}

/// The time until `end`.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn answer(asked: &Asked, scrape: &Scrape<'_>) -> String {
    let plain = "text/plain; charset=utf-8";
    let said = |status, text: &str| (status, plain, format!("{text}\n"));
    let (status, kind, body) = match asked {
        Asked::For(method, _) if method != "GET" && method != "HEAD" => {
            said("405 Method Not Allowed", "GET and HEAD are answered")
        }
        Asked::For(_, path) if path == "/metrics" => match scrape() {
            Ok(text) => ("200 OK", TEXT_FORMAT, text),
            Err(error) => said("503 Service Unavailable", &sentence(&error)),
        },
        Asked::For(_, path) if path == "/" => said("200 OK", "rampack: see /metrics"),
        Asked::For(..) => said("404 Not Found", "there is /metrics"),
        Asked::More | Asked::Wrong => said("400 Bad Request", "that is no request"),
    };
    let length = body.len();
    let is_head = matches!(asked, Asked::For(method, _) if method == "HEAD");
    let body = if is_head { "" } else { &body };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}\
         Connection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::Errno;

    fn asked_for(method: &str, path: &str) -> Asked {
        Asked::For(method.into(), path.into())
    }

    #[test]
    fn requests_are_told_from_parts_and_from_other_bytes() {
        let request = b"GET /metrics?x=1 HTTP/1.1\r\nHost: here\r\n\r\n";
        assert_eq!(asked(request), asked_for("GET", "/metrics"));
        for end in 0..request.len() {
            assert_eq!(asked(&request[..end]), Asked::More, "{end}");
        }
        assert_eq!(asked(b"\x16\x03\x01\x02\x00\x01"), Asked::Wrong);
        let endless = [b"GET / HTTP/1.1\r\na: ", &[b'x'; REQUEST_MAX][..]].concat();
        assert_eq!(asked(&endless), Asked::Wrong);
        let many = "a: b\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(asked(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()), Asked::Wrong);
    }

    #[test]
    fn every_request_has_an_answer() {
        let scrape = || Ok("rampack_it 1\n".to_string());
        let said = |asked: &Asked| answer(asked, &scrape);
        let metrics = said(&asked_for("GET", "/metrics"));
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(metrics.contains("Content-Type: text/plain; version=0.0.4\r\n"), "{metrics}");
        assert!(metrics.contains("Content-Length: 13\r\n"), "{metrics}");
        assert!(metrics.ends_with("\r\n\r\nrampack_it 1\n"), "{metrics}");
        let head = said(&asked_for("HEAD", "/metrics"));
        assert!(head.contains("Content-Length: 13\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(said(&asked_for("GET", "/")).contains("/metrics"));
        assert!(said(&asked_for("GET", "/x")).starts_with("HTTP/1.1 404 "));
        let posted = said(&asked_for("POST", "/metrics"));
        assert!(posted.starts_with("HTTP/1.1 405 ") && posted.contains("\r\nAllow: GET, HEAD\r\n"));
        assert!(said(&Asked::Wrong).starts_with("HTTP/1.1 400 "));
        let gone = || Err(ControlError::new(Errno::ENOENT, "no daemon"));
        let refused = answer(&asked_for("GET", "/metrics"), &gone);
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("no daemon (ENOENT)"));
    }
}
