//! The pool of nodes that are in no tree.
//!
//! Each CPU keeps a few nodes, so that it seldom needs the part that all CPUs share: a list, and
//! the first number that was never used. Lists are linked through the counts of their nodes.

use pagealloc::NoMemory;
use sync::atomic::Ordering;
use sync::{Mutex, PerCpu};
use units::Cpu;

use super::cells::{Cells, SLOTS};

/// The most nodes that a CPU keeps: 16 KiB. Under loom it is more than there are, so that the node
/// that came last is used again first.
pub const KEPT: usize = if cfg!(loom) {
    4
} else if cfg!(shuttle) {
    2
} else {
    32
};

/// A linked list of nodes.
#[derive(Clone, Copy, Default)]
struct List {
    first: u32,
    count: usize,
}

impl List {
    fn push(&mut self, cells: &impl Cells, node: u32) {
        cells.count(node).store(self.first, Ordering::Relaxed);
        self.first = node;
        self.count += 1;
    }

    fn pop(&mut self, cells: &impl Cells) -> Option<u32> {
        let node = self.first;
        if node == 0 {
            return None;
        }
        self.first = cells.count(node).load(Ordering::Relaxed);
        self.count -= 1;
        Some(node)
    }
}

/// The part that all CPUs share.
#[derive(Default)]
struct Common {
    list: List,
    /// The highest number that was ever used: nodes 1 to this.
    used: u32,
}

impl Common {
    fn pop(&mut self, cells: &impl Cells) -> Option<u32> {
        self.list.pop(cells).or_else(|| {
            let fresh = self.used < cells.highest();
            self.used += u32::from(fresh);
            fresh.then_some(self.used)
        })
    }
}

/// All nodes that are in no tree. Every call must pass the same cells.
pub struct NodePool {
    cpus: PerCpu<Mutex<List>>,
    common: Mutex<Common>,
}

impl NodePool {
    pub fn new(cpus: usize) -> NodePool {
        let list = |_| Mutex::new(List::default());
        NodePool { cpus: PerCpu::new(cpus, list), common: Mutex::new(Common::default()) }
    }

    /// Fills `nodes` with nodes whose slots are empty.
    ///
    /// # Errors
    /// [`NoMemory`]; no node was taken then.
    pub fn take(&self, cells: &impl Cells, cpu: Cpu, nodes: &mut [u32]) -> Result<(), NoMemory> {
        if nodes.is_empty() {
            return Ok(());
        }
        let mut list = self.cpus.get(cpu).lock();
        for n in 0..nodes.len() {
            let node = list.pop(cells).or_else(|| self.refill(cells, &mut list));
            let Some(node) = node else {
                nodes[..n].iter().for_each(|node| list.push(cells, *node));
                return Err(NoMemory { bytes: SLOTS * size_of::<u64>() });
            };
            nodes[n] = node;
        }
        Ok(())
    }

    /// Takes a node from the shared part, and some more for the CPU.
    #[cold]
    fn refill(&self, cells: &impl Cells, list: &mut List) -> Option<u32> {
        let mut common = self.common.lock();
        for _ in 0..KEPT / 2 {
            match common.pop(cells) {
                Some(node) => list.push(cells, node),
                None => break,
            }
        }
        list.pop(cells)
    }

    /// Takes back a node that has left its tree, with empty slots.
    pub fn give(&self, cells: &impl Cells, cpu: Cpu, node: u32) {
        let mut list = self.cpus.get(cpu).lock();
        list.push(cells, node);
        if list.count > KEPT {
            let mut common = self.common.lock();
            while list.count > KEPT / 2
                && let Some(node) = list.pop(cells)
            {
                common.list.push(cells, node);
            }
        }
    }

    /// The highest number that was ever used: nodes 1 to this.
    pub fn used(&self) -> u32 {
        self.common.lock().used
    }

    /// The number of nodes in trees; approximate if other threads change them.
    pub fn allocated(&self, _: &impl Cells) -> u64 {
        let kept: usize = self.cpus.iter().map(|list| list.lock().count).sum();
        let common = self.common.lock();
        u64::from(common.used).saturating_sub((kept + common.list.count) as u64)
    }

    /// Passes every used node that is in no tree to `visit`, and returns their number.
    ///
    /// # Panics
    /// If the length of a list does not match its count.
    pub fn validate(&self, cells: &impl Cells, mut visit: impl FnMut(u32)) -> u64 {
        let mut walk = |list: &List| {
            let mut rest = *list;
            while let Some(node) = rest.pop_quietly(cells) {
                visit(node);
            }
            assert_eq!(rest.count, 0, "a list of unused nodes is shorter than it says");
            list.count as u64
        };
        let kept: u64 = self.cpus.iter().map(|list| walk(&list.lock())).sum();
        kept + walk(&self.common.lock().list)
    }
}

impl List {
    /// Pops as [`List::pop`] does. Panics if the count is zero and the list has more nodes.
    fn pop_quietly(&mut self, cells: &impl Cells) -> Option<u32> {
        if self.count == 0 {
            assert_eq!(self.first, 0, "a list of unused nodes is longer than it says");
            return None;
        }
        self.pop(cells)
    }
}
