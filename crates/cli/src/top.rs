//! `rampack top`: a running daemon on the terminal.
//!
//! One thread asks the daemon, and another one does what a key asks for, which may take long; this
//! one reads keys and draws. It draws only when there is something new, and waits for nobody.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::args::Top;
use crate::terminal::program;
use service::client::{self, call};
use service::failure::{failed, sentence};
use service::protocol::{DaemonReport, Request, Set};
use service::root::Root;

mod model;
mod pressure;
mod view;
use model::{Doing, Model};

/// How often the keys are looked at, at least.
const TICK: Duration = Duration::from_millis(200);

/// What the other threads tell.
enum News {
    /// An answer of the daemon.
    Report(Instant, Result<Box<DaemonReport>, ControlError>),
    /// How something that was asked for ended.
    Done(Doing, Result<(), ControlError>),
}

/// Shows the daemon at `root` until the user ends it.
///
/// # Errors
/// `ENOENT` without a daemon, `ENOTTY` without a terminal, or the error of the terminal.
pub(crate) fn run(root: &Root, options: &Top) -> Result<(), ControlError> {
    let first = client::report(root)?;
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let message = format!("top needs a terminal; `{} status` prints once", program(root));
        return Err(ControlError::new(Errno::ENOTTY, message));
    }
    let (sender, news) = channel();
    let _ = sender.send(News::Report(Instant::now(), Ok(Box::new(first))));
    let pause = Duration::from_secs(options.interval.into());
    let look = {
        let (root, sender) = (root.clone(), sender.clone());
        move || ask_again_and_again(&root, pause, &sender)
    };
    let started = thread::Builder::new().name("ask".into()).spawn(look);
    started.map_err(|error| failed("cannot start a thread", &error))?;
    let terminal = ratatui::try_init().map_err(|error| failed("cannot use the terminal", &error));
    let ended = terminal.and_then(|terminal| {
        let worker = Worker { root: root.clone(), sender };
        show(terminal, &worker, &news).map_err(|error| failed("cannot use the terminal", &error))
    });
    ratatui::restore();
    ended
}

/// Asks until nobody listens.
fn ask_again_and_again(root: &Root, pause: Duration, sender: &Sender<News>) {
    loop {
        thread::sleep(pause);
        let report = client::report(root).map(Box::new);
        if sender.send(News::Report(Instant::now(), report)).is_err() {
            return;
        }
    }
}

/// Has the daemon do what a key asks for.
struct Worker {
    root: Root,
    sender: Sender<News>,
}

impl Worker {
    /// Does it on a thread of its own. The daemon goes on with it if the user leaves meanwhile.
    fn start(&self, doing: Doing) {
        let (root, sender, failing) = (self.root.clone(), self.sender.clone(), doing.clone());
        let spawned = thread::Builder::new().name("work".into()).spawn(move || {
            let mut result = Ok(());
            for (attribute, value) in doing.what.stores() {
                let (device, attribute) = (doing.device.clone(), (*attribute).to_owned());
                let set = Set { device, attribute, value: (*value).to_owned() };
                result = result.and_then(|()| call::<()>(&root, &Request::Set(set)));
            }
            let _ = sender.send(News::Done(doing, result));
        });
        if let Err(error) = spawned {
            let error = failed("cannot start a thread", &error);
            let _ = self.sender.send(News::Done(failing, Err(error)));
        }
    }
}

fn show(mut terminal: DefaultTerminal, worker: &Worker, news: &Receiver<News>) -> io::Result<()> {
    let mut model = Model::default();
    loop {
        let mut is_new = false;
        for news in news.try_iter() {
            match news {
                News::Report(at, report) => {
                    let report = report.map(|it| *it).map_err(|error| sentence(&error));
                    is_new |= model.take(at, report, pressure::now());
                }
                News::Done(doing, result) => {
                    model.done(&doing, result.map_err(|error| sentence(&error)));
                    is_new = true;
                }
            }
        }
        if event::poll(if is_new { Duration::ZERO } else { TICK })? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if let Some(doing) = press(&mut model, key) {
                        worker.start(doing);
                    }
                    is_new = true;
                }
                Event::Resize(..) => is_new = true,
                _ => {}
            }
        }
        if model.is_over {
            return Ok(());
        }
        if is_new {
            terminal.draw(|frame| view::draw(&model, frame))?;
        }
    }
}

/// Does what a key means. Returns what the daemon is to be asked for.
fn press(model: &mut Model, key: KeyEvent) -> Option<Doing> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => model.is_over = true,
        KeyCode::Char(letter) if !is_control => return model.key(letter),
        KeyCode::Up => model.choose(-1),
        KeyCode::Down => model.choose(1),
        KeyCode::Esc => model.is_over = true,
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests;
