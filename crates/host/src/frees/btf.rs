//! How the functions of the kernel take their arguments, by its own description of its types (BTF,
//! the kernel document `bpf/btf.rst`).
//!
//! It only reads what it is given: a description that is cut off or contradicts itself has no such
//! function.

/// Kinds of types. Of those without a name here only the length matters.
mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const RESTRICT: u32 = 11;
    pub const FUNC: u32 = 12;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const FLOAT: u32 = 16;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

const MAGIC: u32 = 0xeb9f;
/// The bytes of a header, and of a type without what follows it.
const HEADER: usize = 24;
const TYPE: usize = 12;
/// Names and qualifiers of a type that are looked through; real ones have a few.
const DEEP: usize = 32;

/// A parameter of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parameter {
    /// A `swp_entry_t`: a structure of one `unsigned long`, which is passed as that is.
    Entry,
    /// An integer of so many bytes.
    Integer(u32),
    /// Something else that takes one register.
    Other,
    /// Something that may be passed in another way.
    Unknown,
}

/// The description of a kernel's types.
pub struct Btf<'a> {
    /// The types, from the first on, which has number 1.
    types: Vec<&'a [u8]>,
    names: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(found.try_into().ok()?))
}

/// The bytes that follow a type of this kind, with `count` members; `None` for an unknown kind.
fn rest(kind: u32, count: usize) -> Option<usize> {
    use kind::{
        ARRAY, CONST, DATASEC, DECL_TAG, ENUM, ENUM64, FLOAT, FUNC, FUNC_PROTO, INT, PTR, RESTRICT,
        STRUCT, TYPE_TAG, TYPEDEF, UNION, VAR, VOLATILE,
    };
    /// Declared elsewhere.
    const FORWARD: u32 = 7;
    Some(match kind {
        INT | VAR | DECL_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | DATASEC | ENUM64 => count * 12,
        ENUM | FUNC_PROTO => count * 8,
        PTR | FORWARD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNC | FLOAT | TYPE_TAG => 0,
        _ => return None,
    })
}

fn kind_of(one: &[u8]) -> Option<(u32, usize)> {
    let info = word(one, 4)?;
    Some((info >> 24 & 0x1f, (info & 0xffff) as usize))
}

impl<'a> Btf<'a> {
    /// Reads a description; `None` if it is none of this machine's byte order, or is cut off.
    pub fn read(bytes: &'a [u8]) -> Option<Btf<'a>> {
        let length = word(bytes, 4)? as usize;
        if word(bytes, 0)? & 0xffff != MAGIC || length < HEADER {
            return None;
        }
        let part = |at: usize| {
            let start = length.checked_add(word(bytes, at)? as usize)?;
            bytes.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
        };
        let (mut left, names) = (part(8)?, part(16)?);
        let mut types = Vec::new();
        while !left.is_empty() {
            let (kind, count) = kind_of(left)?;
            let (one, behind) = left.split_at_checked(TYPE + rest(kind, count)?)?;
            types.push(one);
            left = behind;
        }
        Some(Btf { types, names })
    }

    fn get(&self, number: u32) -> Option<&'a [u8]> {
        self.types.get((number as usize).checked_sub(1)?).copied()
    }

    fn name(&self, one: &[u8]) -> Option<&'a [u8]> {
        let from = self.names.get(word(one, 0)? as usize..)?;
        from.get(..from.iter().position(|byte| *byte == 0)?)
    }

    /// The parameters of function `name`; `None` if there is none, or there are several that
    /// differ.
    pub fn function(&self, name: &str) -> Option<Vec<Parameter>> {
        let is_it = |one: &&&[u8]| {
            kind_of(one).is_some_and(|(kind, _)| kind == kind::FUNC)
                && self.name(one) == Some(name.as_bytes())
        };
        let mut found = self.types.iter().filter(is_it).map(|one| self.parameters(one));
        let first = found.next()??;
        found.all(|other| other.as_ref() == Some(&first)).then_some(first)
    }

    fn parameters(&self, function: &[u8]) -> Option<Vec<Parameter>> {
        let prototype = self.get(word(function, 8)?)?;
        let (kind::FUNC_PROTO, count) = kind_of(prototype)? else { return None };
        // A structure that is returned in memory shifts the parameters.
        let returned = word(prototype, 8)?;
        if returned != 0 && self.parameter(returned) == Parameter::Unknown {
            return None;
        }
        let all = (0..count).map(|n| word(prototype, TYPE + n * 8 + 4));
        all.map(|number| Some(self.parameter(number?))).collect()
    }

    fn parameter(&self, number: u32) -> Parameter {
        self.one(number).unwrap_or(Parameter::Unknown)
    }

    fn one(&self, mut number: u32) -> Option<Parameter> {
        let mut is_entry = false;
        for _ in 0..DEEP {
            let one = self.get(number)?;
            let ((kind, count), size) = (kind_of(one)?, word(one, 8)?);
            return Some(match kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    is_entry |= kind == kind::TYPEDEF && self.name(one)? == b"swp_entry_t";
                    number = size;
                    continue;
                }
                kind::PTR => Parameter::Other,
                kind::INT if size <= 8 => Parameter::Integer(size),
                kind::ENUM if size <= 8 => Parameter::Other,
                kind::STRUCT if is_entry && size == 8 && count == 1 => {
                    match self.one_below(word(one, TYPE + 4)?)? {
                        Parameter::Integer(8) => Parameter::Entry,
                        _ => Parameter::Unknown,
                    }
                }
                _ => Parameter::Unknown,
            });
        }
        None
    }

    /// A member. It is no structure, so this ends.
    fn one_below(&self, number: u32) -> Option<Parameter> {
        let mut number = number;
        for _ in 0..DEEP {
            let one = self.get(number)?;
            let size = word(one, 8)?;
            match kind_of(one)?.0 {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST => number = size,
                kind::INT => return Some(Parameter::Integer(size)),
                _ => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
