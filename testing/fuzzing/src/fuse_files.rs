//! The kernel's side of a FUSE connection to the files of disks, which a library parses.

use std::sync::{Arc, Mutex, PoisonError};

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit};
use fuse::Driven;
use units::Cpu;

use crate::blocking::Blocking;
use crate::fuse_numbers::{FALLOCATE, GETATTR, HEADER, LSEEK, OPEN, READ, RELEASE, SETATTR, WRITE};

/// The size of the file in bytes, no multiple of a page.
const BYTES: usize = 40_000;
/// The numbers of the directory and of the first file.
const ROOT: u64 = 1;
const FILE: u64 = 16;

const EINVAL: i32 = 22;
/// INIT and DESTROY begin and end a connection. In SETXATTR and IOCTL the library believes the
/// kernel's lengths, which are always right.
const LEFT_OUT: [u32; 4] = [26, 38, 21, 39];
/// Requests of which the kernel has exactly one answer: LOOKUP, GETATTR, SETATTR, OPEN, READ,
/// WRITE, STATFS, RELEASE, FSYNC, READDIR, FALLOCATE, LSEEK.
const ANSWERED: [u32; 12] = [1, 3, 4, 14, 15, 16, 17, 18, 20, 28, 43, 46];

/// The device of the input under way: a connection takes much longer to make than an input takes.
struct Changing(Mutex<Arc<Blocking>>);

impl Changing {
    fn now(&self) -> Arc<Blocking> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl BlockDevice for Changing {
    fn geometry(&self) -> Geometry {
        self.now().geometry()
    }
    fn abilities(&self) -> Abilities {
        self.now().abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        self.now().perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.now().extents(cpu, offset, length, visit)
    }
}

/// The connection of all inputs, and its device.
static CONNECTION: Mutex<Option<(Driven, Arc<Changing>)>> = Mutex::new(None);

/// The answers to `requests` about a file on `device`.
fn answers(requests: &[Vec<u8>], device: &Arc<Blocking>) -> Vec<Vec<u8>> {
    let mut connection = CONNECTION.lock().unwrap_or_else(PoisonError::into_inner);
    // After a fault the next input gets a new one.
    let (mut driven, changing) = connection.take().unwrap_or_else(|| {
        let changing = Arc::new(Changing(Mutex::new(device.clone())));
        (Driven::new(changing.clone()).expect("a connection"), changing)
    });
    *changing.0.lock().unwrap_or_else(PoisonError::into_inner) = device.clone();
    let answers = driven.ask(requests, &ANSWERED).expect("all answers");
    *connection = Some((driven, changing));
    answers
}

/// Feeds the frontend of disks the kernel's requests: to the directory, to the file `disk`, and to
/// files that are not there.
///
/// The first byte chooses the pages at which the device would have to wait; if it is 0 there are
/// none. Eight bytes describe a request. Each answer must have the right form, and if nothing is
/// put off, a read must return the written bytes.
pub fn fuse_files(input: &[u8]) {
    let (pages, rest) = input.split_first().map_or((0, input), |(first, rest)| (*first, rest));
    let device = Arc::new(Blocking::new(BYTES, u64::from(pages) << 1));
    let described = rest.chunks(8).take(48);
    let requests: Vec<Vec<u8>> =
        (1..).zip(described).filter_map(|(number, words)| framed(number, words)).collect();
    let answers = answers(&requests, &device);
    let mut seen = vec![0; 64];
    for answer in &answers {
        assert!(answer.len() >= 16 && word(answer, 0) as usize == answer.len(), "{answer:02x?}");
        let number = long(answer, 8);
        let request = requests.iter().find(|request| long(request, 8) == number);
        let request = request.unwrap_or_else(|| panic!("an answer to {number}, which nobody sent"));
        seen[number as usize] += 1;
        check_form(request, answer);
    }
    for request in &requests {
        let (operation, number) = (word(request, 4), long(request, 8));
        let most = seen[number as usize];
        assert!(most <= 1, "request {number} is answered {most} times");
        assert!(most == 1 || !ANSWERED.contains(&operation), "request {number} has no answer");
    }
    if pages == 0 {
        let mut model = vec![0; BYTES];
        for answer in &answers {
            let request = requests.iter().find(|request| long(request, 8) == long(answer, 8));
            check_contents(request.expect("it was found before"), answer, &mut model);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn check_form(request: &[u8], answer: &[u8]) {
    let error = word(answer, 4) as i32;
    assert!((-511..=0).contains(&error), "{error}");
    let body = answer.len() - 16;
    if error != 0 {
        assert_eq!(body, 0, "an error has nothing else to say");
        return;
    }
    match word(request, 4) {
        GETATTR | SETATTR => assert_eq!(body, 104),
        OPEN => assert_eq!(body, 16),
        READ => assert!(body <= word(request, HEADER + 16) as usize, "more than was wanted"),
        WRITE | LSEEK => assert_eq!(body, 8),
        _ => {}
    }
}

fn check_contents(request: &[u8], answer: &[u8], model: &mut [u8]) {
    let error = -(word(answer, 4) as i32);
    let operand = |at| long(request, HEADER + at);
    let part = |from: u64, length: u64| {
        let from = from.min(BYTES as u64);
        from as usize..from.saturating_add(length).min(BYTES as u64) as usize
    };
    match word(request, 4) {
        READ if operand(0) == FILE => {
            // No file of Linux has more bytes.
            if operand(8) > i64::MAX as u64 {
                assert_eq!(error, EINVAL);
                return;
            }
            assert_eq!(error, 0);
            let expected = &model[part(operand(8), word(request, HEADER + 16).into())];
            assert!(answer[16..] == *expected, "other bytes than were written");
        }
        WRITE if error == 0 => {
            let data = &request[HEADER + 40..];
            let part = part(operand(8), data.len() as u64);
            assert_eq!(word(answer, 16) as usize, part.len());
            model[part.clone()].copy_from_slice(&data[..part.len()]);
        }
        FALLOCATE if error == 0 => model[part(operand(8), operand(16))].fill(0),
        _ => {}
    }
}

/// Makes a request from up to eight bytes; none for those that are left out.
fn framed(number: u64, described: &[u8]) -> Option<Vec<u8>> {
    let mut byte = [0; 8];
    byte[..described.len()].copy_from_slice(described);
    let known = [READ, WRITE, READ, WRITE, FALLOCATE, SETATTR, OPEN, u32::from(byte[1])];
    let operation = known[usize::from(byte[0] % 8)];
    if LEFT_OUT.contains(&operation) {
        return None;
    }
    // Most requests are to the file, some to the directory, few to nothing.
    let node =
        [FILE, FILE, FILE, FILE, FILE, ROOT, FILE, u64::from(byte[6])][usize::from(byte[0] >> 5)];
    let offset = match byte[7] {
        0 => u64::MAX - u64::from(byte[2]),
        _ => u64::from(u16::from_ne_bytes([byte[2], byte[3]])),
    };
    let length = u32::from(u16::from_ne_bytes([byte[4], byte[5]])) % 20_000;
    // The handle of an open file is its number.
    let mut body = node.to_ne_bytes().to_vec();
    match operation {
        FALLOCATE => {
            body.extend(offset.to_ne_bytes());
            body.extend(u64::from(length).to_ne_bytes());
            body.extend([3, 17, 16, u32::from(byte[6])][usize::from(byte[6] % 4)].to_ne_bytes());
            body.extend([0; 4]);
        }
        LSEEK => {
            body.extend(offset.to_ne_bytes());
            body.extend(u32::from(byte[6] % 6).to_ne_bytes());
            body.extend([0; 4]);
        }
        READ | WRITE | SETATTR | OPEN | RELEASE | GETATTR => {
            body.extend(offset.to_ne_bytes());
            body.extend(length.to_ne_bytes());
            body.resize(88, byte[6]);
        }
        // A name, and another one where the request has two.
        _ => {
            body.clear();
            body.extend((0..length % 40).map(|at| b"disk\0di/\0\xff.."[at as usize % 12]));
            body.push(0);
        }
    }
    if operation == WRITE {
        body.truncate(40);
        body.extend((0..length).map(|at| (at % 251) as u8 ^ byte[6]));
    }
    let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(operation.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend(node.to_ne_bytes());
    bytes.resize(HEADER, 0);
    bytes.extend(body);
    Some(bytes)
}

/// Lists of requests, at once and put off.
pub fn seeds() -> Vec<Vec<u8>> {
    let write = [1, 0, 0, 16, 0, 32, 9, 1];
    let read = [0, 0, 0, 0, 0, 64, 0, 1];
    let punch = [4, 0, 0, 20, 0, 8, 0, 1];
    let other = |operation| [7, operation, 0, 8, 13, 0, 1, 1];
    let listed = |pages: u8, described: &[[u8; 8]]| [vec![pages], described.concat()].concat();
    vec![
        listed(0, &[write, read, punch, read]),
        listed(0xff, &[write, read, punch, read]),
        listed(2, &[write, write, read, punch, [5, 0, 0, 0, 0, 0, 8, 1], read]),
        listed(0, &[other(1), other(46), other(20), other(17), other(18), read]),
        listed(0, &[[0xa0, 0, 0, 0, 0, 64, 0, 1], [0xe7, 27, 0, 0, 40, 0, 1, 1], other(36), read]),
        listed(0, &[other(42), other(2), other(41), other(35), other(12), other(10), read]),
    ]
}
