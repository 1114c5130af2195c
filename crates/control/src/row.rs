//! A row: one attribute, defined once.

use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::fmt;

use crate::{Errno, Fault};

/// What may be done with an attribute. Acting rows are kept apart, so that no program that merely
/// looks round can act by accident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read only (0444).
    Read,
    /// Read only, and by its owner alone (0400).
    ReadOwner,
    /// Write only, a setting (0200).
    Write,
    /// Read and write (0644).
    ReadWrite,
    /// A write does something (`reset`, `compact`; 0200).
    ActOnWrite,
    /// A read does something (`hot_add`; 0400).
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

    /// The mode bits the kernel's file has.
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

/// How a row shows its value.
pub type Show<T> = fn(&T, &mut dyn fmt::Write) -> Result<(), Fault>;
/// How a row takes a value; the text comes as it was written, often with a newline.
pub type Store<T> = fn(&T, &str) -> Result<(), Fault>;

/// One attribute of a `T`.
pub struct Row<T> {
    /// The kernel's name.
    pub name: &'static str,
    /// What may be done with it.
    pub access: Access,
    /// The unit of its value: `bytes`, `pages`, `count`, `name`, `text`.
    pub unit: &'static str,
    /// One sentence for `--help` and the manual.
    pub help: &'static str,
    /// Prints the value with its newline, in the kernel's format. May be called at any time by any
    /// number of threads.
    pub show: Option<Show<T>>,
    /// Takes a value. May be called at any time by any number of threads; a refused value changes
    /// nothing.
    pub store: Option<Store<T>>,
}

/// A row without its functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowInfo {
    /// See [`Row::name`].
    pub name: &'static str,
    /// See [`Row::access`].
    pub access: Access,
    /// See [`Row::unit`].
    pub unit: &'static str,
    /// See [`Row::help`].
    pub help: &'static str,
}

/// Something with attributes.
pub trait Object: Send + Sync {
    /// What there is.
    fn rows(&self) -> Vec<RowInfo>;

    /// The value of one attribute, with its newline.
    ///
    /// # Errors
    /// `ENOENT` for an unknown name (the message lists the known ones), `EACCES` for one that
    /// cannot be read, or the row's own fault.
    fn show(&self, name: &str) -> Result<String, Fault>;

    /// Gives one attribute a value.
    ///
    /// # Errors
    /// `ENOENT` for an unknown name (the message lists the known ones), `EACCES` for one that
    /// cannot be written, or the row's own fault; nothing has changed then.
    fn store(&self, name: &str, value: &str) -> Result<(), Fault>;
}

/// Rows bound to the thing they read.
pub struct Bound<T: 'static> {
    object: Arc<T>,
    rows: &'static [Row<T>],
}

impl<T: Send + Sync + 'static> Bound<T> {
    /// Binds `rows` to `object`.
    pub fn new(object: Arc<T>, rows: &'static [Row<T>]) -> Bound<T> {
        Bound { object, rows }
    }

    fn find(&self, name: &str) -> Result<&'static Row<T>, Fault> {
        self.rows.iter().find(|row| row.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.rows.iter().map(|row| row.name).collect();
            let message = format!("no attribute {name:?}; there are: {}", known.join(" "));
            Fault::new(Errno::ENOENT, message)
        })
    }
}

impl<T: Send + Sync + 'static> Object for Bound<T> {
    fn rows(&self) -> Vec<RowInfo> {
        let info =
            |r: &Row<T>| RowInfo { name: r.name, access: r.access, unit: r.unit, help: r.help };
        self.rows.iter().map(info).collect()
    }

    fn show(&self, name: &str) -> Result<String, Fault> {
        let row = self.find(name)?;
        let show = row.show.ok_or_else(|| {
            Fault::new(Errno::EACCES, format!("{name} is write-only and cannot be read"))
        })?;
        let mut text = String::new();
        show(&self.object, &mut text)?;
        Ok(text)
    }

    fn store(&self, name: &str, value: &str) -> Result<(), Fault> {
        let row = self.find(name)?;
        let store = row.store.ok_or_else(|| {
            Fault::new(Errno::EACCES, format!("{name} is read-only and cannot be set"))
        })?;
        store(&self.object, value)
    }
}
