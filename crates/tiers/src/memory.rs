//! What the policy remembers of a page.

const TIME_BITS: u32 = 26;
const TIME: u32 = (1 << TIME_BITS) - 1;
const COMPARED: u32 = 1 << TIME_BITS;
const RETURNS: u32 = 7;
const RETURNS_AT: u32 = TIME_BITS + 1;
const TIER_AT: u32 = 30;

/// What the policy remembers of a page. Zero is a page of which it knows nothing.
///
/// 26 bits of the second of its last use (they wrap after two years), one that says that it was
/// compared with others since, three that count how often it came back too soon, and two for the
/// tier to which it was moved.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Memory(u32);

impl Memory {
    /// The memory that was kept as these bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Memory {
        Memory(bits)
    }

    /// Its bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// How often the page came back too soon: 0 to 7.
    #[must_use]
    pub const fn returns(self) -> u32 {
        (self.0 >> RETURNS_AT) & RETURNS
    }

    /// The tier to which it was moved, or was to be moved if that had made it smaller; 0 if it was
    /// not, or came back since.
    #[must_use]
    pub const fn tier(self) -> usize {
        (self.0 >> TIER_AT) as usize
    }

    /// Whether it was compared with other pages since its last use, and has not moved.
    #[must_use]
    pub const fn is_compared(self) -> bool {
        self.0 & COMPARED != 0
    }

    /// The seconds between the use that it remembers and a later one; `None` if there is none.
    pub(crate) fn idle(self, last_used: u32) -> Option<u32> {
        let seconds = last_used.wrapping_sub(self.0) & TIME;
        (self.0 != 0 && seconds != 0 && seconds <= TIME / 2).then_some(seconds)
    }

    /// The same memory, of a page that was used last in this second.
    #[must_use]
    pub fn used(self, second: u32) -> Memory {
        match (self.0 ^ second) & TIME {
            0 => self,
            _ => Memory(self.0 & !TIME & !COMPARED | second & TIME),
        }
    }

    /// The same memory, of a page that was moved to this tier.
    #[must_use]
    pub fn in_tier(self, tier: usize) -> Memory {
        Memory(self.0 << 2 >> 2 & !COMPARED | (tier as u32 & 3) << TIER_AT)
    }

    /// The same memory, of a page of tier 0 that was compared with others, and has not moved.
    #[must_use]
    pub fn compared(self) -> Memory {
        Memory(self.in_tier(0).0 | COMPARED)
    }

    pub(crate) fn with_returns(self, returns: u32) -> Memory {
        let others = self.0 & !(RETURNS << RETURNS_AT);
        Memory(others | returns.min(RETURNS) << RETURNS_AT)
    }
}
