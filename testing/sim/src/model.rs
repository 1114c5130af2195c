//! A model of a device that is too simple to be wrong, and the comparison with it.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use block::{BlockDevice, Context, ExtentKind, IoError, Operation, ZeroMode};
use units::{Cpu, PAGE_SIZE};

use crate::events::{Event, Events, Span, Weights};

/// Whether a page is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    /// The page was never written, or was discarded.
    No,
    /// The page was written.
    Yes,
    /// Both answers are right: a part of a hole was zeroed, or a change to the page failed.
    Either,
}

/// The contents a device must have.
pub struct Model {
    bytes: Vec<u8>,
    pages: Vec<Held>,
    may_fill_up: bool,
    gives_back: bool,
    refused: u64,
    steps: u32,
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Changes that the device refused for lack of space.
    pub refused: u64,
    /// Pages with contents at the end. Pages in doubt are not counted.
    pub held: u64,
}

impl Model {
    /// Makes the model of a new device. With `may_fill_up` the device may refuse changes for lack
    /// of space or memory. Every other error is a mismatch.
    #[must_use]
    pub fn new(device: &dyn BlockDevice, may_fill_up: bool) -> Model {
        let bytes = device.geometry().bytes as usize;
        Model {
            bytes: vec![0; bytes],
            pages: vec![Held::No; bytes.div_ceil(PAGE_SIZE)],
            may_fill_up,
            gives_back: device.abilities().discard,
            refused: 0,
            steps: 0,
        }
    }

    /// The result so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let held = self.pages.iter().filter(|held| **held == Held::Yes).count() as u64;
        Outcome { refused: self.refused, held }
    }

    /// Applies an event to the device and to the model, and compares.
    ///
    /// # Errors
    /// A sentence that names the difference.
    pub fn step(&mut self, device: &dyn BlockDevice, event: &Event) -> Result<(), String> {
        // Any number may be a CPU.
        self.steps = self.steps.wrapping_add(1);
        let cpu = Cpu(self.steps % 5);
        match *event {
            Event::Read(span) => self.compare(device, cpu, span),
            Event::Write(span, fill) => {
                let mut from = vec![0; span.length as usize];
                fill.render(&mut from);
                let operation = Operation::Write { offset: span.offset, from: &from };
                match self.ask(device, cpu, span, operation)? {
                    Ok(()) => {
                        self.bytes[span.indices()].copy_from_slice(&from);
                        self.pages[span.pages()].fill(Held::Yes);
                        Ok(())
                    }
                    Err(error) => self.resolve(device, cpu, span, &from, error),
                }
            }
            Event::Discard(span) => {
                let Span { offset, length } = span;
                let discard = Operation::Discard { offset, length };
                let discarded = self.ask(device, cpu, span, discard)?;
                discarded.map_err(|error| format!("a discard failed: {error}"))?;
                self.give_up(span);
                Ok(())
            }
            Event::WriteZeroes(span, mode) => {
                let Span { offset, length } = span;
                let zero = Operation::WriteZeroes { offset, length, mode };
                match self.ask(device, cpu, span, zero)? {
                    Ok(()) => {
                        self.zero(span, mode);
                        Ok(())
                    }
                    Err(error) => self.resolve(device, cpu, span, &vec![0; length as usize], error),
                }
            }
            Event::Flush => self
                .ask(device, cpu, Span::new(0, 0), Operation::Flush)?
                .map_err(|error| format!("a flush failed: {error}")),
            Event::Extents(span) => self.judge_extents(device, span),
        }
    }

    /// Compares all bytes of the device with the model.
    ///
    /// # Errors
    /// A sentence that names the difference.
    pub fn compare_all(&self, device: &dyn BlockDevice) -> Result<(), String> {
        let all = Span { offset: 0, length: self.bytes.len() as u64 };
        self.compare(device, Cpu(0), all)?;
        self.judge_extents(device, all)
    }

    /// Submits an operation. For most ranges it first submits it as a thread that must not wait. If
    /// the device would block, each page may be old or new, and the operation is submitted again.
    fn ask(
        &self,
        device: &dyn BlockDevice,
        cpu: Cpu,
        span: Span,
        mut operation: Operation<'_>,
    ) -> Result<Result<(), IoError>, String> {
        if !((span.offset + span.length) / 512).is_multiple_of(3) {
            match device.perform(Context::at_once(cpu), operation.reborrow()) {
                Err(IoError::WouldBlock) if operation.changes() => {
                    let zeroes = vec![0; span.length as usize];
                    let from = match &operation {
                        Operation::Write { from, .. } => from,
                        _ => &zeroes[..],
                    };
                    for page in span.pages() {
                        self.new_if_changed(device, cpu, (span, from), page)
                            .map_err(|wrong| format!("{wrong}, by a change that would block"))?;
                    }
                }
                Err(IoError::WouldBlock) => {}
                done => return Ok(done),
            }
        }
        Ok(device.submit(cpu, operation))
    }

    /// The new contents of a page, if it has them after a change of `span` to `from` that was
    /// carried out in part at most. It must have its old or its new contents.
    fn new_if_changed(
        &self,
        device: &dyn BlockDevice,
        cpu: Cpu,
        (span, from): (Span, &[u8]),
        page: usize,
    ) -> Result<Option<Vec<u8>>, String> {
        let start = page * PAGE_SIZE;
        let end = (start + PAGE_SIZE).min(self.bytes.len());
        let mut into = vec![0xa5; end - start];
        device
            .submit(cpu, Operation::Read { offset: start as u64, into: &mut into })
            .map_err(|error| format!("page {page} cannot be read: {error}"))?;
        let old = &self.bytes[start..end];
        let mut new = old.to_vec();
        let part = span.indices();
        let (first, last) = (part.start.max(start), part.end.min(end));
        new[first - start..last - start]
            .copy_from_slice(&from[first - part.start..last - part.start]);
        if into != old && into != new {
            return Err(format!("page {page} is neither the old nor the new one"));
        }
        Ok((into == new).then_some(new))
    }

    fn compare(&self, device: &dyn BlockDevice, cpu: Cpu, span: Span) -> Result<(), String> {
        // The buffer is not zero, so that the comparison detects bytes that a read left out.
        let mut into = vec![0xa5; span.length as usize];
        self.ask(device, cpu, span, Operation::Read { offset: span.offset, into: &mut into })?
            .map_err(|error| format!("a read of {span:?} failed: {error}"))?;
        let expected = &self.bytes[span.indices()];
        match into.iter().zip(expected).position(|(is, was)| is != was) {
            None => Ok(()),
            Some(n) => {
                let at = span.offset as usize + n;
                let (page, byte) = (at / PAGE_SIZE, at % PAGE_SIZE);
                Err(format!(
                    "byte {byte} of page {page} reads as {:#04x}; {:#04x} was stored",
                    into[n], expected[n]
                ))
            }
        }
    }

    fn give_up(&mut self, span: Span) {
        for page in span.whole_pages() {
            let start = page * PAGE_SIZE;
            self.bytes[start..start + PAGE_SIZE].fill(0);
            self.pages[page] = if self.gives_back { Held::No } else { Held::Either };
        }
    }

    fn zero(&mut self, span: Span, mode: ZeroMode) {
        self.bytes[span.indices()].fill(0);
        match mode {
            ZeroMode::KeepAllocated => self.pages[span.pages()].fill(Held::Yes),
            ZeroMode::MayPunch => {
                for page in span.pages() {
                    if self.pages[page] == Held::No {
                        self.pages[page] = Held::Either;
                    }
                }
                self.give_up(span);
            }
        }
    }

    /// Checks a failed change: each page must have its old or its new contents.
    fn resolve(
        &mut self,
        device: &dyn BlockDevice,
        cpu: Cpu,
        span: Span,
        from: &[u8],
        error: IoError,
    ) -> Result<(), String> {
        if !self.may_fill_up || !matches!(error, IoError::NoSpace | IoError::NoMemory) {
            return Err(format!("a change of {span:?} failed: {error}"));
        }
        if span.length == 0 {
            return Err(format!("a change of nothing was refused: {error}"));
        }
        self.refused += 1;
        for page in span.pages() {
            let new = self
                .new_if_changed(device, cpu, (span, from), page)
                .map_err(|wrong| format!("{wrong} after a refused change: {error}"))?;
            if let Some(new) = new {
                let zeroes = new.iter().all(|byte| *byte == 0);
                self.pages[page] = if zeroes { Held::Either } else { Held::Yes };
                let start = page * PAGE_SIZE;
                self.bytes[start..start + new.len()].copy_from_slice(&new);
            }
        }
        Ok(())
    }

    fn judge_extents(&self, device: &dyn BlockDevice, span: Span) -> Result<(), String> {
        let (mut at, end) = (span.offset, span.offset + span.length);
        let mut wrong = None;
        let told = device.extents(Cpu(0), span.offset, span.length, &mut |extent| {
            if extent.length == 0 || extent.length > end - at {
                wrong = Some(format!("extent {extent:?} at {at} does not fit to {end}"));
            } else {
                wrong = self.judge(Span { offset: at, length: extent.length }, extent.kind);
                at += extent.length;
            }
            if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match told {
            Ok(()) => {}
            // A client whose road does not tell them.
            Err(IoError::Unsupported) if at == span.offset => return Ok(()),
            Err(error) => return Err(format!("extents of {span:?} are refused: {error}")),
        }
        match wrong {
            Some(wrong) => Err(wrong),
            None if at != end => Err(format!("the extents of {span:?} end at {at}")),
            None => Ok(()),
        }
    }

    fn judge(&self, span: Span, kind: ExtentKind) -> Option<String> {
        if kind != ExtentKind::Data {
            let data = self.bytes[span.indices()].iter().position(|byte| *byte != 0);
            if let Some(n) = data {
                let page = (span.offset as usize + n) / PAGE_SIZE;
                return Some(format!("page {page} has data and is called {kind:?}"));
            }
        }
        let contradiction = if kind == ExtentKind::Hole { Held::Yes } else { Held::No };
        let page = span.pages().find(|page| self.pages[*page] == contradiction)?;
        Some(match contradiction {
            Held::Yes => format!("page {page} was written, and is called a hole"),
            _ => format!("page {page} was given up or never written, and is called {kind:?}"),
        })
    }
}

/// A run of random events on a device and its model.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// The seed of the events.
    pub seed: u64,
    /// The number of events.
    pub events: usize,
    /// The kinds of events.
    pub weights: Weights,
    /// Whether the device may refuse changes for lack of space.
    pub may_fill_up: bool,
}

/// The number of events that a failure message lists.
const TOLD: usize = 12;

impl Drive {
    /// Makes a run of `events` events of the usual kinds on a device that has space.
    #[must_use]
    pub fn new(seed: u64, events: usize) -> Drive {
        Drive { seed, events, weights: Weights::default(), may_fill_up: false }
    }

    /// The events for a device.
    pub fn events(&self, device: &dyn BlockDevice) -> impl Iterator<Item = Event> {
        let geometry = device.geometry();
        let unit = u64::from(geometry.minimum_block.max(1));
        Events::new(self.seed, geometry.bytes, unit, self.weights).take(self.events)
    }

    /// Runs on a new device.
    ///
    /// # Panics
    /// When device and model differ. The message has the seed and the last events.
    pub fn run(&self, device: &dyn BlockDevice) -> Outcome {
        let mut model = Model::new(device, self.may_fill_up);
        let mut last = VecDeque::new();
        for (number, event) in self.events(device).enumerate() {
            if last.len() == TOLD {
                last.pop_front();
            }
            last.push_back(event);
            if let Err(wrong) = model.step(device, &event) {
                self.report(&wrong, &format!("at event {number}, after\n{}", listed(&last)));
            }
        }
        if let Err(wrong) = model.compare_all(device) {
            self.report(&wrong, &format!("at the end, after\n{}", listed(&last)));
        }
        model.outcome()
    }

    fn report(&self, wrong: &str, when: &str) -> ! {
        panic!("{wrong}\n{when}The events are drawn from {:#x}", self.seed);
    }
}

/// Lists events, one a line.
#[must_use]
pub fn listed<'a>(events: impl IntoIterator<Item = &'a Event>) -> String {
    events.into_iter().map(|event| format!("  {event:?}\n")).collect()
}

/// Drives a fresh device with `events` random events from `seed`, and compares it with the model.
///
/// # Panics
/// When they differ.
pub fn drive(device: &dyn BlockDevice, seed: u64, events: usize) -> Outcome {
    Drive::new(seed, events).run(device)
}
