//! The thread of a device. It runs the requests to the stores, and moves chunks.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use block::{BlockDevice, Context, IoError, Operation};
use control::{ControlError, Errno};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use units::Cpu;

use crate::device::Remote;
use crate::exchange::Exchange;
use crate::options::Options;
use crate::shared::Shared;
use crate::store::Store;

/// How often the thread looks for work.
const TICK: Duration = Duration::from_millis(250);
/// Devices from this size on have chunks of 4 MiB, as logs have segments.
const LARGE: u64 = 1 << 30;
/// How long the end of a device may take to delete what it has at the stores.
const END: Duration = Duration::from_secs(10);
/// The CPU of the thread; any number is correct.
const CPU: Cpu = Cpu(0);

/// Starts the thread, and asks each store whether it works.
pub(crate) fn start(
    below: Arc<dyn BlockDevice>,
    options: &Options,
) -> Result<Remote, ControlError> {
    // Another part of the process may have chosen one: then that is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    opendal::init_default_registry();
    let (send, begun) = mpsc::sync_channel(1);
    let end = Arc::new(Notify::new());
    let (options, told) = (options.clone(), end.clone());
    let body = move || {
        // What the stores send is read with the rights of the user alone.
        let _ = host::drop_privileges();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("remote-io")
            .max_blocking_threads(4)
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = send.send(Err(no_thread(&error)));
                return;
            }
        };
        runtime.block_on(async {
            let begun = begin(below, &options).await;
            let shared = begun.as_ref().ok().cloned();
            let _ = send.send(begun);
            if let Some(shared) = shared {
                run(&shared, &options, &told).await;
            }
        });
        // A store that hangs holds nobody up.
        runtime.shutdown_background();
    };
    let thread = thread::Builder::new().name("remote".into()).spawn(body);
    let thread = thread.map_err(|error| no_thread(&error))?;
    let begun = begun.recv().unwrap_or_else(|_| Err(no_thread(&io::ErrorKind::Other.into())));
    match begun {
        Ok(shared) => Ok(Remote { shared, end, thread: Some(thread) }),
        Err(error) => {
            let _ = thread.join();
            Err(error)
        }
    }
}

fn no_thread(error: &io::Error) -> ControlError {
    let errno = Errno(error.raw_os_error().unwrap_or(Errno::EIO.0));
    ControlError::new(errno, format!("no thread for remote stores: {error}"))
}

async fn begin(
    below: Arc<dyn BlockDevice>,
    options: &Options,
) -> Result<Arc<Shared>, ControlError> {
    let stores = options.stores.iter().map(|uri| Store::new(uri, options.deadline));
    let stores: Vec<Store> = stores.collect::<Result<_, _>>()?;
    let exchange = Exchange::new(stores, options, Instant::now());
    for store in exchange.stores() {
        if let Err(error) = store.probe(exchange.directory()).await {
            exchange.delete_directory().await;
            return Err(error);
        }
    }
    tracing::info!("remote: {} in {}", options.shown(), exchange.directory());
    let chunk_bytes = if below.geometry().bytes >= LARGE { 4 << 20 } else { 1 << 20 };
    Ok(Arc::new(Shared::new(below, chunk_bytes, exchange, Handle::current())))
}

/// Moves chunks until the device ends, and then deletes what is at the stores.
async fn run(shared: &Arc<Shared>, options: &Options, end: &Notify) {
    let keep = options.keep / shared.chunk_bytes;
    let ended = end.notified();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            biased;
            () = &mut ended => break,
            () = turn(shared, options.cold.as_millis() as u64, keep) => {}
        }
        tokio::select! {
            biased;
            () = &mut ended => break,
            () = sleep(TICK) => {}
        }
    }
    clear(shared).await;
}

/// Writes cold chunks to the stores, frees their space below, and deletes what nobody has any more.
async fn turn(shared: &Arc<Shared>, cold: u64, keep: u64) {
    while upload(shared, cold).await {
        release_all(shared, keep).await;
        // A write may leave an old object, so these do not become more and more.
        delete(shared).await;
    }
    release_all(shared, keep).await;
    while shared.exchange.may_delete(Instant::now()) && delete(shared).await {}
}

/// Deletes an object that nobody has any more. Returns whether more may follow: a store that fails
/// may be back at the next turn.
async fn delete(shared: &Shared) -> bool {
    let next = shared.table.lock().next_deletion();
    let Some(object) = next else { return false };
    let gone = shared.exchange.delete(&object).await;
    drop(object);
    shared.table.lock().deleted(gone);
    gone
}

/// Writes the coldest chunk to the stores. Returns whether more may follow.
async fn upload(shared: &Arc<Shared>, cold: u64) -> bool {
    let now = Instant::now();
    if !(shared.exchange.may_write(now) && shared.exchange.enough_stores(now)) {
        return false;
    }
    let Some(before) = shared.now().checked_sub(cold) else { return false };
    let next = shared.table.lock().next_upload(before);
    let Some(upload) = next else { return false };
    let (reader, chunk) = (shared.clone(), upload.chunk);
    let read = spawn_blocking(move || reader.read_chunk(CPU, chunk)).await;
    let Ok(Ok(bytes)) = read else {
        // Whoever reads it gets the error.
        shared.table.lock().unreadable(&upload, shared.now());
        return true;
    };
    match shared.exchange.write(chunk, upload.version, bytes).await {
        Ok(copy) => {
            shared.table.lock().uploaded(&upload, copy);
            true
        }
        Err(object) => {
            shared.table.lock().give_up(object);
            false
        }
    }
}

/// Discards below what only has to be at the stores.
async fn release_all(shared: &Arc<Shared>, keep: u64) {
    loop {
        let next = shared.table.lock().next_release(keep);
        let Some(chunk) = next else { return };
        release(shared, chunk).await;
    }
}

async fn release(shared: &Arc<Shared>, chunk: usize) {
    let below = shared.clone();
    let discard = move || -> Result<(), IoError> {
        let range = below.bytes_of(chunk);
        let (offset, length) = (range.start, range.end - range.start);
        let discard = Operation::Discard { offset, length };
        below.below.perform(Context::waiting(CPU), discard)
    };
    // A hint: if it keeps the space, nothing is lost.
    let _ = spawn_blocking(discard).await;
    shared.table.lock().released(chunk);
    shared.moved.notify_all();
}

/// Deletes all objects of the device, for as long as that may take.
async fn clear(shared: &Shared) {
    let objects = shared.table.lock().take_objects();
    let mut gone = 0;
    let all = async {
        for object in &objects {
            // If one store is lost, the others are asked all the same.
            gone += usize::from(shared.exchange.delete(object).await);
        }
        if gone == objects.len() {
            shared.exchange.delete_directory().await;
        }
    };
    let _ = timeout(END, all).await;
    let left = objects.len() - gone;
    if left > 0 {
        tracing::warn!(
            "{} objects stay in {} at the stores; nobody can read them, and they can be deleted",
            left,
            shared.exchange.directory()
        );
    }
}
