//! The ranges where devices fail: first and last bytes, page boundaries, nothing, everything.

use std::ops::ControlFlow;

use block::{BlockDevice, IoError, Operation, ZeroMode};
use units::{Cpu, PAGE_SIZE};

use super::crowd::{Make, P};
use crate::content::Fill;
use crate::events::{Event, Span};
use crate::model::Model;

/// Tests the edges of devices of a few sizes. Each step compares the whole device with the model.
///
/// # Panics
/// When the device differs from the model.
pub fn edges(make: Make<'_>) {
    for pages in [1, 2, 3, 67] {
        let device = make(pages * P);
        assert_eq!(device.geometry().bytes, pages * P, "the device has another size");
        let mut model = Model::new(&*device, false);
        let mut step = |event| {
            let step = model.step(&*device, &event);
            let all = step.and_then(|()| model.compare_all(&*device));
            if let Err(wrong) = all {
                panic!("{wrong}\nafter {event:?} on a device of {pages} pages");
            }
        };
        // A fresh device reads as zeroes and has no data.
        step(Event::Flush);
        for span in spans(pages * P, u64::from(device.geometry().minimum_block.max(1))) {
            let noise = Fill::Noise(span.offset ^ span.length << 32 ^ 1);
            step(Event::Write(span, noise));
            step(Event::Read(span));
            step(Event::Extents(span));
            step(Event::Discard(span));
            step(Event::Write(span, Fill::Text(3)));
            step(Event::WriteZeroes(span, ZeroMode::KeepAllocated));
            step(Event::Write(span, noise));
            step(Event::WriteZeroes(span, ZeroMode::MayPunch));
            step(Event::WriteZeroes(span, ZeroMode::KeepAllocated));
            // Gives the next range neighbours with data.
            step(Event::Write(Span::new(0, pages * P), Fill::Noise(span.length)));
        }
        last_byte_of_a_pattern(&mut step);
        visitors_may_break_off(&*device, pages * P);
    }
}

/// The ranges, cut to the device and to multiples of `unit`.
fn spans(bytes: u64, unit: u64) -> Vec<Span> {
    let ends = [0, 1, 511, 512, 513, P - 1, P, P + 1, 2 * P, bytes / 2, bytes - 1, bytes];
    let mut spans: Vec<Span> = Vec::new();
    for start in ends {
        for end in ends {
            let (start, end) = (start / unit * unit, end.next_multiple_of(unit).min(bytes));
            if start > end || spans.len() > 1 && bytes > 8 * P && (start + end) % (3 * P) > 600 {
                continue;
            }
            let span = Span::new(start, end - start);
            if !spans.contains(&span) {
                spans.push(span);
            }
        }
    }
    spans
}

/// A page with one odd byte in its pattern is not same-filled, wherever the byte is.
fn last_byte_of_a_pattern(step: &mut dyn FnMut(Event)) {
    let page = Span::new(0, P);
    for words in [0, 0x1111_1111_1111_1111, 0x0123_4567_89ab_cdef, 0x89ab_cdef_89ab_cdef] {
        step(Event::Write(page, Fill::Words(words)));
        for at in [0, 7, 8, 63, 64, 127, 128, 2047, PAGE_SIZE - 1] {
            step(Event::Write(page, Fill::Spoiled { words, at: at as u32 }));
        }
    }
}

fn visitors_may_break_off(device: &dyn BlockDevice, bytes: u64) {
    let mut calls = 0;
    let seen = device.extents(Cpu(0), 0, bytes, &mut |_| {
        calls += 1;
        ControlFlow::Break(())
    });
    if seen != Err(IoError::Unsupported) {
        assert_eq!((seen, calls), (Ok(()), 1), "the visitor broke off, and was called again");
    }
}

/// Writes noise to every page and returns the number of refused writes. Each page must then have
/// the noise, or zeroes as before.
pub(super) fn fill_with_noise(device: &dyn BlockDevice, seed: u64) -> u64 {
    let pages = device.geometry().bytes / P;
    let mut noise = [0; PAGE_SIZE];
    let mut refused = Vec::new();
    for page in 0..pages {
        Fill::Noise(seed ^ page).render(&mut noise);
        let written = device.submit(Cpu(0), Operation::Write { offset: page * P, from: &noise });
        match written {
            Ok(()) => {}
            Err(IoError::NoSpace | IoError::NoMemory) => refused.push(page),
            Err(error) => panic!("writing page {page} failed: {error}"),
        }
    }
    for page in 0..pages {
        match refused.contains(&page) {
            true => noise.fill(0),
            false => Fill::Noise(seed ^ page).render(&mut noise),
        }
        assert!(read_page(device, page) == noise, "page {page} is wrong on a full device");
    }
    refused.len() as u64
}

fn read_page(device: &dyn BlockDevice, page: u64) -> [u8; PAGE_SIZE] {
    let mut into = [0xa5; PAGE_SIZE];
    let read = device.submit(Cpu(0), Operation::Read { offset: page * P, into: &mut into });
    read.unwrap_or_else(|error| panic!("reading page {page} failed: {error}"));
    into
}

/// Discards everything. The device must then read as zeroes.
pub(super) fn discard_all(device: &dyn BlockDevice) {
    let length = device.geometry().bytes;
    let discarded = device.submit(Cpu(0), Operation::Discard { offset: 0, length });
    assert_eq!(discarded, Ok(()), "a discard of everything failed");
    for page in 0..length / P {
        assert!(read_page(device, page) == [0; PAGE_SIZE], "page {page} survived its discard");
    }
}
