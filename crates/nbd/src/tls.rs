//! TLS for clients over TCP.
//!
//! The protocol begins in the clear, and the client asks for TLS before anything else
//! (`NBD_OPT_STARTTLS`). Several threads send on a connection while one receives, so each step
//! takes a lock, and no thread waits for the client under it.

use core::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use host::{For, wait_until};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::socket::{receive, send};

/// The certificates of a server, as QEMU and nbdkit name their files: `server-cert.pem` with its
/// chain, `server-key.pem`, and `ca-cert.pem` for the certificates of clients.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ServerConfig>);

/// Why certificates cannot be used. The text names the file.
#[derive(Debug)]
pub struct TlsError {
    file: PathBuf,
    why: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.why)
    }
}

impl core::error::Error for TlsError {}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError { file: file.to_path_buf(), why };
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<_, _>>);
    match read {
        Ok(found) if Vec::is_empty(&found) => Err(wrong("there is no certificate in it".into())),
        other => other.map_err(|error| wrong(error.to_string())),
    }
}

impl Tls {
    /// Reads the files in `directory`. With `verify_peer` a client needs a certificate of the
    /// authority in `ca-cert.pem`; otherwise that file is not read.
    ///
    /// # Errors
    /// [`TlsError`] for a file that is missing, or is not what its name says.
    pub fn from_directory(directory: &Path, verify_peer: bool) -> Result<Tls, TlsError> {
        let at = |name: &str| directory.join(name);
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let wrong =
            |name: &str, why: &dyn fmt::Display| TlsError { file: at(name), why: why.to_string() };
        let (certificate, key, authority) = ("server-cert.pem", "server-key.pem", "ca-cert.pem");
        let chain = certificates(&at(certificate))?;
        let secret = PrivateKeyDer::from_pem_file(at(key)).map_err(|error| wrong(key, &error))?;
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(certificate, &error))?;
        let config = if verify_peer {
            let mut roots = RootCertStore::empty();
            for root in certificates(&at(authority))? {
                roots.add(root).map_err(|error| wrong(authority, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.build().map_err(|error| wrong(authority, &error))?;
            config.with_client_cert_verifier(verifier)
        } else {
            config.with_no_client_auth()
        };
        let config = config.with_single_cert(chain, secret);
        config.map(|config| Tls(Arc::new(config))).map_err(|error| wrong(certificate, &error))
    }
}

/// A socket that never waits.
struct Socket<'f>(BorrowedFd<'f>);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        receive(self.0, into, false)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0, bytes, false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn would_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Takes in what was received.
fn process(connection: &mut ServerConnection, fd: BorrowedFd<'_>) -> io::Result<()> {
    let done = connection.process_new_packets();
    // An answer of the TLS layer, also to tell the client of an error. What the client does not
    // take now goes with the next reply.
    if connection.wants_write() {
        let _ = connection.write_tls(&mut Socket(fd));
    }
    done.map(drop).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

fn flush(connection: &mut ServerConnection, fd: BorrowedFd<'_>) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(&mut Socket(fd))?;
    }
    Ok(())
}

/// The TLS layer of one connection. No call waits for the client, except for the handshake.
#[derive(Debug)]
pub(crate) struct Channel {
    connection: Mutex<ServerConnection>,
}

impl Channel {
    /// Does the handshake over `fd`, until `end` at most.
    pub(crate) fn accept(tls: &Tls, fd: BorrowedFd<'_>, end: Instant) -> io::Result<Channel> {
        let mut connection = ServerConnection::new(tls.0.clone()).map_err(io::Error::other)?;
        while connection.is_handshaking() || connection.wants_write() {
            let (what, done) = if connection.wants_write() {
                (For::Writing, connection.write_tls(&mut Socket(fd)).map(drop))
            } else {
                match connection.read_tls(&mut Socket(fd)) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(_) => (For::Reading, process(&mut connection, fd)),
                    Err(error) => (For::Reading, Err(error)),
                }
            };
            match done {
                Err(error) if would_wait(&error) && wait_until(fd, what, end)? => {}
                Err(error) if would_wait(&error) => return Err(ErrorKind::TimedOut.into()),
                done => done?,
            }
        }
        Ok(Channel { connection: Mutex::new(connection) })
    }

    fn connection(&self) -> MutexGuard<'_, ServerConnection> {
        // A panic of the TLS library leaves a connection that fails or is cut off.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives what is there; zero at the end of the stream, `WouldBlock` when nothing is there.
    pub(crate) fn receive(&self, fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        let mut connection = self.connection();
        loop {
            match connection.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // It closed the socket without a word of TLS.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            connection.read_tls(&mut Socket(fd))?;
            process(&mut connection, fd)?;
        }
    }

    /// Takes in what the socket has. Is there something to receive then, or the end?
    pub(crate) fn take_in(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let mut connection = self.connection();
        match connection.read_tls(&mut Socket(fd)) {
            Ok(0) => Ok(true),
            Ok(_) => process(&mut connection, fd).map(|()| !connection.wants_read()),
            Err(error) if would_wait(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Is something there that the socket does not show any more?
    pub(crate) fn has_some(&self) -> bool {
        !self.connection().wants_read()
    }

    /// Takes bytes to send, and sends what the client takes; `WouldBlock` when it takes none.
    /// [`Channel::flush`] tells when everything is sent.
    pub(crate) fn send(&self, fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        let mut connection = self.connection();
        flush(&mut connection, fd)?;
        let taken = connection.writer().write(bytes)?;
        match flush(&mut connection, fd) {
            Err(error) if !would_wait(&error) => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends what is taken and not sent; false if the client does not take all of it now.
    pub(crate) fn flush(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        match flush(&mut self.connection(), fd) {
            Err(error) if would_wait(&error) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Tells the client that this is the end, if it takes it now.
    pub(crate) fn close(&self, fd: BorrowedFd<'_>) {
        let mut connection = self.connection();
        connection.send_close_notify();
        let _ = flush(&mut connection, fd);
    }
}
