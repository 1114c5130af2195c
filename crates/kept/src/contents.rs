//! The contents of a table: regions of memory, devices, and mounts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A region of memory.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Its name, by which the part of the engine that uses it asks for it.
    pub name: String,
    /// The name under which the service manager keeps its descriptor.
    pub descriptor: String,
    /// Its length.
    pub bytes: u64,
}

/// A device.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name, such as `zram0`.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// How often it got its size: a reset begins another generation, and nothing that an earlier
    /// one left belongs to it.
    pub generation: u64,
    /// Its settings, by the names of attributes: `comp_algorithm` and the parameters of the codec
    /// among them.
    pub settings: BTreeMap<String, String>,
}

/// A mount of FUSE whose requests the daemon answers.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Its name.
    pub name: String,
    /// The name under which the service manager keeps its descriptors, one or more.
    pub descriptor: String,
    /// The numbers that the kernel knows its files by, by their names.
    pub files: BTreeMap<String, u64>,
}

/// What a table says.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Contents {
    /// The regions, in any order.
    pub regions: Vec<Region>,
    /// The devices, in the order they were made.
    pub devices: Vec<Device>,
    /// The mounts, in any order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// What the daemon was asked for, by the names of options. Since layout 2.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: BTreeMap<String, String>,
}

impl Contents {
    /// The layout of a table that says this.
    pub(crate) fn layout(&self) -> u32 {
        if self.asked.is_empty() { 1 } else { 2 }
    }

    /// Says which name is there twice, if one is.
    pub(crate) fn twice(&self) -> Option<String> {
        fn first<'a>(kind: &str, names: impl Iterator<Item = &'a String>) -> Option<String> {
            let mut seen = BTreeSet::new();
            let mut names = names;
            names.find(|name| !seen.insert(*name)).map(|name| format!("two {kind} {name:?}"))
        }
        first("regions", self.regions.iter().map(|region| &region.name))
            .or_else(|| first("descriptors", self.regions.iter().map(|it| &it.descriptor)))
            .or_else(|| first("devices", self.devices.iter().map(|device| &device.name)))
            .or_else(|| first("mounts", self.mounts.iter().map(|mount| &mount.name)))
    }
}
