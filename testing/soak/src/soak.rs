//! `rampack-soak run`: a great many operations on pages over all transports, each page compared,
//! beside everything that an administrator does, failing backing devices and killed clients.
//!
//! Three kinds of processes take part. The server ([`server`]) has two disks and two swap areas,
//! serves them by all frontends, and has workers that call the library. Each client ([`client`]) is
//! a worker on one of the frontends. The parent starts them, kills clients and starts others in
//! their places, and watches the server's memory, descriptors and threads ([`watch`]).
//!
//! Each page has one owner ([`layout`]), who knows its version ([`versions`]); the version tells
//! the contents ([`contents`]). A page whose change was refused or under way when its client was
//! killed may be old or new, but it is one of them, whole.

mod admin;
mod children;
mod client;
mod contents;
mod faults;
mod layout;
pub mod nbd_client;
mod report;
mod server;
pub mod target;
mod versions;
mod watch;
mod worker;

use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use sync::Mutex;
use tempfile::TempDir;

use crate::args::SoakArgs;
use crate::interrupt;
use children::Child;
pub use layout::Transport;
use layout::{Blocks, ClientPart, Part, Place, ServerPart, Status, Way};
use report::{Report, Row};
use watch::Sample;
use worker::Counts;

/// Time that the server has to start, and to notice that a client is gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the server is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often progress is printed.
const TELL: Duration = Duration::from_secs(10);
/// How long the parent sleeps in between.
const NAP: Duration = Duration::from_millis(20);

/// Runs the command.
///
/// # Errors
/// A page is wrong or lost, the server grows, a process fails, a transport is not there, or an
/// interrupt.
pub fn run(args: &SoakArgs) -> Result<()> {
    if let Some(part) = &args.part {
        return match serde_json::from_str(part).context("--part")? {
            Part::Server(part) => server::run(&part),
            Part::Client(part) => client::run(&part),
        };
    }
    let transports = transports(args)?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let names: Vec<&str> = transports.iter().map(|transport| transport.name()).collect();
    eprintln!("soak: seed {seed}, over {}", names.join(", "));
    let directory = TempDir::with_prefix_in("rampack-soak-", &args.dir)
        .with_context(|| format!("cannot make a directory in {}", args.dir.display()))?;
    let places = layout::places(&transports, args.pages as usize, seed);
    let part =
        ServerPart { directory: directory.path().to_path_buf(), seed, places, stale: args.stale };
    let mut soak = Soak::start(part)?;
    let work = soak.work(args);
    // The server takes down what it made also after an error.
    let ended = work.and_then(|()| soak.end());
    if let Err(error) = ended {
        // An error of the server may be the cause of a client's.
        let error = match soak.server.end() {
            Ok(()) => error,
            Err(cause) => anyhow!("{error:#}; {cause:#}"),
        };
        return Err(error.context(format!("seed {seed}")));
    }
    let report = soak.report(&transports);
    report.show(args.json)?;
    match (report.second_third, report.last_third) {
        (Some(before), Some(after)) => watch::judge([before, after]),
        _ => Ok(()),
    }
}

/// Checks that this machine has what files and loop devices take.
fn can_serve() -> Result<()> {
    for node in ["/dev/fuse", "/dev/loop-control"] {
        let opened = File::options().read(true).write(true).open(node);
        opened.with_context(|| format!("a block device of ours takes root and {node}"))?;
    }
    Ok(())
}

/// The transports that are asked for, or all that this machine has.
fn transports(args: &SoakArgs) -> Result<Vec<Transport>> {
    let asked = !args.transports.is_empty();
    let mut transports = if asked { args.transports.clone() } else { Transport::ALL.to_vec() };
    let needs = |it: &Transport| matches!(it, Transport::Fuse | Transport::Loop);
    if transports.iter().any(needs)
        && let Err(error) = can_serve()
    {
        if asked {
            return Err(error);
        }
        eprintln!("soak: without files and loop devices: {error:#}");
        transports.retain(|it| !needs(it));
    }
    Ok(transports)
}

/// A client in its place.
struct Client {
    number: usize,
    place: Place,
    child: Child<Counts>,
    /// The counts of those that were killed.
    before: Counts,
    kills: u64,
}

struct Soak {
    part: ServerPart,
    blocks: Blocks,
    clients: Vec<Client>,
    server: Child<Status>,
    random: fastrand::Rng,
    begun: Instant,
    samples: Vec<Sample>,
}

impl Soak {
    fn start(part: ServerPart) -> Result<Soak> {
        let ready = std::sync::Arc::new(Mutex::new(None));
        let heard = ready.clone();
        let hear = move |status: &Status| {
            if let Some(blocks) = &status.ready {
                *heard.lock() = Some(blocks.clone());
            }
        };
        let mut server = Child::start("the server".into(), &Part::Server(part.clone()), hear)?;
        let blocks = interrupt::wait_for("the server", PATIENCE, || {
            server.check()?;
            Ok(ready.lock().clone())
        })?;
        let random = fastrand::Rng::with_seed(part.seed);
        let mut soak = Soak {
            part,
            blocks,
            clients: Vec::new(),
            server,
            random,
            begun: Instant::now(),
            samples: Vec::new(),
        };
        for (number, place) in soak.part.places.clone().into_iter().enumerate() {
            if !place.inside {
                let child = soak.client(number, &place)?;
                let (before, kills) = (Counts::default(), 0);
                soak.clients.push(Client { number, place, child, before, kills });
            }
        }
        Ok(soak)
    }

    fn client(&self, number: usize, place: &Place) -> Result<Child<Counts>> {
        let part = ClientPart {
            share: place.share,
            way: Way::of(place, &self.part, &self.blocks),
            log: layout::log_of(&self.part.directory, number),
        };
        let name = format!("client {number} ({})", place.transport.name());
        Child::start(name, &Part::Client(part), |_| {})
    }

    /// Lets them work until there are enough operations.
    fn work(&mut self, args: &SoakArgs) -> Result<()> {
        let pause = Duration::from_millis(u64::from(args.kill_every));
        let (mut killed, mut told) = (Instant::now(), Instant::now());
        let mut looked = Instant::now();
        loop {
            interrupt::check()?;
            // A wrong page is the first thing to tell: what a client says comes before what the
            // server says of a client that left.
            self.clients.iter_mut().try_for_each(|client| client.child.check())?;
            self.server.check()?;
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.samples.push(Sample::of(self.server.id())?);
            }
            let operations = self.operations();
            if told.elapsed() >= TELL {
                told = Instant::now();
                self.tell(operations, args.operations);
            }
            if operations >= args.operations {
                return Ok(());
            }
            if !pause.is_zero() && killed.elapsed() >= pause && !self.clients.is_empty() {
                self.kill_one()?;
                killed = Instant::now();
            }
            std::thread::sleep(NAP);
        }
    }

    /// Kills a client in the middle of its requests, and starts another one in its place.
    fn kill_one(&mut self) -> Result<()> {
        // All have begun to work, so each has its connection.
        if self.clients.iter().any(|client| client.child.said().is_none()) {
            return Ok(());
        }
        let chosen = self.random.usize(..self.clients.len());
        let client = &self.clients[chosen];
        let (number, place) = (client.number, client.place);
        let next = self.clients.swap_remove(chosen);
        let counts = next.child.said().unwrap_or_default();
        next.child.kill();
        if place.transport == Transport::Nbd {
            let left = self.clients.iter().filter(|it| it.place.transport == Transport::Nbd);
            self.wait_for_connections(left.count())?;
        }
        let child = self.client(number, &place)?;
        let before = next.before.and(&counts);
        self.clients.push(Client { number, place, child, before, kills: next.kills + 1 });
        Ok(())
    }

    /// Waits until the server has ended the connection of a client that is gone: its last request
    /// may be under way until then.
    fn wait_for_connections(&mut self, left: usize) -> Result<()> {
        let since = Instant::now();
        let server = &mut self.server;
        interrupt::wait_for("the end of a connection", PATIENCE, || {
            server.check()?;
            let said = server.said_since(since);
            Ok(said.filter(|status| status.connections <= left).map(drop))
        })
    }

    fn status(&self) -> Status {
        self.server.said().unwrap_or_default()
    }

    /// The counts of each worker, in the order of places.
    fn counts(&self) -> Vec<(Place, Counts, u64)> {
        let status = self.status();
        let inside = self.part.places.iter().filter(|place| place.inside).zip(&status.inside);
        let inside = inside.map(|(place, counts)| (*place, *counts, 0));
        let outside = self.clients.iter().map(|client| {
            let now = client.child.said().unwrap_or_default();
            (client.place, client.before.and(&now), client.kills)
        });
        inside.chain(outside).collect()
    }

    fn operations(&self) -> u64 {
        self.counts().iter().map(|(_, counts, _)| counts.operations()).sum()
    }

    fn tell(&self, operations: u64, wanted: u64) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let kills: u64 = self.clients.iter().map(|client| client.kills).sum();
        let last = self.samples.last().copied().unwrap_or_default();
        eprintln!(
            "soak: {seconds:.0} s: {operations} of {wanted} operations ({:.0} a second), {} \
             faults, {kills} kills, {} of memory, {} descriptors, {} threads",
            operations as f64 / seconds,
            self.status().faults,
            units::human(last.rss),
            last.descriptors,
            last.threads
        );
    }

    /// Lets every worker read all of its pages, and ends the processes.
    fn end(&mut self) -> Result<()> {
        self.clients.iter_mut().try_for_each(|client| client.child.end())?;
        self.server.end()
    }

    fn report(&self, transports: &[Transport]) -> Report {
        let (counts, status) = (self.counts(), self.status());
        let rows: Vec<Row> = transports
            .iter()
            .map(|transport| {
                let own = counts.iter().filter(|(place, ..)| place.transport == *transport);
                let mut row =
                    Row { transport: *transport, workers: 0, counts: Counts::default(), kills: 0 };
                for (_, counts, kills) in own {
                    row.workers += 1;
                    row.counts = row.counts.and(counts);
                    row.kills += kills;
                }
                row
            })
            .collect();
        let seconds = self.begun.elapsed().as_secs_f64();
        let operations = self.operations();
        let thirds = watch::thirds(&self.samples);
        Report {
            command: "soak",
            seed: self.part.seed,
            seconds,
            operations,
            operations_per_second: operations as f64 / seconds,
            kills: rows.iter().map(|row| row.kills).sum(),
            rows,
            wrong: 0,
            lost: 0,
            faults: status.faults,
            acts: status.acts,
            second_third: thirds.map(|[before, _]| before),
            last_third: thirds.map(|[_, after]| after),
        }
    }
}
