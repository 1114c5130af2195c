//! Stores for tests.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use testkit::{Need, TempDir};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Runtime;

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(60);

pub const REDIS: Need = Need::program("redis-server", "redis-server");

#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A Redis server, which ends with this.
pub struct Redis {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Redis {
    pub fn start(options: &[&str]) -> Redis {
        let dir = TempDir::new();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(dir.path());
        let child = command.args(options).stdout(Stdio::null()).spawn().unwrap();
        wait_until("Redis listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Redis { child, port, _dir: dir }
    }

    pub fn uri(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: two numbers; the process is ours and was not waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An S3 server that keeps its objects in a directory.
pub struct S3 {
    port: u16,
    dir: TempDir,
    runtime: Runtime,
}

impl S3 {
    pub fn start() -> S3 {
        let dir = TempDir::new();
        fs::create_dir(dir.join("cold")).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut service = S3ServiceBuilder::new(FileSystem::new(dir.path()).unwrap());
        service.set_auth(SimpleAuth::from_single("key", "secret"));
        let service = service.build();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let server = Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        S3 { port, dir, runtime }
    }

    pub fn uri(&self) -> String {
        self.uri_by(self.port)
    }

    /// The same by a slow way: so many bytes a second go to the server, and as many come back.
    pub fn slow_uri(&self, bytes_a_second: u64) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (way, port) = (listener.local_addr().unwrap().port(), self.port);
        self.runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((near, _)) = listener.accept().await {
                let far = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(async move {
                    let ((mut from, mut back), (mut answers, mut to)) =
                        (near.into_split(), far.into_split());
                    tokio::join!(
                        pass(&mut from, &mut to, bytes_a_second),
                        pass(&mut answers, &mut back, bytes_a_second),
                    );
                });
            }
        });
        self.uri_by(way)
    }

    fn uri_by(&self, port: u16) -> String {
        let end = format!("http%3A%2F%2F127.0.0.1%3A{port}");
        format!(
            "s3://cold/a/b?endpoint={end}&region=here&access_key_id=key&secret_access_key=secret"
        )
    }

    /// All objects.
    pub fn objects(&self) -> Vec<PathBuf> {
        files(&self.dir.join("cold"))
    }
}

/// Passes on what comes, so many bytes a second.
async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    bytes_a_second: u64,
) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let takes = count as u64 * 1_000_000 / bytes_a_second;
        tokio::time::sleep(Duration::from_micros(takes)).await;
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Files that whoever opens one waits for, until this ends.
pub struct Hanging(Vec<PathBuf>);

impl Hanging {
    /// Pipes without another end, in the place of what is written to a directory from now on.
    pub fn at(store: &Path, chunks: usize) -> Hanging {
        let dir = fs::read_dir(store).unwrap().next().unwrap().unwrap().path();
        let names = (0..chunks)
            .flat_map(|chunk| (1..64).map(move |version| format!("{chunk:08x}-{version:x}")));
        let paths: Vec<PathBuf> = names.map(|name| dir.join(name)).collect();
        assert!(Command::new("mkfifo").args(&paths).status().unwrap().success());
        Hanging(paths)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        for path in &self.0 {
            // Whoever waits for another end finds one.
            let mut both = fs::OpenOptions::new();
            let _ = both.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        }
    }
}

/// The files below a directory.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}
