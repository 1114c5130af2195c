//! The kernel's zswap in front of a swap file (kernel document `admin-guide/mm/zswap.rst`).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::area::{Plain, on_disk};
use super::{Area, Shop, Told, ours::Ours};
use crate::proc_files::{Counters, kib};

const PARAMETERS: &str = "/sys/module/zswap/parameters";

/// The old values of the kernel's parameters. Drop restores them.
struct Parameters {
    before: Vec<(&'static str, String)>,
}

impl Parameters {
    /// Sets the parameters in this order.
    fn set(values: &[(&'static str, String)]) -> Result<Parameters> {
        if !Path::new(PARAMETERS).is_dir() {
            bail!("this kernel has no zswap");
        }
        let mut parameters = Parameters { before: Vec::new() };
        for (name, value) in values {
            let path = Path::new(PARAMETERS).join(name);
            let before = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            parameters.before.push((name, before.trim().to_owned()));
            write(name, value)?;
        }
        Ok(parameters)
    }
}

fn write(name: &str, value: &str) -> Result<()> {
    let path = Path::new(PARAMETERS).join(name);
    fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
}

impl Drop for Parameters {
    fn drop(&mut self) {
        // In reverse order: zswap is switched off first.
        for (name, value) in self.before.iter().rev() {
            if let Err(error) = write(name, value) {
                eprintln!("rampack-lab: a parameter of zswap stays as it is: {error:#}");
            }
        }
    }
}

/// The least percentage of the memory that is at least `bytes`, as the kernel wants it.
pub fn percent(bytes: u64, total: u64) -> u64 {
    (bytes.saturating_mul(100)).div_ceil(total.max(1)).clamp(1, 100)
}

/// The limit of its pool.
fn limited(shop: &Shop) -> Result<Vec<(&'static str, String)>> {
    let Some(bytes) = shop.max_pool else { return Ok(Vec::new()) };
    let total = kib("/proc/meminfo", "MemTotal").context("/proc/meminfo")?;
    Ok(vec![("max_pool_percent", percent(bytes, total).to_string())])
}

/// The pages that it takes, gives and writes back.
fn of_zswap(counted: &Counters, other: Told) -> Told {
    let pages = |name: &str| counted.get(name).copied();
    Told {
        stored: pages("zswpout"),
        loaded: pages("zswpin"),
        written_back: pages("zswpwb"),
        ..other
    }
}

/// Swap in a file, with zswap in front.
pub struct Zswap {
    // Dropped in this order.
    file: Plain,
    _parameters: Parameters,
    peak: Option<i64>,
}

impl Zswap {
    /// Sets zswap up and swaps to a file.
    pub fn new(shop: &Shop, compressor: Option<&str>) -> Result<Zswap> {
        let mut values = limited(shop)?;
        if let Some(name) = compressor {
            values.push(("compressor", name.to_owned()));
        }
        values.push(("enabled", "Y".to_owned()));
        let parameters = Parameters::set(&values)?;
        Ok(Zswap { file: Plain::new(shop)?, _parameters: parameters, peak: None })
    }
}

impl Area for Zswap {
    fn sample(&mut self) -> Result<()> {
        self.peak = self.peak.max(kib("/proc/meminfo", "Zswap").map(|bytes| bytes as i64));
        Ok(())
    }

    fn told(&mut self, counted: &Counters) -> Result<Told> {
        Ok(of_zswap(counted, Told { pool_peak_bytes: self.peak, ..on_disk(counted) }))
    }

    fn end(self: Box<Self>) -> Result<()> {
        let Zswap { file, _parameters, .. } = *self;
        Box::new(file).end()
    }
}

/// Ours, with zswap in front. The daemon turns zswap on.
pub struct Behind {
    // Dropped in this order.
    ours: Ours,
    _parameters: Parameters,
    peak: Option<i64>,
}

impl Behind {
    /// Limits both pools, and starts the daemon.
    pub fn new(shop: &Shop, variant: Option<&str>) -> Result<Behind> {
        let parameters = Parameters::set(&limited(shop)?)?;
        let ours = Ours::new(shop, variant, &["--front", "zswap"])?;
        Ok(Behind { ours, _parameters: parameters, peak: None })
    }
}

impl Area for Behind {
    fn begin(&mut self) -> Result<()> {
        self.ours.begin()
    }

    fn sample(&mut self) -> Result<()> {
        self.ours.sample()?;
        let both = kib("/proc/meminfo", "Zswap").unwrap_or(0) as i64 + self.ours.pool;
        self.peak = self.peak.max(Some(both));
        Ok(())
    }

    fn told(&mut self, counted: &Counters) -> Result<Told> {
        let ours = self.ours.told(counted)?;
        Ok(of_zswap(counted, Told { pool_peak_bytes: self.peak, ..ours }))
    }

    fn end(self: Box<Self>) -> Result<()> {
        let Behind { ours, _parameters, .. } = *self;
        Box::new(ours).end()
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn a_share_of_memory() {
        assert_eq!(percent(1, 1000), 1);
        assert_eq!(percent(10, 1000), 1);
        assert_eq!(percent(11, 1000), 2);
        assert_eq!(percent(5000, 1000), 100);
        assert_eq!(percent(0, 0), 1);
    }
}
