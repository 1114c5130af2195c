//! `rampack-lab locks-sim`: what threads do to each other on more CPUs than there are.
//!
//! Everything that happens between CPUs is simulated, event by event, from what was measured in the
//! same run: what moving a line costs, how long sections are, how long one thread takes. The engine
//! on two threads is measured too, and the simulation is compared with it before it says anything
//! of more threads.
//!
//! * [`lines`], [`lock`], [`locking`], [`machine`]: the simulated machine.
//! * [`schemes`], [`engine`], [`reader_epochs`]: what the engine does on it.
//! * [`primitives`], [`sections`], [`content`], [`points`]: what is measured.
//! * [`study`]: both beside each other. [`report`], [`picture`]: what is shown of it.

mod content;
mod engine;
pub mod lines;
pub mod lock;
pub mod locking;
pub mod machine;
mod picture;
mod points;
pub mod primitives;
mod reader_epochs;
mod report;
pub mod schemes;
mod sections;
mod study;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::LocksSimArgs;
use study::Study;

/// Runs the command.
///
/// # Errors
/// There is one CPU only, the corpus cannot be read, the engine fails, or the picture cannot be
/// written.
pub fn run(args: &LocksSimArgs) -> Result<()> {
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template("[{bar:40}] {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    let study = Study::make(args, &bar);
    bar.finish_and_clear();
    let study = study?;
    if let Some(path) = &args.plot {
        picture::write(&study, path)?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report::json(&study, args))?);
    } else {
        print!("{}", report::text(&study, args));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
