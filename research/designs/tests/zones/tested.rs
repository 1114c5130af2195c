//! The designs that are tested here: all but the product's, which has the same tests beside it.
// Each test binary uses a part of it.
#![allow(dead_code)]

use designs::zones::{
    Cluster, Design as ListDesign, ListZone, NoMerge, Premerge, RangeRw, Spin, Splice,
};
use pagealloc::Frames;
use units::{Cpu, Frame};

use crate::design::{Design, Lender, Make};

impl<D: ListDesign> Lender for ListZone<D> {
    fn largest(&self) -> u8 {
        0
    }
    fn lend(&self, cpu: Cpu, _: u8) -> Option<Frame> {
        self.alloc(cpu)
    }
    fn take_back(&self, cpu: Cpu, frame: Frame, _: u8) {
        self.free(cpu, frame);
    }
}

/// Every design.
pub const DESIGNS: &[Design] = &[
    Design { merges: true, ..list::<Spin>() },
    Design { merges: true, ..list::<RangeRw>() },
    list::<Splice>(),
    list::<Premerge>(),
    list::<NoMerge>(),
    list::<Cluster>(),
];

/// One of the kernel's shape.
const fn list<D: ListDesign>() -> Design {
    let make: Make = |provider, options| {
        Box::new(ListZone::<D>::new(provider, options).expect("there is memory for it"))
    };
    Design { name: D::NAME, make, merges: false, returns_at_once: false }
}
