//! `rampack-lab corpus` makes dumps of live programs.
//!
//! The command starts a program, lets it grow to the wanted size and stops it in the middle of its
//! work. It writes the resident private anonymous pages to a file: the pages that would go to swap.
//! Dumps hold parts of other people's programs and of this machine's files, so we make them and
//! never ship them.

mod content;
mod dump;
mod manifest;
mod recipe;
mod redis;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use units::PAGE_SIZE;

use crate::args::CorpusArgs;
use crate::drive::half_compressible;
use crate::interrupt;
use crate::sys::{self, Signal};
use manifest::{Entry, Manifest, Skipped};

pub use manifest::now;
use recipe::{RECIPES, Recipe};

/// A program that has not reached its size within this time is dumped as it is.
const PATIENCE: Duration = Duration::from_secs(120);
/// The fewest pages of a useful dump.
const LEAST_PAGES: u64 = 64;

/// Runs the command.
///
/// # Errors
/// The name of a program is unknown, the directory cannot be written, or no program could be
/// dumped.
pub fn run(args: &CorpusArgs) -> Result<()> {
    let recipes = choose(&args.programs)?;
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the directory {}", args.out.display()))?;
    if args.half {
        let pages = half_compressible(args.pages as usize)?;
        let path = args.out.join("half.pages");
        return fs::write(&path, &*pages)
            .with_context(|| format!("cannot write {}", path.display()));
    }
    let mut manifest = Manifest::new(args.pages);
    for recipe in recipes {
        interrupt::check()?;
        let missing = recipe.missing();
        if !missing.is_empty() {
            let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
            let missing = missing.iter().map(|(program, _)| (*program).to_owned()).collect();
            let skipped = Skipped { program: recipe.name.to_owned(), missing };
            println!("{skipped}; the package {} brings it", packages.join(", "));
            manifest.skipped.push(skipped);
            continue;
        }
        let entry = make(recipe, args).with_context(|| format!("no dump of {}", recipe.name))?;
        println!("{entry}");
        manifest.programs.push(entry);
    }
    let made = manifest.programs.len();
    manifest.take_over(&args.out);
    manifest.write(&args.out)?;
    if made == 0 {
        bail!("none of the programs is installed, so there is no corpus");
    }
    Ok(())
}

/// The recipes of these names, or all.
fn choose(names: &[String]) -> Result<Vec<&'static Recipe>> {
    if names.is_empty() {
        return Ok(RECIPES.iter().collect());
    }
    let known = || RECIPES.iter().map(|recipe| recipe.name).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        RECIPES
            .iter()
            .find(|recipe| recipe.name == name)
            .with_context(|| format!("no program {name:?}; there are {}", known()))
    };
    names.iter().map(find).collect()
}

/// Starts a program, lets it grow, and writes its dump.
fn make(recipe: &Recipe, args: &CorpusArgs) -> Result<Entry> {
    let wanted = u64::from(args.pages) * PAGE_SIZE as u64;
    let bar = progress(recipe.name, wanted);
    let mut subject = recipe.start()?;
    let process = subject.running.id();
    let reached = interrupt::wait_for(recipe.name, PATIENCE, || {
        subject.running.check()?;
        (subject.grow)()?;
        let bytes = dump::anonymous_bytes(process)?;
        bar.set_position(bytes.min(wanted));
        // Some of these bytes cannot be taken. Counting the pages that can be takes longer.
        let enough = bytes >= wanted && dump::wanted_pages(process)?.len() >= args.pages as usize;
        Ok(enough.then_some(()))
    });
    // A smaller dump is still useful, if the program lives and nobody interrupted us.
    interrupt::check()?;
    if let Err(error) = reached {
        subject.running.check()?;
        if dump::anonymous_bytes(process)? < LEAST_PAGES * PAGE_SIZE as u64 {
            return Err(error);
        }
    }
    sys::signal(subject.running.child(), Signal::Stop).context("cannot stop it")?;
    dump::wait_until_stopped(process)?;
    bar.set_message("dumping");
    let pages = dump::take(process, args.pages as usize)?;
    subject.running.kill();
    let name = format!("{}.pages", recipe.name);
    let path = args.out.join(&name);
    // The rename keeps an earlier dump of this name whole for its readers.
    let partial = args.out.join(format!("{name}.partial"));
    fs::write(&partial, &pages)
        .and_then(|()| fs::rename(&partial, &path))
        .with_context(|| format!("cannot write {}", path.display()))?;
    bar.set_message("examining");
    let content = content::examine(&pages)?;
    bar.finish_and_clear();
    Ok(Entry {
        program: recipe.name.to_owned(),
        version: subject.version,
        command: subject.command,
        file: name,
        date: manifest::now(),
        content,
    })
}

fn progress(name: &'static str, bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let style = ProgressStyle::with_template("{prefix:8} [{bar:40}] {bytes}/{total_bytes} {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_prefix(name);
    bar.set_message("growing");
    bar
}
