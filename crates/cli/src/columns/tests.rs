use super::*;

fn device() -> DeviceReport {
    let attributes = [
        ("disksize", "1073741824"),
        ("comp_algorithm", "lz4 [zstd] deflate "),
        ("max_comp_streams", "2"),
        (
            "mm_stat",
            " 8192000  2048000  2097152 4194304  3145728       17        0        3        4",
        ),
    ];
    DeviceReport {
        name: "zram0".into(),
        mountpoints: vec!["/mnt/a b".into()],
        attributes: attributes.map(|(name, value)| (name.into(), value.into())).into(),
        ..DeviceReport::default()
    }
}

fn all() -> Vec<&'static Column> {
    COLUMNS.iter().collect()
}

#[test]
fn the_table_is_zramctl_s() {
    let text = table(
        &[device(), DeviceReport { name: "zram10".into(), ..Default::default() }],
        &all(),
        Style::default(),
    );
    let expected = "\
NAME   DISKSIZE DATA COMPR ALGORITHM STREAMS ZERO-PAGES TOTAL MEM-LIMIT MEM-USED RATIO MOUNTPOINT
zram0        1G 7.8M    2M zstd            2         17    2M        4M       3M  3.91 /mnt/a b
zram10       0B   0B    0B                 0          0    0B        0B       0B
";
    assert_eq!(text, expected);
}

#[test]
fn raw_lines_have_as_many_words_as_columns() {
    let style = Style { exact: true, raw: true, headless: true };
    let text = table(&[device(), DeviceReport::default()], &all(), style);
    for line in text.lines() {
        assert_eq!(line.split(' ').count(), COLUMNS.len(), "{line:?}");
    }
    assert!(text.starts_with(
        "zram0 1073741824 8192000 2048000 zstd 2 17 2097152 4194304 3145728 3.91 /mnt/a\\x20b\n"
    ));
}

#[test]
fn columns_are_chosen_by_name() {
    let chosen = named("total,Name").unwrap();
    assert_eq!(table(&[device()], &chosen, Style::default()), "TOTAL NAME\n   2M zram0\n");
    let error = named("NAME,COLOUR").err().unwrap();
    assert!(error.contains("\"COLOUR\"") && error.contains("MEM-LIMIT"), "{error}");
}

#[test]
fn json_has_numbers() {
    let value = object(&device(), &all());
    assert_eq!(value["disksize"], 1u64 << 30);
    assert_eq!(value["zero_pages"], 17);
    assert_eq!(value["ratio"], 3.91);
    assert_eq!(value["mountpoint"], "/mnt/a b");
    let empty = object(&DeviceReport::default(), &all());
    assert_eq!((&empty["ratio"], &empty["mountpoint"]), (&Value::Null, &Value::Null));
}

#[test]
fn every_column_is_explained() {
    let help = help();
    for column in &COLUMNS {
        assert!(column.help.len() > 10 && help.contains(column.name));
    }
}

#[test]
fn names_cannot_disturb_a_terminal() {
    let device = DeviceReport { mountpoints: vec!["/a\x1b[2J".into()], ..device() };
    assert!(!table(&[device], &all(), Style::default()).contains('\x1b'));
}
