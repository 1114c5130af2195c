//! One store: an operator of OpenDAL with retries and deadlines, and a circuit breaker.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use control::{ControlError, Errno, without_secrets};
use opendal::layers::RetryLayer;
use opendal::{Buffer, ErrorKind, HttpTransporter, OperationContext, Operator};
use opendal_http_transport_reqwest::ReqwestTransport;
use sync::Mutex;
use sync::atomic::{AtomicU32, Ordering};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::breaker::{Breaker, FAILURES};
use crate::rarely::Rarely;

/// How often a request is tried again within its deadline, if the store says that this may help.
const RETRIES: usize = 2;
/// A write may take this many deadlines, a read one, and both one more for so many bytes: the way
/// to a store may be slow. By default a chunk gets there, and back, at 400 kbit/s.
const WRITE_DEADLINES: u32 = 4;
const BYTES_PER_DEADLINE: usize = 256 << 10;
/// Threads of a directory, for what waits.
const THREADS: usize = 4;

/// A store.
pub(crate) struct Store {
    operator: Operator,
    /// What a directory waits in. One that hangs takes no threads of others.
    threads: Option<Runtime>,
    shown: String,
    /// Where it listens, if the URI says that.
    address: Option<String>,
    deadline: Duration,
    /// A store that is full can still be read.
    writes: Mutex<Breaker>,
    others: Mutex<Breaker>,
    /// Reads in a row of which none gave what was written.
    bad_reads: AtomicU32,
    failures: Mutex<Rarely>,
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store was left alone, because it failed before.
    LeftAlone,
    /// No answer came in time.
    Late,
    /// The store's answer.
    Refused(opendal::Error),
    /// Something came that was not written there.
    Wrong,
    /// There is no connection.
    NotReached(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::LeftAlone => f.write_str("it failed a moment ago"),
            Failure::Late => f.write_str("it did not answer in time"),
            // The whole error may tell secrets of the URI.
            Failure::Refused(error) => {
                write!(f, "{}: {}", error.kind(), error.message())?;
                cause(error).map_or(Ok(()), |cause| write!(f, ": {cause}"))
            }
            Failure::NotReached(error) => error.fmt(f),
            Failure::Wrong => f.write_str("it returned something else than was written"),
        }
    }
}

impl Store {
    /// A store by its URI. Asks it nothing. The caller is in a runtime of tokio.
    ///
    /// # Errors
    /// `EINVAL` for a URI that OpenDAL refuses, `EIO` if something cannot be made.
    pub(crate) fn new(uri: &str, deadline: Duration) -> Result<Store, ControlError> {
        let shown = without_secrets(uri);
        let operator = Operator::from_uri(uri).map_err(|error| {
            let (errno, what) = match error.kind() {
                ErrorKind::ConfigInvalid | ErrorKind::Unsupported => (Errno::EINVAL, "is no store"),
                _ => (Errno::EIO, "cannot be used"),
            };
            let message = format!("{shown} {what}: {}: {}", error.kind(), error.message());
            ControlError::new(errno, message)
        })?;
        let retry = RetryLayer::new().with_max_times(RETRIES).with_jitter();
        let retry = retry.with_min_delay(Duration::from_millis(50));
        let operator = match uri.starts_with("s3:") {
            true => operator.with_context(by_http(&shown, deadline)?),
            false => operator,
        };
        let is_directory = operator.info().scheme() == "fs";
        let threads = if is_directory { Some(threads(&shown)?) } else { None };
        Ok(Store {
            operator: operator.layer(retry),
            threads,
            shown,
            deadline,
            address: address_of(uri),
            writes: Mutex::new(Breaker::default()),
            others: Mutex::new(Breaker::default()),
            bad_reads: AtomicU32::new(0),
            failures: Mutex::new(Rarely::default()),
        })
    }

    /// Whether it failed lately, or its last answers were not what was written.
    pub(crate) fn is_lost(&self) -> bool {
        let is_open = |breaker: &Mutex<Breaker>| breaker.lock().is_open();
        // Relaxed: a number alone.
        let bad_reads = self.bad_reads.load(Ordering::Relaxed);
        is_open(&self.writes) || is_open(&self.others) || bad_reads >= FAILURES
    }

    /// Notes whether a read gave what was written.
    pub(crate) fn judge_read(&self, good: bool) {
        // Relaxed: a number alone. Of two reads at once either is the last.
        let before = self.bad_reads.load(Ordering::Relaxed);
        let now = if good { 0 } else { before.saturating_add(1) };
        if now != before {
            self.bad_reads.store(now, Ordering::Relaxed);
        }
    }

    /// Tells the log that something with an object failed, once a minute.
    pub(crate) fn tell(&self, what: fmt::Arguments<'_>, failure: &Failure) {
        match self.failures.lock().tells(Instant::now()) {
            None => {}
            Some(0) => tracing::warn!("{self}: {what}: {failure}"),
            Some(more) => {
                tracing::warn!("{self}: {what}: {failure}; {more} more failures before this one");
            }
        }
    }

    /// Whether it may be asked to write now.
    pub(crate) fn may_write(&self, now: Instant) -> bool {
        self.writes.lock().would_allow(now)
    }

    /// Reads bytes of an object.
    pub(crate) async fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, Failure> {
        let length = (range.end - range.start) as usize;
        let deadline = self.deadline_of(1, length);
        let (operator, name) = (self.operator.clone(), name.to_owned());
        let read = async move { operator.read_with(&name).range(range).await };
        let bytes = self.ask(&self.others, deadline, read).await?.to_vec();
        if bytes.len() == length { Ok(bytes) } else { Err(Failure::Wrong) }
    }

    /// Writes an object.
    pub(crate) async fn write(&self, name: &str, bytes: Buffer) -> Result<(), Failure> {
        let deadline = self.deadline_of(WRITE_DEADLINES, bytes.len());
        let (operator, name) = (self.operator.clone(), name.to_owned());
        let write = async move { operator.write(&name, bytes).await };
        self.ask(&self.writes, deadline, write).await.map(drop)
    }

    /// Deletes an object. That it is not there is no error.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Failure> {
        let (operator, name) = (self.operator.clone(), name.to_owned());
        let delete = async move { operator.delete(&name).await };
        self.ask(&self.others, self.deadline, delete).await
    }

    fn deadline_of(&self, deadlines: u32, bytes: usize) -> Duration {
        self.deadline * (deadlines + (bytes / BYTES_PER_DEADLINE) as u32)
    }

    async fn ask<T: Send + 'static>(
        &self,
        breaker: &Mutex<Breaker>,
        deadline: Duration,
        request: impl Future<Output = opendal::Result<T>> + Send + 'static,
    ) -> Result<T, Failure> {
        if !breaker.lock().allows(Instant::now()) {
            return Err(Failure::LeftAlone);
        }
        let failure = match timeout(deadline, self.run(request)).await {
            Ok(Ok(answer)) => {
                self.answered(breaker);
                return Ok(answer);
            }
            // The store is well, and does not have it.
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
                self.answered(breaker);
                return Err(Failure::Refused(error));
            }
            Ok(Err(error)) => Failure::Refused(error),
            Err(_) => Failure::Late,
        };
        if breaker.lock().failed(Instant::now()) {
            tracing::warn!("{self}: {failure}; it is left alone for a while");
        }
        Err(failure)
    }

    async fn run<T: Send + 'static>(
        &self,
        request: impl Future<Output = opendal::Result<T>> + Send + 'static,
    ) -> opendal::Result<T> {
        let Some(threads) = &self.threads else { return request.await };
        // It ends with this future.
        let mut tasks = JoinSet::new();
        tasks.spawn_on(request, threads.handle());
        let ended = || Err(opendal::Error::new(ErrorKind::Unexpected, "its thread has ended"));
        tasks.join_next().await.and_then(Result::ok).unwrap_or_else(ended)
    }

    fn answered(&self, breaker: &Mutex<Breaker>) {
        let mut breaker = breaker.lock();
        let was_open = breaker.is_open();
        breaker.succeeded();
        drop(breaker);
        if was_open {
            tracing::info!("{self} answers again");
        }
    }

    /// Connects to a server whose address is known. Its client would try again and again until the
    /// deadline, and not say why.
    async fn reach(&self) -> Result<(), Failure> {
        let Some(address) = &self.address else { return Ok(()) };
        match timeout(self.deadline, TcpStream::connect(address)).await {
            Ok(connected) => connected.map(drop).map_err(Failure::NotReached),
            Err(_) => Err(Failure::Late),
        }
    }

    /// Writes, reads and deletes an object.
    ///
    /// # Errors
    /// `EIO` with what the store says.
    pub(crate) async fn probe(&self, directory: &str) -> Result<(), ControlError> {
        const WORD: &[u8] = b"rampack was here";
        let name = format!("{directory}/probe");
        let tried = async {
            self.reach().await?;
            self.write(&name, Buffer::from(WORD)).await?;
            let read = self.read(&name, 0..WORD.len() as u64).await?;
            self.delete(&name).await?;
            if read == WORD { Ok(()) } else { Err(Failure::Wrong) }
        };
        tried.await.map_err(|failure| {
            ControlError::new(Errno::EIO, format!("{self} cannot be used: {failure}"))
        })
    }
}

/// The host and the port of a Redis server.
fn address_of(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix("redis://").or_else(|| uri.strip_prefix("rediss://"))?;
    let authority = rest.split(['/', '?']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    match host {
        "" => None,
        host if has_port => Some(host.into()),
        host => Some(format!("{host}:6379")),
    }
}

/// The error of the system below the error of a store.
fn cause(error: &opendal::Error) -> Option<&io::Error> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.raw_os_error().is_some()
        {
            return Some(error);
        }
        next = error.source();
    }
    None
}

/// A client of HTTP for one store. Its connections belong to the runtime of the device, so devices
/// share none.
fn by_http(shown: &str, deadline: Duration) -> Result<OperationContext, ControlError> {
    let client = reqwest::Client::builder().connect_timeout(deadline);
    let client = client.build().map_err(|error| {
        ControlError::new(Errno::EIO, format!("{shown} cannot be used: no client of HTTP: {error}"))
    })?;
    let transport = HttpTransporter::new(ReqwestTransport::new(client));
    Ok(OperationContext::new().with_http_transport(transport))
}

/// The threads of a directory.
fn threads(shown: &str) -> Result<Runtime, ControlError> {
    let threads = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .thread_name("remote-dir")
        .max_blocking_threads(THREADS)
        .build();
    threads.map_err(|error| {
        let message = format!("{shown} cannot be used: no thread for it: {error}");
        ControlError::new(Errno::EIO, message)
    })
}

impl Drop for Store {
    fn drop(&mut self) {
        // One that hangs holds nobody up.
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::address_of;

    #[test]
    fn a_server_is_where_the_uri_says() {
        for (uri, address) in [
            ("redis://127.0.0.1:6380/0", Some("127.0.0.1:6380")),
            ("redis://me:p@host/2?root=a", Some("host:6379")),
            ("rediss://host", Some("host:6379")),
            ("redis://[::1]:7000", Some("[::1]:7000")),
            ("redis://[::1]/0", Some("[::1]:6379")),
            ("redis:///0", None),
            ("s3://bucket/a", None),
            ("fs:///a", None),
        ] {
            assert_eq!(address_of(uri).as_deref(), address, "{uri}");
        }
    }
}
