//! The indexes that the lab compares.

use anyhow::{Result, bail};
use designs::indexes::{RbTree, RbTreeSplit, XArray, XArraySplit};
use zswap::index::Flat;

/// An index in the comparison.
#[derive(Clone, Copy)]
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// Whether each part has its own tree, or the area has a table.
    pub split: bool,
    /// The calls that take a lock.
    pub locked: Locked,
}

/// Calls that take a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// All calls.
    All,
    /// All but lookups.
    Changes,
    /// None.
    None,
}

const fn variant(name: &'static str, split: bool, locked: Locked) -> Variant {
    Variant { name, split, locked }
}

/// All indexes.
const VARIANTS: [Variant; 5] = [
    variant(RbTree::NAME, false, Locked::All),
    variant(RbTreeSplit::NAME, true, Locked::All),
    variant(XArray::NAME, false, Locked::Changes),
    variant(XArraySplit::NAME, true, Locked::Changes),
    variant(Flat::NAME, true, Locked::None),
];

/// The indexes with these names. All, if `names` is empty.
pub fn named(names: &[String]) -> Result<Vec<Variant>> {
    if names.is_empty() {
        return Ok(VARIANTS.to_vec());
    }
    let all = VARIANTS.map(|variant| variant.name).join(", ");
    let named = names.iter().enumerate().map(|(n, name)| {
        if names[..n].contains(name) {
            bail!("--variants {name}: it takes part already");
        }
        match VARIANTS.iter().find(|variant| variant.name == name) {
            Some(variant) => Ok(*variant),
            None => bail!("--variants {name}: there is no such index: {all} are"),
        }
    });
    named.collect()
}
