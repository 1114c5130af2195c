//! Nodes that are in no tree.
//!
//! Each CPU keeps a few, so that it seldom needs what all share: a list, and the first number that
//! was never used. Lists are threaded through the counts of their nodes.

use pagealloc::NoMemory;
use sync::atomic::Ordering;
use sync::{Mutex, PerCpu};
use units::Cpu;

use super::cells::{Cells, SLOTS};

/// Nodes a CPU keeps at most: 16 KiB.
pub const KEPT: usize = if cfg!(any(loom, shuttle)) { 2 } else { 32 };

/// Nodes, one behind the other.
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

/// What all CPUs share.
#[derive(Default)]
struct Common {
    list: List,
    /// Nodes that were ever used: 1 to this.
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

/// All nodes that are in no tree. The methods are always called with the same cells.
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
    /// [`NoMemory`]; none was taken then.
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

    /// Gets a node from what all share, and some more for the CPU.
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

    /// Takes back a node that is in no tree any more, with empty slots.
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

    /// Nodes that were ever used: those numbered 1 to this.
    pub fn used(&self) -> u32 {
        self.common.lock().used
    }

    /// How many nodes are in trees. Of a moment, if others change them.
    pub fn allocated(&self, _: &impl Cells) -> u64 {
        let kept: usize = self.cpus.iter().map(|list| list.lock().count).sum();
        let common = self.common.lock();
        u64::from(common.used).saturating_sub((kept + common.list.count) as u64)
    }

    /// Shows every node that was used and is in no tree to `visit`, and gives their number.
    ///
    /// # Panics
    /// If a list is not as long as it says.
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
    /// As [`List::pop`]; a list that is longer than it says has an end here.
    fn pop_quietly(&mut self, cells: &impl Cells) -> Option<u32> {
        if self.count == 0 {
            assert_eq!(self.first, 0, "a list of unused nodes is longer than it says");
            return None;
        }
        self.pop(cells)
    }
}
