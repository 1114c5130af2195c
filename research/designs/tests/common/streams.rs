//! The policies of streams that the product does not ship, as the tests of disks take them.

use designs::POLICIES;
use zcomp::Policy;

/// The policy of this name.
pub fn policy(name: &str) -> (&'static str, Policy) {
    *POLICIES.iter().find(|policy| policy.0 == name).expect("it is on the list")
}

/// Each, with the limit of streams to set before the disk has a size.
pub const OTHER_STREAMS: [(&str, u32); 4] =
    [("single", 0), ("multi", 0), ("multi", 3), ("mutex", 0)];
