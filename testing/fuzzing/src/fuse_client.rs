//! The kernel's side of a FUSE connection to a file: it sends requests and compares the answers
//! with a model.

use std::sync::Arc;

use block::{BlockDevice, Checked, Plain};
use fuse::swapfile::{drive, wire};

use crate::fuse_numbers::{FALLOCATE, GETATTR, HEADER, OPEN, READ, SETATTR, WRITE};

/// The size of the file in bytes, no multiple of a page.
const BYTES: usize = 40_000;

/// FORGET, INTERRUPT, NOTIFY_REPLY, BATCH_FORGET.
const SIALLOCATED: [u32; 4] = [2, 36, 41, 42];

const ENOSPC: i32 = 28;

/// Feeds the server the kernel's requests to a file, as bytes.
///
/// The first byte chooses how the target reads the rest: as one raw request, or as a list of
/// well-framed requests for one file. Every answer must have the right form, and a read must return
/// the written bytes.
pub fn fuse_requests(input: &[u8]) {
    let (choice, rest) = input.split_first().map_or((0, input), |(first, rest)| (*first, rest));
    let device: Arc<dyn BlockDevice> = Arc::new(Checked::new(Plain::new(BYTES)));
    if choice & 1 == 0 {
        check_parser(rest);
        check_form(rest, drive(rest, device).as_deref());
        return;
    }
    let mut model = vec![0; BYTES];
    for (number, described) in (1..).zip(rest.chunks(8)).take(64) {
        let request = framed(number, described);
        check_parser(&request);
        let answer = drive(&request, device.clone());
        check_form(&request, answer.as_deref());
        if let Some(answer) = answer {
            check_contents(&request, &answer, &mut model);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn check_parser(bytes: &[u8]) {
    match wire::parse(bytes) {
        Ok(request) => {
            assert_eq!(word(bytes, 0) as usize, bytes.len(), "a length that is wrong is accepted");
            assert_eq!(request.unique, long(bytes, 8));
            if let wire::Call::Write { offset, length } = request.call {
                assert_eq!(offset, long(bytes, HEADER + 8));
                assert_eq!(80 + length, bytes.len(), "all that follows is data");
            }
        }
        Err(malformed) => {
            let unique = (bytes.len() >= 16).then(|| long(bytes, 8)).filter(|unique| *unique != 0);
            assert_eq!(malformed.unique, unique, "whoever has a number gets an answer");
        }
    }
}

fn check_form(request: &[u8], answer: Option<&[u8]>) {
    let Some(answer) = answer else {
        let silent =
            request.len() < 16 || long(request, 8) == 0 || SIALLOCATED.contains(&word(request, 4));
        assert!(silent, "a request without an answer");
        return;
    };
    assert_eq!(word(answer, 0) as usize, answer.len());
    assert_eq!(long(answer, 8), long(request, 8));
    let error = word(answer, 4) as i32;
    assert!((-511..=0).contains(&error), "{error}");
    if error != 0 {
        assert_eq!(answer.len(), 16, "an error has nothing else to say");
        return;
    }
    let body = answer.len() - 16;
    match word(request, 4) {
        GETATTR | SETATTR => assert_eq!(body, 104),
        OPEN => assert_eq!(body, 16),
        READ => assert!(body <= word(request, HEADER + 16) as usize, "more than was wanted"),
        WRITE => assert_eq!(body, 8),
        17 => assert_eq!(body, 80),
        _ => assert_eq!(body, 0),
    }
}

fn check_contents(request: &[u8], answer: &[u8], model: &mut [u8]) {
    let error = -(word(answer, 4) as i32);
    let end = |from: u64, length: u64| from.saturating_add(length).min(BYTES as u64) as usize;
    let operand = |at| long(request, HEADER + at);
    match word(request, 4) {
        READ => {
            let from = operand(8).min(BYTES as u64);
            let expected = &model[from as usize..end(from, word(request, HEADER + 16).into())];
            assert_eq!(error, 0);
            assert!(answer[16..] == *expected, "other bytes than were written");
        }
        WRITE if error == 0 => {
            let (from, data) = (operand(8) as usize, &request[80..]);
            let kept = end(from as u64, data.len() as u64).saturating_sub(from);
            assert_eq!(word(answer, 16) as usize, kept);
            assert!(kept > 0 || data.is_empty(), "a write beyond the end is an error");
            model[from.min(BYTES)..][..kept].copy_from_slice(&data[..kept]);
        }
        WRITE => assert!(error == ENOSPC && operand(8) >= BYTES as u64, "{error}"),
        FALLOCATE if error == 0 => {
            let (from, length) = (operand(8), operand(16));
            let from = from.min(BYTES as u64);
            model[from as usize..end(operand(8), length).max(from as usize)].fill(0);
        }
        _ => {}
    }
}

/// Makes a well-framed request from up to eight bytes.
fn framed(number: u64, described: &[u8]) -> Vec<u8> {
    let mut byte = [0; 8];
    byte[..described.len()].copy_from_slice(described);
    let operations = [READ, WRITE, READ, WRITE, FALLOCATE, SETATTR, GETATTR, u32::from(byte[1])];
    let operation = operations[usize::from(byte[0] % 8)];
    // Most offsets are within the file, some at its end, few beyond.
    let offset = match byte[7] {
        0 => u64::MAX - u64::from(byte[2]),
        _ => u64::from(u16::from_ne_bytes([byte[2], byte[3]])),
    };
    let length = u32::from(u16::from_ne_bytes([byte[4], byte[5]])) % 20_000;
    let mut body = 0u64.to_ne_bytes().to_vec();
    match operation {
        FALLOCATE => {
            body.extend(offset.to_ne_bytes());
            body.extend(u64::from(length).to_ne_bytes());
            // The mode punches a hole, writes zeroes, or does something else; it keeps the size or
            // not.
            body.extend([3, 17, 16, u32::from(byte[6])][usize::from(byte[6] % 4)].to_ne_bytes());
            body.extend([0; 4]);
        }
        _ => {
            body.extend(offset.to_ne_bytes());
            body.extend(length.to_ne_bytes());
            body.resize(88, byte[6]);
        }
    }
    if operation == WRITE {
        body.truncate(40);
        body.extend((0..length).map(|at| (at % 251) as u8 ^ byte[6]));
    }
    frame(operation, number, &body)
}

fn frame(operation: u32, number: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(operation.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend(1u64.to_ne_bytes());
    bytes.resize(HEADER, 0);
    bytes.extend(body);
    bytes
}

/// Raw requests, and lists of described ones.
pub fn seeds() -> Vec<Vec<u8>> {
    let raw = |operation, body: &[u8]| [vec![0], frame(operation, 7, body)].concat();
    let listed = |described: &[[u8; 8]]| [vec![1], described.concat()].concat();
    let write = [1, 0, 0, 16, 0, 32, 9, 1];
    let read = [0, 0, 0, 0, 0, 64, 0, 1];
    let punch = [4, 0, 0, 20, 0, 8, 0, 1];
    vec![
        raw(READ, &[0; 40]),
        raw(WRITE, &[0; 40]),
        raw(SETATTR, &[0; 88]),
        raw(OPEN, &[0; 8]),
        raw(FALLOCATE, &[0; 32]),
        raw(26, &[7; 64]),
        listed(&[write, read, punch, read]),
        listed(&[write, [5, 0, 0, 0, 0, 0, 8, 1], [7, 17, 0, 0, 0, 0, 0, 1], read]),
    ]
}
