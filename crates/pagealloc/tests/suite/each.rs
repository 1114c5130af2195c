//! One test for each check of each design.

use crate::checks;
use crate::design::{Design, Make};
use crate::tested::DESIGNS;

/// The tests of designs, and that each of [`DESIGNS`] has them.
macro_rules! designs {
    ($($design:ident: $name:expr;)*) => {
        /// The designs that have tests.
        const TESTED: &[&str] = &[$($name),*];

        $(mod $design {
            use pagealloc::ZoneOptions;

            fn design() -> &'static crate::design::Design {
                crate::each::find($name)
            }

            #[test]
            fn conforms() {
                crate::each::conforms(design(), design().make);
            }

            /// No pcp list to speak of, one CPU for all, every block collapsed: other ways through it.
            #[test]
            fn conforms_without_cpus_of_its_own() {
                crate::each::conforms(design(), |provider, options| {
                    let options = ZoneOptions { cpus: 0, batch: 0, cache_high: 0, ..options };
                    (design().make)(provider, ZoneOptions { collapse: true, ..options })
                });
            }

            #[test]
            fn small_worlds_exhaustively() {
                crate::exhaustive::small_scenarios(design().make);
            }

            #[test]
            fn random_calls_against_a_bitmap() {
                crate::bitmap::against_bitmap(design());
            }

            #[test]
            fn crowds_of_threads() {
                crate::crowd::crowds(design().make);
            }

            #[test]
            fn bad_frees_are_found_and_have_no_effect() {
                crate::bad_frees::bad_frees(design().make);
            }

            #[test]
            fn comes_to_rest_merged() {
                crate::rest::at_rest(design().make);
            }

            #[cfg(asan)]
            mod shut {
                use testkit::dies;

                use super::design;
                use crate::poison::{REPORT, cached_frame, drained_frame};

                #[test]
                fn cached_frames() {
                    let name = concat!(stringify!($design), "::shut::cached_frames");
                    dies(name, REPORT, || cached_frame(design().make));
                }

                #[test]
                fn drained_frames() {
                    let name = concat!(stringify!($design), "::shut::drained_frames");
                    dies(name, REPORT, || drained_frame(design().make));
                }
            }
        })*

        #[test]
        fn every_design_has_its_tests() {
            let names = crate::tested::DESIGNS.iter().map(|design| design.name);
            assert_eq!(TESTED, names.collect::<Vec<_>>());
        }
    };
}

pub(crate) use designs;

/// The checks of what every zone must do. When memory goes back is asked of some only.
pub fn conforms(design: &Design, make: Make) {
    match design.returns_at_once {
        true => checks::conforms(make),
        false => checks::conforms_when_drained(make),
    }
}

/// The design of this name.
pub fn find(name: &str) -> &'static Design {
    DESIGNS.iter().find(|design| design.name == name).expect("it is on the list")
}
