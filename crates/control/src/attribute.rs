//! Attributes, each defined once.

use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::fmt;

use crate::{ControlError, Errno};

/// The access to an attribute. Attributes with an effect have their own kinds, so that a program
/// that only reads values causes no effect by accident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read only (0444).
    Read,
    /// Read only, by its owner only (0400).
    ReadOwner,
    /// Write only, a setting (0200).
    Write,
    /// Read and write (0644).
    ReadWrite,
    /// A write has an effect (`reset`, `compact`; 0200).
    ActOnWrite,
    /// A read has an effect (`hot_add`; 0400).
    ActOnRead,
}

impl Access {
    /// May the value be read without effect?
    #[must_use]
    pub const fn readable(self) -> bool {
        matches!(self, Access::Read | Access::ReadOwner | Access::ReadWrite)
    }

    /// May a value be written?
    #[must_use]
    pub const fn writable(self) -> bool {
        matches!(self, Access::Write | Access::ReadWrite | Access::ActOnWrite)
    }

    /// The mode bits of the kernel's file.
    #[must_use]
    pub const fn mode(self) -> u32 {
        match self {
            Access::Read => 0o444,
            Access::Write | Access::ActOnWrite => 0o200,
            Access::ReadWrite => 0o644,
            Access::ReadOwner | Access::ActOnRead => 0o400,
        }
    }
}

/// What programs that watch make of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// Nothing: a text, a setting, an act, or a number that another attribute has too.
    Plain,
    /// A number that rises and falls.
    Gauge,
    /// A number that rises, and begins anew only with its object.
    Counter,
    /// Several numbers, one behind the other.
    Row(&'static [Number]),
    /// Lines that begin with a name and hold these numbers; the first field says what is named.
    /// Lines with more or fewer words are something else.
    Table(&'static str, &'static [Number]),
}

/// One of the numbers of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    /// Its name.
    pub name: &'static str,
    /// Does it only rise? Otherwise it rises and falls.
    pub is_counter: bool,
    /// Its unit.
    pub unit: &'static str,
    /// A few words about it.
    pub help: &'static str,
}

impl Number {
    /// A number that rises and falls.
    #[must_use]
    pub const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Number {
        Number { name, is_counter: false, unit, help }
    }

    /// A number that only rises.
    #[must_use]
    pub const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Number {
        Number { name, is_counter: true, unit, help }
    }
}

/// Prints the value of an attribute.
pub type Show<T> = fn(&T, &mut dyn fmt::Write) -> Result<(), ControlError>;
/// Takes a new value of an attribute; the text is as written, often with a newline.
pub type Store<T> = fn(&T, &str) -> Result<(), ControlError>;

/// Makes a relative path absolute, or says why it cannot.
pub type Absolute<'a> = dyn FnMut(&str) -> Result<String, ControlError> + 'a;

/// One attribute of a `T`.
pub struct Attribute<T> {
    /// The kernel's name.
    pub name: &'static str,
    /// The access to it.
    pub access: Access,
    /// The unit of its value: `bytes`, `pages`, `count`, `name`, `text`.
    pub unit: &'static str,
    /// What programs that watch make of it.
    pub kind: ValueKind,
    /// One sentence for `--help` and the manual.
    pub help: &'static str,
    /// Prints the value with its newline, in the kernel's format. Any number of threads may call it
    /// at any time.
    pub show: Option<Show<T>>,
    /// Takes a value; a refused value changes nothing. Any number of threads may call it at any
    /// time.
    pub store: Option<Store<T>>,
}

impl<T> Attribute<T> {
    /// The attribute without its functions.
    #[must_use]
    pub fn info(&self) -> AttributeInfo {
        let Attribute { name, access, unit, kind, help, .. } = *self;
        AttributeInfo { name, access, unit, kind, help }
    }
}

/// An attribute without its functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributeInfo {
    /// See [`Attribute::name`].
    pub name: &'static str,
    /// See [`Attribute::access`].
    pub access: Access,
    /// See [`Attribute::unit`].
    pub unit: &'static str,
    /// See [`Attribute::kind`].
    pub kind: ValueKind,
    /// See [`Attribute::help`].
    pub help: &'static str,
}

/// An object with attributes.
pub trait Object: Send + Sync {
    /// All its attributes.
    fn attributes(&self) -> Vec<AttributeInfo>;

    /// The value of one attribute, with its newline.
    ///
    /// # Errors
    /// `ENOENT` for an unknown name (the message lists the known ones), `EACCES` for one that
    /// cannot be read, or the attribute's own error.
    fn show(&self, name: &str) -> Result<String, ControlError>;

    /// Sets the value of one attribute.
    ///
    /// # Errors
    /// `ENOENT` for an unknown name (the message lists the known ones), `EACCES` for one that
    /// cannot be written, or the attribute's own error; nothing has changed then.
    fn store(&self, name: &str, value: &str) -> Result<(), ControlError>;

    /// `value` of one attribute, with each relative path in it as `absolute` has it. Most
    /// attributes take no path.
    ///
    /// # Errors
    /// The error of `absolute`.
    fn with_absolute_paths(
        &self,
        name: &str,
        value: &str,
        absolute: &mut Absolute<'_>,
    ) -> Result<String, ControlError> {
        let _ = (name, absolute);
        Ok(value.into())
    }
}

/// Attributes bound to their object.
pub struct Bound<T: 'static> {
    object: Arc<T>,
    attributes: &'static [Attribute<T>],
}

impl<T: Send + Sync + 'static> Bound<T> {
    /// Binds `attributes` to `object`.
    pub fn new(object: Arc<T>, attributes: &'static [Attribute<T>]) -> Bound<T> {
        Bound { object, attributes }
    }

    fn find(&self, name: &str) -> Result<&'static Attribute<T>, ControlError> {
        self.attributes.iter().find(|attribute| attribute.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.attributes.iter().map(|attribute| attribute.name).collect();
            let message = format!("no attribute {name:?}; there are: {}", known.join(" "));
            ControlError::new(Errno::ENOENT, message)
        })
    }
}

impl<T: Send + Sync + 'static> Object for Bound<T> {
    fn attributes(&self) -> Vec<AttributeInfo> {
        self.attributes.iter().map(Attribute::info).collect()
    }

    fn show(&self, name: &str) -> Result<String, ControlError> {
        let attribute = self.find(name)?;
        let show = attribute.show.ok_or_else(|| {
            ControlError::new(Errno::EACCES, format!("{name} is write-only and cannot be read"))
        })?;
        let mut text = String::new();
        show(&self.object, &mut text)?;
        Ok(text)
    }

    fn store(&self, name: &str, value: &str) -> Result<(), ControlError> {
        let attribute = self.find(name)?;
        let store = attribute.store.ok_or_else(|| {
            ControlError::new(Errno::EACCES, format!("{name} is read-only and cannot be set"))
        })?;
        store(&self.object, value)
    }
}
