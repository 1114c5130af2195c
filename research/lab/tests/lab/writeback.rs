//! `rampack-lab writeback`, at a small size: its figures fit together, and a log writes less than
//! one block for each page does.

use crate::common::{Place, list, number, write_corpus};

#[test]
fn every_layout_has_a_row_with_all_its_figures() {
    let place = Place::new();
    write_corpus(&place.path("small.pages"), 2048);
    let line = "writeback --corpus small.pages --dir . --pages 4096 --full 50,80 --repeat 2";
    let report = place.json(line);
    let out = list(&report, "out");
    assert_eq!(out.len(), 5);
    for row in out {
        assert_eq!(row["corpus"], "small");
        assert!(number(row, "pages") > 0.0, "{row}");
        assert!(number(row, "verified_pages") >= 2.0 * 4096.0, "{row}");
        for key in ["out_mb_per_second", "alone_us", "together_us"] {
            assert!(number(row, key) > 0.0, "{row}");
        }
    }
    let written = |row: usize| number(&out[row], "written_bytes");
    assert_eq!(written(0), written(1), "a block each");
    assert_eq!(written(0), 4096.0 * number(&out[0], "pages"));
    assert!(written(2) < written(0) && written(2) >= number(&out[2], "object_bytes"));
    assert!(written(4) < written(3) && written(4) > 0.0, "the log of a swap cache");
    let replaced = list(&report, "replaced");
    assert_eq!(replaced.len(), 2);
    for row in replaced {
        assert!(number(row, "written_bytes") >= number(row, "copied_bytes"), "{row}");
        assert!(number(row, "written_per_object_byte") >= 1.0, "{row}");
    }
    std::fs::remove_file(place.path("small.pages")).expect("it is there");
    place.assert_nothing_left();
}
