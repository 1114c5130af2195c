//! `rampack-lab corpus` makes dumps of live programs.
//!
//! The command starts a program, lets it grow to the wanted size and stops it in the middle of its
//! work. It writes the resident private anonymous pages to a file: the pages that would go to swap.
//! Dumps hold parts of other people's programs and of this machine's files, so we make them and
//! never ship them.

mod content;
mod dump;
mod recipe;
mod redis;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use units::PAGE_SIZE;

use crate::args::{CorpusArgs, chosen};
use crate::drive::half_compressible;
use crate::programs::now;
use crate::report::{begin, step};
use crate::sys::{self, Signal};
pub use dump::anonymous_bytes;
use recipe::{RECIPES, Recipe};

/// A program that has not reached its size within this time is dumped as it is.
const PATIENCE: Duration = Duration::from_secs(120);
/// The fewest pages of a useful dump.
const LEAST_PAGES: u64 = 64;
/// The file that tells of the dumps of a corpus, and how each was made.
const MANIFEST: &str = "manifest.json";

/// Runs the command.
pub fn run(args: &CorpusArgs) -> Result<()> {
    let names = RECIPES.each_ref().map(|recipe| recipe.name);
    let names = chosen("--program", &args.programs, &names)?;
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the directory {}", args.out.display()))?;
    if args.half {
        let pages = half_compressible(args.pages as usize)?;
        return write(&args.out.join("half.pages"), &pages);
    }
    begin(names.len() as u64);
    let (mut programs, mut skipped) = (Vec::new(), Vec::new());
    for recipe in RECIPES.iter().filter(|recipe| names.contains(&recipe.name)) {
        let missing = recipe.missing();
        if !missing.is_empty() {
            let (missing, packages): (Vec<&str>, Vec<&str>) = missing.into_iter().copied().unzip();
            println!(
                "{:8} skipped: {} is not installed; the package {} brings it",
                recipe.name,
                missing.join(", "),
                packages.join(", ")
            );
            skipped.push(json!({ "program": recipe.name, "missing": missing }));
            continue;
        }
        let entry = make(recipe, args).with_context(|| format!("no dump of {}", recipe.name))?;
        println!("{:8} {} pages, lz4 {}", recipe.name, entry["pages"], entry["lz4_ratio"]);
        programs.push(entry);
    }
    let made = programs.len();
    programs.extend(dumped_before(&args.out, &programs));
    let manifest = json!({
        "made_by": format!("rampack-lab {}", env!("CARGO_PKG_VERSION")),
        "date": now(),
        "pages_wanted": args.pages,
        "programs": programs,
        "skipped": skipped,
    });
    write(&args.out.join(MANIFEST), format!("{manifest:#}\n").as_bytes())?;
    if made == 0 {
        bail!("none of the programs is installed, so there is no corpus");
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// The entries of the manifest in `directory` for programs that are not among `now`, if their dumps
/// still exist. Ignores a manifest that cannot be read.
fn dumped_before(directory: &Path, now: &[Value]) -> Vec<Value> {
    let text = fs::read_to_string(directory.join(MANIFEST)).unwrap_or_default();
    let before: Value = serde_json::from_str(&text).unwrap_or_default();
    let is_other = |entry: &&Value| {
        let is_known = now.iter().any(|other| other["program"] == entry["program"]);
        !is_known && entry["file"].as_str().is_some_and(|file| directory.join(file).is_file())
    };
    before["programs"].as_array().into_iter().flatten().filter(is_other).cloned().collect()
}

/// Starts a program, lets it grow, and writes its dump.
fn make(recipe: &Recipe, args: &CorpusArgs) -> Result<Value> {
    step(recipe.name)?;
    let wanted = u64::from(args.pages) * PAGE_SIZE as u64;
    let mut subject = recipe.start()?;
    let process = subject.running.id();
    let grow = &mut subject.grow;
    let reached = subject.running.wait_until(PATIENCE, || {
        grow()?;
        // Some of these bytes cannot be taken. Counting the pages that can be takes longer.
        let enough = dump::anonymous_bytes(process)? >= wanted
            && dump::wanted_pages(process)?.len() >= args.pages as usize;
        Ok(enough.then_some(()))
    });
    // A smaller dump is still useful, if the program lives and nobody interrupted us.
    crate::interrupt::check()?;
    if let Err(error) = reached {
        subject.running.check()?;
        if dump::anonymous_bytes(process)? < LEAST_PAGES * PAGE_SIZE as u64 {
            return Err(error);
        }
    }
    sys::signal(subject.running.child(), Signal::SIGSTOP).context("cannot stop it")?;
    dump::wait_until_stopped(process)?;
    let pages = dump::take(process, args.pages as usize)?;
    subject.running.kill();
    let name = format!("{}.pages", recipe.name);
    // The rename keeps an earlier dump of this name whole for its readers.
    let partial = args.out.join(format!("{name}.partial"));
    write(&partial, &pages)?;
    fs::rename(&partial, args.out.join(&name)).with_context(|| format!("cannot make {name}"))?;
    let mut entry = json!({
        "program": recipe.name,
        "version": subject.version,
        "command": subject.command,
        "file": name,
        "date": now(),
    });
    content::examine(&pages, &mut entry)?;
    Ok(entry)
}
