//! The programs that can be dumped, and how to make each grow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::redis::Filler;
use super::source;
use crate::cgroup::Group;
use crate::interrupt;
use crate::programs::{self, Running};

/// A program and how to make it grow.
pub struct Recipe {
    /// Its name on the command line and in file names.
    pub name: &'static str,
    /// The programs it needs, each with its Debian package.
    pub needs: &'static [(&'static str, &'static str)],
    make: fn(&mut Kitchen<'_>) -> Result<Running>,
    version: &'static str,
}

/// All recipes.
pub const RECIPES: [Recipe; 6] = [
    Recipe { name: "python", needs: &[("python3", "python3")], make: python, version: "--version" },
    Recipe { name: "node", needs: &[("node", "nodejs")], make: node, version: "--version" },
    Recipe {
        name: "java",
        needs: &[("java", "default-jre-headless"), ("javac", "default-jdk-headless")],
        make: java,
        version: "-version",
    },
    Recipe {
        name: "redis",
        needs: &[("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")],
        make: redis,
        version: "--version",
    },
    Recipe { name: "cc1", needs: &[("gcc", "gcc")], make: cc1, version: "--version" },
    Recipe { name: "rustc", needs: &[("rustc", "rustc")], make: rustc, version: "--version" },
];

/// A program that grows.
pub struct Subject {
    /// The program.
    pub running: Running,
    /// Makes the program grow a little, where it does not grow by itself. Called again and again.
    pub grow: Box<dyn FnMut() -> Result<()>>,
    /// The program's version, in its own words.
    pub version: String,
    /// The command line, in a directory of its own.
    pub command: String,
    /// That directory. Fields drop in order: it is removed after `running`.
    directory: TempDir,
}

/// The directory and the notes of a recipe in progress.
struct Kitchen<'a> {
    directory: PathBuf,
    group: Option<&'a Group>,
    pages: u64,
    commands: Vec<String>,
    grow: Box<dyn FnMut() -> Result<()>>,
}

impl Recipe {
    /// The needed programs that are not installed, with their packages.
    pub fn missing(&self) -> Vec<&'static (&'static str, &'static str)> {
        self.needs.iter().filter(|(program, _)| programs::find(program).is_none()).collect()
    }

    /// Starts the program with work that needs at least `pages` pages, in a group if there is one.
    ///
    /// # Errors
    /// The program cannot run.
    pub fn start(&self, pages: u64, group: Option<&Group>) -> Result<Subject> {
        let directory =
            TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
        let mut kitchen = Kitchen {
            directory: directory.path().to_owned(),
            group,
            pages,
            commands: Vec::new(),
            grow: Box::new(|| Ok(())),
        };
        let running = (self.make)(&mut kitchen)?;
        let program = programs::find(self.needs[0].0).context("it is not installed any more")?;
        Ok(Subject {
            running,
            grow: kitchen.grow,
            version: programs::version(&program, self.version),
            command: kitchen.commands.join("; "),
            directory,
        })
    }
}

impl Subject {
    /// Lets a program that would grow for ever work with what it has from now on. `python`, `node`,
    /// `java` and `redis` use most of it seldom then, and replace a little.
    ///
    /// # Errors
    /// The program's directory cannot be written.
    pub fn is_large_enough(&self) -> Result<()> {
        fs::write(self.directory.path().join(ENOUGH), "").context("the program's directory")
    }
}

/// The file that tells a program that it is large enough.
const ENOUGH: &str = "enough";

impl Kitchen<'_> {
    /// Writes a file; the name is relative to the directory.
    fn file(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.directory.join(name), text).with_context(|| format!("cannot write {name}"))
    }

    /// Notes a command line, and makes the command for it: in the directory, silent.
    fn command(&mut self, program: &str, arguments: &[&str]) -> Command {
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        self.commands.push(format!("{name} {}", arguments.join(" ")));
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Starts a program with the arguments, at the same addresses each time.
    fn start(&mut self, program: &str, arguments: &[&str]) -> Result<Running> {
        let mut command = self.command(program, arguments);
        self.run(&mut command)
    }

    /// Starts a command, at the same addresses each time, in the group.
    fn run(&self, command: &mut Command) -> Result<Running> {
        if let Some(group) = self.group {
            group.take(command)?;
        }
        Running::start(command, true)
    }
}

fn python(kitchen: &mut Kitchen<'_>) -> Result<Running> {
    kitchen.file("heap.py", include_str!("recipes/heap.py"))?;
    let mut command = kitchen.command("python3", &["heap.py"]);
    command.env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1");
    kitchen.run(&mut command)
}

fn node(kitchen: &mut Kitchen<'_>) -> Result<Running> {
    kitchen.file("heap.js", include_str!("recipes/heap.js"))?;
    kitchen.start(
        "node",
        &["--no-deprecation", "--random-seed=1", "--max-old-space-size=16384", "heap.js"],
    )
}

fn java(kitchen: &mut Kitchen<'_>) -> Result<Running> {
    kitchen.file("Heap.java", include_str!("recipes/Heap.java"))?;
    // A process of its own compiles it: the heap of a compiler is another recipe.
    let mut command = kitchen.command("javac", &["Heap.java"]);
    let mut compiler = Running::start(&mut command, true)?;
    let status = interrupt::wait_for("javac", Duration::from_secs(120), || {
        Ok(compiler.child().try_wait()?)
    })?;
    if !status.success() {
        bail!("javac: {status}");
    }
    // The heap may be larger than the memory that a group gives it.
    kitchen.start("java", &["-XX:+UseSerialGC", "-XX:-UseContainerSupport", "Heap"])
}

fn redis(kitchen: &mut Kitchen<'_>) -> Result<Running> {
    let mut running = kitchen.start(
        "redis-server",
        &["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "no"],
    )?;
    let socket = kitchen.directory.join("redis.sock");
    interrupt::wait_for("redis-server", Duration::from_secs(30), || {
        running.check()?;
        Ok(socket.exists().then_some(()))
    })?;
    let benchmark = programs::find("redis-benchmark").context("redis-benchmark is missing")?;
    kitchen.commands.push("redis-benchmark -t set,get,lpush,hset,zadd; SET of texts".to_owned());
    let mut filler = Filler::new(benchmark, socket);
    let enough = kitchen.directory.join(ENOUGH);
    kitchen.grow = Box::new(move || if enough.exists() { filler.work() } else { filler.fill() });
    Ok(running)
}

fn cc1(kitchen: &mut Kitchen<'_>) -> Result<Running> {
    let gcc = programs::find("gcc").context("gcc is missing")?;
    let cc1 = programs::said(&gcc, &["-print-prog-name=cc1"])?;
    kitchen.file("big.c", &source::c(functions(kitchen.pages)))?;
    kitchen.start(&cc1, &["-quiet", "-O2", "big.c", "-o", "big.s"])
}

fn rustc(kitchen: &mut Kitchen<'_>) -> Result<Running> {
    kitchen.file("big.rs", &source::rust(functions(kitchen.pages)))?;
    kitchen.start(
        "rustc",
        &["--crate-type=lib", "--edition=2021", "-Ccodegen-units=1", "--emit=obj", "big.rs"],
    )
}

/// The number of functions that makes a compiler take at least that many pages: it needs about a
/// page for each.
fn functions(pages: u64) -> u64 {
    pages.max(1_000)
}
