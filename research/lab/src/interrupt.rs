//! Stops the lab on request. SIGINT and SIGTERM set a flag; the lab then ends and removes
//! everything it started.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use sync::atomic::{AtomicBool, Ordering};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Notes signals from now on instead of dying. A second signal kills the process, unless `patient`:
/// then the lab must take swap away first, however often the user asks.
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
pub fn check() -> Result<()> {
    // Relaxed: the flag is alone and publishes nothing.
    if ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}

/// Asks `ready` every few milliseconds until it has an answer, for at most `limit`.
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
