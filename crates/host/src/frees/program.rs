//! The two programs for the kernel, as arrays of instructions (RFC 9669; the kernel document
//! `bpf/standardization/instruction-set.rst`), and the memory that they share with this process.
//!
//! The memory has a record for each swap type, and the bits of pages:
//!
//! | at | what | who writes it |
//! |---|---|---|
//! | type x 64 | when the type was last given to swap space | the kernel |
//! | + 8 | the thread that had it swapped on | the kernel |
//! | + 16 | the time above, if the type is ours since then | this process, last |
//! | + 24 | the number of its first bit; in the low half, how many it has | this process, once |
//! | 2048 | pages that were heard of | the kernel |
//! | 2056 | which function tells of them | this process |
//! | 4096 | the bits | both |
//!
//! A type that is given to other swap space gets another time, in the call that does it. So from
//! then on, before the first page of that space is freed, it is not ours any more.

/// Swap types of Linux (`MAX_SWAPFILES` is 32 or less).
pub const TYPES: usize = 32;
/// Bytes of a record, and its fields.
pub const RECORD: usize = 64;
pub const GIVEN: usize = 0;
pub const CALLER: usize = 8;
pub const OURS: usize = 16;
pub const PLACE: usize = 24;
/// The places of the count, of what tells of pages, and of the bits.
pub const HEARD: usize = TYPES * RECORD;
pub const FUNCTION: usize = HEARD + 8;
pub const BITS: usize = 4096;
/// The most pages of one free: of a cluster. More are not heard.
const MOST: i32 = 512;
/// The type is above these bits of a `swp_entry_t` (`SWP_TYPE_SHIFT`).
const TYPE_SHIFT: i32 = 58;

/// Where a function that frees pages has its arguments, in bytes from the beginning of `pt_regs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arguments {
    /// The first page.
    pub entry: i16,
    /// The number of pages; one without it.
    pub count: Option<i16>,
}

/// The place of argument `number` in the kernel's `pt_regs`; `None` if it is not in a register.
pub fn argument(number: usize) -> Option<i16> {
    let at = if cfg!(target_arch = "x86_64") {
        // rdi, rsi, rdx, rcx, r8, r9.
        *[112, 104, 96, 88, 72, 64].get(number)?
    } else if cfg!(target_arch = "aarch64") {
        // x0 to x7.
        *[0, 8, 16, 24, 32, 40, 48, 56].get(number)?
    } else {
        return None;
    };
    Some(at)
}

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R6: u8 = 6;
const R7: u8 = 7;
const R8: u8 = 8;
const R9: u8 = 9;

/// Operations on 64 bits with an immediate; with a register they have [`FROM_REGISTER`].
const ADD: u8 = 0x07;
const OR: u8 = 0x47;
const AND: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const SHIFT_RIGHT: u8 = 0x77;
const MOVE: u8 = 0xb7;
const FROM_REGISTER: u8 = 0x08;
/// Moves the low half, and clears the high one.
const MOVE_LOW: u8 = 0xbc;
const LOAD: u8 = 0x79;
const STORE: u8 = 0x7b;
/// Atomic operations in memory; the operation is the immediate.
const ATOMIC: u8 = 0xdb;
/// A constant of 64 bits, in two instructions.
const CONSTANT: u8 = 0x18;
const JUMP: u8 = 0x05;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_ABOVE: u8 = 0x25;
const JUMP_NOT_BELOW: u8 = 0x35;
const JUMP_NOT_EQUAL: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Helper functions of the kernel, for programs of any licence.
const KTIME_GET_NS: i32 = 5;
const GET_CURRENT_PID_TGID: i32 = 14;
/// The source of a constant that is a place in the memory of a map.
const MAP_VALUE: u8 = 2;

/// A program that is being written. Jumps to the end get their distance when it is known.
struct Writer {
    code: Vec<u64>,
    to_end: Vec<usize>,
    map: i32,
}

impl Writer {
    fn put(&mut self, operation: u8, (to, from): (u8, u8), offset: i16, immediate: i32) {
        let registers = u64::from(to | from << 4);
        let (offset, immediate) = (u64::from(offset as u16), u64::from(immediate as u32));
        self.code.push(u64::from(operation) | registers << 8 | offset << 16 | immediate << 32);
    }

    fn with(&mut self, operation: u8, to: u8, immediate: i32) {
        self.put(operation, (to, 0), 0, immediate);
    }

    fn from(&mut self, operation: u8, to: u8, from: u8) {
        self.put(operation | FROM_REGISTER, (to, from), 0, 0);
    }

    fn load(&mut self, to: u8, from: u8, offset: i16) {
        self.put(LOAD, (to, from), offset, 0);
    }

    fn store(&mut self, to: u8, offset: usize, from: u8) {
        self.put(STORE, (to, from), offset as i16, 0);
    }

    fn atomic(&mut self, operation: u8, to: u8, from: u8) {
        self.put(ATOMIC, (to, from), 0, i32::from(operation & 0xf0));
    }

    /// A place in the memory.
    fn place(&mut self, to: u8, at: usize) {
        self.put(CONSTANT, (to, MAP_VALUE), 0, self.map);
        self.put(0, (0, 0), 0, at as i32);
    }

    fn constant(&mut self, to: u8, value: u64) {
        self.put(CONSTANT, (to, 0), 0, value as u32 as i32);
        self.put(0, (0, 0), 0, (value >> 32) as i32);
    }

    fn end_if(&mut self, jump: u8, one: u8, immediate: i32) {
        self.to_end.push(self.code.len());
        self.with(jump, one, immediate);
    }

    fn end_if_register(&mut self, jump: u8, one: u8, other: u8) {
        self.to_end.push(self.code.len());
        self.from(jump, one, other);
    }

    /// The place of the record of the type in `type`, in `to`.
    fn record(&mut self, to: u8, of: u8) {
        self.place(to, 0);
        self.with(SHIFT_LEFT, of, RECORD.trailing_zeros() as i32);
        self.from(ADD, to, of);
    }

    /// Ends it: the program returns 0.
    fn end(mut self) -> Vec<u64> {
        let end = self.code.len();
        for at in self.to_end.drain(..) {
            self.code[at] |= ((end - at - 1) as u64) << 16;
        }
        self.with(MOVE, R0, 0);
        self.with(EXIT, 0, 0);
        self.code
    }
}

/// The program for the function that frees pages: sets the bits of those that are ours. `pages` is
/// the number of all bits.
pub fn frees(map: i32, arguments: Arguments, pages: u64) -> Vec<u64> {
    let mut it = Writer { code: Vec::new(), to_end: Vec::new(), map };
    it.load(R6, R1, arguments.entry);
    match arguments.count {
        Some(at) => {
            it.load(R7, R1, at);
            it.put(MOVE_LOW, (R7, R7), 0, 0);
            it.end_if(JUMP_ABOVE, R7, MOST);
        }
        None => it.with(MOVE, R7, 1),
    }
    // R8 is the type, R6 the offset.
    it.from(MOVE, R8, R6);
    it.with(SHIFT_RIGHT, R8, TYPE_SHIFT);
    it.end_if(JUMP_ABOVE, R8, TYPES as i32 - 1);
    it.with(SHIFT_LEFT, R6, 64 - TYPE_SHIFT);
    it.with(SHIFT_RIGHT, R6, 64 - TYPE_SHIFT);
    it.record(R9, R8);
    it.load(R1, R9, GIVEN as i16);
    it.end_if(JUMP_EQUAL, R1, 0);
    it.load(R2, R9, OURS as i16);
    it.end_if_register(JUMP_NOT_EQUAL, R1, R2);
    // R1 is the first bit, R2 the number of bits.
    it.load(R1, R9, PLACE as i16);
    it.put(MOVE_LOW, (R2, R1), 0, 0);
    it.with(SHIFT_RIGHT, R1, 32);
    it.from(MOVE, R3, R6);
    it.from(ADD, R3, R7);
    it.end_if_register(JUMP_ABOVE, R3, R2);
    it.from(ADD, R6, R1);
    it.place(R9, HEARD);
    it.atomic(ADD, R9, R7);
    // R8 counts to R7.
    it.place(R9, BITS);
    it.with(MOVE, R8, 0);
    let again = it.code.len();
    it.end_if_register(JUMP_NOT_BELOW, R8, R7);
    it.from(MOVE, R1, R6);
    it.from(ADD, R1, R8);
    it.constant(R2, pages);
    it.end_if_register(JUMP_NOT_BELOW, R1, R2);
    it.from(MOVE, R2, R1);
    it.with(AND, R2, 63);
    it.with(MOVE, R3, 1);
    it.from(SHIFT_LEFT, R3, R2);
    it.with(SHIFT_RIGHT, R1, 6);
    it.with(SHIFT_LEFT, R1, 3);
    it.from(MOVE, R4, R9);
    it.from(ADD, R4, R1);
    it.atomic(OR, R4, R3);
    it.with(ADD, R8, 1);
    let back = again as i16 - it.code.len() as i16 - 1;
    it.put(JUMP, (0, 0), back, 0);
    it.end()
}

/// The program for the function that learns of new swap space: notes the time and the thread in
/// the record of its type, which is the first argument.
pub fn given(map: i32) -> Option<Vec<u64>> {
    let mut it = Writer { code: Vec::new(), to_end: Vec::new(), map };
    it.load(R6, R1, argument(0)?);
    it.put(MOVE_LOW, (R6, R6), 0, 0);
    it.end_if(JUMP_ABOVE, R6, TYPES as i32 - 1);
    it.put(CALL, (0, 0), 0, GET_CURRENT_PID_TGID);
    it.from(MOVE, R7, R0);
    it.put(CALL, (0, 0), 0, KTIME_GET_NS);
    it.from(MOVE, R8, R0);
    it.record(R9, R6);
    it.store(R9, CALLER, R7);
    it.store(R9, GIVEN, R8);
    Some(it.end())
}
