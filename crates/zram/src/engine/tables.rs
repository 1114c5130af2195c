//! The memory of the tables of a device.

use alloc::{format, string::String, sync::Arc};

use pagealloc::MemoryProvider;

use crate::resources::Resources;

/// The tables of a device that an engine asks for. Their names are a part of what outlives the
/// process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Table {
    /// What the slots do not say.
    Record,
    /// The words of the slots, and which were written.
    Slots,
    /// The descriptors of zspages.
    Zspages,
    /// The times of last use.
    Times,
    /// The entries of shared objects.
    Shared,
    /// The windows of clones.
    Clones,
    /// What slots do not say of the log on the backing device.
    Log,
}

impl Resources {
    /// The name of what a device has in memory that outlives the process.
    pub(crate) fn kept_name(id: u32, generation: u64) -> String {
        format!("zram{id}.{generation}")
    }

    /// The memory of a table of the device with this name, or of one that ends with the process.
    pub(crate) fn memory_of(&self, name: &str, table: Table) -> Arc<dyn MemoryProvider> {
        let table = match table {
            Table::Record => "record",
            Table::Slots => "slots",
            Table::Zspages => "zspages",
            Table::Times => "times",
            Table::Shared => "shared",
            Table::Clones => "clones",
            Table::Log => "log",
        };
        match &self.kept {
            Some(kept) => kept.provider(&format!("{name}.{table}")),
            None => self.provider.clone(),
        }
    }
}
