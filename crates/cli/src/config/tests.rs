use super::*;

/// What is wrong in a file.
fn faults(text: &str) -> Vec<String> {
    let (_, faults) = understand(&[("f".into(), text.to_owned())]);
    faults.iter().map(ToString::to_string).collect()
}

fn understood(text: &str) -> Configuration {
    let (configuration, faults) = understand(&[("f".into(), text.to_owned())]);
    assert_eq!(faults, []);
    configuration
}

#[test]
fn options_are_those_of_the_command_line() {
    let it = understood(
        "[serve]\ntransport = 'fuse'\nnbd-allow-uid = []\nlock-memory = true\nforce = false\n\
         [zram0]\nsize = '256M'\nauto = true\nalgorithm = 'zstd'\nlevel = -3\nmemory = 0\n\
         backing = '/b'\nremote = ['fs:///d', 'cold=9']\nset = { auto_cpu_percent = 7 }\n\
         [zram3]\nmount = '/mnt/x'\nfs = 'xfs'\n\
         [swap1]\nsize = '1G + 1G'\npriority = -1\nauto = false\n",
    );
    let serve = it.serve.unwrap();
    assert!(serve.lock_memory && !serve.force && serve.transport == Transport::Fuse);
    let asked = it.disks[&0].device.request(Some(&it.disks[&0].size), false).asked();
    let set = |name: &str| asked.get(name).map(|value| &**value);
    assert_eq!((set("disksize"), set("level"), set("auto")), (Some("256M"), Some("-3"), Some("1")));
    assert_eq!((set("auto_cpu_percent"), set("backing_layout")), (Some("7"), Some("log")));
    assert_eq!(it.disks[&3].size.text, "1G");
    assert_eq!(it.swaps[&1].size.as_ref().unwrap().bytes, 2 << 30);
    assert_eq!((it.swaps[&1].priority, it.swaps[&1].auto), (-1, Some(false)));
}

#[test]
fn every_option_of_the_command_line_is_a_key() {
    // An unknown key is told all that there are: new options of the command line are among them.
    let told = |section: &str| faults(&format!("[{section}]\nsize = '1G'\nx = 1\n")).join("\n");
    let disk = told("zram0");
    for key in ["size", "algorithm", "memory", "when-full", "remote", "auto-cpu", "mount", "fs"] {
        assert!(disk.contains(&format!(" {key}")), "{key}: {disk}");
    }
    assert!(disk.starts_with("f:3: [zram0] has no x; there are: size algorithm "), "{disk}");
    assert!(disk.ends_with("; attributes are in [zram0.set]"), "{disk}");
    let swap = told("swap0");
    assert!(swap.contains(" headroom oom-after priority "), "{swap}");
    for hidden in ["config", "no-auto", "sandbox", " set", "transport=loop"] {
        assert!(!swap.replace("[swap0.set]", "").contains(hidden), "{hidden}: {swap}");
    }
    let serve = told("serve");
    assert!(serve.contains("there are: transport nbd-tcp insecure "), "{serve}");
    assert!(serve.contains("f:2: [serve] has no size"), "{serve}");
}

#[test]
fn bad_values_have_their_line_and_what_is_allowed() {
    let found = faults(
        "[zram0]\nsize = 'plenty'\nalgorithm = 'lzma'\nwhen-full = 'never'\nmount = 'here'\n\
         auto = 'perhaps'\nplain-backing = 'yes'\nmemory = ['1G', '2G']\nauto-cpu = 101\n\
         [zram0.set]\nx = [1]\n",
    );
    let expected = [
        (2, "size = 'plenty': \"plenty\" is not a size; write a number of bytes"),
        (3, "algorithm = 'lzma': no algorithm \"lzma\"; there are: "),
        (4, "when-full = 'never': allowed are: fail, wait, spill"),
        (5, "mount = 'here': a path in a file begins with /"),
        (6, "auto = 'perhaps': allowed are: on, off"),
        (7, "plain-backing = 'yes': allowed are: true, false"),
        (8, "memory has one value, and ['1G', '2G'] is a list"),
        (9, "auto-cpu = 101: a whole number from 1 to 100 is allowed"),
        (11, "x is an attribute, which has one value"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, (line, what)) in found.iter().zip(expected) {
        assert!(found.starts_with(&format!("f:{line}: {what}")), "{found}");
    }
}

#[test]
fn what_belongs_together_is_checked() {
    let one = |text: &str| faults(text).join("\n");
    assert_eq!(
        one("[zram0]\nplain-backing = true\n"),
        "f:2: plain-backing = true: backing is missing"
    );
    assert_eq!(one("[swap0]\npriority = 3\n"), "f:1: [swap0]: size is missing");
    assert_eq!(
        one("[disk0]\n"),
        "f:1: no section [disk0]; there are: [serve], [zramN] with N from 0 to 1023, [swapN] with N \
         from 0 to 31"
    );
    // What is wrong is not missing as well.
    for wrong in ["[swap0]\nsize = 'ram /'\n", "[zram0]\nbacking = 'b'\nplain-backing = true\n"] {
        let faults = faults(wrong);
        assert!(faults.len() == 1 && faults[0].starts_with("f:2: "), "{faults:?}");
    }
    for name in ["zram", "zram01", "zram+1", "zram1024", "swap-1", "Serve"] {
        assert!(one(&format!("['{name}']\n")).contains("no section"), "{name}");
    }
    assert_eq!(
        one("[zram0]\nmount = '/a'\n[zram1]\nsize = 1\nmount = '/a'\n"),
        "f:5: /a is the mount of [zram0] too"
    );
    for (key, first) in [("snapshot", "zram0"), ("backing", "zram0"), ("backing", "swap0")] {
        let two = format!("[{first}]\nsize = 1\n{key} = '/a/b'\n[zram7]\n{key} = '/a//b'\n");
        assert_eq!(one(&two), format!("f:5: /a//b is the {key} of [{first}] too"));
    }
    assert!(one("[zram0]\nfs = 'ext4'\n[serve]\ntransport = 'nbd'\n").starts_with("f:2: a file"));
    let open = one("[serve]\nnbd-tcp = '0.0.0.0:1'\n");
    assert!(open.starts_with("f:2: nbd-tcp 0.0.0.0:1: NBD has no password"), "{open}");
    assert!(!open.contains("--"), "{open}");
    let insecure = one("[serve]\nnbd-read-only = true\ninsecure = true\n");
    assert_eq!(insecure, "f:3: insecure = true: nbd-tcp is missing");
    assert_eq!(one("[serve.set]\nx = 1\n"), "f:2: [serve] has no attributes to set");
}

#[test]
fn swap_devices_share_what_one_section_says() {
    let it = understood(
        "[swap0]\nsize = '1G'\n[swap1]\nsize = '1G'\nheadroom = '64M'\noom-after = 0\n\
         [swap2]\nsize = '1G'\nheadroom = '65536K'\n",
    );
    for swap in it.swaps.values() {
        assert_eq!(swap.headroom.as_ref().map(|it| it.bytes), Some(64 << 20));
        assert_eq!(swap.oom_after, Some(0));
    }
    let two = "[swap0]\nsize = '1G'\nheadroom = '1M'\noom-after = 7\n\
               [swap1]\nsize = '1G'\nheadroom = '2M'\noom-after = 8\n";
    let share = |key| format!("another section has another {key}, and all swap devices share one");
    let [headroom, oom_after] = ["headroom", "oom-after"].map(share);
    assert_eq!(faults(two), [format!("f:7: {headroom}"), format!("f:8: {oom_after}")]);
}

#[test]
fn values_of_attributes_are_tried() {
    let refused = |text: &str| match understood(text).check_values() {
        Ok(()) => String::new(),
        Err(error) => error.message,
    };
    let good = "[zram0]\nrecompress-with = 'zstd'\nset.algorithm_params = 'priority=1 level=3'\n\
                set.backing_dev = '/nowhere'\n[swap0]\nsize = '1M'\nset.max_pool_percent = 30\n";
    assert_eq!(refused(good), "");
    let spills = "[zram0]\nbacking = '/nowhere'\nwhen-full = 'spill'\n[zram1]\n[zram1.set]\n\
                  backing_dev = '/nowhere'\nwhen_full = 'spill'\n";
    assert_eq!(refused(spills), "");
    let nowhere = refused("[zram0]\nwhen-full = 'spill'\n");
    assert!(nowhere.contains("no backing device that pages could spill to"), "{nowhere}");
    let unknown = refused("[zram0]\nset.memlimit = '1G'\n");
    assert!(unknown.starts_with("f:2: ") && unknown.contains("mem_limit"), "{unknown}");
    let bad = refused("[zram0]\n[zram0.set]\nmem_limit = '1G'\nauto = 'x'\n");
    assert!(bad.starts_with("f:4: ") && !bad.contains('\n'), "{bad}");
    let bad = refused("[swap0]\nsize = '1M'\nset.max_pool_percent = 101\n");
    assert!(bad.starts_with("f:3: "), "{bad}");
    assert_eq!(refused("[zram0]\nset.mem_limit = 'min(ram, 1G) / 2'\n"), "");
    let bad = faults("[zram0]\nset.mem_limit = 'ram /'\n").join("");
    assert!(bad.starts_with("f:2: mem_limit = 'ram /': \"ram /\" is not a size: "), "{bad}");
    let level = refused("[zram0]\nalgorithm = 'zstd'\nlevel = 100\n");
    assert!(level.starts_with("f:3: level = 100: "), "{level}");
    let full = refused("[zram5]\nalgorithm = 'lz4'\nwhen-full = 'spill'\nsize = '1M'\n");
    assert!(full.starts_with("f:3: when-full = 'spill': zram5 has no backing device"), "{full}");
    let text = "comp_algorithm = 'zstd'\nalgorithm_params = 'level=100'\nauto = false\n";
    let set = refused(&format!("[zram5.set]\n{text}"));
    assert!(set.starts_with("f:3: algorithm_params = 'level=100': "), "{set}");
}

#[test]
fn any_text_is_read_without_a_panic() {
    const NAME: &str = "any_text_is_read_without_a_panic";
    let mut rng = testkit::Rng::new(testkit::seed(NAME));
    let seeds = [
        include_str!("../../tests/golden/zram-generator.conf"),
        "[serve]\ntransport = 'nbd'\n[zram0]\nsize = 'min(ram / 2, 8G)'\nremote = ['x', 1]\n\
         set = { mem_limit = '1M', auto = true }\n[swap0]\nsize = '1G'\npriority = -1\n",
    ];
    for _ in 0..4000 {
        let mut text = rng.pick(&seeds).as_bytes().to_vec();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(text.len() as u64) as usize;
            if text.len() < 2 {
                break;
            }
            match rng.below(3) {
                0 => text[at] = rng.below(256) as u8,
                1 => _ = text.remove(at),
                _ => text.truncate(at.max(1)),
            }
        }
        let texts = [(PathBuf::from("f"), String::from_utf8_lossy(&text).into_owned())];
        for fault in understand(&texts).1 {
            assert!(fault.at.line >= 1 && !fault.what.is_empty(), "{fault}");
        }
        // What is imported is a configuration.
        let imported = import::import(&texts).text;
        let mut faults = Vec::new();
        merge::merge(&[("i".into(), imported.clone())], &mut faults);
        assert_eq!(faults, [], "{imported}");
    }
}
