//! The tables of all measurements: which parts of their results are rows and columns.

use serde_json::Value;

use crate::report::{Row, short};

/// A table of a part of the results.
pub struct Table {
    /// What stands above it.
    pub about: &'static str,
    /// The objects that become rows.
    rows: fn(&Value) -> Vec<&Value>,
    /// Names of columns, and where in such an object the cells are.
    columns: &'static [(&'static str, &'static str)],
}

impl Table {
    /// The rows of a result. The label of its run comes first, if it has one.
    pub fn rows_of(&self, label: &str, result: &Value) -> Vec<Row> {
        let row = |object: &Value| {
            let of = |pointer: &str| object.pointer(pointer).map_or("-".to_owned(), short);
            let label = (!label.is_empty()).then(|| ("of".to_owned(), label.to_owned()));
            let cells = self.columns.iter().map(|(name, at)| ((*name).to_owned(), of(at)));
            label.into_iter().chain(cells).collect()
        };
        (self.rows)(result).into_iter().map(row).collect()
    }
}

/// The objects of a list.
fn items<'a>(value: &'a Value, pointer: &str) -> Vec<&'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten().collect()
}

pub const PAGES: &[Table] = &[Table {
    about: "ns a page of first stores, of stores over a page, and of second loads, by a pinned \
            thread; the bare codec is on the same pages in the same round. The kernel's times \
            include a system call a page. Memory is when every page was stored over.",
    rows: |result| [vec![result], items(result, "/compare")].concat(),
    columns: &[
        ("target", "/target"),
        ("codec", "/algorithm"),
        ("threads", "/threads"),
        ("first", "/samples/store"),
        ("over", "/samples/overwrite"),
        ("load", "/samples/reload"),
        ("over / codec", "/store_over_codec"),
        ("load / codec", "/load_over_codec"),
        ("first, MB/s", "/samples/store_mb_per_s"),
        ("compressed", "/compressed_bytes"),
        ("pool / compressed", "/pool_over_compressed"),
        ("metadata", "/metadata_bytes"),
        ("RSS / (pool + metadata)", "/rss_over_pool_and_metadata"),
    ],
}];

pub const CODECS: &[Table] = &[Table {
    about: "ns of CPU time a page to compress, to decompress, and the ratio.",
    rows: |result| items(result, "/codecs"),
    columns: &[
        ("codec", "/name"),
        ("compress", "/samples/compress_cpu_ns"),
        ("decompress", "/samples/decompress_cpu_ns"),
        ("ratio", "/ratio"),
    ],
}];

pub const TURNS: &[Table] = &[Table {
    about: "The median of all modes, and how far modes lie apart: KB/s, and times the first, \
            within the same repetition. The file has each mode.",
    rows: |result| items(result, "/summary"),
    columns: &[
        ("threads", "/threads"),
        ("", "/subject"),
        ("KB/s", "/kb_per_s"),
        ("times the first", "/over_base"),
    ],
}];

pub const SLOTS: &[Table] = &[
    Table {
        about: "The error of the simulation, percent. One thread is what it was calibrated on.",
        rows: |result| items(result, "/errors"),
        columns: &[
            ("threads", "/threads"),
            ("points", "/points"),
            ("median", "/median_absolute_error_percent"),
            ("largest", "/maximum_absolute_error_percent"),
            ("above 25 %", "/above_25_percent"),
        ],
    },
    Table {
        about: "Simulated pages a second, many pages, and the band if moving a line took half or \
                twice as long.",
        rows: |result| {
            let shown = |row: &&Value| row["workload"] == "spread" && row["op"] != "mix";
            items(result, "/predictions").into_iter().filter(shown).collect()
        },
        columns: &[
            ("content", "/content"),
            ("op", "/op"),
            ("scheme", "/scheme"),
            ("streams", "/streams"),
            ("threads", "/threads"),
            ("pages/s", "/pages_per_s"),
            ("from", "/band/0"),
            ("to", "/band/1"),
            ("times the first", "/over_base"),
        ],
    },
];

pub const NBD: &[Table] = &[Table {
    about: "Requests of 4 KiB a second, random, 16 at a time, half-compressible pages.",
    rows: |result| items(result, "/servers"),
    columns: &[
        ("server", "/name"),
        ("writes/s", "/write/rounds"),
        ("reads/s", "/read/rounds"),
        ("p99 write, us", "/write/p99_us"),
        ("p99 read, us", "/read/p99_us"),
        ("RSS, bytes", "/resident_bytes"),
    ],
}];

pub const BACKING: &[Table] = &[Table {
    about: "Pages a second, 4 KiB random direct I/O of crate `backing` on a file. No codec.",
    rows: |result| items(result, "/rows"),
    columns: &[
        ("way", "/way"),
        ("direction", "/direction"),
        ("at once", "/batch"),
        ("pages/s", "/samples"),
    ],
}];

pub const INDEX: &[Table] = &[Table {
    about: "ns of a thread for a call, to the index alone and in the whole engine.",
    rows: |result| items(result, "/measured"),
    columns: &[("mix", "/mix"), ("threads", "/threads"), ("index", "/variant"), ("ns", "/samples")],
}];

pub const ZONE: &[Table] = &[Table {
    about: "ns of a thread for a frame allocated and given back; how long the lock is held for a \
            page, percent of the time that is spent waiting for it, and what is left of free \
            memory at rest.",
    rows: |result| items(result, "/runs"),
    columns: &[
        ("workload", "/workload"),
        ("threads", "/threads"),
        ("design", "/design"),
        ("pair, ns", "/pair_ns_samples"),
        ("held, ns", "/lock_held_ns_per_page"),
        ("waiting", "/lock_wait_percent"),
        ("of order 0", "/order0_share"),
        ("unmerged", "/unmerged_buddies"),
        ("buddyinfo", "/buddyinfo"),
    ],
}];

pub const ZONE_SIM: &[Table] = &[
    Table {
        about: "The errors of the simulation, percent: published curves, rows of the seed, and \
                this machine. No constant was fitted; the file has each with its source.",
        rows: |result| {
            let lists = ["/errors", "/seed_rows", "/this_machine"];
            lists.into_iter().flat_map(|list| items(result, list)).collect()
        },
        columns: &[
            ("curve", "/curve"),
            ("largest", "/worst_error_percent"),
            ("row", "/row"),
            ("design", "/design"),
            ("threads", "/threads"),
            ("error", "/error_percent"),
        ],
    },
    Table {
        about: "Simulated on two zones, from times under the lock that were measured here. Waiting \
                is for the lock and for heads of lists, percent.",
        rows: |result| items(result, "/predictions"),
        columns: &[
            ("threads", "/threads"),
            ("around", "/around"),
            ("design", "/design"),
            ("pages/s", "/pages_per_s"),
            ("from", "/one_socket/pages_per_s/0"),
            ("to", "/one_socket/pages_per_s/1"),
            ("lock", "/lock_wait_percent"),
            ("heads", "/head_wait_percent"),
        ],
    },
];

pub const CHURN: &[Table] = &[Table {
    about: "The pool after each round, beside that of a fresh disk with the same contents.",
    rows: |result| items(result, "/rounds"),
    columns: &[
        ("round", "/round"),
        ("pool", "/pool_bytes"),
        ("fresh", "/fresh_pool_bytes"),
        ("ratio", "/ratio"),
        ("engine", "/engine_bytes"),
        ("RSS", "/rss_growth_bytes"),
    ],
}];

pub const KERNEL_BUILD: &[Table] = &[Table {
    about: "The limit is raised where the kernel would end a process.",
    rows: |result| items(result, "/runs"),
    columns: &[
        ("swap", "/swap"),
        ("outcome", "/outcome"),
        ("runtime, s", "/measured/seconds"),
        ("user, s", "/measured/user_seconds"),
        ("sys, s", "/measured/system_seconds"),
        ("limit", "/limit_bytes"),
        ("raised by", "/measured/relieved_bytes"),
        ("pages in", "/measured/vmstat/pswpin"),
        ("pages out", "/measured/vmstat/pswpout"),
        ("from disk", "/measured/swap/disk_read_bytes"),
        ("to disk", "/measured/swap/disk_written_bytes"),
        ("pool at the peak", "/measured/swap/pool_peak_bytes"),
    ],
}];
