//! The indexes that the lab compares.

use anyhow::{Result, bail};
use designs::indexes::{RbTree, RbTreeSplit, XArray};
use zswap::index::XArraySplit;

/// An index in the comparison.
#[derive(Clone, Copy)]
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// Whether each part has its own tree.
    pub split: bool,
    /// Whether lookups take no lock.
    pub lock_free: bool,
}

const fn variant(name: &'static str, split: bool, lock_free: bool) -> Variant {
    Variant { name, split, lock_free }
}

/// All indexes.
const VARIANTS: [Variant; 4] = [
    variant(RbTree::NAME, false, false),
    variant(RbTreeSplit::NAME, true, false),
    variant(XArray::NAME, false, true),
    variant(XArraySplit::NAME, true, true),
];

/// The indexes with these names. All, if `names` is empty.
///
/// # Errors
/// A name is unknown, or appears twice.
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
