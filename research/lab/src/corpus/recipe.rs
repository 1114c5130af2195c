//! The programs that can be dumped, and how to make each grow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::redis::Filler;
use crate::programs::{self, Running};

/// A program and how to make it grow.
pub struct Recipe {
    /// Its name on the command line and in file names.
    pub name: &'static str,
    /// The programs it needs, each with its Debian package.
    pub needs: &'static [(&'static str, &'static str)],
    make: fn(&mut Kitchen) -> Result<Running>,
    version: &'static str,
}

pub static RECIPES: [Recipe; 4] = [
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
];

/// A program that grows.
pub struct Subject {
    pub running: Running,
    /// Makes the program grow a little, where it does not grow by itself. Called again and again.
    pub grow: Box<dyn FnMut() -> Result<()>>,
    /// The program's version, in its own words.
    pub version: String,
    /// The command line, in a directory of its own.
    pub command: String,
    /// That directory. Fields drop in order: it is removed after `running`.
    _directory: TempDir,
}

/// The directory and the notes of a recipe in progress.
struct Kitchen {
    directory: PathBuf,
    commands: Vec<String>,
    grow: Box<dyn FnMut() -> Result<()>>,
}

impl Recipe {
    /// The needed programs that are not installed, with their packages.
    pub fn missing(&self) -> Vec<&'static (&'static str, &'static str)> {
        self.needs.iter().filter(|(program, _)| programs::find(program).is_none()).collect()
    }

    /// Starts the program.
    pub fn start(&self) -> Result<Subject> {
        let directory =
            TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
        let mut kitchen = Kitchen {
            directory: directory.path().to_owned(),
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
            _directory: directory,
        })
    }
}

impl Kitchen {
    /// Writes a file; the name is relative to the directory.
    fn file(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.directory.join(name), text).with_context(|| format!("cannot write {name}"))
    }

    /// Notes a command line, and makes the command for it: in the directory, silent.
    fn command(&mut self, program: &str, arguments: &[&str]) -> Command {
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        self.commands.push(format!("{name} {}", arguments.join(" ")));
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.directory).stdout(Stdio::null());
        command
    }

    /// Starts a program with the arguments, at the same addresses each time.
    fn start(&mut self, program: &str, arguments: &[&str]) -> Result<Running> {
        let mut command = self.command(program, arguments);
        Running::start(&mut command, true)
    }
}

fn python(kitchen: &mut Kitchen) -> Result<Running> {
    kitchen.file("heap.py", include_str!("recipes/heap.py"))?;
    let mut command = kitchen.command("python3", &["heap.py"]);
    command.env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1");
    Running::start(&mut command, true)
}

fn node(kitchen: &mut Kitchen) -> Result<Running> {
    kitchen.file("heap.js", include_str!("recipes/heap.js"))?;
    kitchen.start(
        "node",
        &["--no-deprecation", "--random-seed=1", "--max-old-space-size=16384", "heap.js"],
    )
}

fn java(kitchen: &mut Kitchen) -> Result<Running> {
    kitchen.file("Heap.java", include_str!("recipes/Heap.java"))?;
    // A process of its own compiles it: a compiler has another heap.
    let mut command = kitchen.command("javac", &["Heap.java"]);
    Running::start(&mut command, true)?.finish(Duration::from_secs(120))?;
    kitchen.start("java", &["-XX:+UseSerialGC", "-XX:-UseContainerSupport", "Heap"])
}

fn redis(kitchen: &mut Kitchen) -> Result<Running> {
    let mut running = kitchen.start(
        "redis-server",
        &["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "no"],
    )?;
    let socket = kitchen.directory.join("redis.sock");
    running.wait_until(Duration::from_secs(30), || Ok(socket.exists().then_some(())))?;
    let benchmark = programs::find("redis-benchmark").context("redis-benchmark is missing")?;
    kitchen.commands.push("redis-benchmark -t set,get,lpush,hset,zadd; SET of texts".to_owned());
    let mut filler = Filler::new(benchmark, socket);
    kitchen.grow = Box::new(move || filler.fill());
    Ok(running)
}
