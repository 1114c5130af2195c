//! Being asked to stop: SIGINT and SIGTERM set a flag, so that whatever was started is ended and
//! removed on the way out.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use sync::atomic::{AtomicBool, Ordering};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on signals are noted instead of killing the process; the second one kills it, unless
/// `patient`: then there is swap to be taken away first, however often the user asks.
///
/// # Errors
/// The system's, when it takes no handler.
pub fn watch(patient: bool) -> Result<()> {
    let asked = ASKED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        if !patient {
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(asked))
                .context("cannot handle signals")?;
        }
        signal_hook::flag::register(signal, Arc::clone(asked)).context("cannot handle signals")?;
    }
    Ok(())
}

/// Whether this process was asked to stop.
///
/// # Errors
/// If it was.
pub fn check() -> Result<()> {
    // Relaxed: the flag is alone, nothing is published with it.
    if ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}

/// Asks `ready` every few milliseconds until it has an answer, for at most `limit`.
///
/// # Errors
/// What `ready` reports, being interrupted, or that `limit` has passed, naming `what` was awaited.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut ready: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ready()? {
            return Ok(answer);
        }
        check()?;
        if begun.elapsed() > limit {
            bail!("{what}: nothing within {} seconds", limit.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
}
